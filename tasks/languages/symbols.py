"""The tokens of the arithmetic languages."""

from __future__ import annotations

MODULUS = 5
"""Number of different digits, and of places on the circle."""
SYMBOLS = "01234+-*=()"
"""What tokens stand for; languages without brackets end with "="."""
PLUS, MINUS, TIMES, EQUALS, OPEN, CLOSE = range(MODULUS, len(SYMBOLS))
VOCAB_SIZE = len(SYMBOLS)
