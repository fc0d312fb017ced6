"""Recall: multi-query associative recall, its law and the task."""

from tasks.recall.task import Recall

__all__ = ["Recall"]
