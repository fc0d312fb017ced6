"""The last screen of a run: what it achieved, and how that compares."""

__all__ = [
    "screen",
    "standing",
]
