"""The tasks, each a file or a folder, and what they have in common.

The harness finds a task because a module here defines a subclass of `Task`, or a folder exports
one.
"""

__all__ = [
    "base", "cache", "manifest", "next_token", "order", "own", "random_words", "resident", "splits",
    "stated", "unlabelled", "vocabulary",
]  # fmt: skip
