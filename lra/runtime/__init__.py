"""What every command needs of the machine and of Python: files, errors, messages, devices."""

__all__ = [
    "allocator",
    "cli",
    "console",
    "distributed",
    "environment",
    "errors",
    "flops",
    "interrupts",
    "launch",
    "packages",
    "peers",
    "plain_table",
    "progress",
    "repository",
    "synchronized_norm",
    "terminal",
    "threads",
]
