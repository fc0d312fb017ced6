"""The last screen of a run: its own result first, then what that compares with."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.progress import duration
from lra.config.request import DEFAULT_PROTOCOL
from lra.config.schema import RunConfig
from lra.record.changes import select_sections
from lra.record.intervals import wilson_interval
from lra.record.metrics import read_metrics
from lra.record.run import RunRecord, folder_of
from lra.record.schema import is_shipped
from lra.record.scores import PositionScores, unit_of
from lra.record.table import read_runs
from lra.report.commands import run_flags
from lra.report.names import RowNames
from lra.report.published import closest_result
from lra.report.scores import (
    Cell,
    Measure,
    best_baseline,
    cell_of,
    is_at_chance,
    is_busy,
    measures_of,
    rounded,
    sort_rows,
)
from lra.runtime.console import CONTINUED, INDENT, as_typed, wrap_command, wrap_parts
from lra.runtime.launch import command_words
from lra.train.evaluation import RIGHT, WRONG

NEIGHBOURS = 2
"""Rows that are shown on either side of a run's own row."""
LOWER_RATE = 4
"""Divisor of the learning rate that is proposed after a run has diverged."""


@dataclass(frozen=True)
class Standing:
    """A run among others: seeds of the same settings, and its place in its preset."""

    record: RunRecord
    name: str
    """The run's row."""
    rows: Mapping[str, Cell[RunRecord]]
    """All rows of its task, preset, protocol and data, the best first."""
    shipped: Sequence[RunRecord]

    @classmethod
    def read(cls, results_dir: Path, record: RunRecord) -> Standing:
        """Read the records of a results folder and its shipped ones that a run compares with."""
        own = folder_of(results_dir, record)
        pairs = [
            (folder, run)
            for folder, run in read_runs(results_dir, shipped=True)[0]
            if (run.task, run.preset) == (record.task, record.preset) and folder != own
        ]
        runs = [*(run for _, run in pairs), record]
        shipped = [run for folder, run in pairs if is_shipped(folder, results_dir)]
        names = RowNames(runs)
        groups: dict[str, list[RunRecord]] = {}
        for run in sorted(runs, key=lambda run: (names.of(run), run.run_id)):
            if _compares(run, record):
                groups.setdefault(names.of(run), []).append(run)
        cells = {name: cell_of(group) for name, group in groups.items()}
        measure, *_ = measures_of([record])
        return cls(record, names.of(record), sort_rows(cells, measure), shipped)

    @property
    def measure(self) -> Measure:
        """What rows are ranked by."""
        return measures_of([self.record])[0]

    @property
    def cell(self) -> Cell[RunRecord]:
        """All seeds of the run's row."""
        return self.rows[self.name]

    def describe_seeds(self, unit: str) -> str:
        """Describe the mean over the seeds of the same settings; empty without other seeds.

        Args:
            unit: of the measure, as it follows a number.
        """
        has_result = [run for run in self.cell.runs if self.measure.of(run) is not None]
        others = [run for run in has_result if run is not self.record]
        if not others:
            return ""
        shipped = sum(any(run is one for one in self.shipped) for run in others)
        counts = [
            f"{count} {kind} seed{'s' * (count != 1)}"
            for count, kind in ((len(others) - shipped, "other"), (shipped, "shipped"))
            if count
        ]
        start = f"with {' and '.join(counts)}"
        if len(others) == len(has_result):
            start = f"{' and '.join(counts)} of these settings"
        mean = f"{self.cell.spread_text(self.measure)} {unit}"
        several = " (mean ± standard deviation)" if len(has_result) > 1 else ""
        remarks = [word for word in self.cell.remarks(self.measure) if word != "at chance"]
        return f"{start}: {', '.join([mean + several, *remarks])}"

    def describe_rank(self) -> tuple[str, list[str]]:
        """Describe the place of the run's row: a sentence, and rows with their numbers.

        Rows that failed or are at chance have no place. Equal numbers share one.
        """
        texts = {
            name: rounded(value, self.measure.digits)
            for name, cell in self.rows.items()
            if (value := cell.value(self.measure)) is not None
        }
        order, where = [*texts], self._describe_board()
        count = f"{len(order)} mixers and variants" if len(order) > 1 else "1 mixer or variant"
        if self.name not in texts:
            kept = order[: 2 * NEIGHBOURS + 1]
            best = f"; best of {count} {where}:" if kept else ""
            rows = [f"{name} {texts[name]}" for name in kept]
            return f"not ranked ({self._reason_without_rank()}){best}", rows
        if len(order) == 1:
            return f"no rank yet: no other mixer or variant has a result {where}", []
        values = [*texts.values()]
        rank = values.index(texts[self.name]) + 1
        start = max(0, order.index(self.name) - NEIGHBOURS)
        kept = order[start : order.index(self.name) + NEIGHBOURS + 1]
        verb = "shares rank" if values.count(texts[self.name]) > 1 else "rank"
        if self.measure.of(self.record) is None:
            verb = f"its other seeds have {verb}"
        rows = [f"> {n} {texts[n]} <" if n == self.name else f"{n} {texts[n]}" for n in kept]
        return f"{verb} {rank} of {count} {where}:", rows

    def _reason_without_rank(self) -> str:
        if self.cell.is_at_chance:
            return "at chance"
        is_other_seed = self.measure.of(self.record) is not None
        return "a seed diverged or ran out of memory" if is_other_seed else "no result"

    def _describe_board(self) -> str:
        record = self.record
        where = "at this preset"
        if record.protocol != DEFAULT_PROTOCOL:
            where += f" and protocol {record.protocol}"
        has_changed_data = bool(select_sections(record.changes, "task"))
        return f"{where} with the same data" if has_changed_data else where


def _compares(run: RunRecord, record: RunRecord) -> bool:
    """Whether a run of the same task and preset has the protocol, data and selection of another."""
    rules = run.selected_on, record.selected_on
    same_kind = (run.positions is None) == (record.positions is None)
    return (
        (None in rules or rules[0] == rules[1])
        and same_kind
        and run.protocol == record.protocol
        and (run.data.source, run.data.fingerprint) == (record.data.source, record.data.fingerprint)
    )


@dataclass(frozen=True, kw_only=True)
class Screen:
    """The last screen of a run.

    Args:
        results_dir: folder that the run's record is in.
        record: of the run.
        config: settings of the run.
        data_dir: data folder of the run; None: the default one.
        flags: of the run's command beside its settings: its device.
        width: of the terminal, in characters.
    """

    results_dir: Path
    record: RunRecord
    config: RunConfig
    data_dir: Path | None = None
    flags: Sequence[str] = ()
    width: int

    def __str__(self) -> str:
        """Write the screen, each line within the width."""
        rank, rows = self._standing.describe_rank()
        seeds = self._standing.describe_seeds(self._unit)
        lines = [
            *wrap_parts(self._result(), self.width, separator=" ", indent=""),
            *wrap_parts(_next_token_texts(self.record), self.width),
            *wrap_parts(_label_texts(self.record), self.width),
            *wrap_parts(self._details(), self.width),
            *(line for text in [*self._faults(), seeds] for line in wrap_parts([text], self.width)),
            *_wrap_rows(rank, rows, self.width),
            *(line for text in self._references() for line in wrap_parts([text], self.width)),
            *wrap_parts([f"record: {self._path}"], self.width),
            *self._next_command(),
        ]
        return "\n".join(["", *lines, ""])

    @functools.cached_property
    def _standing(self) -> Standing:
        return Standing.read(self.results_dir, self.record)

    @property
    def _path(self) -> str:
        return as_typed(str(folder_of(self.results_dir, self.record)))

    @property
    def _unit(self) -> str:
        scores = self.record.positions
        return "%" if scores is None else f"bits per {unit_of(scores.text_bytes)}"

    def _result(self) -> list[str]:
        """Say which run this is, and how it ended or what it scored."""
        record = self.record
        seed = f"{record.preset}, seed {record.seed}"
        if record.protocol != DEFAULT_PROTOCOL:
            seed = f"{record.preset}, protocol {record.protocol}, seed {record.seed}"
        run = f"{record.task} / {self._standing.name} / {seed}:"
        at = f"at step {record.steps:,} of {record.total_steps:,}"
        ends = {
            "stopped": f"{record.message} {at}",
            "diverged": f"diverged {at}",
            "oom": f"out of memory {at}",
        }
        if record.status != "done":
            return [run, ends[record.status]]
        if record.positions is not None:
            bits = record.positions.bits
            text = "the test loss is not finite" if bits is None else f"{bits:.3f} {self._unit}"
            return [run, text, "" if bits is None else "on the test set"]
        low, high = wilson_interval((record.test_accuracy or 0) / 100, record.test_examples or 1)
        of = f"{record.test_correct:,} of {record.test_total:,}"
        of = of if record.tokens is None else f"{of} labels"
        return [
            run,
            f"test accuracy {record.test_accuracy:.2f} %{_verdict(record)}",
            f"({of}; 95 % interval {low:.1f} to {high:.1f})",
        ]

    def _details(self) -> list[str]:
        """List what this run alone has measured."""
        record = self.record
        speed = record.steps_per_second
        busy = " (busy machine)" if is_busy(record) else ""
        return [
            self._validation(),
            duration(record.wall_seconds),
            "" if speed is None else f"{speed:.2f} steps/s{busy}",
            f"{record.peak_memory_mib:,.0f} MiB",
        ]

    def _validation(self) -> str:
        record = self.record
        if record.val_accuracy is None or record.best_step is None:
            return "not validated yet"
        split = "validation" if record.selected_on == "val" else "selected on the test set:"
        number = f"{record.val_accuracy:.2f} %"
        if record.positions is not None and record.positions.val_loss is not None:
            bits = record.positions.val_loss / math.log(2)
            number = f"{bits:.3f} bits per {_token(record.positions, record)}"
        return f"{split} {number} at step {record.best_step:,}"

    def _faults(self) -> list[str]:
        """Say what a user must know before she uses the result."""
        record = self.record
        found: list[str] = []
        if record.status in ("diverged", "oom") and record.message:
            found.append(record.message)
        if record.status == "stopped":
            left = record.total_steps - record.steps
            found.append("no test accuracy yet: the test set is measured at the end of the run")
            if record.steps_per_second is not None and left > 0:
                found.append(f"about {duration(left / record.steps_per_second)} of training left")
        if record.test_non_finite:
            what = "examples" if record.positions is None else "positions"
            found.append(
                f"the logits of {record.test_non_finite:,} of {record.test_total:,} test {what} "
                f"are not finite; they count as wrong"
            )
        return [*found, *self._advice()]

    def _advice(self) -> list[str]:
        """Say what the task advises where the model is right on training data alone."""
        record = self.record
        if record.test_accuracy is None or record.test_accuracy >= WRONG:
            return []
        advice = self.config.build_task().advice
        lines, _ = read_metrics(folder_of(self.results_dir, record) / "metrics.jsonl")
        trained = [line.accuracy for line in lines if line.accuracy is not None][-1:]
        return [
            f"right on {accuracy:.1f} % of the last training labels, but not on the test set: the "
            f"model does not generalise; {advice}"
            for accuracy in trained
            if advice and accuracy >= RIGHT
        ]

    def _references(self) -> list[str]:
        """List the best trivial baseline, the best possible result and the published one."""
        record, scores = self.record, self.record.positions
        found: list[str] = []
        if (baseline := best_baseline(record)) is not None:
            name, value = baseline
            number = f"{value:.2f}" if scores is None else f"{value:.3f}"
            found.append(f"best trivial baseline {number} {self._unit} ({name})")
        if scores is None:
            if (published := closest_result(record)) is not None:
                start = ", ".join(["published", *published.differences])
                found.append(f"{start}: {published.text}")
            return found
        if scores.lowest_bits:
            name = max(scores.lowest_bits, key=lambda name: scores.lowest_bits[name])
            found.append(f"best possible {scores.lowest_bits[name]:.3f} {self._unit} ({name})")
        return found

    def _next_command(self) -> list[str]:
        """Write the one command that follows from how the run ended."""
        record = self.record
        labels = {
            "done": "next:",
            "stopped": "resume:",
            "diverged": "next, with a lower learning rate:",
            "oom": "next, with fewer examples per forward pass:",
        }
        examples = record.micro_batch or record.batch_size
        changes: dict[str, dict[str, Any]] = {
            "diverged": {"train.lr": float(f"{self.config.train.lr / LOWER_RATE:.3g}")},
            "oom": {"train.micro_batch": max(1, examples // 2)},
        }
        folders: dict[str, Any] = {"data_dir": self.data_dir, "results_dir": self.results_dir}
        flags = [*run_flags(record, changes.get(record.status)), *self.flags]
        words = command_words("run", *flags, **folders)
        if record.status == "done":
            flags = ["--preset", record.preset]
            words = command_words("report", *flags, results_dir=self.results_dir)
        return wrap_command(f"  {labels[record.status]}", words, self.width)


def _verdict(record: RunRecord) -> str:
    """Say of an accuracy that it is no better than one answer to all, or than a baseline."""
    verdicts = ["at chance"] if is_at_chance(record) else []
    name, accuracy = best_baseline(record) or ("", 0.0)
    if name != "majority class" and (record.test_accuracy or 0.0) < accuracy:
        verdicts.append("below a trivial baseline")
    return f", {' and '.join(verdicts)}" if verdicts else ""


def _wrap_rows(sentence: str, rows: Sequence[str], width: int) -> list[str]:
    """Write rows behind a sentence that introduces them, or below it."""
    start = f"{sentence} {rows[0]}" if rows else sentence
    if len(INDENT + start) <= width:
        return wrap_parts([start, *rows[1:]], width, separator=", ")
    return wrap_parts([sentence], width) + wrap_parts(rows, width, separator=", ", indent=CONTINUED)


def _next_token_texts(record: RunRecord) -> list[str]:
    """Describe predictions of next tokens on the test set; nothing before that is measured."""
    scores = record.positions
    if scores is None or record.test_accuracy is None:
        return []
    token = _token(scores, record)
    correct = f"{record.test_correct:,} of {record.test_total:,}"
    return [
        "" if scores.perplexity is None else f"perplexity {scores.perplexity:.4g} per {token}",
        f"next {token} right: {record.test_accuracy:.2f} % ({correct})",
    ]


def _label_texts(record: RunRecord) -> list[str]:
    """Describe the accuracies of labels of positions: of whole sequences, and by segment."""
    if (scores := record.tokens) is None:
        return []
    found = [f"all labels of a sequence right: {scores.sequence_accuracy:.2f} %"]
    if len(scores.segments) > 1:
        each = ", ".join(f"{one.name} {one.token_accuracy:.1f}" for one in scores.segments)
        found.append(f"by segment: {each}")
    return found


def _token(scores: PositionScores, record: RunRecord) -> str:
    """Name what is predicted: a byte or a word of a text, where that is known, or a token."""
    if scores.text_bytes is None or record.test_total is None:
        return "token"
    return "byte" if record.test_total == scores.text_bytes else "word"
