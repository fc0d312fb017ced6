"""Composing a configuration from files and flags.

Precedence, from the lowest: defaults; `configs/tasks/T.yaml` (task); `configs/mixers/M.yaml` and
its `per_task` section (mixer); their sections for protocol and preset; `--set` and other flags.

- Of the protocol that M was `published_under`: task < its protocol < mixer < its protocol < task's
  preset < mixer's preset, so that no published value is lost.
- Of another protocol: task < mixer < task's protocol < mixer's protocol < the presets as above.

A preset compares mixers with the task's own pooling and head: what `per_task` says of these
(`READOUT`) is left out then.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lra.config.changes import Flags, effective, flag_layers, refuse_idle
from lra.config.merge import Merged, Values, merge
from lra.config.mixers import MixerSource, find_mixer
from lra.config.presets import CONFIGS, published_presets
from lra.config.registry import TASKS, Section
from lra.config.schema import LogConfig, ModelConfig, PretrainConfig, RunConfig, TrainConfig
from lra.config.source import Source
from lra.config.tasks import TaskSource, find_task
from lra.config.validate import origins_added, refuse_unknown, validate
from lra.config.yaml_layers import DEFAULT_PROTOCOL, PAPER, Layer, SettingsFile
from lra.runtime.errors import UserError, unknown
from tasks.base import BENCHMARK, Task

OWN_TASK = "own_task.yaml"
"""File of the settings of tasks that have none of their own."""


@dataclass(frozen=True)
class Composed:
    """A configuration whose values are valid one by one."""

    config: RunConfig
    values: Values

    def origins_added(self) -> AbstractContextManager[None]:
        """Add to a UserError raised within where the settings that it names came from."""
        return origins_added(self.values)


@dataclass(frozen=True, kw_only=True)
class Unchanged:
    """The settings of a task, a mixer, a preset and a protocol, before flags change them."""

    task: TaskSource
    mixer: MixerSource
    preset: str
    protocol: str
    layers: Sequence[Layer]
    """Those of the files, each over the one before it."""
    settings_source: str

    def compose(self, overrides: Sequence[str] = (), flags: Flags = ()) -> Composed:
        """Compose the configuration that flags make of these settings; see the function."""
        sections = _sections(self.task, self.mixer)
        changes = flag_layers(overrides, flags, _known(sections))
        merged = merge([*self.layers, *changes])
        config = RunConfig(
            task_name=self.task.name,
            mixer_name=self.mixer.name,
            preset=self.preset,
            protocol=self.protocol,
            **_validated(sections, self.task, self.mixer, merged.values),
            origins=_origins(merged),
            overrides=(),
            settings_source=self.settings_source,
            mixer_source=self.mixer,
            task_source=self.task,
        )
        with origins_added(merged.values):
            refuse_idle(changes, config, merged.values)
        changed = effective(changes, config, merge(self.layers).values)
        return Composed(replace(config, overrides=changed), merged.values)


def read_settings(
    task: str,
    mixer: str,
    *,
    preset: str = PAPER,
    protocol: str = DEFAULT_PROTOCOL,
    configs: Path = CONFIGS,
) -> Unchanged:
    """Read and check the files of a task and a mixer; arguments and errors as for `compose`."""
    known = _names(configs)
    task_source = find_task(task, "--task")
    name = task_source.name
    mixer_source = find_mixer(mixer, "--mixer")
    mixer_path = f"mixers/{mixer_source.name}.yaml"
    mixer_file = SettingsFile(configs / mixer_path, f"configs/{mixer_path}")
    own_presets = mixer_file.published_presets()
    common = known.get(name, {"presets": {PAPER}})["presets"]
    if preset not in {*common, *own_presets} and preset in published_presets(configs):
        raise UserError(f"--preset: {preset} is published for another mixer than {mixer}")
    chosen = {"preset": preset, "protocol": protocol}
    task_file = _task_file(name, chosen, configs, known, own_presets)
    mixer_file.check(known)
    return Unchanged(
        task=task_source,
        mixer=mixer_source,
        preset=preset,
        protocol=protocol,
        layers=_in_order(task_file, mixer_file, name, protocol, preset),
        settings_source=mixer_file.source(name, protocol, preset)
        or "the task's own, none published for this mixer",
    )


def compose(
    task: str,
    mixer: str,
    *,
    preset: str = PAPER,
    protocol: str = DEFAULT_PROTOCOL,
    overrides: Sequence[str] = (),
    flags: Flags = (),
    configs: Path = CONFIGS,
) -> Composed:
    """Compose the configuration of a run; task and mixer may be plug-ins (`lra.config.plugin`).

    Args:
        overrides: texts of `--set`, "section.key=value".
        flags: other flags that stand for a setting, each with its text.
    Raises: UserError naming the value, its origin, and the valid ones.
    """
    unchanged = read_settings(task, mixer, preset=preset, protocol=protocol, configs=configs)
    return unchanged.compose(overrides, flags)


def _sections(task: TaskSource, mixer: MixerSource) -> dict[str, type[Section]]:
    return {
        "task": task.options, "mixer": mixer.options, "model": ModelConfig, "train": TrainConfig,
        "pretrain": PretrainConfig, "log": LogConfig,
    }  # fmt: skip


def _validated(
    sections: Mapping[str, type[Section]], task: TaskSource, mixer: MixerSource, values: Values
) -> dict[str, Any]:
    """Check all values; return the sections by name."""
    owners = {"task": task.name, "mixer": mixer.name}
    refuse_unknown(values, sections, owners)
    found = {
        name: validate(name, owners.get(name, name), cls, values) for name, cls in sections.items()
    }
    for section, source in (("task", task), ("mixer", mixer)):
        _refuse_unrecordable(section, found[section], source)
    return found


def compose_task(
    task: str,
    *,
    preset: str = PAPER,
    protocol: str = DEFAULT_PROTOCOL,
    overrides: Sequence[str] = (),
    flags: Flags = (),
    configs: Path = CONFIGS,
) -> Task:
    """Construct the task that a run of any mixer would use; arguments as for `compose`.

    The data of a published preset that only a mixer has is that of preset paper.
    Raises: UserError, also for an override of anything but the task.
    """
    source = find_task(task, "--task")
    chosen = {"preset": preset, "protocol": protocol}
    file = _task_file(source.name, chosen, configs, _names(configs), published_presets(configs))
    found = file.layers(source.name, protocol, preset)
    sections = {"task": source.options}
    changes = flag_layers(overrides, flags, _known(sections))
    _refuse_others(changes, "task", "the data")
    values = merge([*found.base, *found.protocol, *found.preset, *changes]).values
    refuse_unknown(values, sections, {"task": source.name})
    with origins_added(values):
        return source.build(validate("task", source.name, source.options, values))


def compose_options(
    source: MixerSource | TaskSource, overrides: Sequence[str], section: str = "mixer"
) -> Section:
    """Compose the options of a mixer or a task alone: defaults, but for texts of `--set`.

    Args:
        section: mixer or task.
    Raises: UserError, also for an override of anything else.
    """
    sections = {section: source.options}
    changes = flag_layers(overrides, (), _known(sections))
    _refuse_others(changes, section, f"a {section} alone")
    values = merge(changes).values
    refuse_unknown(values, sections, {section: source.name})
    return validate(section, source.name, source.options, values)


def _known(sections: Mapping[str, type[Section]]) -> dict[str, list[str]]:
    return {name: list(cls.model_fields) for name, cls in sections.items()}


def _refuse_others(changes: Sequence[Layer], only: str, what: str) -> None:
    for layer in changes:
        for section, key in layer.values:
            if section != only:
                raise UserError(f"{layer.origin}: {section}.{key} does not concern {what}")


def _origins(merged: Merged) -> dict[str, str]:
    """Say where each value came from, and what it replaced."""
    return {
        ".".join(key): f"{origin}, in place of {merged.replaced[key]}"
        if key in merged.replaced
        else origin
        for key, (_, origin) in merged.values.items()
    }


def _task_file(
    task: str,
    chosen: Mapping[str, str],
    configs: Path,
    names: Mapping[str, Mapping[str, set[str]]],
    own_presets: Collection[str] = (),
) -> SettingsFile:
    """Open a task's settings, refusing unknown names of presets and protocols.

    Args:
        chosen: the preset and the protocol of the run.
        own_presets: presets that the mixer has beside the task's.
    """
    file = _open_task_file(task, configs)
    known = names.get(task) or _names_in(file)
    missing = f"configs/tasks/{task}.yaml"
    lacking = "" if file.shown == missing else f"; {missing}, which could have it, is not there"
    choices = {"presets": {*known["presets"], *own_presets}, "protocols": known["protocols"]}
    for kind, name in chosen.items():
        if name not in choices[f"{kind}s"]:
            raise UserError(f"{unknown(kind, name, choices[f'{kind}s'], f'--{kind}')}{lacking}")
    for key in ("per_task", "published_presets", "published_under"):
        if key in file.body:
            raise UserError(f"{file.shown}: {key} belongs into a mixer's file")
    file.check({**names, task: known})
    return file


def _open_task_file(task: str, configs: Path) -> SettingsFile:
    """Open a task's file or, where it has none, that of tasks without one."""
    path = f"tasks/{task}.yaml"
    if not (configs / path).is_file():
        path = OWN_TASK
    return SettingsFile(configs / path, f"configs/{path}")


def _names(configs: Path) -> dict[str, dict[str, set[str]]]:
    """List the presets and protocols of every task.

    A mixer's file may hold settings for tasks of the benchmark that are not there yet.
    """
    tasks = dict.fromkeys([*TASKS.classes, *BENCHMARK])
    return {task: _names_in(_open_task_file(task, configs)) for task in tasks}


def _names_in(file: SettingsFile) -> dict[str, set[str]]:
    return {
        "presets": {*file.nested("presets"), PAPER},
        "protocols": {*file.nested("protocols")} or {DEFAULT_PROTOCOL},
    }


def _in_order(
    task_file: SettingsFile, mixer_file: SettingsFile, task: str, protocol: str, preset: str
) -> list[Layer]:
    """List the layers of both files, each over the one before it."""
    of_task = task_file.layers(task, protocol, preset)
    of_mixer = mixer_file.layers(task, protocol, preset)
    _refuse_task_settings([*of_mixer.base, *of_mixer.protocol, *of_mixer.preset])
    if mixer_file.published_under == protocol:
        first = [*of_task.base, *of_task.protocol, *of_mixer.base]
    else:
        first = [*of_task.base, *of_mixer.base, *of_task.protocol]
    return [*first, *of_mixer.protocol, *of_task.preset, *of_mixer.preset]


def _refuse_task_settings(layers: Sequence[Layer]) -> None:
    for layer in layers:
        for section, key in layer.values:
            if section == "task":
                raise UserError(f"{layer.origin}: task.{key}: a mixer must not change the data")


def _refuse_unrecordable(section: str, options: Section, source: Source) -> None:
    """Refuse options of a mixer or task whose values cannot be written as JSON."""
    for name, value in options.model_dump().items():
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError, RecursionError):
            raise UserError(
                f"{source.origin}: no record can hold {section}.{name}, a {type(value).__name__}; "
                f"give it a plain type: a number, text, boolean or list"
            ) from None
