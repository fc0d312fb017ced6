"""Figures: colours, legends and files, and one module for each kind."""

__all__ = [
    "breakdown",
    "bubbles",
    "curves",
    "drawing",
    "kernels",
    "layers",
    "next_tokens",
    "out_of_distribution",
    "scaling",
]
