"""One run from its first step to its record, and what it leaves in its folder."""

__all__ = [
    "checkpoint",
    "checkpoint_files",
    "evaluation",
    "gradient",
    "loggers",
    "messages",
    "micro_batch",
    "optimizer",
    "run",
    "run_folder",
    "run_length",
    "scores",
    "self_pretraining",
    "session",
    "setup",
    "state",
    "stopping",
    "trainer",
    "training_time",
]
