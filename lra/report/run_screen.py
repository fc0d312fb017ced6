"""The last screen of a run: its own result first, then what that compares with."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from lra.config.request import DEFAULT_PROTOCOL
from lra.record.changes import select_sections
from lra.record.intervals import wilson_interval
from lra.record.run import RunRecord, folder_of
from lra.record.schema import is_shipped
from lra.record.scores import unit_of
from lra.record.table import read_runs
from lra.report.flags import run_flags
from lra.report.names import RowNames
from lra.report.published import describe_published
from lra.report.scores import (
    AT_CHANCE,
    Cell,
    best_baseline,
    cell_of,
    is_at_chance,
    is_busy,
    measures_of,
    sort_rows,
)
from lra.runtime.console import as_typed
from lra.runtime.launch import command_words
from lra.runtime.progress import duration
from lra.runtime.terminal import CONTINUED, INDENT, wrap_command, wrap_parts

NEIGHBOURS = 2
"""Rows that are shown on either side of a run's own row."""
LOWER_RATE = 4
"""Divisor of the learning rate that is proposed after a run has diverged."""


def write_screen(
    results_dir: Path,
    record: RunRecord,
    width: int,
    *,
    data_dir: Path | None = None,
    flags: Sequence[str] = (),
) -> str:
    """Write the last screen of a run, each line within a width.

    Args:
        results_dir: folder that the run's record is in.
        record: of the run.
        width: of the terminal, in characters.
        data_dir: data folder of the run; None: the default one.
        flags: of the run's command beside its settings: its device.
    """
    folder = folder_of(results_dir, record)
    others = [
        (place, run)
        for place, run in read_runs(results_dir, shipped=True, task=record.task)[0]
        if place != folder and _compares(run, record)
    ]
    runs = [*(run for _, run in others), record]
    shipped = {run.run_id for place, run in others if is_shipped(place, results_dir)}
    names = RowNames(runs)
    groups: dict[str, list[RunRecord]] = {}
    for run in sorted(runs, key=lambda run: (names.of(run), run.run_id)):
        groups.setdefault(names.of(run), []).append(run)
    rows = {name: cell_of(group) for name, group in groups.items()}
    name = names.of(record)
    own = [_describe_targets(record), _describe_training(record)]
    own += [[text] for text in _list_faults(record)]
    references = [*_list_references(record), f"record: {as_typed(str(folder))}"]
    label, command = _propose_command(results_dir, record, data_dir, flags)
    lines = [
        *wrap_parts(_describe_result(record, name), width, separator=" ", indent=""),
        *(line for parts in own for line in wrap_parts(parts, width)),
        *wrap_parts([_describe_seeds(record, rows[name], shipped)], width),
        *_wrap_rows(*_describe_rank(record, name, rows), width),
        *(line for text in references for line in wrap_parts([text], width)),
        *wrap_command(f"  {label}", command, width),
    ]
    return "\n".join(["", *lines, ""])


def _compares(run: RunRecord, record: RunRecord) -> bool:
    """Whether a run of the same task has the preset, protocol, data and selection of another."""

    def describe(one: RunRecord) -> tuple[object, ...]:
        data = one.data.source, one.data.fingerprint
        return one.preset, one.protocol, one.positions is None, *data

    rules = {run.selected_on, record.selected_on} - {None}
    return describe(run) == describe(record) and len(rules) < 2  # noqa: PLR2004


def _unit(record: RunRecord) -> str:
    scores = record.positions
    return "%" if scores is None else f"bits per {unit_of(scores.text_bytes)}"


def _describe_result(record: RunRecord, name: str) -> list[str]:
    """Say which run this is, and how it ended or what it scored."""
    protocol = "" if record.protocol == DEFAULT_PROTOCOL else f"protocol {record.protocol}, "
    run = f"{record.task} / {name} / {record.preset}, {protocol}seed {record.seed}:"
    if record.status != "done":
        ends = {"stopped": record.message, "diverged": "diverged", "oom": "out of memory"}
        at = f"at step {record.steps:,} of {record.total_steps:,}"
        return [run, f"{ends[record.status]} {at}"]
    if record.positions is not None:
        bits = record.positions.bits
        is_finite = bits is not None
        text = f"{bits:.3f} {_unit(record)}" if is_finite else "the test loss is not finite"
        return [run, text, "on the test set" if is_finite else ""]
    low, high = wilson_interval((record.test_accuracy or 0) / 100, record.test_examples or 1)
    labels = "" if record.tokens is None else " labels"
    return [
        run,
        f"test accuracy {record.test_accuracy:.2f} %{_judge(record)}",
        f"({record.test_correct:,} of {record.test_total:,}{labels}; 95 % interval {low:.1f} to "
        f"{high:.1f})",
    ]


def _judge(record: RunRecord) -> str:
    """Say of an accuracy that it is no better than one answer to all, or than a baseline."""
    verdicts = [AT_CHANCE] if is_at_chance(record) else []
    name, accuracy = best_baseline(record) or ("", 0.0)
    if name != "majority class" and (record.test_accuracy or 0.0) < accuracy:
        verdicts.append("below a trivial baseline")
    return f", {' and '.join(verdicts)}" if verdicts else ""


def _describe_targets(record: RunRecord) -> list[str]:
    """Describe predictions of next tokens, or of labels of positions, on the test set."""
    if record.tokens is not None:
        return [f"all labels of a sequence right: {record.tokens.sequence_accuracy:.2f} %"]
    if record.positions is None or record.test_accuracy is None:
        return []
    perplexity = record.positions.perplexity
    correct = f"{record.test_correct:,} of {record.test_total:,}"
    return [
        "" if perplexity is None else f"perplexity {perplexity:.4g} per token",
        f"next token right: {record.test_accuracy:.2f} % ({correct})",
    ]


def _describe_training(record: RunRecord) -> list[str]:
    """List what this run alone has measured."""
    speed = record.steps_per_second
    busy = " (busy machine)" if is_busy(record) else ""
    validation = "not validated yet"
    if record.val_accuracy is not None and record.best_step is not None:
        split = "validation" if record.selected_on == "val" else "selected on the test set:"
        number = f"{record.val_accuracy:.2f} %"
        if record.positions is not None and record.positions.val_loss is not None:
            number = f"{record.positions.val_loss / math.log(2):.3f} bits per token"
        validation = f"{split} {number} at step {record.best_step:,}"
    return [
        validation,
        duration(record.wall_seconds),
        "" if speed is None else f"{speed:.2f} steps/s{busy}",
        f"{record.peak_memory_mib:,.0f} MiB",
    ]


def _list_faults(record: RunRecord) -> Iterator[str]:
    """Say what a user must know before she uses the result."""
    if record.status in ("diverged", "oom") and record.message:
        yield record.message
    if record.status == "stopped":
        yield "no test accuracy yet: the test set is measured at the end of the run"
        left = record.total_steps - record.steps
        if record.steps_per_second is not None and left > 0:
            yield f"about {duration(left / record.steps_per_second)} of training left"
    if record.test_non_finite:
        what = "examples" if record.positions is None else "positions"
        yield (
            f"the logits of {record.test_non_finite:,} of {record.test_total:,} test {what} are "
            f"not finite; they count as wrong"
        )


def _describe_seeds(record: RunRecord, cell: Cell[RunRecord], shipped: Collection[str]) -> str:
    """Describe the mean over the seeds of the same settings; empty without other seeds.

    Args:
        record: the run.
        cell: all seeds of its settings.
        shipped: the ids of the shipped ones.
    """
    measure, *_ = measures_of([record])
    others = [run for run in cell.runs if run is not record and measure.of(run) is not None]
    if not others or measure.of(record) is None:
        return ""
    kinds = Counter("shipped" if run.run_id in shipped else "other" for run in others)
    counts = " and ".join(f"{n} {kind} seed{'s' * (n > 1)}" for kind, n in sorted(kinds.items()))
    mean = f"{cell.spread_text(measure)} {_unit(record)}"
    return f"with {counts}: {mean} (mean ± standard deviation)"


def _describe_rank(
    record: RunRecord, name: str, rows: Mapping[str, Cell[RunRecord]]
) -> tuple[str, list[str]]:
    """Describe the place of a run's row: a sentence, and rows with their numbers.

    Rows that failed or are at chance have no place. Equal numbers share one.
    """
    measure, *_ = measures_of([record])
    texts = {
        row: measure.text(value)
        for row, cell in sort_rows(rows, measure).items()
        if (value := cell.value(measure)) is not None
    }
    if not texts.keys() - {name}:
        return "", []
    order = list(texts)
    protocol = "" if record.protocol == DEFAULT_PROTOCOL else f" and protocol {record.protocol}"
    data = " with the same data" if select_sections(record.changes, "task") else ""
    among = f"of {len(order)} mixers and variants at this preset{protocol}{data}:"
    has_result = measure.of(record) is not None
    if has_result and name in texts:
        rank = list(texts.values()).index(texts[name]) + 1
        start = max(0, order.index(name) - NEIGHBOURS)
        shown = order[start : order.index(name) + NEIGHBOURS + 1]
        own = {name: f"> {name} {texts[name]} <"}
        return f"rank {rank} {among}", [own.get(row, f"{row} {texts[row]}") for row in shown]
    reason = "a seed diverged or ran out of memory" if has_result else "no result"
    reason = AT_CHANCE if rows[name].is_at_chance else reason
    best = [f"{row} {texts[row]}" for row in order[: 2 * NEIGHBOURS + 1]]
    return f"not ranked ({reason}); best {among}", best


def _wrap_rows(sentence: str, rows: Sequence[str], width: int) -> list[str]:
    """Write rows behind a sentence that introduces them, or below it."""
    start = " ".join([sentence, *rows[:1]])
    if len(INDENT + start) <= width:
        return wrap_parts([start, *rows[1:]], width, separator=", ")
    return wrap_parts([sentence], width) + wrap_parts(rows, width, separator=", ", indent=CONTINUED)


def _list_references(record: RunRecord) -> Iterator[str]:
    """List the best trivial baseline, the best possible result and the published one."""
    scores = record.positions
    digits = 2 if scores is None else 3
    if (baseline := best_baseline(record)) is not None:
        name, value = baseline
        yield f"best trivial baseline {value:.{digits}f} {_unit(record)} ({name})"
    if scores is None:
        yield describe_published(record)
    elif scores.lowest_bits:
        name, value = max(scores.lowest_bits.items(), key=lambda one: one[1])
        yield f"best possible {value:.{digits}f} {_unit(record)} ({name})"


def _propose_command(
    results_dir: Path, record: RunRecord, data_dir: Path | None, flags: Sequence[str]
) -> tuple[str, list[str]]:
    """Write the one command that follows from how the run ended, and what it is for."""
    if record.status == "done":
        return "next:", command_words("report", "--preset", record.preset, results_dir=results_dir)
    label, changes = "resume:", {}
    if record.status == "diverged":
        label = "next, with a lower learning rate:"
        changes = {"train.lr": float(f"{record.settings['train.lr'] / LOWER_RATE:.3g}")}
    if record.status == "oom":
        label = "next, with fewer examples per forward pass:"
        examples = record.micro_batch or record.batch_size
        changes = {"train.micro_batch": max(1, examples // 2)}
    words = [*run_flags(record, changes), *flags]
    return label, command_words("run", *words, data_dir=data_dir, results_dir=results_dir)
