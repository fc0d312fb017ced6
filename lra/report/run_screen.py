"""The last screen of a run: its own result first, then what that compares with."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from lra.common.progress import duration
from lra.config.request import DEFAULT_PROTOCOL
from lra.record.run import RunRecord, folder_of, read_runs
from lra.record.schema import is_shipped, select_sections, warn_of_packs
from lra.report.names import RowNames
from lra.report.published import describe_published
from lra.report.scores import Cell, cell_of, group_by
from lra.runtime.cli import command_words
from lra.runtime.console import CONTINUED, INDENT, as_typed, wrap_command, wrap_parts
from lra.runtime.tables import count_nouns

NEIGHBOURS = 2
"""Rows that are shown on either side of a run's own row."""
LOWER_RATE = 4
"""Divisor of the learning rate that is proposed after a run has diverged."""


def write_screen(
    results_dir: Path, record: RunRecord, width: int, data_dir: Path | None, flags: Sequence[str]
) -> str:
    """Write the last screen of a run, each line within a width in characters.

    The flags of its command beside its settings are `flags`.
    """
    folder = folder_of(results_dir, record)
    warn_of_packs(results_dir)
    others = [
        (path, run)
        for path, run in read_runs(results_dir, shipped=True, task=record.task)[0]
        if path != folder and _compares(run, record)
    ]
    shipped = {run.run_id for path, run in others if is_shipped(path, results_dir)}
    runs = [*(run for _, run in others), record]
    names = RowNames(runs)
    rows = {name: cell_of(same) for name, same in group_by(runs, names.of).items()}
    row = names.of(record)
    details = [*_describe_run(record), [_describe_seeds(record, rows[row], shipped)]]
    references = [*_list_references(record), f"record: {as_typed(str(folder))}"]
    label, command = _propose_command(results_dir, record, data_dir, flags)
    lines = [
        *wrap_parts(_describe_result(record), width, separator=" ", indent=""),
        *(line for parts in details for line in wrap_parts(parts, width)),
        *_describe_rank(record, row, rows, width),
        *(line for text in references for line in wrap_parts([text], width)),
        *wrap_command(f"  {label}", command, width),
    ]
    return "\n".join(["", *lines, ""])


def _compares(run: RunRecord, record: RunRecord) -> bool:
    """Whether a run of the same task has the preset, protocol, data and selection of another."""
    settings = {
        (r.preset, r.preset_code, r.protocol, r.result.goal, r.data.source, r.data.fingerprint)
        for r in (run, record)
    }
    return len(settings) == 1 and len({run.selected_on, record.selected_on} - {None}) <= 1


def _describe_result(record: RunRecord) -> list[str]:
    """Say which run this is, and how it ended or what it scored."""
    protocol = "" if record.protocol == DEFAULT_PROTOCOL else f"protocol {record.protocol}, "
    run = f"{record.task} / {record.method} / {record.preset}, {protocol}seed {record.seed}:"
    if record.status != "done":
        ends = {"stopped": record.message, "diverged": "diverged", "oom": "out of memory"}
        return [run, f"{ends[record.status]} at step {record.steps:,} of {record.total_steps:,}"]
    first, *others = record.result.describe_test()
    steps = f", after {record.steps:,} steps" if record.result.grows_with_training else ""
    return [run, first + steps, *others]


def _describe_run(record: RunRecord) -> Iterator[list[str]]:
    """List the parts of the lines on this run alone: what else it has measured, and faults."""
    result, speed = record.result, record.steps_per_second
    yield result.describe_more()
    validation = "not validated yet"
    if record.best_step is not None:
        split = "validation" if record.selected_on == "val" else "selected on the test set:"
        validation = f"{split} {result.validation_text} at step {record.best_step:,}"
    busy = " (busy machine)" if record.gpu_shared else ""
    yield [
        validation,
        duration(record.wall_seconds),
        "" if speed is None else f"{speed:.2f} steps/s{busy}",
        f"{record.peak_memory_mib:,.0f} MiB",
    ]
    if record.status == "stopped":
        yield ["no test accuracy yet: the test set is measured at the end of the run"]
        if speed is not None and record.total_steps > record.steps:
            left = duration((record.total_steps - record.steps) / speed)
            yield [f"about {left} of training left"]
    elif record.message:
        yield [record.message]
    if result.test_non_finite:
        yield [
            f"the logits of {result.test_non_finite:,} of {result.test_total:,} test "
            f"{result.targets} are not finite; {result.of_non_finite}"
        ]


def _describe_seeds(record: RunRecord, cell: Cell, shipped: Collection[str]) -> str:
    """Describe the mean over all seeds of a run's settings; empty if there is no other."""
    measure = record.result.measures[0]
    entry = cell.entry(measure)
    if record.result.score is None or entry.seeds == 1:
        return ""
    others = [run for run in cell.runs if run is not record and run.result.score is not None]
    kinds = Counter("shipped" if run.run_id in shipped else "other" for run in others)
    counts = " and ".join(count_nouns(n, f"{kind} seed") for kind, n in sorted(kinds.items()))
    numbers = measure.text(entry.value, entry.deviation)
    return f"with {counts}: {numbers} {record.result.unit} (mean ± standard deviation)"


def _describe_rank(
    record: RunRecord, this_row: str, rows: Mapping[str, Cell], width: int
) -> list[str]:
    """Describe the rank of a run's row, with the means of its neighbours, in lines.

    Rows that failed or are at chance have no rank. Equal numbers share one.
    """
    measure = record.result.measures[0]
    entries = {row: cell.entry(measure) for row, cell in rows.items()}
    means = {row: entry.value or 0.0 for row, entry in entries.items() if entry.is_ranked}
    sign = 1 if measure.lowest_is_best else -1
    if not means.keys() - {this_row}:
        return []
    order = sorted(means, key=lambda row: (sign * means[row], row))
    numbers = {row: measure.text(means[row]) for row in order}
    texts = {row: f"{row} {number}" for row, number in numbers.items()}
    if record.result.score is not None and this_row in means:
        rank = f"rank {[*numbers.values()].index(numbers[this_row]) + 1}"
        texts[this_row] = f"> {texts[this_row]} <"
        index = order.index(this_row)
        shown = order[max(0, index - NEIGHBOURS) : index + NEIGHBOURS + 1]
    else:
        reason = (
            "no result" if record.result.score is None else "a seed diverged or ran out of memory"
        )
        reason = record.result.chance if record.result.is_at_chance else reason
        rank = f"not ranked ({reason}); best"
        shown = order[: 2 * NEIGHBOURS + 1]
    protocol = "" if record.protocol == DEFAULT_PROTOCOL else f" and protocol {record.protocol}"
    data = " with the same data" if select_sections(record.changes, "task") else ""
    sentence = f"{rank} of {len(order)} mixers and variants at this preset{protocol}{data}:"
    first, *others = [texts[row] for row in shown]
    if len(f"{INDENT}{sentence} {first}") <= width:
        return wrap_parts([f"{sentence} {first}", *others], width, separator=", ")
    below = wrap_parts([first, *others], width, separator=", ", indent=CONTINUED)
    return wrap_parts([sentence], width) + below


def _list_references(record: RunRecord) -> Iterator[str]:
    """List the best trivial baseline, the best possible result and the published one."""
    result = record.result
    known = [
        ("best trivial baseline", result.best_baseline),
        ("best possible", result.best_possible),
    ]
    for what, pair in known:
        if pair is not None:
            name, value = pair
            yield f"{what} {result.measures[0].text(value)} {result.unit} ({name})"
    if result.is_accuracy:
        yield describe_published(record)


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
    words = [*record.flags(changes), *flags]
    return label, command_words("run", *words, data_dir=data_dir, results_dir=results_dir)
