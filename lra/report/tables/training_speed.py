"""How fast each mixer trains at one preset, task by task."""

from __future__ import annotations

from lra.report.boards.preset_speeds import PresetSpeeds
from lra.report.tables.table import Column, Table, name_column, number_entry, text_column
from tasks.base import BENCHMARK


def training_speed_table(speeds: PresetSpeeds, preset: str) -> Table:
    """Tabulate the measured training speed of each mixer on each task, the fastest first.

    Args:
        speeds: the measurements.
        preset: the preset that they were made at.
    """
    ordered = sorted(speeds.by_mixer.items(), key=lambda item: -item[1].relative)
    mixers, found = [mixer for mixer, _ in ordered], [speed for _, speed in ordered]
    tasks = [task for task in BENCHMARK if any(task in speed.by_task for speed in found)]
    by_task = [
        Column(task, [number_entry(speed.by_task.get(task)) for speed in found]) for task in tasks
    ]
    return Table(
        slug=f"training-speed-{preset}",
        title=f"Training speed: preset {preset}",
        caption=f"Training steps per second, divided by those of {speeds.relative_to}, and the "
        f"peak memory on the task that takes most, on {speeds.device}. All mixers were measured in "
        "turns, with sequences of full length.",
        columns=[
            name_column("mixer", mixers),
            *by_task,
            Column("geometric mean", [number_entry(speed.relative) for speed in found]),
            text_column("peak memory, MiB", [f"{speed.memory:,.0f}" for speed in found]),
        ],
    )
