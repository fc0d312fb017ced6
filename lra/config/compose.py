"""Composing a configuration: settings are merged in one order, checked, and made typed sections.

Each of these replaces the ones before it: the defaults in the code; the settings files for all
runs, for the protocol, for the preset, for the preset under this protocol; `--set` and other flags.
In each step the mixer's file replaces the task's, and a value for one task that for all tasks.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from common.strict_yaml import plain
from lra.config.components import Component
from lra.config.options import Section
from lra.config.registry import find_mixer, find_task
from lra.config.request import SECTIONS, Change, RunRequest, TaskRequest
from lra.config.schema import RUN_SECTIONS, RunConfig
from lra.config.settings_files import CONFIGS, SettingsFile, list_layers, read_files
from lra.runtime.errors import UnknownName, UserError
from tasks.base import Task

Settings = Mapping[str, Change]
"""Merged settings by full name."""

_LENGTHS = ("steps", "epochs", "minutes")
EXCLUSIVE: Mapping[str, Sequence[str]] = {
    **{
        f"{section}.{name}": [f"{section}.{other}" for other in _LENGTHS if other != name]
        for section in ("train", "pretrain")
        for name in _LENGTHS
    },
    "train.minutes": ("train.steps", "train.epochs", "train.schedule_steps"),
    "train.warmup_steps": ("train.warmup_share",),
    "train.warmup_share": ("train.warmup_steps",),
}
"""Settings that a setting replaces unless it is null."""

IN_PLACE_OF = ", in place of "
"""Text between the origin of a setting and what it replaced."""
MIN_SIMILARITY = 0.8
"""Least similarity at which another setting is suggested."""


def compose(request: RunRequest, configs: Path = CONFIGS) -> RunConfig:
    """Compose the configuration of a run, in which each single value is valid.

    Raises: UserError naming the value, its origin, and the valid ones.
    """
    task, mixer = find_task(request.task, "--task"), find_mixer(request.mixer, "--mixer")
    files = read_files(request, task.name, mixer.name, configs)
    initial = _merge_files(files, request, task.name)
    settings = _merge(initial, request.changes, has_flags=True)
    sections = _validate(settings, request.changes, [task, mixer], RUN_SECTIONS, "a run")

    def is_changed(name: str) -> bool:
        setting = settings.get(name)
        if setting is None or setting.section == "log":
            return False
        section = sections[setting.section]
        default = type(section).model_fields[setting.key].default
        is_new = name not in initial and getattr(section, setting.key) != default
        return bool(setting.replaced) or is_new

    return RunConfig(
        task_name=task.name,
        mixer_name=mixer.name,
        preset=request.preset,
        protocol=request.protocol,
        **sections,
        origins=_list_origins(settings),
        changed=tuple(filter(is_changed, dict.fromkeys(c.name for c in request.changes))),
        settings_citation=files[-1].citation(task.name, request.preset, request.protocol),
        mixer_component=mixer,
        task_component=task,
    )


def compose_task(request: TaskRequest, configs: Path = CONFIGS) -> Task:
    """Construct the task that a run of any mixer would use.

    A published preset that only a mixer has uses the data of preset paper.
    Raises: UserError, also for a change of anything but the task.
    """
    task = find_task(request.task, "--task")
    initial = _merge_files(read_files(request, task.name, None, configs), request, task.name)
    settings = _merge(initial, request.changes, has_flags=True)
    sections = _validate(settings, request.changes, [task], {}, "the data")
    with name_origins(_list_origins(settings)):
        return task.build(sections["task"])


def compose_options(component: Component, changes: Sequence[Change]) -> Section:
    """Compose the options of a mixer or a task alone: defaults, but for changes.

    Raises: UserError, also for a change of anything else.
    """
    kind = component.kind
    settings = _merge({}, changes, has_flags=True)
    return _validate(settings, changes, [component], {}, f"a {kind} alone")[kind]


def _merge_files(files: Iterable[SettingsFile], request: TaskRequest, task: str) -> Settings:
    layers = list_layers(files, task, request.preset, request.protocol)
    changes = ([Change(e.section, e.key, e.value, e.origin) for e in layer] for layer in layers)
    return functools.reduce(_merge, changes, {})


def _merge(settings: Settings, layer: Iterable[Change], has_flags: bool = False) -> Settings:
    """Merge a layer into settings: each replaces the one of its name, and those that it excludes.

    Args:
        has_flags: whether the origins have to name what is replaced.
    Raises: UserError for a layer with two settings that exclude each other.
    """
    merged = dict(settings)
    given = {change.name: change for change in layer}
    for name, change in given.items():
        old = merged.get(name)
        gone = [_describe(old)] if has_flags and old and old.value != change.value else []
        for other in EXCLUSIVE.get(name, ()) if change.value is not None else ():
            if other in given and given[other].value is not None:
                origins = " and ".join(dict.fromkeys([change.origin, given[other].origin]))
                raise UserError(f"{origins}: set {name} or {other}, not both")
            excluded = merged.pop(other, None)
            if excluded is not None and excluded.value is not None:
                gone.append(f"{other} {_describe(excluded)}")
        merged[name] = replace(change, replaced=", ".join(gone))
    return merged


def _describe(setting: Change) -> str:
    return f"{plain(setting.value)} of {setting.origin}"


def _list_origins(settings: Settings) -> dict[str, str]:
    """List the origin of each setting, and what it replaced, by name."""
    return {
        name: IN_PLACE_OF.join(filter(None, [setting.origin, setting.replaced]))
        for name, setting in settings.items()
    }


@contextmanager
def name_origins(origins: Mapping[str, str]) -> Iterator[None]:
    """Add the origins of the settings that a UserError names; see `RunConfig.origins`."""
    try:
        yield
    except UserError as error:
        text = str(error)
        for name, origin in origins.items():
            section, _, key = name.partition(".")
            # Mixers and tasks name their options without the section.
            prefix = rf"({section}\.)?" if section in ("mixer", "task") else rf"{section}\."
            if re.search(rf"(?<![\w.]){prefix}{re.escape(key)}(?![\w.])", str(error)):
                text += f"; {name} is from {origin.partition(IN_PLACE_OF)[0]}"
        raise UserError(text) from None


def _validate(
    settings: Settings,
    changes: Iterable[Change],
    components: Iterable[Component],
    types: Mapping[str, type[Section]],
    what: str,
) -> dict[str, Any]:
    """Check the names and values of settings, and return the sections by name.

    Args:
        settings: all settings; files may have sections that are of no interest here.
        changes: those of flags, whose sections have to exist.
        components: the mixer and the task whose options are sections.
        types: the classes of the other sections.
        what: the thing that is configured, as messages call it.
    """
    owners = {component.kind: component for component in components}
    types = {**{kind: component.options for kind, component in owners.items()}, **types}
    names = [f"{section}.{key}" for section, cls in types.items() for key in cls.model_fields]
    for change in changes:
        if not change.section:
            hint = _suggest(change, names) if change.key not in SECTIONS else None
            raise UserError(
                f"{change.origin}: expected section.key=value, like train.lr=1e-3 (sections: "
                f"{', '.join(SECTIONS)}){f'; did you mean {hint}?' if hint else ''}"
            )
        if change.section not in SECTIONS:
            hint = _suggest(change, names)
            raise UnknownName("section", change.section, SECTIONS, change.origin, hint)
        if change.section not in types:
            raise UserError(f"{change.origin}: {change.name} has no effect on {what}")
    for name, setting in settings.items():
        section = setting.section
        if section in types and name not in names:
            kind = f"option of {owners[section].name if section in owners else section}"
            valid, hint = types[section].model_fields, _suggest(setting, names)
            raise UnknownName(kind, setting.key, valid, setting.origin, hint)
    found: dict[str, Any] = {}
    for section, cls in types.items():
        values = {s.key: s.value for s in settings.values() if s.section == section}
        try:
            found[section] = cls.model_validate(values)
        except ValidationError as error:
            first = error.errors()[0]
            name = f"{section}.{first['loc'][0]}" if first["loc"] else ""
            origin = owners[section].origin if section in owners else section
            origin = settings[name].origin if name in settings else origin
            with nullcontext() if name else name_origins(_list_origins(settings)):
                raise _explain(first, name, origin) from None
    return found


def _suggest(change: Change, names: Iterable[str]) -> str | None:
    """Return the setting with the most similar key, in the same section if there are several."""
    section = "".join(get_close_matches(change.section, SECTIONS, n=1))
    ordered = sorted(names, key=lambda name: not name.startswith(f"{section}."))
    by_key = {name.partition(".")[2]: name for name in reversed(ordered)}
    close = get_close_matches(change.key.casefold(), by_key, n=1, cutoff=MIN_SIMILARITY)
    return by_key[close[0]].removeprefix(f"{change.section}.") if close else None


def _explain(error: Any, name: str, origin: str) -> UserError:
    """Explain an error of pydantic: a value of the wrong type or outside its limits."""
    if not error["loc"]:
        return UserError(str(error.get("ctx", {}).get("error", error["msg"])))
    if error["type"] == "missing":
        return UserError(f"{origin}: {name} has no default; use --set {name}=VALUE")
    if error["type"] == "literal_error":
        choices = error["ctx"]["expected"].replace(" or ", ", ").replace("'", "").split(", ")
        return UnknownName(f"value of {name}", str(error["input"]), choices, origin)
    expected = error["msg"][0].lower() + error["msg"][1:]
    return UserError(f"{origin}: {name}: got {error['input']!r}; {expected}")
