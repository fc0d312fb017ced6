"""What a mixer of one's own is checked for."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn

from lra.check.checks import Check, NotChecked
from lra.classifier.plugin_check import plug_in_checks
from lra.config.mixers import MixerComponent
from lra.config.registry import Section
from lra.runtime.errors import UserError
from models import promises
from models.base import MixerContext

LENGTH = 96
"""Positions of the longest sequence that a mixer is built for."""


def mixer_checks(
    component: MixerComponent, options: Section, dim: int
) -> Iterator[tuple[str, Check]]:
    """List all checks of a mixer with some options at `dim` channels, each by its name."""
    context = MixerContext(dim=dim, max_length=LENGTH, layer=0, depth=2)
    build = partial(component.build, options=options)
    yield "it can be constructed", lambda: _describe(build(context), dim)
    mixer = build(context)
    yield from plug_in_checks(component, mixer, context)
    for length in (1, LENGTH):
        yield f"it takes {length} positions", partial(_take, mixer, torch.randn(2, length, dim))
    mixer.eval()
    x = torch.randn(4, 31, dim)
    yield "evaluated twice, it gives the same", partial(promises.check_determinism, mixer, x)
    yield "sequences of a batch do not touch each other", partial(promises.check_rows, mixer, x)
    yield (
        "saved weights give the same again",
        lambda: promises.check_saved_weights(mixer, build(context).eval(), x),
    )
    yield "gradients reach every parameter", partial(_check_gradients, mixer, x)
    yield "it computes under bf16", partial(promises.check_bf16, mixer, x)
    yield (
        "where model.causal is true, it is causal or says that it cannot be",
        partial(_check_causal, component, options, replace(context, causal=True)),
    )


def _describe(mixer: nn.Module, dim: int) -> str:
    count = sum(p.numel() for p in mixer.parameters())
    return f"{count:,} parameters at {dim} channels"


def _take(mixer: nn.Module, x: Tensor) -> None:
    promises.check_output(mixer, x)


def _check_gradients(mixer: nn.Module, x: Tensor) -> str | None:
    promises.check_gradients(copy.deepcopy(mixer).train(), x)
    if not any(parameter.requires_grad for parameter in mixer.parameters()):
        return "it has no parameters that are trained"
    return None


def _check_causal(component: MixerComponent, options: Section, context: MixerContext) -> None:
    try:
        mixer = component.build(context, options)
    except UserError as error:
        raise NotChecked(f"it says that it cannot be ({error})") from None
    for _, check in plug_in_checks(component, mixer, context):
        check()
