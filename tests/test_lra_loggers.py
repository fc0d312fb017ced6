"""TensorBoard and Weights & Biases, where a user asks for them."""

import sys
import types
from pathlib import Path
from typing import Any

import pytest

from conftest import tiny_arguments
from lra import run_task


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_has_what_the_metrics_have_after_a_resume_too(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    arguments = tiny_arguments(tmp_path, "--set", "log.tensorboard=true")
    run_task.main([*arguments, "--max-steps", "10"])
    assert run_task.main(arguments) == 0
    (run,) = tmp_path.glob("results/runs/*/*/*/tensorboard")
    found = EventAccumulator(str(run)).Reload()
    assert [event.step for event in found.Scalars("training/loss")] == [4, 8, 12, 16, 20]
    assert [event.step for event in found.Scalars("validation/accuracy")] == [10, 20]
    tags = set(found.Tags()["scalars"])
    assert tags >= {"training/lr", "training/grad_norm", "validation/loss"}


def test_weights_and_biases_gets_the_same_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a stand-in: the package needs an account."""
    calls: list[tuple[str, Any]] = []

    class Run:
        def log(self, values: dict[str, float], step: int) -> None:
            calls.append(("log", (step, values)))

        def finish(self) -> None:
            calls.append(("finish", None))

    def init(**arguments: Any) -> Run:
        calls.append(("init", arguments))
        return Run()

    module = types.ModuleType("wandb")
    module.__dict__.update(init=init, Error=RuntimeError)
    monkeypatch.setitem(sys.modules, "wandb", module)
    assert run_task.main(tiny_arguments(tmp_path, "--set", "log.wandb=true")) == 0
    (_, started), *logged, (last, _) = calls
    assert last == "finish"
    assert started["resume"] == "allow"
    assert started["config"]["model"]["dim"] == 16
    assert [step for _, (step, _) in logged] == [4, 8, 10, 12, 16, 20, 20]
    assert any("validation/accuracy" in values for _, (_, values) in logged)
