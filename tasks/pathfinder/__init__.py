"""Pathfinder and Path-X: the law, the generator, the official files, and the tasks."""

from tasks.pathfinder.pathx import PathX
from tasks.pathfinder.task import Pathfinder

__all__ = ["PathX", "Pathfinder"]
