"""The command lines that repeat a run or a measurement."""

from __future__ import annotations

import shlex

from common.strict_yaml import plain
from lra.record.benchmark import BenchRecord
from lra.record.run import RunRecord
from lra.record.schema import write_changes
from lra.report.flags import run_flags


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
