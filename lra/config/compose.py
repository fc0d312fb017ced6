"""Composing a configuration: settings are merged in one order, checked, and made typed sections.

Each of these replaces the ones before it: the defaults in the code; the blocks `base`, those of
`paper`, and those of the protocol, where a mixer's replace the task's; the file of the preset;
`--set` and other flags.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from lra.common.errors import UserError
from lra.config.components import Component, MixerComponent, Section
from lra.config.layers import find_preset, published_presets, read_layers
from lra.config.mistakes import explain_name, explain_value, name_origins
from lra.config.registry import find_mixer, find_task
from lra.config.request import Change, RunRequest, TaskRequest
from lra.config.schema import RUN_SECTIONS, RunConfig
from lra.config.settings_files import CONFIGS, Entry, read_presets
from lra.tasks.base import Task

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


def compose(
    request: RunRequest, configs: Path = CONFIGS, mixer: MixerComponent | None = None
) -> RunConfig:
    """Compose the configuration of a run, in which each single value is valid.

    Args:
        mixer: stands for the mixer of the request, whose code is not run then.
    Raises: UserError naming the value, its origin, and the valid ones.
    """
    task, mixer = find_task(request.task, "--task"), mixer or find_mixer(request.mixer, "--mixer")
    layers = _list_layers(request, task.name, mixer.name, configs)
    own = None if request.recorded else find_preset(request.preset, configs)
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
        preset=request.preset if own is None else own.name,
        preset_from=request.preset if own and own.code else None,
        preset_code=own and own.code,
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
    settings = _merge([*_list_layers(request, task.name, None, configs), request.changes])
    with name_origins({name: setting.origin for name, setting in settings.items()}):
        return task.build(_validate(settings, [task])["task"])


def compose_options(component: Component, changes: Sequence[Change]) -> Section:
    """Compose the options of a mixer or a task alone: defaults, but for changes.

    Raises: UserError, also for a change of anything else.
    """
    return _validate(_merge([changes]), [component])[component.kind]


def _list_layers(
    request: TaskRequest, task: str, mixer: str | None, configs: Path
) -> list[Sequence[Change]]:
    if request.recorded is None:
        return [*read_layers(request, task, mixer, configs)]
    # A record has all settings, but for ones that are newer. Those of a user's own preset are in no
    # file of the suite.
    is_own = request.preset not in {*read_presets(configs), *published_presets(configs)}
    return [*([] if is_own else read_layers(request, task, mixer, configs)), request.recorded]


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
            raise explain_name(setting, types, setting.section if owner is None else owner.name)
    found: dict[str, Any] = {}
    for section, cls in types.items():
        values = {s.key: s.value for s in settings.values() if s.section == section}
        try:
            found[section] = cls.model_validate(values)
        except ValidationError as error:
            name = f"{section}.{error.errors()[0]['loc'][0]}"
            origin = (settings.get(name) or owners[section]).origin
            raise explain_value(error.errors()[0], name, origin) from None
    return found
