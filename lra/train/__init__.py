"""One run from its first step to its record, and what it leaves in its folder."""

__all__ = [
    "checkpoint", "checkpoint_files", "evaluation", "gradient", "loggers", "optimizer", "run",
    "run_folder", "schedule", "scores", "self_pretraining", "setup", "state", "step_graph",
    "stopping", "trainer", "training_time",
]  # fmt: skip
