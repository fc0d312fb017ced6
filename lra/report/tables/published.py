"""Tables of what papers report: results, settings that differ here, and what repeating takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from common.progress import duration
from lra.report.data import Data
from lra.report.published import PublishedRow
from lra.report.repeats import Repeat, repeats
from lra.report.scores import AVERAGES, mean_over
from lra.report.tables.table import Column, Entry, Table, number_entry, text_column
from tasks.base import BENCHMARK

_PRINTED = (
    "Test accuracy in percent, as the source printed it for its own protocol. results/sources.yaml "
    "lists the sources by their keys. FAIL means that the source reports chance level, or that the "
    "model could not be trained."
)


def published_table(rows: Sequence[PublishedRow]) -> Table:
    """Tabulate published results, their averages recomputed."""
    texts = {
        "source": [row.source for row in rows],
        "note": [row.note or None for row in rows],
    }
    columns = [text_column("method", [row.method for row in rows])]
    for task in BENCHMARK:
        entries = [Entry(r.printed[task] or None, r.values[task], is_ranked=True) for r in rows]
        columns.append(Column(task, entries))
    for name, tasks in AVERAGES.items():
        means = [mean_over(tasks, row.values) for row in rows]
        columns.append(Column(name, [number_entry(mean, is_ranked=True) for mean in means]))
    columns += [text_column(name, found) for name, found in texts.items()]
    caption = f"{_PRINTED} The averages are computed from the rows that have all of their tasks."
    return Table("published", "Published results", caption, columns, beneath=len(rows))


def reproduce_table(data: Data) -> Table:
    """Tabulate the steps and the time that repeating each published result takes, by task."""
    from lra.report.measured import find_speed, timed_records
    from lra.train.training_time import count_steps

    records, found = timed_records(data), list(repeats())
    speeds: dict[str, dict[int, float]] = {}
    for device in sorted({record.device for record in records}):
        for number, one in enumerate(found):
            speed = find_speed(records, one.config, device)
            if speed is not None:
                speeds.setdefault(device, {})[number] = speed
    # The CPU and the GPU on which steps of most published rows were timed.
    devices = [
        max(same, key=lambda name: len(speeds[name]))
        for of_cpu in (True, False)
        if (same := [name for name in speeds if ("CPU" in name) == of_cpu])
    ]
    costs: dict[str, dict[str, str]] = {}
    for number, one in enumerate(found):
        steps = count_steps(one.config)
        times = [
            f"{duration((steps or 0) / speeds[name][number])}{'' if 'CPU' in name else ' (GPU)'}"
            for name in devices
            if number in speeds[name]
        ]
        text = "not known" if steps is None else ", ".join([f"{steps:,}", *times])
        costs.setdefault(one.row.method, {})[one.task] = text
    methods: dict[tuple[str | None, ...], list[str]] = {}
    for method, by_task in costs.items():
        methods.setdefault(tuple(map(by_task.get, BENCHMARK)), []).append(method)
    caption = "Optimizer steps on the official data. No step of these runs was timed yet."
    if devices:
        caption = (
            f"Optimizer steps on the official data. Where a step of these settings was timed, the "
            f"estimated time of all training steps on {' or '.join(devices)} follows. It is scaled "
            f"from steps with fewer examples. An example takes longer in a batch of one or two, so "
            f"a run can take half of the time shown. Do not compare the times of different rows."
        )
    columns = [text_column("published rows", [", ".join(names) for names in methods.values()])]
    columns += map(text_column, BENCHMARK, zip(*methods, strict=True))
    title = "What it takes to repeat published results"
    return Table("reproduce", title, caption, columns, commands=_commands(found))


def _commands(found: Sequence[Repeat]) -> Mapping[str, str]:
    """Write each command once, with TASK in place of several tasks that it is for."""
    groups: dict[tuple[str, str], list[Repeat]] = {}
    for one in found:
        groups.setdefault((one.row.method, one.command("TASK")), []).append(one)
    methods = Counter(method for method, _ in groups)
    return {
        method if methods[method] == 1 else f"{method} on {', '.join(one.task for one in group)}": (
            group[0].command() if len(group) == 1 else command
        )
        for (method, command), group in groups.items()
    }
