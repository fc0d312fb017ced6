"""Records turned into tables, figures, a page and the blocks of README files.

The rooms, from the top down: paper, page, figures, tables, published, boards. `data` sorts the
records into what compares, `contents` lists what blocks of README files may show, `summary` is what
report.py prints, and `run_screen` is what a run prints at its end.
"""

__all__ = ["contents", "data", "paper", "paper_rows", "run_screen", "summary"]
