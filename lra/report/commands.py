"""The command line that repeats a run."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from lra.config.request import DEFAULT_PROTOCOL, PAPER
from lra.record.run import RunRecord
from lra.record.schema import write_changes


def run_flags(record: RunRecord, changes: Mapping[str, Any] | None = None) -> list[str]:
    """Write the flags of run_task.py that repeat a run, with the changes of settings."""
    words = ["--task", record.task_from or record.task]
    words += ["--mixer", record.mixer_from or record.mixer]
    defaults = {"preset": PAPER, "protocol": DEFAULT_PROTOCOL, "seed": 0}
    for name, default in defaults.items():
        value = getattr(record, name)
        words += [f"--{name}", str(value)] if value != default else []
    for text in write_changes({**record.changes, **(changes or {})}):
        words += ["--set", text]
    return words if record.label is None else [*words, "--label", record.label]


def command(record: RunRecord) -> str:
    """Write the command that makes a run of the same settings, seed and precision."""
    return shlex.join(["python", "run_task.py", *run_flags(record)])
