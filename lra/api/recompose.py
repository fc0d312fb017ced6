"""The settings and the code of a finished run, as they were when it was trained."""

import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from lra.common.errors import UserError
from lra.config.compose import EXCLUSIVE
from lra.config.registry import LIBRARIES, digest
from lra.config.request import REMOVED, Change, RunRequest
from lra.config.schema import RunConfig
from lra.record.run import RunRecord
from lra.record.schema import write_changes
from lra.resolve import resolve
from lra.train.run_folder import CODE_FILES


def request_of(record: RunRecord, changes: Iterable[Change] = ()) -> RunRequest:
    """Ask for the settings of a run, with further changes; a plug-in is read from where it was.

    All settings are those of the record, whatever settings files say by now.
    """
    settings = record.settings
    recorded = tuple(
        Change(name.partition(".")[0], name.partition(".")[2], value, "the run's record")
        for name, value in settings.items()
        if name not in REMOVED
        # A warm-up of 0 steps is the default where there is a share.
        if value or not any(settings.get(other) for other in EXCLUSIVE.get(name, ()))
    )
    return RunRequest(
        task=record.task_from or record.task,
        mixer=record.mixer_from or record.mixer,
        preset=record.preset,
        protocol=record.protocol,
        recorded=recorded,
        changes=tuple(changes),
    )


def recompose(folder: Path, record: RunRecord) -> RunConfig:
    """Compose the settings of a run again.

    Raises: UserError if the suite, or a plug-in, has other settings than at the time of the run.
    """
    own_preset = {"preset_code": record.preset_code, "preset_from": record.preset_from}
    config = replace(resolve(request_of(record)), **own_preset)
    with_its_code = replace(
        config,
        task_component=replace(config.task_component, code=record.task_code),
        mixer_component=replace(config.mixer_component, code=record.mixer_code),
    )
    if with_its_code.hash == record.config_hash:
        return config
    reason = f"they give the hash {with_its_code.hash}, expected {record.config_hash}"
    gone = {name: v for name, v in record.settings.items() if REMOVED.get(name, v) != v}
    if gone:
        reason = f"this version has no {', '.join(write_changes(gone))}"
    raise UserError(
        f"{folder}: its settings cannot be composed again: {reason}; go back to the code of the "
        f"run (its commit: {record.git.get('commit') or 'not known'})"
    )


def find_changed_code(folder: Path, record: RunRecord) -> str | None:
    """Say which plug-in of a run is not there as it was; None if none is, or there is none.

    No code is run.
    """
    plug_ins = {
        "task": (record.task_from, record.task_code),
        "mixer": (record.mixer_from, record.mixer_code),
    }
    for kind, (spec, code) in plug_ins.items():
        if spec is None or (kind == "task" and spec.partition(":")[0] in LIBRARIES):
            continue
        target = spec.rpartition(":")[0]
        path = target.replace(".", "/")
        dotted = (Path(f, path + end) for f in [*sys.path, ""] for end in (".py", "/__init__.py"))
        files = [Path(target)] if target.endswith(".py") else dotted
        file = next((file for file in files if file.is_file()), None)
        if file is None:
            return (
                f"its {kind} is {spec}, and there is no such code here (seen from {Path.cwd()}); "
                f"the code that the run was made with is {folder / CODE_FILES[kind]}"
            )
        if digest([str(file)]) != code:
            return (
                f"{file} is not the code that the run was made with (that is in "
                f"{folder / CODE_FILES[kind]}); --trust-code runs it as it is now, and marks the "
                f"result"
            )
    return None
