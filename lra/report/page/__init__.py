"""The report's page and files, and the blocks of README files."""

__all__ = [
    "readme",
    "write",
]
