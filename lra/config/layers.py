"""The settings of a run in files: which files say what of it, in the order in which they count."""

import functools
import re
from collections.abc import Sequence, Set
from pathlib import Path

from lra.common.errors import UnknownName, UserError
from lra.common.strict_yaml import LARGEST
from lra.common.untrusted import read_text
from lra.config.request import PAPER, SECTIONS, TaskRequest
from lra.config.settings_files import (
    ALL,
    CONFIGS,
    OTHER,
    Entry,
    Preset,
    SettingsFile,
    list_files,
    parse_preset,
    read_file,
    read_presets,
)


@functools.cache
def published_presets(configs: Path = CONFIGS) -> Set[str]:
    """Name the presets of published settings: `paper`, and those that only mixers have."""
    files = list_files("mixers", configs).values()
    return {PAPER}.union(*(file.presets for file in files))


def find_preset(spec: str, configs: Path = CONFIGS) -> Preset | None:
    """Find the file of a preset by its name, or by the path of a user's own; None without a file.

    Raises: UserError for a path without a file, and for a file with a mistake, with the name of
        a preset of the suite, or with a name that a record cannot have.
    """
    path, presets = Path(spec), read_presets(configs)
    if path.suffix != ".yaml":
        return presets.get(spec)
    if not path.is_file():
        raise UserError(f"--preset {spec}: there is no such file (looked for in {Path.cwd()})")
    if path.stem.casefold() in {*presets, *published_presets(configs)}:
        raise UserError(f"--preset {spec}: the suite has a preset {path.stem}; rename the file")
    if not re.fullmatch(r"[\w.-]+", path.stem, re.ASCII):
        raise UserError(f"--preset {spec}: expected a name of letters, digits, dots, - and _")
    return parse_preset(read_text(path, largest=LARGEST), spec, path.stem, is_own=True)


def tasks_with_preset(tasks: Sequence[str], preset: str, configs: Path = CONFIGS) -> list[str]:
    """List the tasks that the file of a preset has; all of them if it has none, or is none."""
    found = find_preset(preset, configs)
    return [task for task in tasks if found and found.lists(task)] or list(tasks)


def read_layers(
    request: TaskRequest, task: str, mixer: str | None, configs: Path
) -> list[list[Entry]]:
    """List what files say for a run, in layers of which each replaces settings of those before.

    Without a mixer, a preset that only mixers have stands for the data of preset `paper`.

    Raises: UserError for an unknown preset or protocol, for a mixer's preset without settings for
        the task or the protocol, and for a mistake in a file.
    """
    files = [read_file("tasks", task, configs)]
    files += [] if mixer is None else [read_file("mixers", mixer, configs)]
    has_file = files[0].shown.endswith(f"/{task}.yaml")
    name = task if has_file else OTHER
    found = find_preset(request.preset, configs)
    if found is None or found.code is None:
        _check_preset(request, mixer, files, name, configs)
    elif not found.lists(name):
        known = ", ".join(one for kind, one in found.entries if kind == "tasks")
        raise UserError(f"--preset {request.preset}: it has no settings for {task}, only {known}")
    if request.protocol not in files[0].protocols:
        raise UnknownName("protocol", request.protocol, files[0].protocols, "--protocol")

    preset, protocol = request.preset, request.protocol
    blocks = [(None, None), (preset, None), (None, protocol), (preset, protocol)]
    layers = [file.block(*block) for block in blocks for file in files]
    if found is not None:
        owners = [("tasks", name), *([] if mixer is None else [("mixers", mixer)])]
        layers += [list(found.entries.get(owner, ())) for owner in owners]
    return [
        [entry for entry in layer if entry.section in SECTIONS and entry.task == of]
        for layer in layers
        for of in (ALL, name)
    ]


def _check_preset(
    request: TaskRequest, mixer: str | None, files: Sequence[SettingsFile], name: str, configs: Path
) -> None:
    """Refuse a preset that is unknown, or that has no settings for the mixer, task or protocol."""
    preset, published = request.preset, published_presets(configs)
    valid = {one for one, found in read_presets(configs).items() if found.lists(name)}
    valid |= published if mixer is None else files[1].presets | {PAPER}
    if preset in published - valid:
        raise UserError(
            f"--preset: {mixer} has no preset {preset}; another mixer has published settings of "
            f"that name"
        )
    if preset not in valid:
        missing = f"; define it in a new file configs/tasks/{request.task}.yaml"
        unknown = UnknownName("preset", preset, valid, "--preset")
        raise UserError(f"{unknown}{missing if name == OTHER else ''}")
    if mixer is None or preset == PAPER or preset not in published:
        return
    entries = [entry for entry in files[1].entries if entry.preset == preset]
    for flag, given, of in (
        ("--task", request.task, {ALL, name} & {entry.task for entry in entries}),
        ("--protocol", request.protocol, {None, request.protocol} & {e.protocol for e in entries}),
    ):
        if not of:
            raise UserError(
                f"--preset {preset} of {mixer} has no settings for {flag} {given}: none are "
                f"published"
            )
