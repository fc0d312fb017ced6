"""Figures: colours, legends and files, and one module for each kind."""

__all__ = [
    "best_rows",
    "breakdown",
    "bubble_names",
    "bubble_panels",
    "bubbles",
    "curves",
    "drawing",
    "intervals",
    "leaderboard",
    "next_tokens",
    "out_of_distribution",
    "probes",
    "scaling",
    "styles",
]
