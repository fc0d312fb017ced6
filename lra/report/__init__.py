"""Records turned into tables, figures, a page and the blocks of README files.

The rooms, from the top down: paper, page, figures, tables, published, boards. `contents` is the
list of what is shown, `chapters` says what a chapter is, and `summary` is what the terminal shows.
"""

__all__ = ["chapters", "contents", "summary"]
