"""Tables: their columns, how they are written, and one module for each kind."""

__all__ = [
    "accuracy",
    "benchmarks",
    "comparison",
    "equal_time",
    "latex",
    "leaderboard",
    "leaderboard_csv",
    "markdown",
    "next_tokens",
    "notes",
    "out_of_distribution",
    "position_bits",
    "probes",
    "published",
    "reproduce",
    "settings",
    "speed",
    "table",
    "task_table",
    "terminal",
]
