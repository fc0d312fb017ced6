"""Trials of a mixer or a task of one's own, all at once, with what passed and what failed."""

__all__: list[str] = []
