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
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lra.config.plugin import MixerSource, find_mixer
from lra.config.registry import TASKS, Section, options_model
from lra.config.schema import LogConfig, ModelConfig, RunConfig, TrainConfig, build_task
from lra.config.validate import Merged, origins_added, validate
from lra.config.yaml_layers import (
    DEFAULT_PROTOCOL,
    PAPER,
    Layer,
    SettingsFile,
    layer_of,
    parse_yaml,
    plain,
)
from lra.runtime.errors import UserError, unknown
from tasks.base import BENCHMARK, Task

CONFIGS = Path(__file__).resolve().parents[2] / "configs"


@dataclass(frozen=True)
class Composed:
    """A configuration whose values are valid one by one."""

    config: RunConfig
    merged: Merged

    def origins_added(self) -> AbstractContextManager[None]:
        """Add to a UserError raised within where the settings that it names came from."""
        return origins_added(self.merged)


def compose(
    task: str,
    mixer: str,
    *,
    preset: str = PAPER,
    protocol: str = DEFAULT_PROTOCOL,
    overrides: Sequence[str] = (),
    flags: Mapping[str, str] | None = None,
    configs: Path = CONFIGS,
    code: str | None = None,
) -> Composed:
    """Compose the configuration of a run; `mixer` may be a plug-in (`lra.config.plugin`).

    Args:
        code: see `find_mixer`.
        overrides: texts of `--set`, "section.key=value".
        flags: other flags that stand for a setting: its text by the flag's name.
    Raises: UserError naming the value, its origin, and the valid ones.
    """
    known = _names(configs)
    task_file = _task_file(task, preset, protocol, configs, known)
    source = find_mixer(mixer, "--mixer", code)
    mixer_path = f"mixers/{source.name}.yaml"
    mixer_file = SettingsFile(configs / mixer_path, f"configs/{mixer_path}")
    mixer_file.check(known)
    layers = _in_order(task_file, mixer_file, task, protocol, preset)
    changes = _flag_layers(overrides, flags)
    merged = _merge([*layers, *changes])
    config = RunConfig(
        task_name=task,
        mixer_name=source.name,
        preset=preset,
        protocol=protocol,
        task=validate("task", task, options_model(TASKS.get(task, "--task")), merged),
        mixer=_recordable(validate("mixer", source.name, source.options, merged), source),
        model=validate("model", "model", ModelConfig, merged),
        train=validate("train", "train", TrainConfig, merged),
        log=validate("log", "log", LogConfig, merged),
        origins={".".join(key): origin for key, (_, origin) in merged.items()},
        overrides=(),
        settings_source=mixer_file.source(task, protocol, preset)
        or "the task's own, none published for this mixer",
        mixer_source=source,
    )
    with origins_added(merged):
        _refuse_idle_flags(config.model, config.train, merged)
    overrides = _effective(changes, config, _merge(layers))
    return Composed(replace(config, overrides=overrides), merged)


def compose_task(
    task: str,
    *,
    preset: str = PAPER,
    protocol: str = DEFAULT_PROTOCOL,
    overrides: Sequence[str] = (),
    flags: Mapping[str, str] | None = None,
    configs: Path = CONFIGS,
) -> Task:
    """Construct the task that a run of any mixer would use; arguments as for `compose`.

    Raises: UserError, also for an override of anything but the task.
    """
    file = _task_file(task, preset, protocol, configs, _names(configs))
    found = file.layers(task, protocol, preset)
    layers = [*found.base, *found.protocol, *found.preset]
    changes = _flag_layers(overrides, flags)
    for layer in changes:
        for section, key in layer.values:
            if section != "task":
                raise UserError(f"{layer.origin}: {section}.{key} does not concern the data")
    cls = options_model(TASKS.get(task, "--task"))
    merged = _merge([*layers, *changes])
    with origins_added(merged):
        return build_task(task, validate("task", task, cls, merged))


def compose_options(source: MixerSource, overrides: Sequence[str]) -> Section:
    """Compose the options of a mixer alone: defaults, but for texts of `--set`.

    Raises: UserError, also for an override of anything but the mixer.
    """
    changes = _flag_layers(overrides, None)
    for layer in changes:
        for section, key in layer.values:
            if section != "mixer":
                raise UserError(f"{layer.origin}: {section}.{key} does not concern a mixer alone")
    return validate("mixer", source.name, source.options, _merge(changes))


def _task_file(
    task: str,
    preset: str,
    protocol: str,
    configs: Path,
    names: Mapping[str, Mapping[str, set[str]]],
) -> SettingsFile:
    """Open a task's settings, refusing unknown names of tasks, presets and protocols."""
    TASKS.get(task, "--task")
    if preset not in names[task]["presets"]:
        raise unknown("preset", preset, names[task]["presets"], "--preset")
    if protocol not in names[task]["protocols"]:
        raise unknown("protocol", protocol, names[task]["protocols"], "--protocol")
    file = _open_task_file(task, configs)
    for key in ("per_task", "published_under"):
        if key in file.body:
            raise UserError(f"{file.shown}: {key} belongs into a mixer's file")
    file.check(names)
    return file


def _open_task_file(task: str, configs: Path) -> SettingsFile:
    return SettingsFile(configs / "tasks" / f"{task}.yaml", f"configs/tasks/{task}.yaml")


def _names(configs: Path) -> dict[str, dict[str, set[str]]]:
    """List the presets and protocols of every task.

    A mixer's file may hold settings for tasks of the benchmark that are not there yet.
    """
    names: dict[str, dict[str, set[str]]] = {}
    for task in dict.fromkeys([*TASKS.classes, *BENCHMARK]):
        file = _open_task_file(task, configs)
        presets, protocols = {*file.nested("presets"), PAPER}, {*file.nested("protocols")}
        names[task] = {"presets": presets, "protocols": protocols}
    return names


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


def _recordable(options: Section, source: MixerSource) -> Section:
    """Return the options of a mixer, if their values can be written as JSON."""
    for name, value in options.model_dump().items():
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError, RecursionError):
            raise UserError(
                f"{source.origin}: no record can hold mixer.{name}, a {type(value).__name__}; "
                f"give it a plain type: a number, text, boolean or list"
            ) from None
    return options


def _refuse_idle_flags(model: ModelConfig, train: TrainConfig, merged: Merged) -> None:
    """Refuse flags that act on nothing; files may set them for several presets."""
    for (section, key), why in _idle(model, train).items():
        value, origin = merged.get((section, key), (None, ""))
        if origin.startswith("--") and value not in (None, False):
            raise UserError(f"{section}.{key} has no effect: {why}")


def _idle(model: ModelConfig, train: TrainConfig) -> dict[tuple[str, str], str]:
    """Say which settings act on nothing, and why."""
    idle: dict[tuple[str, str], str] = {}
    has_head = model.head == "mlp"
    if not has_head:
        for key in ("head_expand", "head_activation"):
            idle["model", key] = "model.head is linear"
    if model.channel_mixer == "none":
        for name, own in (("expand", model.head_expand), ("activation", model.head_activation)):
            if not has_head or own is not None:
                head = f"model.head has model.head_{name}" if has_head else "model.head is linear"
                idle["model", f"channel_{name}"] = f"model.channel_mixer is none, and {head}"
    if model.dropout == model.inner_dropout == 0:
        idle["model", "tied_dropout"] = "model.dropout and model.inner_dropout are 0"
    if train.schedule != "plateau":
        idle["train", "plateau_factor"] = f"train.schedule is {train.schedule}"
    return idle


def _flag_layers(overrides: Sequence[str], flags: Mapping[str, str] | None) -> list[Layer]:
    texts = [("--set", text) for text in overrides] + list((flags or {}).items())
    return [_flag_layer(text, flag) for flag, text in texts]


def _flag_layer(text: str, flag: str) -> Layer:
    """Turn "section.key=value" into a layer."""
    name, equals, value = text.partition("=")
    section, dot, key = name.strip().partition(".")
    if not (equals and dot and key):
        raise UserError(f"{flag} {text}: expected section.key=value, train.lr=1e-3 for instance")
    origin = f"{flag} {text}"
    return layer_of({section: {key: parse_yaml(value, origin)}}, origin)


def _effective(changes: Sequence[Layer], config: RunConfig, before: Merged) -> tuple[str, ...]:
    """List the flags' settings that differ from what held without them, as "section.key=value"."""
    keys = dict.fromkeys(key for layer in changes for key in layer.values if key[0] != "log")
    effective: list[str] = []
    for section, key in keys:
        options: Section = getattr(config, section)
        default = type(options).model_fields[key].default
        value = getattr(options, key)
        if value is None and any(other in keys for other in _EXCLUSIVE.get((section, key), [])):
            continue  # another flag replaced it
        if before.get((section, key), (default, ""))[0] != value:
            effective.append(f"{section}.{key}={plain(value)}")
    return tuple(effective)


_EXCLUSIVE = {
    ("train", key): [("train", other) for other in group if other != key]
    for group in (("steps", "epochs", "minutes"), ("warmup_steps", "warmup_share"))
    for key in group
}
"""Settings of which a later one replaces the others, which it stands for."""
_EXCLUSIVE["train", "minutes"].append(("train", "schedule_steps"))  # steps are not known then


def _merge(layers: Sequence[Layer]) -> Merged:
    """Put layers over one another, later ones on top."""
    merged: dict[tuple[str, str], tuple[Any, str]] = {}
    for layer in layers:
        for key, value in layer.values.items():
            for other in _EXCLUSIVE.get(key, []) if value is not None else []:
                if layer.values.get(other) is not None:
                    raise UserError(
                        f"{layer.origin}: set {'.'.join(key)} or {'.'.join(other)}, not both"
                    )
                merged.pop(other, None)
            merged[key] = (value, layer.origin)
    return merged
