"""Languages: formal languages, their laws and the task."""

from tasks.languages.task import Languages

__all__ = ["Languages"]
