"""LaTeX tables, PDF figures and a document for a paper."""

__all__ = [
    "write",
]
