"""Repeating published results: the settings, where they differ from their sources, and the time."""

import itertools
import math
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lra.common.progress import duration
from lra.common.spreadsheets import write_csv
from lra.common.strict_yaml import plain
from lra.config.compose import compose
from lra.config.request import DEFAULT_PROTOCOL, PAPER, RunRequest, parse_changes
from lra.config.schema import RunConfig
from lra.config.settings_files import ALL, STARTS, list_files
from lra.record.benchmark import BenchRecord
from lra.record.schema import select_sections
from lra.report.data import AnyRecord, Data
from lra.report.published import PublishedRow, published_rows, published_runs
from lra.report.scores import group_by
from lra.report.tables.table import Table, text_column
from lra.tasks.base import BENCHMARK
from lra.train.training_time import count_steps

_CHANGE_A_STEP = {"train.bucketing", "train.checkpoint_activations", "train.micro_batch"}
"""Settings of training that change the duration of a step, besides the batch size."""
SMALL_STEP = 4096
"""Positions of a step; in a smaller one each of them takes longer."""
MOST_SCALED = 4
"""A small step is scaled to at most this many times its positions."""


@dataclass(frozen=True)
class Repeat:
    """A published result on one task, and the settings that repeat it."""

    row: PublishedRow
    task: str
    config: RunConfig
    overrides: Sequence[str]

    def command(self, task: str | None = None) -> str:
        """Write the command that makes the run, with a word in place of the task."""
        line = ["python", "run_task.py", "--task", task or self.task]
        line += ["--mixer", self.config.mixer_name]
        if self.config.protocol != DEFAULT_PROTOCOL:
            line += ["--protocol", self.config.protocol]
        if self.config.preset != PAPER:
            line += ["--preset", self.config.preset]
        return shlex.join([*line, *(part for text in self.overrides for part in ("--set", text))])


def repeats() -> Iterator[Repeat]:
    """List the published results that the suite has the settings of, FAIL apart."""
    by_method = {row.method: row for row in published_rows()}
    runs = [pair for mixer in list_files("mixers") for pair in published_runs(mixer).items()]
    for (method, run), task in itertools.product(runs, BENCHMARK):
        if by_method[method].values[task] is not None:
            overrides = run.changes_on(task)
            request = RunRequest(
                task=task, mixer=run.mixer, preset=run.preset, protocol=run.protocol,
                changes=parse_changes(overrides),
            )  # fmt: skip
            yield Repeat(by_method[method], task, compose(request), overrides)


def differences_csv() -> str:
    """Write as CSV each setting that is not what its source states, with the reason: those of
    tasks before those of mixers, and once where several tasks share it.
    """
    import pandas as pd

    rows: list[dict[str, str]] = []
    for owner, file in {**list_files("tasks"), **list_files("mixers")}.items():
        # `paper` is the preset of the table, and what holds under every preset holds there, too.
        others = [
            replace(entry, preset=None if entry.preset == PAPER else entry.preset)
            for entry in sorted(file.entries, key=lambda entry: entry.name)
            if entry.has_other
        ]
        alike = group_by(others, lambda entry: replace(entry, origin="", source="", task=ALL))
        for entry, same in alike.items():
            kind = "initial " if entry.section == STARTS else f"{entry.section}."
            limits = (("preset", entry.preset), ("protocol", entry.protocol))
            where = sorted({other.task for other in same} - {ALL}, key=[*BENCHMARK, "lm"].index)
            where += [f"{of} {name}" for of, name in limits if name is not None]
            rows.append(
                {
                    "mixer or task": owner,
                    "setting": f"{kind}{entry.key}",
                    "where": ", ".join(where),
                    "published": plain(entry.theirs),
                    "ours": plain(entry.value),
                    "reason": entry.why,
                }
            )
    return write_csv(pd.DataFrame(rows))


def timed_records(data: Data) -> list[AnyRecord]:
    """List the records that have the speed of training steps."""
    return [
        record
        for record in (*data.records, *data.bench)
        if record.steps_per_second is not None
        and record.preset_code is None
        and getattr(record, "mode", "step") == "step"
    ]


def find_speed(records: Sequence[AnyRecord], config: RunConfig, device: str) -> float | None:
    """Return the steps per second that were measured on a device with the settings of a run.

    The speed is scaled by the examples and positions of a step. Runs are preferred to measurements,
    then like lengths and batch sizes; of equally good records the first counts.

    Returns: the speed; None if none was measured.
    """
    length, batch = config.build_task().info.max_length, config.train.batch_size
    setting = (
        device, config.task_name, config.mixer_name, config.mixer_component.code, config.preset,
        config.protocol, config.train.precision, _select_relevant(config.changes),
    )  # fmt: skip

    def distance(r: AnyRecord) -> tuple[float, ...]:
        is_bench = isinstance(r, BenchRecord)
        is_full = is_bench and r.lengths == "full"
        sizes = math.log(r.length / length), math.log(r.batch_size / batch)
        return is_bench + is_full, *map(abs, sizes)

    fewest = min(SMALL_STEP, batch * length / MOST_SCALED)
    matches = [
        r
        for r in records
        if r.batch_size * r.length >= fewest
        and setting
        == (r.device, r.task, r.mixer, r.mixer_code, r.preset, r.protocol, r.precision,
            _select_relevant(r.changes))
    ]  # fmt: skip
    if not matches:
        return None
    best = min(matches, key=distance)
    return (best.steps_per_second or 0.0) * best.batch_size / batch * (best.length / length)


def _select_relevant(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Keep the changed settings that the duration of a step depends on, except for the batch."""
    of_training = {name: changes[name] for name in _CHANGE_A_STEP & changes.keys()}
    return select_sections(changes, "task", "mixer", "model") | of_training


def speeds_csv(data: Data) -> str:
    """Write the speed of each mixer on each task at the settings of a preset, by device."""
    import pandas as pd

    records = timed_records(data)
    known = {
        (r.task, r.mixer, r.preset, r.protocol, r.device)
        for r in records
        if r.mixer_code is None and getattr(r, "task_code", None) is None and r.task is not None
    }
    rows: list[dict[str, object]] = []
    for task, mixer, preset, protocol, device in sorted(known, key=str):
        config = compose(
            RunRequest(task=str(task), mixer=mixer, preset=str(preset), protocol=str(protocol))
        )
        speed = find_speed(records, config, device)
        if speed is not None:
            row = {"task": task, "mixer": mixer, "preset": preset, "protocol": protocol}
            row |= {"device": device, "batch_size": config.train.batch_size}
            rows.append({**row, "steps_per_second": f"{speed:.4g}"})
    return write_csv(pd.DataFrame(rows))


def reproduce_table(data: Data) -> Table:
    """Tabulate the steps and the time that repeating each published result takes, by task."""
    records, results = timed_records(data), list(repeats())
    names = sorted(
        {record.device for record in records}, key=lambda name: (not _is_cpu(name), name)
    )
    speeds = {
        device: {
            number: speed
            for number, repeat in enumerate(results)
            if (speed := find_speed(records, repeat.config, device)) is not None
        }
        for device in names
    }
    # The CPU and the GPU on which steps of most published rows were timed.
    devices = [
        max(same, key=lambda name: len(speeds[name]))
        for same in group_by(filter(speeds.__getitem__, speeds), _is_cpu).values()
    ]
    costs: dict[str, dict[str, str]] = {}
    for number, repeat in enumerate(results):
        steps = count_steps(repeat.config)
        times = [
            f"{duration((steps or 0) / speeds[name][number])}{'' if _is_cpu(name) else ' (GPU)'}"
            for name in devices
            if number in speeds[name]
        ]
        text = "not known" if steps is None else ", ".join([f"{steps:,}", *times])
        costs.setdefault(repeat.row.method, {})[repeat.task] = text
    alike = group_by(costs, lambda method: tuple(map(costs[method].get, BENCHMARK)))
    caption = "Optimizer steps on the official data. No step of these runs was timed yet."
    if devices:
        caption = (
            f"Optimizer steps on the official data. Where a step of these settings was timed, the "
            f"estimated time of all training steps on {' or '.join(devices)} follows. It is scaled "
            f"from steps with fewer examples. An example takes longer in a batch of one or two, so "
            f"a run can take half of the time shown. Do not compare the times of different rows."
        )
    columns = [text_column("published rows", map(", ".join, alike.values()))]
    columns += map(text_column, BENCHMARK, zip(*alike, strict=True))
    title = "What it takes to repeat published results"
    return Table("reproduce", title, caption, columns, commands=_commands(results))


def _is_cpu(device: str) -> bool:
    return "CPU" in device


def _commands(results: Sequence[Repeat]) -> Mapping[str, str]:
    """Write each command once, with TASK in place of several tasks that it is for."""
    groups = group_by(results, lambda repeat: (repeat.row.method, repeat.command("TASK")))
    methods = Counter(method for method, _ in groups)
    return {
        method if methods[method] == 1 else f"{method} on {', '.join(r.task for r in same)}": (
            same[0].command() if len(same) == 1 else command
        )
        for (method, command), same in groups.items()
    }
