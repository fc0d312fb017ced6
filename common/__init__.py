"""What models, tasks and the harness all need; it imports nothing else of the suite."""

__all__ = [
    "errors",
    "files",
    "options",
    "progress",
    "strict_yaml",
    "tensors",
    "threads",
    "untrusted",
]
