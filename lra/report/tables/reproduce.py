"""What it takes to repeat a published result: command, steps, time, and how far a run should be."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence

from lra.config.schema import RunConfig
from lra.record.run import RunRecord
from lra.report.boards.results import Results
from lra.report.published.repeats import Repeat, repeats
from lra.report.tables.table import Table, text_columns
from lra.runtime.progress import duration
from lra.train.training_time import EstimatedSpeed, Timings, is_cpu

KINDS = ("CPU", "GPU")
SHARES = (10, 50)
"""Percent of a run's steps at which its validation accuracy is shown."""


def reproduce_table(results: Results) -> Table:
    """Tabulate what reproducing each published result takes; the caption names empty columns."""
    timings = Timings(results.records, results.bench)
    found = list(repeats())
    devices = {kind: _choose_device(timings, kind, found) for kind in KINDS}
    names = [
        "published row", "task", "published, %", "steps", "epochs",
        *(f"time on the {kind}" for kind in KINDS), "time is from",
        *(f"validation at {share} % of the steps" for share in SHARES),
    ]  # fmt: skip
    rows = [_row(results, timings, devices, one) for one in found]
    columns = text_columns(names, rows)
    table = Table(
        slug="reproduce",
        title="What it takes to reproduce published results",
        caption=_caption(devices, [column.name for column in columns if column.is_empty]),
        columns=columns,
        commands=_commands(found),
    )
    return table.without_empty_columns()


def _row(
    results: Results, timings: Timings, devices: Mapping[str, str | None], one: Repeat
) -> list[str | None]:
    steps = timings.steps(one.config)
    speeds = {kind: _speed(timings, one.config, device) for kind, device in devices.items()}
    origins = [
        f"{kind}: {speed.origin}" if all(devices.values()) else speed.origin
        for kind, speed in speeds.items()
        if speed
    ]
    runs = [run for run in results.records if run.config_hash == one.config.hash]
    return [
        one.row.method,
        one.task,
        one.row.printed[one.task],
        None if steps is None else f"{steps:,}",
        _epochs(one.config, steps),
        *(_time(steps, speed) for speed in speeds.values()),
        "; ".join(origins) or None,
        *(_validation(results, runs, share) for share in SHARES),
    ]


def _caption(devices: Mapping[str, str | None], missing: Sequence[str]) -> str:
    measured = [device for device in devices.values() if device]
    parts = [
        "Steps and epochs are those of the official data. The time is that of the training steps, "
        "without validation, estimated from measured steps. Where a measurement had another batch "
        "size or length, its time is scaled in proportion to both."
    ]
    parts += [f"Steps were measured on {' and '.join(measured)}."] if measured else []
    parts += (
        [f"Nothing was measured yet for these columns, so they are left out: {', '.join(missing)}."]
        if missing
        else []
    )
    return " ".join(parts)


def _choose_device(timings: Timings, kind: str, found: Sequence[Repeat]) -> str | None:
    """Choose the device of a kind on which steps of most published rows were measured."""
    names = {record.device for record in timings.all if is_cpu(record.device) == (kind == "CPU")}
    counts = {
        name: sum(_speed(timings, one.config, name) is not None for one in found)
        for name in sorted(names)
    }
    return max(filter(counts.get, counts), key=lambda name: counts[name], default=None)


def _commands(found: Sequence[Repeat]) -> dict[str, str]:
    """Write each command once, with TASK in place of several tasks that it is for."""
    groups: dict[tuple[str, str], list[Repeat]] = {}
    for one in found:
        groups.setdefault((one.row.method, one.command_for("TASK")), []).append(one)
    methods = Counter(method for method, _ in groups)
    return {
        method if methods[method] == 1 else f"{method} on {', '.join(one.task for one in group)}": (
            group[0].command if len(group) == 1 else command
        )
        for (method, command), group in groups.items()
    }


def _speed(timings: Timings, config: RunConfig, device: str | None) -> EstimatedSpeed | None:
    speed = None if device is None else timings.speed(config, device)
    return speed if speed is not None and speed.device == device else None


def _time(steps: int | None, speed: EstimatedSpeed | None) -> str | None:
    if steps is None or speed is None:
        return None
    return duration(steps / speed.steps_per_second)


def _epochs(config: RunConfig, steps: int | None) -> str | None:
    examples = config.build_task().training_examples()
    if config.train.epochs is not None:
        return f"{config.train.epochs:g}"
    if steps is None or examples is None:
        return None
    return f"{steps * config.train.batch_size / examples:.1f}"


def _validation(results: Results, runs: Sequence[RunRecord], share: int) -> str | None:
    """Write the mean validation accuracy of runs at the last validation before a share of steps."""
    found: list[float] = []
    for run in runs:
        until = share / 100 * run.total_steps
        if run.steps >= until:
            before = [line for line in results.validations(run) if line.step <= until]
            found += [line.val_accuracy for line in before[-1:] if line.val_accuracy is not None]
    if not found:
        return None
    return f"{statistics.mean(found):.2f} (n={len(found)})"
