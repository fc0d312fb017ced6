"""Loading trained models from the checkpoints of their runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lra.classifier.classifier import Classifier
from lra.classifier.resolve import resolve
from lra.config.schema import RunConfig
from lra.record.run import RunRecord
from lra.runtime.errors import UserError
from lra.train.checkpoint import read_newest
from tasks.base import TaskInfo
from tasks.untrusted import faults_named


def config_of(
    folder: Path, record: RunRecord, changes: Sequence[str] = (), *, trust_code: bool = False
) -> RunConfig:
    """Compose the settings of a run again; a plug-in is read from where it was.

    Args:
        folder: the run's folder.
        record: the run's record.
        changes: further settings, each as "section.key=value".
        trust_code: whether a plug-in's file is run even if it is not that of the run.
    Raises: UserError if the settings files have changed since the run, or a plug-in's code.
    """
    code = None if trust_code else record.mixer_code or ""

    def composed(overrides: Sequence[str]) -> RunConfig:
        return resolve(
            record.task,
            record.mixer_from or record.mixer,
            preset=record.preset,
            protocol=record.protocol,
            overrides=overrides,
            code=code,
        )

    if composed(record.overrides).hash != record.config_hash:
        raise UserError(f"{folder}: its settings files have changed since")
    return composed([*record.overrides, *changes])


def best_model(folder: Path, config: RunConfig, info: TaskInfo) -> Classifier | None:
    """Build the model of a run with its best weights, for evaluation.

    Args:
        folder: the run's folder.
        config: the run's settings.
        info: description of the data to evaluate on. Mixers are still built as in training: S4's
            readout, for example, is valid only for the length that it was trained at.
    Returns: the model; None if there is no checkpoint.
    Raises: UserError if the weights do not fit, as learned positions do not fit longer sequences.
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
    with faults_named(f"the newest checkpoint of {folder}"):
        model.load_state_dict(weights)
    return model.eval()
