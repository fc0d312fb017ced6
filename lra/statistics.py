"""Intervals, ranks and tests: what chance can explain."""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

CHANCE_SIGMA = 2.326
"""A result is at chance unless it beats every constant answer at the 1 % level, one-sided."""
Z95 = 1.959964
RESAMPLES = 10_000
"""Resamples of a bootstrap."""
SIGNIFICANCE = 0.05
"""P-value above which a difference is within noise."""
BEST, TIED = "best", "tied"
"""Marks of numbers, see `mark_best`."""
Interval = tuple[float, float]
"""Lower and upper end."""


def wilson_interval(proportion: float, total: int) -> tuple[float, float]:
    """Return the 95 % interval of a proportion of `total` draws, in percent (Wilson, 1927)."""
    z2 = Z95**2
    scale = 1 + z2 / total
    middle = (proportion + z2 / (2 * total)) / scale
    spread = math.sqrt(proportion * (1 - proportion) / total + z2 / (4 * total**2)) / scale
    half = Z95 * spread
    return 100 * max(0.0, middle - half), 100 * min(1.0, middle + half)


def is_at_chance(percent: float, constant: float, total: int) -> bool:
    """Whether an accuracy of `total` examples is no better than one answer to all.

    It is compared with the accuracy of the best such answer by a test of proportions; all in
    percent.
    """
    sigma = math.sqrt(constant * (100.0 - constant) / total)
    return percent < constant + CHANCE_SIGMA * sigma


def bootstrap_interval(
    score: Callable[[np.ndarray], float], examples: int, resamples: int
) -> Interval:
    """Return the 95 % interval of a score for another test set, by resamples of the examples.

    Args:
        score: takes the indices of resampled examples, (examples,).
    """
    draw = np.random.default_rng(0)
    scores = [score(draw.integers(examples, size=examples)) for _ in range(resamples)]
    low, high = np.percentile(scores, [2.5, 97.5])
    return float(low), float(high)


def mark_best(values: Sequence[float | None], margin: float | None) -> dict[int, str]:
    """Mark the number that leads by more than chance can explain, or all that may be the best.

    Args:
        values: two numbers or more, the higher the better; None has no rank.
        margin: largest difference that chance can explain. None: not known, so nothing is marked.
    """
    known = {i: value for i, value in enumerate(values) if value is not None}
    if len(known) < 2 or margin is None:  # noqa: PLR2004
        return {}
    close = [i for i, value in known.items() if value >= max(known.values()) - margin]
    return dict.fromkeys(close, BEST if len(close) == 1 else TIED)


def average_interval(
    values: Sequence[float], intervals: Sequence[Interval | None]
) -> Interval | None:
    """Return the interval of an average over tasks, whose errors are independent; None if any
    number has no interval.
    """
    known = [interval for interval in intervals if interval is not None]
    if not known or len(known) < len(values):
        return None
    if len(known) == 1:
        return known[0]
    half = math.hypot(*((high - low) / 2 for low, high in known)) / len(values)
    mean = statistics.mean(values)
    return mean - half, mean + half


@dataclass(frozen=True)
class Comparison:
    """A mixer against another on one task, over the seeds that both have finished."""

    seeds: int
    difference: float
    """Merit of the first mixer less that of the second, in percentage points, mean over seeds."""
    low: float
    high: float
    """Upper end of the 95 % interval that starts at `low`, see `compare`."""
    p_value: float
    """Two-sided p-value: for one seed of McNemar's exact test, or of a bootstrap where differences
    are more than 1, 0 and -1; of a t-test for several."""

    @property
    def is_noise(self) -> bool:
        """Whether noise may explain the difference: if the interval includes 0, or p is high."""
        return self.low <= 0 <= self.high or self.p_value > SIGNIFICANCE


def compare(first: Sequence[np.ndarray], second: Sequence[np.ndarray]) -> Comparison:
    """Compare two mixers whose runs are paired by seed.

    The 95 % interval of one seed resamples the test examples: it says how far another test set
    from the same distribution might move the difference, and knows nothing of other seeds. That of
    several seeds is for another test set and other seeds at once, see `_interval_over_seeds`.

    Args:
        first, second: for each seed (examples,) what each adds to the mean that a mixer scores,
            such as 1 where it is right and else 0, in the same order.
    """
    differences = np.array(first, dtype=np.float64) - np.array(second, dtype=np.float64)
    compare_one = _interval_over_examples if len(differences) == 1 else _interval_over_seeds
    return Comparison(len(differences), 100 * float(differences.mean()), *compare_one(differences))


def _interval_over_examples(differences: np.ndarray) -> tuple[float, float, float]:
    """Return the ends of a bootstrap interval over test examples, in points, and the p-value.

    Args:
        differences: (1, examples).
    """
    from scipy.stats import binomtest, bootstrap

    values, counts = np.unique(differences, return_counts=True)
    if not np.isin(values, (-1, 0, 1)).all():
        drawn = bootstrap(
            tuple(differences), np.mean, n_resamples=RESAMPLES, batch=100, method="percentile",
            rng=np.random.default_rng(0),
        )  # fmt: skip
        means = drawn.bootstrap_distribution
        low, high = drawn.confidence_interval
        # The data itself counts as a resample, so that no p-value is 0.
        p_value = 2 * (1 + float(min((means <= 0).sum(), (means >= 0).sum()))) / (1 + len(means))
        p_value = min(1.0, p_value)
        return 100 * float(low), 100 * float(high), p_value
    # There are few different values, so it suffices to draw how often each of them occurs.
    examples = differences.size
    draws = np.random.default_rng(0).multinomial(examples, counts / examples, size=RESAMPLES)
    low, high = np.percentile(100 * draws @ values / examples, [2.5, 97.5])
    only_first, discordant = int((differences == 1).sum()), int((differences != 0).sum())
    p_value = float(binomtest(only_first, discordant).pvalue) if discordant else 1.0
    return float(low), float(high), p_value


def _interval_over_seeds(differences: np.ndarray) -> tuple[float, float, float]:
    """Return the ends of a t-interval over seeds and examples, in points, and its p-value.

    Both are drawn at random: the variance of the mean is that of a two-way layout with random
    effects, MS_examples + MS_seeds - MS_rest over the number of differences, with Satterthwaite's
    degrees of freedom (Satterthwaite, 1946, Biometrics Bulletin 2(6)). Seeds that vary less than
    their examples explain add nothing.

    Args:
        differences: (seeds, examples), of two seeds or more.
    """
    from scipy.stats import t

    seeds, examples = differences.shape
    mean = differences.mean()
    over_seeds = differences.mean(axis=1, keepdims=True) - mean
    over_examples = differences.mean(axis=0, keepdims=True) - mean
    rest = differences - mean - over_seeds - over_examples
    # Of examples, seeds and the rest: degrees of freedom, and mean squares.
    free = np.array([max(1, examples - 1), seeds - 1, max(1, examples - 1) * (seeds - 1)])
    sums = [seeds * np.square(over_examples).sum(), examples * np.square(over_seeds).sum()]
    squares = np.array([*sums, np.square(rest).sum()]) / free
    total = squares[0] + max(0.0, squares[1] - squares[2])
    if total == 0:
        return 100 * float(mean), 100 * float(mean), float(mean == 0)
    # The difference of squares may leave fewer degrees of freedom than the seeds alone have.
    degrees = max(total**2 / (squares**2 / free).sum(), seeds - 1)
    error = math.sqrt(total / differences.size)
    reach = float(t.ppf(0.975, degrees)) * error
    p_value = 2 * float(t.sf(abs(mean) / error, degrees))
    return 100 * float(mean - reach), 100 * float(mean + reach), p_value


def decline_p_value(first: float, first_total: int, second: float, second_total: int) -> float:
    """Return the one-sided p-value of a second share that is lower than the first by chance.

    Both are means over the same seeds, whose examples are the same: the variance is that of one
    seed, which is at least that of the mean.
    """
    from scipy.stats import norm

    share = (first * first_total + second * second_total) / (first_total + second_total)
    error = math.sqrt(share * (1 - share) * (1 / first_total + 1 / second_total))
    return float(norm.sf((first - second) / error)) if error else 1.0


def correct_holm(p_values: Sequence[float]) -> list[float]:
    """Correct p-values for their number (Holm, 1979, Scandinavian Journal of Statistics 6)."""
    order = np.argsort(p_values)
    steps = np.array(p_values)[order] * np.arange(len(p_values), 0, -1)
    corrected = np.empty(len(p_values))
    corrected[order] = np.minimum(1.0, np.maximum.accumulate(steps))
    return corrected.tolist()


def interval_of_next(values: Sequence[float]) -> Interval:
    """Return the 95 % interval of one more draw, by at least two draws (Student's t)."""
    from scipy.stats import t

    count, mean = len(values), statistics.mean(values)
    reach = float(t.ppf(0.975, count - 1)) * statistics.stdev(values) * math.sqrt(1 + 1 / count)
    return mean - reach, mean + reach
