"""Periodic: the law, the ideal predictor, and the task."""

from tasks.periodic.task import Periodic

__all__ = ["Periodic"]
