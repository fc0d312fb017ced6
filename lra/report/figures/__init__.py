"""Figures: bubbles, lines, and what drawing them has in common."""

__all__ = ["bubbles", "drawing", "lines"]
