"""What models, tasks and the harness all need; it imports nothing else of the suite."""

__all__ = [
    "cores",
    "devices",
    "errors",
    "files",
    "options",
    "progress",
    "strict_yaml",
    "untrusted",
]
