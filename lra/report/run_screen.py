"""The last screen of a run: its own result first, then what that compares with."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from common.progress import duration
from lra.config.request import DEFAULT_PROTOCOL
from lra.record.run import RunRecord, choose_attempts, folder_of, read_runs
from lra.record.schema import is_shipped, select_sections
from lra.record.scores import unit_of, wilson_interval
from lra.report.commands import run_flags
from lra.report.published import describe_published
from lra.runtime.cli import command_words
from lra.runtime.console import CONTINUED, INDENT, as_typed, wrap_command, wrap_parts

NEIGHBOURS = 2
"""Rows that are shown on either side of a run's own row."""
LOWER_RATE = 4
"""Divisor of the learning rate that is proposed after a run has diverged."""

Row = tuple[str, str, str | None]
"""What all seeds of a row share: its name, and the hashes of settings and of a plug-in's code."""


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
    shipped = {run.run_id for place, run in others if is_shipped(place, results_dir)}
    rows: dict[Row, list[RunRecord]] = {}
    for run in [*(run for _, run in others), record]:
        rows.setdefault(_row_of(run), []).append(run)
    rows = {row: choose_attempts(runs) for row, runs in rows.items()}
    own = [_describe_targets(record), _describe_training(record)]
    own += [[text] for text in _list_faults(record)]
    own += [[_describe_seeds(record, rows[_row_of(record)], shipped)]]
    references = [*_list_references(record), f"record: {as_typed(str(folder))}"]
    label, command = _propose_command(results_dir, record, data_dir, flags)
    lines = [
        *wrap_parts(_describe_result(record), width, separator=" ", indent=""),
        *(line for parts in own for line in wrap_parts(parts, width)),
        *_wrap_rows(*_describe_rank(record, rows), width),
        *(line for text in references for line in wrap_parts([text], width)),
        *wrap_command(f"  {label}", command, width),
    ]
    return "\n".join(["", *lines, ""])


def _row_of(run: RunRecord) -> Row:
    return run.method, run.config_hash, run.mixer_code


def _compares(run: RunRecord, record: RunRecord) -> bool:
    """Whether a run of the same task has the preset, protocol, data and selection of another."""

    def describe(one: RunRecord) -> tuple[object, ...]:
        data = one.data.source, one.data.fingerprint
        return one.preset, one.protocol, one.positions is None, *data

    rules = {run.selected_on, record.selected_on} - {None}
    return describe(run) == describe(record) and len(rules) < 2  # noqa: PLR2004


def _write(score: float, record: RunRecord) -> str:
    """Write a score as results of a run's task are written."""
    return f"{score:.{2 if record.positions is None else 3}f}"


def _unit(record: RunRecord) -> str:
    scores = record.positions
    return "%" if scores is None else f"bits per {unit_of(scores.text_bytes)}"


def _describe_result(record: RunRecord) -> list[str]:
    """Say which run this is, and how it ended or what it scored."""
    protocol = "" if record.protocol == DEFAULT_PROTOCOL else f"protocol {record.protocol}, "
    run = f"{record.task} / {record.method} / {record.preset}, {protocol}seed {record.seed}:"
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
    verdicts = ["at chance"] if record.is_at_chance else []
    name, accuracy = record.best_baseline or ("", 0.0)
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
    busy = " (busy machine)" if record.gpu_shared else ""
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


def _describe_seeds(record: RunRecord, seeds: Sequence[RunRecord], shipped: Collection[str]) -> str:
    """Describe the mean over the seeds of the same settings; empty without other seeds.

    Args:
        record: the run.
        seeds: all seeds of its settings, the run included.
        shipped: the ids of the shipped ones.
    """
    scores = [run.score for run in seeds if run.score is not None]
    if record.score is None or len(scores) == 1:
        return ""
    others = [run for run in seeds if run is not record and run.score is not None]
    kinds = Counter("shipped" if run.run_id in shipped else "other" for run in others)
    counts = " and ".join(f"{n} {kind} seed{'s' * (n > 1)}" for kind, n in sorted(kinds.items()))
    mean, deviation = statistics.mean(scores), statistics.stdev(scores)
    spread = f"{_write(mean, record)} ± {_write(deviation, record)} {_unit(record)}"
    return f"with {counts}: {spread} (mean ± standard deviation)"


def _describe_rank(
    record: RunRecord, rows: Mapping[Row, Sequence[RunRecord]]
) -> tuple[str, list[str]]:
    """Describe the place of a run's row: a sentence, and rows with their means.

    Rows that failed or are at chance have no place. Equal numbers share one.
    """
    means: dict[Row, float] = {}
    for row, runs in rows.items():
        scores = [run.score for run in runs if run.score is not None]
        has_failed = any(run.has_failed for run in runs)
        is_at_chance = all(run.is_at_chance for run in runs if run.score is not None)
        if scores and not has_failed and not is_at_chance:
            means[row] = statistics.mean(scores)
    own, sign = _row_of(record), -1 if record.positions is None else 1
    if not means.keys() - {own}:
        return "", []
    order = sorted(means, key=lambda row: (sign * means[row], row[0]))
    texts = {row: f"{row[0]} {_write(means[row], record)}" for row in order}
    protocol = "" if record.protocol == DEFAULT_PROTOCOL else f" and protocol {record.protocol}"
    data = " with the same data" if select_sections(record.changes, "task") else ""
    among = f"of {len(order)} mixers and variants at this preset{protocol}{data}:"
    if record.score is not None and own in means:
        written = [_write(means[row], record) for row in order]
        rank = written.index(_write(means[own], record)) + 1
        texts[own] = f"> {texts[own]} <"
        start = max(0, order.index(own) - NEIGHBOURS)
        shown = order[start : order.index(own) + NEIGHBOURS + 1]
        return f"rank {rank} {among}", [texts[row] for row in shown]
    reason = "no result" if record.score is None else "a seed diverged or ran out of memory"
    reason = "at chance" if record.is_at_chance else reason
    shown = order[: 2 * NEIGHBOURS + 1]
    return f"not ranked ({reason}); best {among}", [texts[row] for row in shown]


def _wrap_rows(sentence: str, rows: Sequence[str], width: int) -> list[str]:
    """Write rows behind a sentence that introduces them, or below it."""
    start = " ".join([sentence, *rows[:1]])
    if len(INDENT + start) <= width:
        return wrap_parts([start, *rows[1:]], width, separator=", ")
    return wrap_parts([sentence], width) + wrap_parts(rows, width, separator=", ", indent=CONTINUED)


def _list_references(record: RunRecord) -> Iterator[str]:
    """List the best trivial baseline, the best possible result and the published one."""
    scores = record.positions
    if record.best_baseline is not None:
        name, value = record.best_baseline
        yield f"best trivial baseline {_write(value, record)} {_unit(record)} ({name})"
    if scores is None:
        yield describe_published(record)
    elif scores.lowest_bits:
        name, value = max(scores.lowest_bits.items(), key=lambda one: one[1])
        yield f"best possible {_write(value, record)} {_unit(record)} ({name})"


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
