r"""Let training fall to chance in small: `tnn` on Text, with the settings of its published row.

    python -m results.findings.train_collapse "as published" 4 0 collapse-runs --max-steps 400
    python -m results.findings.train_collapse --table collapse-runs

The first command trains, or resumes, a run of a condition at 4 times the published learning rate,
with seed 0; further arguments are those of run_task.py. The second one writes
`collapse/steps.csv` next to this script.

The model is half as wide and a batch has half as many reviews as in the published row, and the
first eighth of each review is read: a run takes minutes, and batches keep their mix of lengths.
"""

import sys
from pathlib import Path

import pandas as pd
import torch
from torch import Tensor

import lra
from lra import run_task
from lra.classifier.classifier import Classifier
from lra.results.findings.shared import FOLDER
from lra.results.findings.train_padded import PaddedClassifier
from lra.runtime.cli import run_command

RATE = 1.05e-3
"""The published learning rate."""
SHARE = 8
"""One part in so many of a review is read."""
COMMON = (
    "model.dim=64", "train.batch_size=16", "train.steps=1200", "train.epochs=null",
    "train.warmup_steps=300", "train.schedule=constant", "train.schedule_steps=null",
    "train.evaluate_every=100", "task.holdout=500", "task.test=500",
    "log.internals=true", "log.every_steps=10",
)  # fmt: skip


class ShortClassifier(Classifier):
    """A classifier that reads the first part of each sequence."""

    def forward(self, inputs: Tensor, lengths: Tensor, scored: Tensor | None = None) -> Tensor:
        """Compute the logits of a batch; arguments as for `Classifier`."""
        short = (lengths + SHARE - 1) // SHARE
        parts = inputs.split(lengths.flatten().tolist())
        cut = [part[:n] for part, n in zip(parts, short.flatten().tolist(), strict=True)]
        return super().forward(torch.cat(cut), short)


class ShortPaddedClassifier(ShortClassifier, PaddedClassifier):
    """The same with padded batches, whose padding batch norm counts as the released code does."""


CONDITIONS: dict[str, tuple[type[Classifier], tuple[str, ...]]] = {
    "as published": (ShortClassifier, ()),
    "padding counted": (ShortPaddedClassifier, ()),
    "clip_norm=0.1": (ShortClassifier, ("train.clip_norm=0.1",)),
    "norm=layer": (ShortClassifier, ("model.norm=layer",)),
}
"""Classifiers and settings by name of the condition."""


def train(condition: str, factor: float, seed: int, results: Path, *more: str) -> int:
    """Train a run, or resume it, at a multiple of the published learning rate."""
    classifier, settings = CONDITIONS[condition]
    changes = [*COMMON, *settings, f"train.lr={RATE * factor:.5g}"]
    flags = [part for change in changes for part in ("--set", change)]
    options = run_task.parse_arguments(
        ["--task", "text", "--mixer", "tnn", "--seed", str(seed), "--results-dir",
         str(results / f"{condition} {factor:g} {seed}"), *flags, *more]
    )  # fmt: skip
    return run_task.run(options, classifier)


def write_table(results: Path) -> None:
    """Write what the runs of a folder logged: a row for each step that was logged."""
    tables: list[pd.DataFrame] = []
    for run in sorted(path.parent for path in results.glob("*/runs/text/tnn/*/internals.jsonl")):
        condition, factor, seed = run.relative_to(results).parts[0].rsplit(" ", 2)
        table = lra.metrics(run).groupby("step").first()  # a validation has a line of its own
        inside = pd.read_json(run / "internals.jsonl", lines=True).set_index("step")
        for block in range(4):
            table[f"activation {block}"] = inside[f"blocks.{block}.activation"]
        table["kernel"] = inside.filter(like=".kernel").max(axis=1)
        table["last variance"] = inside["norm.variance_max"]
        if "norm.ratio_max" in inside:  # batch norm
            table["largest ratio"] = inside.filter(like=".ratio_max").max(axis=1)
            table["outlier"] = inside.filter(like=".outlier_max").max(axis=1)
        table = table.drop(columns=["seconds", "steps_per_second"]).reset_index()
        rate = RATE * float(factor)
        tables.append(table.assign(condition=condition, rate=rate, seed=int(seed)))
    whole = pd.concat(tables, ignore_index=True)
    whole.to_csv(FOLDER / "collapse" / "steps.csv", index=False, float_format="%.4g")


def main(arguments: list[str]) -> int:
    """Train a run, CONDITION FACTOR SEED FOLDER, or write the table, --table FOLDER."""
    if arguments[:1] == ["--table"]:
        write_table(Path(arguments[1]))
        return 0
    condition, factor, seed, results, *more = arguments
    run = (condition, float(factor), int(seed), Path(results))
    return run_command("train_collapse", lambda: train(*run, *more))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
