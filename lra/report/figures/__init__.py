"""Figures: colours, legends and files, and one module for each kind."""

__all__ = [
    "best_rows",
    "breakdown",
    "bubble_panels",
    "bubbles",
    "curves",
    "dots",
    "drawing",
    "intervals",
    "kernels",
    "layers",
    "leaderboard",
    "learning_rates",
    "next_tokens",
    "out_of_distribution",
    "probes",
    "scaling",
    "series",
    "styles",
]
