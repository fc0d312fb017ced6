"""What papers and released code state: results, settings, starting laws."""

__all__ = [
    "audit",
    "closest",
    "repeats",
    "rows",
    "starting_laws",
]
