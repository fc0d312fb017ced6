"""The command lines that repeat a run or a measurement."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from common.strict_yaml import plain
from lra.config.request import DEFAULT_PROTOCOL, PAPER
from lra.record.benchmark import BenchRecord
from lra.record.changes import write_changes
from lra.record.run import RunRecord


def run_flags(record: RunRecord, changes: Mapping[str, Any] | None = None) -> list[str]:
    """Write the flags of run_task.py that make a run of the same settings and seed.

    Args:
        record: the run.
        changes: settings that are to be other ones.
    """
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


def bench_command(record: BenchRecord) -> str:
    """Write the command that repeats a measurement with the mixers of the same rounds."""
    words = ["python", "-m", "lra.bench", record.mode]
    if record.task is not None:
        words += ["--task", str(record.task), "--preset", str(record.preset)]
        words += ["--protocol", str(record.protocol)]
    if record.channels is not None:
        words += ["--dim", str(record.channels)]
    if record.mode == "op" and record.part != "product":
        words += ["--parts", str(record.part)]
    if record.mode != "decode":
        words += ["--batch-size", str(record.batch_size)]
    length = "task" if record.lengths == "task" else str(record.length)
    words += ["--mixers", ",".join(dict.fromkeys(record.measured_with)), "--lengths", length]
    for name, values in record.varied.items():
        words += ["--vary", f"{name}={','.join(map(plain, values))}"]
    changes = [*write_changes(record.common_changes)]
    if record.precision != "fp32":
        changes.append(f"train.precision={record.precision}")
    for change in changes:
        words += ["--set", change]
    if record.ratio_to_reference is not None:
        words += ["--compare", "reference"]
    words += ["--repeats", str(max(2, record.repeats))]
    return shlex.join(words if record.device.startswith("CPU") else [*words, "--device", "cuda"])
