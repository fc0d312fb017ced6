"""ListOps: the law, the generator, the official files, and the task."""

from lra.tasks.listops.task import ListOps

__all__ = ["ListOps"]
