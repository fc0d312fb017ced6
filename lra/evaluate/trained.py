"""Trained models, from the checkpoints of their runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lra.classifier.axes import AlongAxis
from lra.classifier.classifier import Classifier
from lra.classifier.resolve import resolve
from lra.config.schema import RunConfig
from lra.record.run import RunRecord
from lra.runtime.errors import UserError
from lra.train.checkpoint import read_newest
from models.layers.two_axes import RowsThenColumns
from tasks.base import TaskInfo


def config_of(folder: Path, record: RunRecord, changes: Sequence[str] = ()) -> RunConfig:
    """Lay up the settings of a run again, those of a plug-in from where it was.

    Args:
        folder: of the run.
        changes: further settings, "section.key=value".
    Raises: UserError if the files they came from have changed since.
    """

    def laid_up(overrides: Sequence[str]) -> RunConfig:
        return resolve(
            record.task,
            record.mixer_from or record.mixer,
            preset=record.preset,
            protocol=record.protocol,
            overrides=overrides,
        )

    if laid_up(record.overrides).hash != record.config_hash:
        raise UserError(f"{folder}: its settings files have changed since")
    return laid_up([*record.overrides, *changes])


def best_model(folder: Path, config: RunConfig, info: TaskInfo) -> Classifier | None:
    """Build the model of a run with its best weights, for evaluation.

    Args:
        folder: of the run.
        config: the run's own.
        info: of the data that the model is to meet. Its mixers are those of the training: S4's
            readout, say, means something for the length that it was trained at alone.
    Returns: None without a checkpoint.
    Raises: UserError if the weights do not fit, as those of learned positions to longer sequences.
    """
    state = read_newest(folder / "checkpoints")
    if state is None:
        return None
    model = Classifier(config, info, trained=config.build_task().info)
    trainer = state["trainer"]
    weights = (trainer["best"] or trainer)["model"]
    own = model.state_dict()
    other = [n for n in own if n not in weights or weights[n].shape != own[n].shape]
    if other or own.keys() != weights.keys():
        names = ", ".join(other or sorted(weights.keys() - own.keys()))
        raise UserError(f"{folder}: the weights do not fit a model for this data: {names}")
    model.load_state_dict(weights)
    for module in model.modules():
        if isinstance(module, (AlongAxis, RowsThenColumns)) and info.grid is not None:
            module.grid = info.grid
    return model.eval()
