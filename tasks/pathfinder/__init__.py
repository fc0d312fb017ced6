"""Pathfinder and Path-X: the law, the generator, the official files, and the tasks."""

from lra.tasks.pathfinder.task import Pathfinder, PathX

__all__ = ["PathX", "Pathfinder"]
