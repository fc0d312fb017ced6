"""What it takes to repeat published results: optimizer steps, time, and commands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from lra.config.schema import RunConfig
from lra.report.boards.results import Results
from lra.report.published.repeats import Repeat, repeats
from lra.report.tables.table import Table, text_columns
from lra.runtime.progress import duration
from lra.train.training_time import EstimatedSpeed, Timings, is_cpu
from tasks.base import BENCHMARK

KINDS = ("CPU", "GPU")


def reproduce_table(results: Results) -> Table:
    """Tabulate the steps and the time that repeating each published result takes, by task."""
    timings = Timings(results.records, results.bench)
    found = list(repeats())
    devices = [
        device for kind in KINDS if (device := _choose_device(timings, kind, found)) is not None
    ]
    cells: dict[str, dict[str, str]] = {}
    for one in found:
        cells.setdefault(one.row.method, {})[one.task] = _cost(timings, one.config, devices)
    return Table(
        slug="reproduce",
        title="What it takes to repeat published results",
        caption=_caption(devices),
        columns=text_columns(
            ["published row", *BENCHMARK],
            [[method, *map(by_task.get, BENCHMARK)] for method, by_task in cells.items()],
        ),
        commands=_commands(found),
    )


def _cost(timings: Timings, config: RunConfig, devices: Sequence[str]) -> str:
    steps = timings.steps(config)
    speeds = [_speed(timings, config, device) for device in devices]
    times = [
        f"{duration(steps / speed.steps_per_second)}{'' if is_cpu(speed.device) else ' (GPU)'}"
        for speed in speeds
        if speed is not None and steps is not None
    ]
    return ", ".join([f"{steps:,}" if steps is not None else "not known", *times])


def _caption(devices: Sequence[str]) -> str:
    caption = "Optimizer steps on the official data."
    if not devices:
        return f"{caption} No step of these runs was timed yet."
    return (
        f"{caption} Where a step of these settings was timed, the estimated time of all training "
        f"steps on {' or '.join(devices)} follows. It is scaled from steps with fewer examples. An "
        "example takes longer in a batch of one or two, so a run can take half of the time shown. "
        "Do not compare the times of different rows."
    )


def _choose_device(timings: Timings, kind: str, found: Sequence[Repeat]) -> str | None:
    """Choose the device of a kind on which steps of most published rows were measured."""
    names = {record.device for record in timings.all if is_cpu(record.device) == (kind == "CPU")}
    counts = {
        name: sum(_speed(timings, one.config, name) is not None for one in found)
        for name in sorted(names)
    }
    return max(filter(counts.get, counts), key=lambda name: counts[name], default=None)


def _speed(timings: Timings, config: RunConfig, device: str) -> EstimatedSpeed | None:
    """Return the speed that was measured on a device with the settings of a run."""
    speed = timings.speed(config, device)
    return speed if speed and speed.has_settings and speed.device == device else None


def _commands(found: Sequence[Repeat]) -> Mapping[str, str]:
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
