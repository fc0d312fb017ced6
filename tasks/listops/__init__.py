"""ListOps: the law of its expressions, the official files, and the task."""

from tasks.listops.task import ListOps

__all__ = ["ListOps"]
