"""Configurations as tests ask for them: texts of `--set` in place of changes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lra.config.compose
import lra.resolve
from lra.config.request import RunRequest, TaskRequest, parse_changes
from lra.config.schema import RunConfig
from lra.config.settings_files import CONFIGS
from lra.tasks.base import Task

NOT_CAUSAL = {"ski-tnn", "fnet", "linformer", "nystrom"}
"""Mixers that refuse a causal context, and so every task whose targets are positions."""

LRA_ALONE = ("linformer", "synthesizer", "reformer", "nystrom", "sinkhorn", "sparse")
"""Mixers that are published under protocol lra alone."""


def run_request(
    task: str, mixer: str, *, overrides: Sequence[str] = (), **names: Any
) -> RunRequest:
    """Ask for a run."""
    return RunRequest(task=task, mixer=mixer, changes=parse_changes(overrides), **names)


def resolve(
    task: str, mixer: str, *, overrides: Sequence[str] = (), configs: Path = CONFIGS, **names: Any
) -> RunConfig:
    """See `lra.resolve.resolve`; names are those of preset and protocol."""
    request = run_request(task, mixer, overrides=overrides, **names)
    return lra.resolve.resolve(request, configs)


def compose(
    task: str, mixer: str, *, overrides: Sequence[str] = (), configs: Path = CONFIGS, **names: Any
) -> RunConfig:
    """See `lra.config.compose.compose`."""
    request = run_request(task, mixer, overrides=overrides, **names)
    return lra.config.compose.compose(request, configs)


def compose_task(
    task: str, *, overrides: Sequence[str] = (), configs: Path = CONFIGS, **names: Any
) -> Task:
    """See `lra.config.compose.compose_task`."""
    request = TaskRequest(task=task, changes=parse_changes(overrides), **names)
    return lra.config.compose.compose_task(request, configs)
