"""What results score: the number of a row and column over seeds, chance, intervals and ranks."""

import math
import statistics
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from lra.goals.measure import ACCURACY, Measure
from lra.record.contribution import RANKED_SEEDS
from lra.record.run import RunRecord, TestedRecord, choose_attempts
from lra.report.names import run_anchor
from lra.statistics import Interval, wilson_interval
from lra.tasks.base import BENCHMARK

FIVE = BENCHMARK[:-1]
"""The tasks of the average without Path-X."""
AVERAGES = {"mean of 5": FIVE, "mean of 6": BENCHMARK}
"""Tasks of each average."""

IsOwn = Callable[[Any], bool]
"""Says whether a record is the user's own, rather than a shipped one."""
Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)


def group_by(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Group items by a key, in the order in which the keys come first."""
    groups: dict[Key, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def measures_of(records: Sequence[TestedRecord]) -> Sequence[Measure]:
    """Return what tables of records show, the measure that they are ranked by first."""
    return records[0].result.measures if records else [ACCURACY]


@dataclass(frozen=True)
class Entry:
    """What a column of a table says of one row."""

    text: str | None = None
    """None where there is nothing to say; tables then show a dash."""
    value: float | None = None
    """The unrounded number; None where there is none."""
    is_ranked: bool = False
    """Whether the number competes for the best of its column."""
    deviation: float | None = None
    """Standard deviation of the number over seeds; None for fewer than two seeds."""
    interval: Interval | None = None
    remarks: Sequence[str] = ()
    """What else is known of this number, such as "2 diverged"."""
    chance: str = ""
    """What it is called if all its runs are at chance; see `lra.goals.result.Result`."""
    examples: int = 0
    """Test examples that an accuracy was measured on, the fewest of its runs; 0: not known."""
    seeds: int = 0
    """How many seeds the number is a mean of; 0 where it is no mean over seeds."""
    anchors: Sequence[str] = ()
    """Names, in the page, of the runs or measurements that it is made from."""
    is_own: bool = False
    """Whether it is made from any run of the user's own; in the first column, whether any number
    of the row is."""
    link: str = ""
    """Address that the text leads to in the page."""


def may_rank(runs: Sequence[RunRecord]) -> bool:
    """Whether the number of runs competes: of contributions, those with the seeds for it do."""
    of = runs[0].contribution if runs else None
    finished = sum(run.status == "done" for run in runs)
    return of is None or (of.withdrawn is None and finished >= RANKED_SEEDS)


def score(
    records: Sequence[TestedRecord],
    measure: Measure = ACCURACY,
    unfinished: Sequence[str] = (),
    *,
    shows_spread: bool = True,
    is_own: bool = False,
) -> Entry:
    """Say what results score that differ in seed alone: mean ± standard deviation (n), remarks.

    The interval is mean ± standard deviation; of one seed the 95 % interval of its score. A
    number has no rank if a run failed, if all are at chance, or if it is a contribution's that is
    withdrawn or has fewer than three seeds. `unfinished` says how runs of
    the user's own ended whose shipped counterparts count instead.
    """
    results = [record.result for record in records]
    numbers = [value for result in results if (value := measure.of(result)) is not None]
    mean = statistics.mean(numbers) if numbers else None
    deviation = statistics.stdev(numbers) if len(numbers) > 1 else None
    runs = [record for record in records if isinstance(record, RunRecord)]
    at_chance = sum(result.is_at_chance for result in results) if measure.interval else 0
    is_at_chance = 0 < at_chance == len(numbers)
    chance = results[0].chance if at_chance else ""
    remarks = [*_describe_ends(records), *unfinished]
    if at_chance and not is_at_chance:
        remarks.insert(0, f"{at_chance} of {len(numbers)} {chance}")
    if mean is not None and mean >= measure.highest:
        remarks.append("or more")
    text = measure.text(mean, deviation if shows_spread else None)
    if shows_spread:
        text += f" (n={len(numbers)})"
    if is_at_chance:
        text = f"{chance}: {text}"
    texts = [text] if numbers else []
    interval = None
    if mean is not None and deviation is not None:
        interval = mean - deviation, mean + deviation
    elif measure.interval is not None:
        interval = next((end for result in results if (end := measure.interval(result))), None)
    accuracies = results if measure is ACCURACY else []
    totals = [result.test_examples for result in accuracies if result.test_examples]
    has_failed = any(run.has_failed for run in runs)
    return Entry(
        ", ".join([*texts, *remarks]) or None,
        mean,
        bool(numbers) and may_rank(runs) and not is_at_chance and not has_failed,
        deviation,
        interval,
        [chance, *remarks] if is_at_chance else remarks,
        chance if is_at_chance else "",
        min(totals, default=0),
        len(numbers),
        [run_anchor(run) for run in sorted(runs, key=lambda run: run.status != "done")],
        is_own,
    )


def _describe_ends(records: Sequence[TestedRecord]) -> list[str]:
    """Say how many runs ended without a test, and in which way, or with logits not finite."""
    runs = [record for record in records if isinstance(record, RunRecord)]
    ends = Counter(run.status for run in runs if run.result.test_total is None)
    remarks = [word if count == 1 else f"{count} {word}" for word, count in sorted(ends.items())]
    if faulty := sum(bool(record.result.test_non_finite) for record in records):
        remarks.append(f"{faulty} with non-finite logits")
    return remarks


@dataclass(frozen=True)
class Cell:
    """The runs of one row and column, of which one counts for each seed; see `cell_of`."""

    runs: tuple[RunRecord, ...] = ()
    tried: tuple[RunRecord, ...] = ()
    """The runs that count of all settings that were tried, of which `runs` are the best."""
    unfinished: tuple[str, ...] = ()
    """How runs of the user's own ended, if shipped runs with the same ids count instead."""
    has_own: bool = False
    """Whether any run is the user's own, rather than a shipped one."""

    def entry(self, measure: Measure = ACCURACY, *, shows_spread: bool = True) -> Entry:
        """Say what the runs score, see `score`."""
        return score(
            self.runs, measure, self.unfinished, shows_spread=shows_spread, is_own=self.has_own
        )

    @property
    def number(self) -> float | None:
        """The accuracy that averages over tasks are of: the mean; None if a run failed."""
        return None if any(run.has_failed for run in self.runs) else self.entry().value


def merit_of(runs: Sequence[RunRecord]) -> float:
    """Return the mean validation result of finished runs, the higher the better; -inf without."""
    measure = runs[0].result.validation
    mean = score([run for run in runs if run.status == "done"], measure).value
    return -math.inf if mean is None else mean * (-1 if measure.lowest_is_best else 1)


def cell_of(records: Sequence[RunRecord], is_own: IsOwn = lambda _: False) -> Cell:
    """Make a cell of all runs of one row and column.

    Of several settings that were tried, those with the best validation result count.
    """
    settings = group_by(records, lambda run: run.config_hash).values()
    tried = [tuple(choose_attempts(same)) for same in settings]
    every = tuple(run for runs in tried for run in runs)
    done = {(run.run_id, run.seed) for run in every if run.status == "done"}
    unfinished = tuple(
        f"your run: {run.status} at step {run.steps:,} of {run.total_steps:,}"
        for run in records
        if run.status != "done" and (run.run_id, run.seed) in done
    )
    best = max(tried, key=merit_of, default=())
    return Cell(best, every, unfinished, any(map(is_own, records)))


def mean_over(tasks: Sequence[str], values: Mapping[str, float | None]) -> float | None:
    """Average a row over tasks; None if any is missing."""
    known = [value for task in tasks if (value := values.get(task)) is not None]
    return statistics.mean(known) if len(known) == len(tasks) else None


def average(cells: Mapping[str, Cell], tasks: Sequence[str]) -> float | None:
    """Average a row over tasks, in which results at chance count; None if a task has none."""
    return mean_over(tasks, {task: cell.number for task, cell in cells.items()})


def average_may_rank(cells: Mapping[str, Cell], tasks: Sequence[str]) -> bool:
    """Whether an average over tasks competes; see `may_rank`."""
    return all(may_rank(cells[task].runs) for task in tasks if task in cells)


def gain_of(cell: Cell, baseline: float) -> float | None:
    """Return how far results go from the best trivial baseline to 100 %, in percent.

    It is 0 at chance and below the baseline; None without a result, or if a run failed.
    """
    if cell.number is None:
        return None
    gain = 100 * (cell.number - baseline) / (100 - baseline)
    return 0.0 if cell.entry().chance else max(0.0, gain)


def half_interval(entries: Iterable[Entry]) -> float | None:
    """Return half of the 95 % interval of a score near the middle of a column.

    Of accuracies it is that of their test examples, else the median over rows of one seed.
    """
    entries = [entry for entry in entries if entry.value is not None]
    known = [(entry.value, entry.examples) for entry in entries if entry.examples]
    if not known:
        ends = [entry.interval for entry in entries if entry.interval and entry.seeds == 1]
        return statistics.median((high - low) / 2 for low, high in ends) if ends else None
    values, totals = zip(*known, strict=True)
    low, high = wilson_interval(statistics.median(values) / 100, min(totals))
    return (high - low) / 2
