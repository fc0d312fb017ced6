"""Pathfinder and Path-X: the law of their images, the official files, and the tasks."""

from tasks.pathfinder.pathx import PathX
from tasks.pathfinder.task import Pathfinder

__all__ = ["PathX", "Pathfinder"]
