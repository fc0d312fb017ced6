"""What is worth most on a GPU, in its order: commands and their estimated times."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from common.errors import UnknownName
from lra.config.compose import compose
from lra.config.registry import MIXERS
from lra.config.request import PAPER, RunRequest, parse_changes
from lra.report.names import slugify
from lra.report.repeats import Repeat, repeats
from lra.runtime.repository import ROOT
from lra.train.run_folder import RunFolder, choose_folder
from lra.train.training_time import count_steps

DIM_300K = 128
"""Width at which `s4d` has about 300,000 parameters on Image."""
ARENA = (
    "Linear Transformer", "Linformer", "Transformer", "Performer", "Synthesizer", "Local Attention",
    "Longformer", "BigBird", "Sinkhorn Transformer", "Reformer", "Sparse Transformer",
)  # fmt: skip
"""Rows of the Long Range Arena paper."""


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Published rows to repeat on a task."""

    task: str
    methods: Sequence[str]
    """Names of rows in results/published.csv."""
    step_seconds: float
    """Estimated duration of a training step on an H100."""
    seeds: Sequence[int] = (0,)
    changes: Sequence[str] = ()
    """Settings that differ from those of the rows."""


ROWS = {
    "text": Rows(task="text", methods=["TNN"], seeds=(0, 1, 2), step_seconds=0.07),
    # TF32 halves the time: the products of these models are their largest part.
    "listops": Rows(
        task="listops", methods=ARENA, step_seconds=0.06, changes=["train.tf32=true"]
    ),
    "retrieval": Rows(
        task="retrieval", methods=ARENA, step_seconds=0.06, changes=["train.tf32=true"]
    ),
    "listops-tnn": Rows(
        task="listops", methods=["TNN", "FD-TNN", "SKI-TNN"], step_seconds=0.05
    ),
    "image": Rows(
        task="image", methods=["S4D-LegS"], step_seconds=0.05,
        changes=["model.axes=alternate", f"model.dim={DIM_300K}", "train.epochs=20",
                 "train.warmup_steps=1800", "train.schedule_steps=null"],
    ),
}  # fmt: skip
GROUPS = ("tests", "steps", *ROWS)
"""The groups of items, by worth."""


@dataclass(frozen=True, kw_only=True)
class Places:
    """Where items run, and changes that make all of them smaller."""

    device: str
    data_dir: Path
    results_dir: Path
    preset: str = PAPER
    overrides: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Item:
    """A command of the suite; exit code 0 means that it is done."""

    name: str
    group: str
    command: Sequence[str]
    """Words after `python`."""
    minutes: float
    """Estimated duration of the whole item."""
    folder: RunFolder | None = None
    """Folder of a training run, which resumes from its checkpoint. None: the item starts again."""

    def minutes_left(self) -> float:
        """Estimate the time left: from the speed so far if the run has made steps."""
        record = None if self.folder is None else self.folder.record()
        if record is None or not record.steps:
            return self.minutes
        return (record.total_steps - record.steps) * record.wall_seconds / record.steps / 60


def list_items(places: Places, only: Sequence[str] = ()) -> list[Item]:
    """List items by worth: those with a name or group in `only`, or all if it is empty.

    Raises: UserError for a name that no item has, and for changed settings that do not exist.
    """
    makers: dict[tuple[str, str], Callable[[], Item]] = {
        ("tests", "tests"): lambda: Item(
            name="tests", group="tests", minutes=1,
            command=["-m", "pytest", "-q", "-m", "gpu", str(ROOT / "tests")],
        )
    }  # fmt: skip
    for mixer in sorted(MIXERS.classes):
        makers["steps", f"steps-{mixer}"] = partial(_measure_steps, mixer, places)
    found = {(one.row.method, one.task): one for one in repeats()}
    for group, rows in ROWS.items():
        for seed, method in itertools.product(rows.seeds, rows.methods):
            name, row = slugify(group, method, f"s{seed}"), found[method, rows.task]
            makers[group, name] = partial(_make_run, name, group, row, seed, places)
    for given in only:
        if given not in {*itertools.chain(*makers)}:
            raise UnknownName("group or item", given, GROUPS, "--only")
    return [make() for names, make in makers.items() if not only or {*names} & {*only}]


def _measure_steps(mixer: str, places: Places) -> Item:
    """Make the item that measures a mixer's training steps."""
    command = ["-m", "results.gpu.steps", mixer, "--device", places.device]
    command += ["--out", str(places.results_dir / "bench")]
    command += ["--presets", places.preset] if places.preset != PAPER else []
    command += [part for text in places.overrides for part in ("--set", text)]
    return Item(name=f"steps-{mixer}", group="steps", command=command, minutes=0.5)


def _make_run(name: str, group: str, row: Repeat, seed: int, places: Places) -> Item:
    """Make the item that repeats a row."""
    rows = ROWS[group]
    texts = [*row.overrides, *rows.changes, *places.overrides]
    request = RunRequest(
        task=row.task, mixer=row.config.mixer_name, preset=places.preset,
        protocol=row.config.protocol, changes=parse_changes(texts),
    )  # fmt: skip
    config = compose(request)
    command = [str(ROOT / "run_task.py"), "--task", request.task, "--mixer", request.mixer]
    command += ["--preset", request.preset, "--protocol", request.protocol, "--seed", str(seed)]
    command += [part for text in texts for part in ("--set", text)]
    command += ["--device", places.device, "--data-dir", str(places.data_dir)]
    return Item(
        name=name,
        group=group,
        command=[*command, "--results-dir", str(places.results_dir)],
        minutes=(count_steps(config) or 0) * rows.step_seconds / 60,
        folder=choose_folder(places.results_dir, config, seed, "auto"),
    )
