"""Flags of other training tools, and what this suite has in their place."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from lra.runtime.errors import nearest

TRAINING_FLAGS: Mapping[str, str] = {
    "--batch-size": "the batch size is a setting: --set train.batch_size=32",
    "--epochs": "the number of epochs is a setting: --set train.epochs=10",
    "--gpus": "--device cuda:0 chooses a GPU; python -m lra.sweep uses all GPUs, one run on each; "
    "torchrun --nproc-per-node 2 run_task.py trains one model on two",
    "--lr": "the learning rate is a setting: --set train.lr=0.001",
    "--seeds": "a run has one seed: --seed 0; several: python -m lra.sweep --seeds 0,1,2",
    "--steps": "the number of steps is a setting: --set train.steps=1000; --max-steps 1000 stops a "
    "run early, and the same command resumes it",
}
"""Hints by flag, for commands that train."""


def describe_unknown_flag(flag: str, hints: Mapping[str, str], valid: Collection[str]) -> str:
    """Describe an unknown flag, with a hint at what to use instead.

    Args:
        flag: as it was given; of "--lr=1" the value does not count.
        hints: what to use instead, by flag.
        valid: flags of the command.
    """
    name = flag.partition("=")[0]
    hint = hints.get(name.lower().replace("_", "-"))
    near = nearest(name, (flag for flag in valid if flag.startswith("--")))
    if hint is None and near is not None:
        hint = f"did you mean {near}?"
    return f"unknown flag {name}" + (f"; {hint}" if hint else "")
