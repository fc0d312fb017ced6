"""The settings files that a run reads, and the order in which their settings overwrite others.

Each of these overwrites the ones before it: the defaults in the code, the settings for all runs,
for the protocol, for the preset, for the preset with this protocol, and `--set` and other flags. In
each step the mixer's file overwrites the task's, and a value for one task that for all tasks.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from lra.config.registry import TASKS
from lra.config.request import PAPER, TaskRequest
from lra.config.settings_files import (
    AvailableNames,
    SettingsFile,
    published_presets,
    read_mixer_file,
    read_settings_file,
)
from lra.config.settings_layers import Layer
from lra.runtime.errors import UserError, unknown
from tasks.base import BENCHMARK

OWN_TASK = "own_task.yaml"
"""Settings file of tasks that have no file of their own."""


def read_settings(
    task: str, mixer: str, request: TaskRequest, configs: Path
) -> tuple[list[Layer], str]:
    """Read the settings of a task and a mixer, and check both files.

    Args:
        request: names the preset and the protocol.
    Returns: layers, each of which overwrites those before it; and where the mixer's settings were
        published.
    Raises: UserError for an unknown preset or protocol, and for a mistake in a file.
    """
    preset = request.preset
    mixer_file, task_file = read_mixer_file(mixer, configs), _open_task_file(task, configs)
    names = _names(configs)
    own_presets = mixer_file.published_presets
    common = names.get(task, {"preset": {PAPER}})["preset"]
    if preset not in {*common, *own_presets} and preset in published_presets(configs):
        raise UserError(
            f"--preset: {mixer} has no preset {preset}; another mixer has published settings of "
            f"that name"
        )
    _check_task_file(task_file, task, request, names, own_presets)
    mixer_file.check(names)
    for block in mixer_file.blocks:
        for section, key in block.settings:
            if section == "task":
                raise UserError(
                    f"{block.origin}: task.{key}: the file of a mixer cannot change the data"
                )
    citation = mixer_file.citation(task, request.protocol, preset)
    return _list_layers([task_file, mixer_file], task, request), citation


def read_task_settings(task: str, request: TaskRequest, configs: Path) -> list[Layer]:
    """Read the settings of a task alone, as layers, each of which overwrites those before it.

    Raises: UserError as `read_settings`.
    """
    file = _open_task_file(task, configs)
    is_own = request.preset in file.names["preset"]  # else the files of all mixers are read
    others = () if is_own else published_presets(configs)
    _check_task_file(file, task, request, _names(configs), others)
    return _list_layers([file], task, request)


def _list_layers(files: Iterable[SettingsFile], task: str, request: TaskRequest) -> list[Layer]:
    found = [
        (block, file)
        for file in files
        for block in file.blocks
        if block.matches(request.protocol, request.preset)
    ]
    found.sort(key=lambda pair: pair[0].level)  # stable: the mixer's after the task's
    return [layer for block, file in found for layer in file.layers(task, block)]


def _check_task_file(
    file: SettingsFile,
    task: str,
    request: TaskRequest,
    names: AvailableNames,
    own_presets: Iterable[str],
) -> None:
    """Check a task's file, and that the preset and the protocol exist.

    Args:
        request: names the preset and the protocol.
        own_presets: further presets that the mixer has.
    """
    known = names.get(task) or file.names
    missing = f"configs/tasks/{task}.yaml"
    lacking = "" if file.shown == missing else f"; define it in a new file {missing}"
    choices = {**known, "preset": {*known["preset"], *own_presets}}
    for kind, name in (("preset", request.preset), ("protocol", request.protocol)):
        if name not in choices[kind]:
            raise UserError(f"{unknown(kind, name, choices[kind], f'--{kind}')}{lacking}")
    for key in file.mixer_keys:
        raise UserError(f"{file.shown}: only the file of a mixer can have {key}")
    file.check({**names, task: known})


def _open_task_file(task: str, configs: Path) -> SettingsFile:
    """Open the settings file of a task, or the common one if it has none."""
    path = f"tasks/{task}.yaml"
    if not (configs / path).is_file():
        path = OWN_TASK
    return read_settings_file(configs / path, f"configs/{path}")


def _names(configs: Path) -> AvailableNames:
    """List the presets and protocols of every task.

    A mixer's file may hold settings for tasks of the benchmark that do not exist yet.
    """
    tasks = dict.fromkeys([*TASKS.classes, *BENCHMARK])
    return {task: _open_task_file(task, configs).names for task in tasks}
