"""Contributions to the open leaderboard: making, checking and marking them."""

__all__: list[str] = []
