"""The first losses of every mixer and of every task stay what they are, whatever changes them."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from conftest import ROOT
from lra.config.registry import MIXERS, TASKS
from lra.train.trainer import Trainer
from made_data import SMALLER, place_made_data
from requested import resolve

LOSSES = ROOT / "tests" / "golden" / "losses.json"
CASES = [("listops", mixer) for mixer in MIXERS.classes] + [(task, "tnn") for task in TASKS.classes]
SMALL = [
    "model.dim=16", "model.depth=2", "model.dropout=0", "model.embedding_dropout=0",
    "train.batch_size=8", "train.bucketing=true", "train.steps=5", "train.warmup_steps=0",
    "train.schedule=constant", "train.lr=0.01", "train.weight_decay=0.5",
]  # fmt: skip
OWN_SETTINGS = {
    "listops": ["task.train=24", "task.max_length=64", "task.sequence_length=80"],
    "tnn": ["mixer.decay=0.9", "mixer.decay_learned=true"],
    "ski-tnn": ["mixer.num_inducing_points=16"],
}


@pytest.fixture(autouse=True)
def equal_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fix what processors, and versions of NumPy and torch, choose in different ways.

    These are the signs of eigenvectors, and which random numbers truncated normal ones are made of.
    """

    def eigh(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        values, vectors = real_eigh(matrix)
        return values, vectors * np.abs(vectors[-1]) / vectors[-1]

    real_eigh = np.linalg.eigh
    monkeypatch.setattr(np.linalg, "eigh", eigh)
    draw = lambda tensor, deviation: nn.init.normal_(tensor, std=deviation)  # noqa: E731
    monkeypatch.setattr("lra.models.s5.draw_truncated_normal", draw)


@pytest.mark.parametrize(("task", "mixer"), dict.fromkeys(CASES))
def test_five_losses_stay_what_they_are(
    task: str, mixer: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """`pytest -n 0 --write-golden` after a change meant."""
    place_made_data(task, tmp_path)
    own = [change for name in (task, mixer) for change in OWN_SETTINGS.get(name, [])]
    changes = [*SMALL, *SMALLER[task], *own]
    config = resolve(task, mixer, preset="quick", overrides=changes)
    built = config.build_task()
    trainer = Trainer(config, built.info, built.prepare(tmp_path), 0, torch.device("cpu"))
    trainer.model.double()
    if trainer.model.embedding.linear is not None:
        trainer.model.embedding.linear.register_forward_pre_hook(lambda _, x: x[0].double())
    losses: list[float] = []
    for _ in range(5):
        trainer.metrics.clear()
        trainer.train_step()
        trainer.read()
        losses.append(trainer.metrics.means()["loss"])
    golden = json.loads(LOSSES.read_text())
    if request.config.getoption("--write-golden"):
        golden[f"{task} {mixer}"] = losses
        LOSSES.write_text(json.dumps(golden, indent=0) + "\n")
    # Other processors round in another way.
    assert losses == pytest.approx(golden[f"{task} {mixer}"], rel=1e-5)
