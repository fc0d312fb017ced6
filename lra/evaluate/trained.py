"""Loading trained models from the checkpoints of their runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from common.strict_yaml import plain
from common.untrusted import explain_errors
from lra.classifier.classifier import Classifier
from lra.classifier.resolve import resolve
from lra.config.request import Change, RunRequest, parse_change
from lra.config.schema import RunConfig
from lra.evaluate.recorded_code import refuse_changed_code
from lra.record.changes import section_of, write_changes
from lra.record.packed import has_file
from lra.record.run import RunRecord, load_record
from lra.runtime.errors import UserError
from lra.train.checkpoint import read_newest
from lra.train.trainer import Best
from tasks.base import Dataset, TaskInfo


def read_finished_run(folder: Path) -> RunRecord:
    """Read the record of a run that --run names.

    Raises: UserError if there is no such run, or it is not finished.
    """
    path = folder / "result.json"
    if not has_file(path):
        raise UserError(
            f"--run {folder}: there is no {path.name} in it; expected the folder of a run, "
            f"results/runs/TASK/MIXER/RUN (python -m lra.record list names them)"
        )
    record = load_record(path)
    if record.status != "done":
        raise UserError(f"--run {folder}: the run is {record.status}, expected a finished one")
    return record


def recompose_config(
    folder: Path, record: RunRecord, changes: Iterable[Change] = (), *, trust_code: bool = False
) -> RunConfig:
    """Compose the settings of a run again; a plug-in is read from where it was.

    Args:
        folder: the run's folder.
        record: the run's record.
        changes: further changed settings.
        trust_code: whether a plug-in's file is run even if it is not that of the run.
    Raises: UserError if the settings files have changed since the run, or a plug-in's code.
    """
    if not trust_code:
        refuse_changed_code(folder, record)

    request = RunRequest(
        task=record.task_from or record.task,
        mixer=record.mixer_from or record.mixer,
        preset=record.preset,
        protocol=record.protocol,
        changes=tuple(
            parse_change(text, "the run's --set") for text in write_changes(record.changes)
        ),
    )
    config = resolve(request)
    if _with_code_of(config, record).hash != record.config_hash:
        raise UserError(
            f"{folder}: its settings cannot be composed again: {_difference(record, config)}; "
            f"go back to the settings files, or the options, of the run (its commit: "
            f"{record.git.get('commit') or 'not known'})"
        )
    return resolve(replace(request, changes=(*request.changes, *changes)))


def has_changed_code(config: RunConfig, record: RunRecord) -> bool:
    """Whether settings composed again are of other code than a run's."""
    return _codes(config) != (record.task_code, record.mixer_code)


def _codes(config: RunConfig) -> tuple[str | None, str | None]:
    return config.task_component.code, config.mixer_component.code


def _with_code_of(config: RunConfig, record: RunRecord) -> RunConfig:
    """Return settings as they are with the code that a run had."""
    return replace(
        config,
        task_component=replace(config.task_component, code=record.task_code),
        mixer_component=replace(config.mixer_component, code=record.mixer_code),
    )


def _difference(record: RunRecord, config: RunConfig) -> str:
    """Name the first settings that are no longer those of a run."""
    before, now = record.settings, config.settings
    changed = [
        f"{name} was {plain(before.get(name))}, is {plain(now.get(name))}"
        for name in sorted(before.keys() | now.keys())
        if before.get(name) != now.get(name) and section_of(name) not in ("pretrain", "log")
    ]
    more = f" and {len(changed) - 3} others" if len(changed) > 3 else ""  # noqa: PLR2004
    return f"{', '.join(changed[:3])}{more}" if changed else "settings files have changed since"


def prepare_data(folder: Path, record: RunRecord, config: RunConfig, data_dir: Path) -> Dataset:
    """Prepare the data of a run.

    Args:
        folder: the run's folder.
        record: the run's record.
        config: the run's settings.
        data_dir: official files and caches.
    Raises: DataError if it can neither be found nor made; UserError if it is other data.
    """
    dataset = config.build_task().prepare(data_dir)
    trained_on = record.data
    if dataset.fingerprint != trained_on.fingerprint:
        raise UserError(
            f"{folder}: the data in {dataset.folder} is {dataset.source} "
            f"({dataset.fingerprint[:8]}), that of the run was {trained_on.source} "
            f"({trained_on.fingerprint[:8]}); give the folder that has it (data_dir=..., "
            f"--data-dir)"
        )
    return dataset


def load_best_model(folder: Path, config: RunConfig, info: TaskInfo) -> Classifier | None:
    """Build the model of a run with its best weights, for evaluation.

    Args:
        folder: the run's folder.
        config: the run's settings.
        info: description of the data to evaluate on. Mixers are still built as in training: S4's
            readout, for example, is valid only for the length that it was trained at.
    Returns: the model; None if there is no checkpoint.
    Raises: UserError if the run is still in its pretraining, if the model or its mixer has
        parameters for fewer positions than the data has, or if the weights do not fit, or are not
        those that a finished run was tested with.
    """
    state = read_newest(folder / "checkpoints")
    if state is None:
        return None
    if config.is_pretrained and state.get("pretraining") is None:
        raise UserError(
            f"{folder}: the run was stopped in its pretraining, and its model has learned no "
            f"labels; the run's own command goes on with it"
        )
    trained = config.build_task().info
    if config.model.positions == "learned" and info.max_length > trained.max_length:
        raise UserError(
            f"{folder}: the model has learned position embeddings for {trained.max_length:,} "
            f"positions, and this data has sequences of {info.max_length:,}; expected data of at "
            f"most {trained.max_length:,} positions (model.positions=learned)"
        )
    if not config.mixer_component.takes_longer and info.max_length > trained.max_length:
        raise UserError(
            f"{folder}: mixer {config.mixer_name} has parameters for {trained.max_length:,} "
            f"positions, and this data has sequences of {info.max_length:,}; expected data of at "
            f"most {trained.max_length:,} positions"
        )
    model = Classifier(config, info, trained=trained)
    trainer = state["trainer"]
    _refuse_other_weights(folder, trainer["best"])
    weights = (trainer["best"] or trainer)["model"]
    own = model.state_dict()
    other = [n for n in own if n not in weights or weights[n].shape != own[n].shape]
    if other or own.keys() != weights.keys():
        names = ", ".join(other or sorted(weights.keys() - own.keys()))
        raise UserError(f"{folder}: the weights do not fit a model for this data: {names}")
    with explain_errors(f"the newest checkpoint of {folder}"):
        model.load_state_dict(weights)
    return model.eval()


def _refuse_other_weights(folder: Path, best: Best | None) -> None:
    """Refuse the best weights of a checkpoint if a finished run was tested with others.

    Raises: UserError naming the step of both.
    """
    path = folder / "result.json"
    record = load_record(path) if path.exists() else None
    if record is None or record.status != "done" or record.best_step is None:
        return
    pretrained = record.pretraining.steps if record.pretraining else 0
    found = None if best is None else pretrained + best["step"]
    if found != record.best_step:
        raise UserError(
            f"{folder}: the run was tested with the weights of step {record.best_step:,}, and its "
            f"newest checkpoint has {'no best weights' if found is None else f'step {found:,}'}; "
            f"copy the checkpoint again from where it is whole, or train the run again with "
            f"--resume never"
        )
