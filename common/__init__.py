"""What models, tasks and the harness all need; it imports nothing else of the suite."""

__all__ = [
    "cores",
    "errors",
    "files",
    "kernel_choice",
    "options",
    "progress",
    "strict_yaml",
    "tensors",
    "untrusted",
]
