"""Composing a configuration: settings are merged in one order, checked, and made typed sections.

Each of these replaces the ones before it: the defaults in the code; the settings files for all
runs, for the protocol, for the preset, for the preset under this protocol; `--set` and other flags.
In each step the mixer's file replaces the task's, and a value for one task that for all tasks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from common.errors import UnknownName, UserError, explain_fault, nearest
from lra.config.components import Component, Section
from lra.config.registry import find_mixer, find_task
from lra.config.request import Change, RunRequest, TaskRequest
from lra.config.schema import RUN_SECTIONS, RunConfig
from lra.config.settings_files import CONFIGS, Entry, read_layers
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

SYNONYMS = {
    "learning_rate": "lr", "wd": "weight_decay", "grad_clip": "clip_norm", "num_layers": "depth",
    "n_layers": "depth", "layers": "depth", "d_model": "dim", "hidden_size": "dim", "width": "dim",
    "pretrain": "objective",
}  # fmt: skip
"""Keys of settings by the names that other libraries have for them."""


def compose(request: RunRequest, configs: Path = CONFIGS) -> RunConfig:
    """Compose the configuration of a run, in which each single value is valid.

    Raises: UserError naming the value, its origin, and the valid ones.
    """
    task, mixer = find_task(request.task, "--task"), find_mixer(request.mixer, "--mixer")
    layers = read_layers(request, task.name, mixer.name, configs)
    initial, settings = _merge(layers), _merge([*layers, request.changes])
    sections = _validate(settings, [task, mixer], RUN_SECTIONS)

    def is_changed(change: Change) -> bool:
        section, name = sections[change.section], change.name
        default = type(section).model_fields[change.key].default
        before = initial[name].value if name in initial else default
        return name in settings and getattr(section, change.key) != before

    return RunConfig(
        task_name=task.name,
        mixer_name=mixer.name,
        preset=request.preset,
        protocol=request.protocol,
        **sections,
        origins={name: setting.origin for name, setting in settings.items()},
        changed=tuple(
            dict.fromkeys(c.name for c in request.changes if c.section != "log" and is_changed(c))
        ),
        mixer_component=mixer,
        task_component=task,
    )


def compose_task(request: TaskRequest, configs: Path = CONFIGS) -> Task:
    """Construct the task that a run of any mixer would use.

    Raises: UserError, also for a change of anything but the task.
    """
    task = find_task(request.task, "--task")
    settings = _merge([*read_layers(request, task.name, None, configs), request.changes])
    with name_origins({name: setting.origin for name, setting in settings.items()}):
        return task.build(_validate(settings, [task])["task"])


def compose_options(component: Component, changes: Sequence[Change]) -> Section:
    """Compose the options of a mixer or a task alone: defaults, but for changes.

    Raises: UserError, also for a change of anything else.
    """
    return _validate(_merge([changes]), [component])[component.kind]


def _merge(layers: Iterable[Sequence[Change]]) -> Settings:
    """Merge layers: each setting replaces that of its name, and those that it excludes.

    Raises: UserError for a layer with two settings that exclude each other, and for a flag that
        would overrule another one without a word.
    """
    merged: dict[str, Change] = {}
    for layer in layers:
        given: dict[str, Change] = {}
        for change in layer:
            _refuse_contradiction(given.get(change.name, change), change)
            given[change.name] = change
        for name, change in given.items():
            for other in EXCLUSIVE.get(name, ()) if change.value is not None else ():
                if other in given and given[other].value is not None:
                    origins = " and ".join(dict.fromkeys([change.origin, given[other].origin]))
                    raise UserError(f"{origins}: set {name} or {other}, not both")
                merged.pop(other, None)
            merged[name] = change
    return merged


def _refuse_contradiction(first: Change, second: Change) -> None:
    """Raise UserError if two flags give a setting two values; of two --set, the last one counts."""
    origins = (first.origin, second.origin)
    is_repeated = all("--set " in origin for origin in origins)
    by_flags = all(origin.startswith("--") for origin in origins)
    if first.value != second.value and by_flags and not is_repeated:
        raise UserError(f"{' and '.join(origins)} contradict each other; leave one out")


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
                text += f"; {name} is from {origin}"
        raise UserError(text) from None


def _validate(
    settings: Settings, components: Iterable[Component], more: Mapping[str, type[Section]] = {}
) -> dict[str, Any]:
    """Check the names and values of settings, and return the sections by name.

    The options of `components` are sections, and `more` are further ones. Files may have settings
    of other sections, which have no effect; flags may not.
    """
    owners = {component.kind: component for component in components}
    types = {**{kind: owner.options for kind, owner in owners.items()}, **more}
    for setting in settings.values():
        cls = types.get(setting.section)
        is_known = isinstance(setting, Entry) if cls is None else setting.key in cls.model_fields
        if not is_known:
            owner = owners.get(setting.section)
            raise _explain_name(setting, types, setting.section if owner is None else owner.name)
    found: dict[str, Any] = {}
    for section, cls in types.items():
        values = {s.key: s.value for s in settings.values() if s.section == section}
        try:
            found[section] = cls.model_validate(values)
        except ValidationError as error:
            name = f"{section}.{error.errors()[0]['loc'][0]}"
            origin = (settings.get(name) or owners[section]).origin
            raise _explain_value(error.errors()[0], name, origin) from None
    return found


def find_setting(key: str, types: dict[str, type[Section]] = RUN_SECTIONS) -> str | None:
    """Return the full name of the setting with a key like this one, of the first section."""
    by_key = {k: f"{name}.{k}" for name in reversed(types) for k in types[name].model_fields}
    near = nearest(SYNONYMS.get(key, key), by_key, 0.8)
    return by_key[near] if near else None


def _explain_name(setting: Change, types: Mapping[str, type[Section]], owner: str) -> UserError:
    """Explain that there is no such setting, and suggest one with a similar key."""
    section, key, origin = setting.section, setting.key, setting.origin
    ordered = sorted(types, key=lambda name: name != section)
    near = find_setting(key, {name: types[name] for name in ordered})
    hint = near.removeprefix(f"{section}.") if near else None
    if not section:
        question = f"; did you mean {hint}?" if hint else ""
        return UserError(f"{origin}: expected section.key=value{question}")
    if section not in types:
        return UnknownName("section", section, types, origin, hint)
    return UnknownName(f"option of {owner}", key, types[section].model_fields, origin, hint)


def _explain_value(error: Any, name: str, origin: str) -> UserError:
    """Explain an error of pydantic: a value of the wrong type or outside its limits."""
    if error["type"] == "missing":
        return UserError(f"{origin}: {name} has no default; use --set {name}=VALUE")
    if error["type"] == "literal_error":
        choices = error["ctx"]["expected"].replace(" or ", ", ").replace("'", "").split(", ")
        return UnknownName(f"value of {name}", str(error["input"]), choices, origin)
    fault = explain_fault(error["msg"])
    return UserError(f"{origin}: {name}: got {error['input']!r}, {fault}")
