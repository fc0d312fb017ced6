"""Records turned into tables, figures, a page and the blocks of README files.

The rooms, from the top down: paper, page, figures, tables, published, boards. `contents` is the
list of what is shown, `chapters` says what a chapter is, `summary` is what report.py prints, and
`run_screen` is what a run prints at its end.
"""

__all__ = ["chapters", "contents", "paper", "paper_rows", "run_screen", "summary"]
