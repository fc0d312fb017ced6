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
