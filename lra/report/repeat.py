"""The command line that repeats a run."""

from __future__ import annotations

import shlex

from lra.record import RunRecord


def command(record: RunRecord) -> str:
    """Write the command that makes a run of the same settings, seed and precision."""
    words = ["python", "run_task.py", "--task", record.task]
    words += ["--mixer", record.mixer_from or record.mixer]
    words += ["--preset", record.preset, "--protocol", record.protocol, "--seed", str(record.seed)]
    for change in record.overrides:
        words += ["--set", change]
    return shlex.join(words)
