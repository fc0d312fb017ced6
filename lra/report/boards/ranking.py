"""The best and the second best of some numbers, compared as they are printed."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Decimal

BEST, SECOND = "best", "second"


def rounded(value: float, digits: int) -> str:
    """Write a number with so many decimals, halves away from 0, as its decimal form has them.

    Of 54.55 and 46.45 the binary forms lie below and above the half.
    """
    unit = Decimal(1).scaleb(-digits)
    return str(Decimal(repr(float(value))).quantize(unit, ROUND_HALF_UP))


def ranks(
    values: Sequence[float | None], digits: int = 2, *, lowest_is_best: bool = False
) -> dict[int, str]:
    """Mark the best and the second best of some numbers, compared as printed.

    Equal numbers have the same mark; a single number has none.

    Args:
        values: the numbers; None where there is none.
        digits: decimal digits that are printed.
        lowest_is_best: whether the lowest number is the best one, not the highest.
    """
    shown = {
        i: float(rounded(value, digits)) for i, value in enumerate(values) if value is not None
    }
    if len(shown) < 2:  # noqa: PLR2004
        return {}
    order = sorted(set(shown.values()), reverse=not lowest_is_best)
    names = dict(zip(order, (BEST, SECOND), strict=False))
    return {i: names[value] for i, value in shown.items() if value in names}


def ranks_beyond(values: Sequence[float | None], margin: float) -> dict[int, str]:
    """Mark the highest number as the best if all others are lower by more than a margin.

    If some are not, it is among the numbers that may be the best, and all of them are marked as
    second.

    Args:
        values: the numbers; None where there is none.
        margin: the largest difference that means nothing.
    """
    known = {i: value for i, value in enumerate(values) if value is not None}
    if len(known) < 2:  # noqa: PLR2004
        return {}
    highest = max(known.values())
    close = [i for i, value in known.items() if value >= highest - margin]
    return {i: BEST if len(close) == 1 else SECOND for i in close}
