"""One run from its first step to its record, and what it leaves in its folder."""

__all__ = [
    "checkpoint",
    "estimate",
    "evaluation",
    "interval",
    "loggers",
    "messages",
    "micro_batch",
    "optimizer",
    "pretraining",
    "run",
    "run_folder",
    "run_length",
    "session",
    "state",
    "stopping",
    "trainer",
]
