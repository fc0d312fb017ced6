"""The settings files that a run reads, and the order in which their settings overwrite others.

From the lowest precedence to the highest: defaults; `configs/tasks/T.yaml` (task);
`configs/mixers/M.yaml` and its `per_task` section (mixer); their sections for protocol and preset;
`--set` and other flags.

- With the protocol that M was `published_under`: task < its protocol < mixer < its protocol <
  task's preset < mixer's preset, so that no published value is lost.
- With another protocol: task < mixer < task's protocol < mixer's protocol < the presets as above.

A preset compares mixers with the task's own pooling and head. It therefore leaves out what
`per_task` states of these (`READOUT`), and the initialization of a release (`STARTS`).
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
    read_settings_file,
)
from lra.config.settings_layers import SettingsLayer
from lra.runtime.errors import UserError, unknown
from tasks.base import BENCHMARK

OWN_TASK = "own_task.yaml"
"""Settings file of tasks that have no file of their own."""


def read_settings(
    task: str, mixer: str, request: TaskRequest, configs: Path
) -> tuple[list[SettingsLayer], str]:
    """Read the settings of a task and a mixer, and check both files.

    Args:
        request: names the preset and the protocol.
    Returns: layers, each of which overwrites those before it; and where the mixer's settings were
        published.
    Raises: UserError for an unknown preset or protocol, and for a mistake in a file.
    """
    preset, protocol = request.preset, request.protocol
    mixer_file = read_settings_file(
        configs / f"mixers/{mixer}.yaml", f"configs/mixers/{mixer}.yaml"
    )
    task_file = _open_task_file(task, configs)
    of_task = task_file.layers(task, protocol, preset)
    of_mixer = mixer_file.layers(task, protocol, preset)
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
    for layer in (layer for group in of_mixer for layer in group):
        for section, key in layer.values:
            if section == "task":
                raise UserError(
                    f"{layer.origin}: task.{key}: the file of a mixer cannot change the data"
                )
    if mixer_file.published_under == protocol:
        first = [*of_task[0], *of_task[1], *of_mixer[0], *of_mixer[1]]
    else:
        first = [*of_task[0], *of_mixer[0], *of_task[1], *of_mixer[1]]
    return [*first, *of_task[2], *of_mixer[2]], mixer_file.citation(task, protocol, preset)


def read_task_settings(task: str, request: TaskRequest, configs: Path) -> list[SettingsLayer]:
    """Read the settings of a task alone, as layers, each of which overwrites those before it.

    Raises: UserError as `read_settings`.
    """
    file = _open_task_file(task, configs)
    groups = file.layers(task, request.protocol, request.preset)
    _check_task_file(file, task, request, _names(configs), published_presets(configs))
    return [layer for group in groups for layer in group]


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
