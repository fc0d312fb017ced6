"""The checks of a mixer of the user's own."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn

from lra.check.checks import Check, NotChecked
from lra.check.contract import contract_checks
from lra.classifier.plugin_check import plug_in_checks
from lra.config.components import MixerComponent
from lra.config.options import Section
from lra.runtime.errors import UserError
from models import promises
from models.base import Mixer, MixerContext

LENGTH = 300
"""Longest sequence that a mixer is built for, in positions."""


def mixer_checks(
    component: MixerComponent, options: Section, dim: int
) -> Iterator[tuple[str, Check]]:
    """List all checks of a mixer with some options at `dim` channels, each by its name."""
    context = MixerContext(dim=dim, max_length=LENGTH, layer=0, depth=2)
    build = partial(component.build, options=options)
    yield "its constructor works", lambda: _describe(build(context), dim)
    mixer = build(context)
    yield from plug_in_checks(component, mixer, context)
    for length in (1, LENGTH):
        at = f"{length} position{'s' * (length != 1)}"
        yield f"it runs on {at}", partial(_take, mixer, torch.randn(2, length, dim))
    mixer.eval()
    x = torch.randn(4, 31, dim)
    yield "two evaluations give the same result", partial(promises.check_determinism, mixer, x)
    yield "sequences of a batch are independent", partial(promises.check_rows, mixer, x)
    yield (
        "saved weights give the same result",
        lambda: promises.check_saved_weights(mixer, build(context).eval(), x),
    )
    yield "every parameter has a gradient", partial(_check_gradients, mixer, x)
    yield "it runs in bf16", partial(promises.check_bf16, mixer, x)
    yield (
        "with model.causal=true it is causal, or refuses",
        partial(_check_causal, component, options, replace(context, causal=True)),
    )
    if isinstance(mixer, Mixer):
        yield from contract_checks(component, options, context)


def _describe(mixer: nn.Module, dim: int) -> str:
    count = sum(p.numel() for p in mixer.parameters())
    return f"{count:,} parameters at {dim} channels"


def _take(mixer: nn.Module, x: Tensor) -> None:
    promises.check_output(mixer, x)


def _check_gradients(mixer: nn.Module, x: Tensor) -> str | None:
    promises.check_gradients(copy.deepcopy(mixer).train(), x)
    if not any(parameter.requires_grad for parameter in mixer.parameters()):
        return "it has no trainable parameters"
    return None


def _check_causal(component: MixerComponent, options: Section, context: MixerContext) -> None:
    try:
        mixer = component.build(context, options)
    except UserError as error:
        raise NotChecked(f"it refuses a causal model ({error})") from None
    for _, check in plug_in_checks(component, mixer, context):
        check()
