"""The command lines that repeat a run or a measurement."""

from __future__ import annotations

import shlex

from lra.bench_record import BenchRecord
from lra.record import RunRecord


def command(record: RunRecord) -> str:
    """Write the command that makes a run of the same settings, seed and precision."""
    words = ["python", "run_task.py", "--task", record.task]
    words += ["--mixer", record.mixer_from or record.mixer]
    words += ["--preset", record.preset, "--protocol", record.protocol, "--seed", str(record.seed)]
    for change in record.overrides:
        words += ["--set", change]
    return shlex.join(words)


def bench_command(record: BenchRecord) -> str:
    """Write the command that measures what was measured in the same turns, at this length."""
    words = ["python", "-m", "lra.bench", "--mode", record.mode, "--task", record.task]
    words += ["--preset", record.preset, "--protocol", record.protocol]
    words += ["--mixers", ",".join(record.measured_with), "--lengths", str(record.length)]
    words += ["--repeats", str(max(2, record.repeats))]
    return shlex.join(words if record.device.startswith("CPU") else [*words, "--device", "cuda"])
