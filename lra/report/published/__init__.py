"""What papers and released code state: results, settings, starting laws."""

__all__ = [
    "closest",
    "repeats",
    "rows",
    "settings",
]
