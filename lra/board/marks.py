"""The marks that maintainers give: *files*, *code*, *fresh* and *repeated*, with their evidence.

All but *files* run the code of a contribution, which a maintainer has read before. They need the
mark *files*, whose digest fixes what is marked. Shipped runs get marks in the same way.
"""

from __future__ import annotations

import datetime
import hashlib
import logging
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from lra.api.recompose import recompose
from lra.api.trained import TrainedRun
from lra.board.files import check_files, check_shipped, read_weights, weights_name
from lra.board.settings import list_deviations
from lra.check.checks import carry_out, mixer_checks
from lra.classifier.classifier import Classifier, count_state
from lra.common.errors import UserError
from lra.common.files import write_atomically
from lra.common.strict_yaml import plain
from lra.evaluate import OtherData, evaluate_on, seed_change
from lra.record.community import digest_of, marks_path, read_marked, read_marks, valid_marks
from lra.record.contribution import Mark, MarkName
from lra.record.known_data import read_known_data
from lra.record.run import TestedRecord
from lra.record.run_files import read_predictions
from lra.record.schema import SHIPPED
from lra.report.scores import group_by
from lra.runtime.environment import seed_everything
from lra.runtime.tables import count_nouns, rounded
from lra.statistics import (
    SIGNIFICANCE,
    correct_holm,
    decline_p_value,
    interval_of_next,
    wilson_interval,
)
from lra.train.run import Run
from lra.train.stopping import StopRequest

logger = logging.getLogger("lra.submit")

CAUSAL_CHECK = "with model.causal=true"
"""Start of the name of the check of causal models."""
FRESH_EXAMPLES = 10_000
MOST_DIFFERENT = 0.005
"""Largest share of predictions that may differ between devices."""


class Verdict(NamedTuple):
    """What a maintainer's check found: evidence for the mark, or faults that keep it away."""

    evidence: list[str]
    faults: list[str]
    fresh: Mapping[str, float] = {}
    """Accuracy in percent on new examples, by the name of the run."""


@dataclass(frozen=True, kw_only=True)
class Workplace:
    """Where a maintainer checks a contribution, or the shipped runs."""

    folder: Path
    data_dir: Path
    results_dir: Path
    """Results folder of the runs that are trained again."""
    device: torch.device
    number: int | None
    """A number that did not exist when the digest of the contribution was fixed."""

    def draw(self, what: str, part: str = "") -> int:
        """Draw a whole number below 2 ** 63 that nobody could choose: the start of the SHA-256 of
        the digest of the folder or of a part of it, what is drawn, and the number.
        """
        if self.number is None:
            raise UserError("--number: expected a number that was drawn after the mark files")
        text = f"{digest_of(self.folder / part)} {what} {self.number}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) >> 1

    def runs(self) -> list[SubmittedRun]:
        """Load the finished runs, by their plug-in; raises UserError for another hash."""
        runs: list[SubmittedRun] = []
        for path, record in read_marked(self.folder)[0]:
            if record.status == "done":
                spec = record.mixer_from and str(self.folder / record.mixer_from)
                run = record.model_copy(update={"mixer_from": spec})
                weights, config = self.folder / "weights" / weights_name(run), recompose(path, run)
                runs += [SubmittedRun(path, run, config, self.data_dir, self.device, weights)]
        return runs


@dataclass(eq=False, repr=False)
class SubmittedRun(TrainedRun):
    """A run of a contribution, with submitted weights."""

    weights: Path

    def read_weights(self) -> dict[str, Tensor]:
        """See `TrainedRun.read_weights`: those of the contribution."""
        return read_weights(self.weights)


def mark_files(place: Workplace) -> Verdict:
    """Check the files, see `check_files`."""
    check = check_shipped if place.folder.name == SHIPPED else check_files
    findings = check(place.folder, read_known_data())
    return Verdict([f"{len(read_marked(place.folder)[0])} runs"] if not findings else [], findings)


def mark_code(place: Workplace) -> Verdict:
    """Check mixers by `lra.check`, count parameters and states, and test submitted weights."""
    runs, passed_checks = place.runs(), 0
    compared = sum(run.weights.is_file() for run in runs)
    evidence = [
        f"models with the parameters and the state of their records: {len(runs)}",
        f"runs whose predictions were compared with those of their weights: {compared}",
    ]
    faults = [f"{run.record.name}: {fault}" for run in runs for fault in _check_model(run)]
    forms = {(run.record.mixer, run.record.mixer_code, str(run.config.mixer), run.config.model.dim):
             run.config for run in runs}  # fmt: skip
    for config in forms.values():
        component, dim = config.mixer_component, config.model.dim
        logger.info(f"checking {component.name} at {dim} channels")
        seed_everything(0)
        failed, passed = carry_out(component, mixer_checks(component, config.mixer, dim))
        passed_checks += len(passed)
        for line in failed:  # a model that sees whole sequences need not be causal
            is_idle = not config.model.causal and CAUSAL_CHECK in line
            (evidence if is_idle else faults).append(f"{component.name}: {line}")
    mixers = len({mixer for mixer, *_ in forms})
    evidence.append(
        f"checks that passed: {passed_checks:,} ({mixers} mixers, {len(forms)} choices of options "
        f"and channels)"
    )
    return Verdict(evidence, faults)


def _check_model(run: SubmittedRun) -> Iterator[str]:
    """Compare parameters, state and predictions of a model with those of its record."""
    record, info = run.record, run.config.build_task().info
    logger.info(f"checking {record.name}")
    has_weights = run.weights.is_file()
    model = run.model if has_weights else Classifier(run.config, info)
    yield from list_deviations(
        {"params": (record.params, model.num_parameters),
         "state_size": (record.state_size, count_state(model, record.length))}
    )  # fmt: skip
    if has_weights:
        scorer = run.scorer_of(info)
        evaluator = run.evaluator(model, record.micro_batch or record.batch_size)
        split = run.dataset.splits["test"]
        score = evaluator.score(split, scorer)
        kept = {**score.predictions, "length": split.lengths}
        columns = {name: np.array(column.tolist()) for name, column in kept.items()}
        again = scorer.describe(score, run.dataset, {}).read_predictions(columns).merits
        submitted = read_predictions(record, run.folder / "predictions.csv").merits
        differing = float(np.mean(again != submitted))
        if differing > MOST_DIFFERENT:
            yield (
                f"{100 * differing:.1f} % of the test examples are answered in another way by the "
                f"submitted weights, expected at most {100 * MOST_DIFFERENT} %"
            )


def mark_fresh(place: Workplace) -> Verdict:
    """Test submitted weights on newly drawn examples, by a one-sided test for each task.

    Accuracies are means over seeds; p-values are corrected for the number of tasks.
    """
    runs = [
        run for run in place.runs() if run.weights.is_file() and run.config.build_task().draws_data
    ]
    if not runs:
        return Verdict([], ["no run with weights on a task whose data is drawn"])
    texts: list[str] = []
    fresh: dict[str, float] = {}
    p_values: list[float] = []
    for same in group_by(runs, lambda run: (run.record.task, run.record.config_hash)).values():
        task, method = same[0].record.task, same[0].record.method
        seed = place.draw(task, "weights")
        other = OtherData(length=None, changes=(seed_change(seed),), examples=FRESH_EXAMPLES)
        logger.info(f"{method} on {task}: {FRESH_EXAMPLES:,} new examples, data seed {seed}")
        first, total = _average([run.record for run in same])
        tested = {run.record.name: evaluate_on(run, other) for run in same}
        fresh |= {name: one.test_accuracy or 0.0 for name, one in tested.items()}
        second, new_total = _average([*tested.values()])
        p_values.append(decline_p_value(first / 100, total, second / 100, new_total))
        texts.append(
            f"{method} on {task}: {rounded(first, 2)} submitted, {rounded(second, 2)} fresh "
            f"({count_nouns(len(same), 'seed')}, data seed {seed})"
        )
    corrected = correct_holm(p_values)
    lines = [f"{text}, p {p:.2g}" for text, p in zip(texts, corrected, strict=True)]
    return Verdict(lines, [lines[i] for i, p in enumerate(corrected) if p < SIGNIFICANCE], fresh)


def _average(records: Sequence[TestedRecord]) -> tuple[float, int]:
    """Return the mean accuracy over seeds in percent, and the test examples of one seed."""
    accuracies = [record.test_accuracy or 0.0 for record in records]
    return statistics.mean(accuracies), min(r.result.test_examples or 1 for r in records)


def mark_repeated(place: Workplace) -> Verdict:
    """Train one run again from nothing; its accuracy has to be in the interval of the seeds."""
    runs = sorted(place.runs(), key=lambda run: run.record.name)
    drawn = runs[place.draw("run") % len(runs)]
    record = drawn.record
    logger.info(f"training {record.name} again, from nothing; the same command resumes it")
    again = Run(
        config=drawn.config, seed=record.seed, device=place.device, data_dir=place.data_dir,
        results_dir=place.results_dir, stop=StopRequest(None, None),
    ).execute()  # fmt: skip
    key = record.task, record.config_hash
    cell = [run.record for run in runs if (run.record.task, run.record.config_hash) == key]
    mean, examples = _average(cell)
    ends = [wilson_interval(mean / 100, examples)]
    if len(cell) > 1:
        ends.append(interval_of_next([run.test_accuracy or 0.0 for run in cell]))
    low, high = min(low for low, _ in ends), max(high for _, high in ends)
    text = (
        f"{record.name}: {rounded(again.test_accuracy or 0.0, 2)} repeated, "
        f"{rounded(record.test_accuracy or 0.0, 2)} submitted, {rounded(low, 2)} to "
        f"{rounded(high, 2)} by {len(cell)} seeds"
    )
    is_within = again.test_accuracy is not None and low <= again.test_accuracy <= high
    return Verdict([text], [] if is_within else [text])


MARK_CHECKS: Mapping[MarkName, Callable[[Workplace], Verdict]] = {
    "files": mark_files, "code": mark_code, "fresh": mark_fresh, "repeated": mark_repeated,
}  # fmt: skip
"""What has to be found for each mark."""


def give_mark(name: MarkName, place: Workplace) -> Verdict:
    """Carry out the check of a mark, and write the mark if it found no fault.

    Raises: UserError without the mark files of the present files, for all other marks.
    """
    folder = place.folder
    marks = valid_marks(folder, read_marks(marks_path(folder)))
    if name != "files" and not any(mark.mark == "files" for mark in marks):
        raise UserError(
            f"{folder.name} has no mark files for its present files, which fixes their digest; "
            f"give it first: python -m lra.submit --mark files {folder}"
        )
    verdict = MARK_CHECKS[name](place)
    if not verdict.faults:
        number = [] if place.number is None else [f"number {place.number}"]
        add_mark(folder, name, [*number, *verdict.evidence], verdict.fresh)
    return verdict


def add_mark(
    folder: Path,
    name: MarkName | Literal["withdrawn"],
    evidence: Sequence[str],
    fresh: Mapping[str, float] = {},
) -> None:
    """Write a mark, or a withdrawal, into the file of the maintainers."""
    path, today = marks_path(folder), datetime.datetime.now(datetime.UTC).date()
    said = {"evidence": [*evidence], "fresh": {**fresh}}
    mark, marks = Mark(mark=name, date=today, digest=digest_of(folder), **said), read_marks(path)
    marks.setdefault(folder.name, []).append(mark)
    lines = ["# Marks (docs/open_board.md). python -m lra.submit --mark writes them."]
    for of, given in sorted(marks.items()):
        dumped = (mark.model_dump(mode="json", exclude_defaults=True) for mark in given)
        lines += [f"{of}:", *(f"- {plain(content)}" for content in dumped)]
    write_atomically(path, "\n".join([*lines, ""]).encode())
