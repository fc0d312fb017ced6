"""Where settings are, and which of their presets are published."""

from __future__ import annotations

import functools
from pathlib import Path

from lra.config.yaml_layers import PAPER, SettingsFile

CONFIGS = Path(__file__).resolve().parents[2] / "configs"


@functools.cache
def published_presets(configs: Path = CONFIGS) -> frozenset[str]:
    """Name the presets of published settings: `paper`, and what mixers have beside it."""
    files = [SettingsFile(path, path.name) for path in (configs / "mixers").glob("*.yaml")]
    return frozenset([PAPER, *(name for file in files for name in file.published_presets())])
