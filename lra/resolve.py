"""Laying a configuration up from files and flags.

Precedence: defaults < `configs/tasks/T.yaml` < `configs/mixers/M.yaml` < its `per_task`
section < the protocol's sections of those < the preset's < `--set` and other flags.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from lra.config import LogConfig, ModelConfig, RunConfig, TrainConfig, build_task
from lra.errors import UserError, unknown
from lra.registry import MIXERS, TASKS, Section, options_model
from lra.settings_file import Layer, SettingsFile, layer_of, parse_yaml
from models.base import MixerContext
from tasks.base import Task

CONFIGS = Path(__file__).resolve().parent.parent / "configs"

Merged = Mapping[tuple[str, str], tuple[Any, str]]
"""(value, origin) by (section, key)."""


def resolve(
    task: str,
    mixer: str,
    *,
    preset: str = "paper",
    protocol: str = "s4",
    overrides: Sequence[str] = (),
    flags: Mapping[str, str] | None = None,
    configs: Path = CONFIGS,
) -> RunConfig:
    """Lay up and validate the configuration of a run.

    Args:
        overrides: texts of `--set`, "section.key=value".
        flags: other flags that stand for a setting: its text by the flag's name.
    Raises: UserError naming the value, its origin, and the valid ones.
    """
    task_file = _task_file(task, preset, protocol, configs)
    mixer_class = MIXERS.get(mixer, "--mixer")
    mixer_file = SettingsFile(configs / "mixers" / f"{mixer}.yaml", f"configs/mixers/{mixer}.yaml")
    layers: list[Layer] = []
    for of_task, of_mixer in zip(
        task_file.layers(task, protocol, preset),
        mixer_file.layers(task, protocol, preset),
        strict=True,
    ):
        _refuse_task_settings(of_mixer)
        layers += [*of_task, *of_mixer]
    changes = _flag_layers(overrides, flags)
    merged = _merge([*layers, *changes])
    config = RunConfig(
        task_name=task,
        mixer_name=mixer,
        preset=preset,
        protocol=protocol,
        task=_validate("task", task, options_model(TASKS.get(task, "--task")), merged),
        mixer=_validate("mixer", mixer, options_model(mixer_class), merged),
        model=_validate("model", "model", ModelConfig, merged),
        train=_validate("train", "train", TrainConfig, merged),
        log=_validate("log", "log", LogConfig, merged),
        origins={".".join(key): origin for key, (_, origin) in merged.items()},
        overrides=(),
        settings_source=mixer_file.source(task) or "the task's own, none published for this mixer",
    )
    _refuse_contradictions(config)
    return replace(config, overrides=_effective(changes, config, _merge(layers)))


def resolve_task(
    task: str,
    *,
    preset: str = "paper",
    protocol: str = "s4",
    overrides: Sequence[str] = (),
    flags: Mapping[str, str] | None = None,
    configs: Path = CONFIGS,
) -> Task:
    """Construct the task that a run of any mixer would use; arguments as for `resolve`.

    Raises: UserError, also for an override of anything but the task.
    """
    layers = [
        layer
        for group in _task_file(task, preset, protocol, configs).layers(task, protocol, preset)
        for layer in group
    ]
    changes = _flag_layers(overrides, flags)
    for layer in changes:
        for section, key in layer.values:
            if section != "task":
                raise UserError(f"{layer.origin}: {section}.{key} does not concern the data")
    cls = options_model(TASKS.get(task, "--task"))
    return build_task(task, _validate("task", task, cls, _merge([*layers, *changes])))


def _task_file(task: str, preset: str, protocol: str, configs: Path) -> SettingsFile:
    """Open a task's settings, refusing unknown names of tasks, presets and protocols."""
    TASKS.get(task, "--task")
    file = SettingsFile(configs / "tasks" / f"{task}.yaml", f"configs/tasks/{task}.yaml")
    presets, protocols = file.names("presets") | {"paper"}, file.names("protocols")
    if preset not in presets:
        raise unknown("preset", preset, presets, "--preset")
    if protocol not in protocols:
        raise unknown("protocol", protocol, protocols, "--protocol")
    return file


def _refuse_task_settings(layers: Sequence[Layer]) -> None:
    for layer in layers:
        for section, key in layer.values:
            if section == "task":
                raise UserError(f"{layer.origin}: task.{key}: a mixer must not change the data")


def _refuse_contradictions(config: RunConfig) -> None:
    """Construct the task and a mixer once, for the checks that span several options."""
    context = MixerContext(
        dim=config.model.dim,
        max_length=config.build_task().info.max_length,
        layer=0,
        depth=config.model.depth,
        causal=config.model.causal,
    )
    config.build_mixer(context)


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
        if before.get((section, key), (default, ""))[0] != value:
            effective.append(f"{section}.{key}={value}")
    return tuple(effective)


_EXCLUSIVE = {("train", "steps"): ("train", "epochs"), ("train", "epochs"): ("train", "steps")}
"""Settings of which a later one replaces the earlier."""


def _merge(layers: Sequence[Layer]) -> Merged:
    """Lay layers over one another."""
    merged: dict[tuple[str, str], tuple[Any, str]] = {}
    for layer in layers:
        for key, value in layer.values.items():
            merged[key] = (value, layer.origin)
            if key in _EXCLUSIVE and value is not None:
                merged.pop(_EXCLUSIVE[key], None)
    return merged


def _validate(section: str, owner: str, cls: type[Section], merged: Merged) -> Any:
    values = {key: value for (name, key), (value, _) in merged.items() if name == section}
    try:
        return cls.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        if not first["loc"]:
            raise UserError(str(first.get("ctx", {}).get("error", first["msg"]))) from None
        key = str(first["loc"][0])
        _, origin = merged.get((section, key), (None, "settings"))
        if first["type"] == "extra_forbidden":
            raise unknown(f"option of {owner}", key, cls.model_fields, origin) from None
        raise _wrong_value(f"{section}.{key}", first, origin) from None


def _wrong_value(name: str, error: Any, origin: str) -> UserError:
    """Describe a value of the wrong type or outside its limits."""
    if error["type"] == "literal_error":
        choices = error["ctx"]["expected"].replace(" or ", ", ").replace("'", "").split(", ")
        return unknown(f"value of {name}", str(error["input"]), choices, origin)
    expected = error["msg"][0].lower() + error["msg"][1:]
    return UserError(f"{origin}: {name}: got {error['input']!r}; {expected}")
