"""Loading trained models from the checkpoints of their runs."""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from common.strict_yaml import plain
from common.untrusted import explain_errors
from lra.classifier.classifier import Classifier
from lra.classifier.resolve import resolve
from lra.config.registry import digest
from lra.config.request import Change, RunRequest, parse_changes
from lra.config.schema import RunConfig
from lra.record.changes import section_of, write_changes
from lra.record.packed import has_file
from lra.record.run import RunRecord, load_record
from lra.runtime.errors import UserError
from lra.train.checkpoint import read_newest
from lra.train.run_folder import CODE_FILES
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
    for kind, spec, file in () if trust_code else list_changed_code(record):
        if file is None:
            raise UserError(
                f"{folder}: its {kind} is {spec}, and there is no such code here (seen from "
                f"{Path.cwd()})"
            )
        raise UserError(
            f"{folder}: {file} is not the code that the run was made with (that is in "
            f"{folder / CODE_FILES[kind]}); --trust-code runs it as it is now, and marks the result"
        )
    own = parse_changes(write_changes(record.changes), "the run's --set")
    request = RunRequest(
        task=record.task_from or record.task,
        mixer=record.mixer_from or record.mixer,
        preset=record.preset,
        protocol=record.protocol,
        changes=own,
    )
    config = resolve(request)
    with_its_code = replace(
        config,
        task_component=replace(config.task_component, code=record.task_code),
        mixer_component=replace(config.mixer_component, code=record.mixer_code),
    )
    if with_its_code.hash != record.config_hash:
        raise UserError(
            f"{folder}: its settings cannot be composed again: {_difference(record, config)}; "
            f"go back to the settings files, or the options, of the run (its commit: "
            f"{record.git.get('commit') or 'not known'})"
        )
    return resolve(replace(request, changes=(*own, *changes)))


def list_changed_code(record: RunRecord) -> list[tuple[str, str, Path | None]]:
    """List plug-ins that are not there as they were: kind, name, and the file if there is one."""
    changed: list[tuple[str, str, Path | None]] = []
    for kind, spec, code in (
        ("task", record.task_from, record.task_code),
        ("mixer", record.mixer_from, record.mixer_code),
    ):
        file = None if spec is None else _find_file(spec.rpartition(":")[0])
        if spec is not None and (file is None or not file.is_file()):
            changed.append((kind, spec, None))
        elif spec is not None and (code is None or digest([str(file)]) != code):
            changed.append((kind, spec, file))
    return changed


def _find_file(target: str) -> Path | None:
    """Find the file that a path or a dotted name stands for, without running any code."""
    if target.endswith(".py"):
        return Path(target)
    places: list[str] | None = [*sys.path, str(Path.cwd())]
    origin = None
    for name in target.split("."):
        spec = importlib.machinery.PathFinder.find_spec(name, places)
        if spec is None:
            return None
        origin, places = spec.origin, list(spec.submodule_search_locations or [])
    return None if origin is None else Path(origin)


def _difference(record: RunRecord, config: RunConfig) -> str:
    """Name the first settings that are no longer those of a run."""
    before, now = record.settings, config.settings
    changed = [
        f"{name} was {plain(before.get(name))}, is {plain(now.get(name))}"
        for name in sorted(before.keys() | now.keys())
        if before.get(name) != now.get(name) and section_of(name) not in ("pretrain", "log")
    ]
    return ", ".join(changed[:3]) or "settings files have changed since"


def prepare_data(folder: Path, record: RunRecord, config: RunConfig, data_dir: Path) -> Dataset:
    """Prepare the data of a run.

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
    if info.max_length > trained.max_length:
        fixed = "" if config.mixer_component.takes_longer else f"mixer {config.mixer_name}"
        if config.model.positions == "learned":
            fixed = "model.positions=learned"
        if fixed:
            raise UserError(
                f"{folder}: {fixed} has parameters for {trained.max_length:,} positions, and this "
                f"data has sequences of {info.max_length:,}; expected data of at most "
                f"{trained.max_length:,} positions"
            )
    model = Classifier(config, info, trained=trained)
    trainer, path = state["trainer"], folder / "result.json"
    if path.exists():
        _refuse_other_weights(folder, load_record(path), trainer["best"])
    weights = (trainer["best"] or trainer)["model"]
    own = model.state_dict()
    other = [n for n in own if n not in weights or weights[n].shape != own[n].shape]
    if other or own.keys() != weights.keys():
        names = ", ".join(other or sorted(weights.keys() - own.keys()))
        raise UserError(f"{folder}: the weights do not fit a model for this data: {names}")
    with explain_errors(f"the newest checkpoint of {folder}"):
        model.load_state_dict(weights)
    return model.eval()


def _refuse_other_weights(folder: Path, record: RunRecord, best: Best | None) -> None:
    """Refuse the best weights of a checkpoint if a finished run was tested with others."""
    pretrained = record.pretraining.steps if record.pretraining else 0
    found = None if best is None else pretrained + best["step"]
    if record.status == "done" and record.best_step not in (None, found):
        raise UserError(
            f"{folder}: the run was tested with the weights of step {record.best_step:,}, and its "
            f"newest checkpoint has {'no best weights' if found is None else f'step {found:,}'}; "
            f"copy the checkpoint again from where it is whole, or train the run again with "
            f"--resume never"
        )
