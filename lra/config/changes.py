"""Settings that flags change: `--set` and others that stand for a setting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from lra.config.merge import Values, exclusive_with
from lra.config.names import ALIKE, KnownSettings, meant_by
from lra.config.registry import Section
from lra.config.schema import PretrainConfig, RunConfig
from lra.config.strict_yaml import parse_yaml, plain
from lra.config.yaml_layers import SECTIONS, Layer, layer_of
from lra.runtime.errors import UserError, nearest, unknown

Flags = Sequence[tuple[str, str]]
"""Flags that stand for a setting, each with its text: ("--precision", "train.precision=bf16")."""


def flag_layers(overrides: Sequence[str], flags: Flags, known: KnownSettings) -> list[Layer]:
    """Turn flags into layers, each over the one before it.

    Args:
        overrides: texts of `--set`, "section.key=value".
        flags: other flags, which come after them.
        known: all settings that there are.
    Raises: UserError for a text of another form, and for flags that contradict one another.
    """
    layers = [
        _flag_layer(text, flag, known)
        for flag, text in [*(("--set", t) for t in overrides), *flags]
    ]
    _refuse_contradictions(layers)
    return layers


def _flag_layer(text: str, flag: str, known: KnownSettings) -> Layer:
    """Turn "section.key=value" into a layer."""
    name, equals, value = text.partition("=")
    section, dot, key = name.strip().partition(".")
    origin = f"{flag} {text}"
    if not (equals and dot and key):
        meant = meant_by(None, section, known) if not dot and section not in SECTIONS else None
        hint = f"; did you mean {meant}?" if meant else ""
        raise UserError(
            f"{origin}: expected section.key=value, train.lr=1e-3 for instance (sections: "
            f"{', '.join(SECTIONS)}){hint}"
        )
    if section not in SECTIONS and nearest(section, SECTIONS, ALIKE) is None:
        raise unknown("section", section, SECTIONS, origin, meant_by(None, key, known))
    layer = layer_of({section: {key: parse_yaml(value, origin)}}, origin)
    return replace(layer, is_flag=True)


def _refuse_contradictions(layers: Sequence[Layer]) -> None:
    """Refuse two settings that replace each other: flags are all of one standing."""
    given = {key: (value, layer.origin) for layer in layers for key, value in layer.values.items()}
    for key, (value, origin) in given.items():
        for other in exclusive_with(key) if value is not None else ():
            if given.get(other, (None, ""))[0] is not None:
                raise UserError(
                    f"{origin} and {given[other][1]}: set {'.'.join(key)} or {'.'.join(other)}, "
                    f"not both"
                )


def refuse_idle(changes: Sequence[Layer], config: RunConfig, merged: Values) -> None:
    """Refuse flags that act on nothing; files may set them for several presets.

    Raises: UserError saying why.
    """
    changed = {key for layer in changes for key in layer.values}
    for (section, key), why in _idle(config).items():
        if (section, key) in changed and merged[section, key][0] not in (None, False):
            raise UserError(f"{section}.{key} has no effect: {why}")


def _idle(config: RunConfig) -> dict[tuple[str, str], str]:
    """Say which settings act on nothing, and why."""
    model, train, pretrain = config.model, config.train, config.pretrain
    idle: dict[tuple[str, str], str] = {}
    if not config.is_pretrained:
        for key in PretrainConfig.model_fields:
            idle["pretrain", key] = "there is no pretraining (--pretrain masked or next)"
        del idle["pretrain", "objective"]
    elif pretrain.objective != "masked":
        idle["pretrain", "masked_share"] = f"pretrain.objective is {pretrain.objective}"
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


def effective(changes: Sequence[Layer], config: RunConfig, before: Values) -> tuple[str, ...]:
    """List the flags' settings that differ from what held without them, as "section.key=value"."""
    keys = dict.fromkeys(key for layer in changes for key in layer.values if key[0] != "log")
    found: list[str] = []
    for section, key in keys:
        options: Section = getattr(config, section)
        default = type(options).model_fields[key].default
        value: Any = getattr(options, key)
        if value is None and any(other in keys for other in exclusive_with((section, key))):
            continue  # another flag replaced it
        others = exclusive_with((section, key)) if value is not None else ()
        has_replaced = any(before.get(other, (None, ""))[0] is not None for other in others)
        if has_replaced or before.get((section, key), (default, ""))[0] != value:
            found.append(f"{section}.{key}={plain(value)}")
    return tuple(found)
