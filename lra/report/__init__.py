"""Records turned into tables, figures, a page and the blocks of README files."""

__all__ = ["benchmarks", "build", "names", "paper", "readme", "results", "task_table"]
