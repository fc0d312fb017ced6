"""Records turned into tables, figures, a page and the blocks of README files.

The rooms, from the top down: paper, page, figures, tables, published, boards.
"""

__all__ = ["boards", "figures", "page", "paper", "published", "tables"]
