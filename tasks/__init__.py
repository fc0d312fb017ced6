"""The tasks, each a file or a folder, and what they have in common.

The harness finds a task because a module here defines a subclass of `Task`, or a folder exports
one.
"""

if __name__ != "lra.tasks":
    raise ImportError("the suite's tasks are lra.tasks now: from lra.tasks.base import Task")
