"""The changed settings of a run: which ones have no effect, and which ones changed a value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lra.config.registry import Section
from lra.config.request import Change
from lra.config.schema import PretrainConfig, RunConfig
from lra.config.settings_layers import MergedSettings, list_exclusive_settings
from lra.runtime.errors import UserError


def refuse_idle(changes: Iterable[Change], config: RunConfig) -> None:
    """Refuse flags that have no effect. Settings files may have such values, for other presets.

    Raises: UserError saying why.
    """
    idle = _idle(config)
    for change in changes:
        section, key = change.section, change.key
        why = idle.get((section, key))
        if why is not None and getattr(getattr(config, section), key) not in (None, False):
            raise UserError(f"{section}.{key} has no effect: {why}")


def _idle(config: RunConfig) -> dict[tuple[str, str], str]:
    """Return the settings that have no effect, with the reason."""
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


def effective_changes(merged: MergedSettings, sections: Mapping[str, Section]) -> tuple[str, ...]:
    """Name the changed settings that differ from the value without the change.

    Args:
        sections: the settings of the run.
    """
    keys = dict.fromkeys((c.section, c.key) for c in merged.changes if c.section != "log")
    found: list[str] = []
    for section, key in keys:
        options = sections[section]
        default = type(options).model_fields[key].default
        value: Any = getattr(options, key)
        if value is None and any(
            other in keys for other in list_exclusive_settings((section, key))
        ):
            continue  # another flag has replaced it
        others = list_exclusive_settings((section, key)) if value is not None else ()
        has_replaced = any(
            merged.initial_values.get(other, (None, ""))[0] is not None for other in others
        )
        if has_replaced or merged.initial_values.get((section, key), (default, ""))[0] != value:
            found.append(f"{section}.{key}")
    return tuple(found)
