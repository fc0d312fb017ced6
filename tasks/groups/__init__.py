"""Groups: word problems of finite groups, their law and the task."""

from tasks.groups.task import Groups

__all__ = ["Groups"]
