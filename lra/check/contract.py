"""What a subclass of `Mixer` has to promise besides, so that the tests of this repository pass."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import torch
from torch import nn

from lra.check.checks import Check
from lra.config.components import MixerComponent
from lra.config.options import Section
from lra.runtime.errors import UserError
from models import promises
from models.base import MixerContext, RecurrentMixer

SCALE = 0.5
"""Standard deviation of random parameters, at which every part of a mixer has an effect."""
BF16_LIMIT = 0.05
"""Largest difference of a result in bf16, relative to that in single precision."""


def contract_checks(
    component: MixerComponent, options: Section, context: MixerContext
) -> Iterator[tuple[str, Check]]:
    """List the checks that tests/test_models_contract.py makes, each by its name."""
    yield "its docstring explains every option", partial(_check_docstring, component)
    for causal in (False, True):
        try:
            mixer = component.build(replace(context, layer=1, causal=causal), options)
        except UserError:
            continue  # it refuses a causal model
        kind = " in a causal model" if causal else ""
        for name, check in _checks_of(_randomize(mixer), context, causal=causal):
            yield f"{name}{kind}", check


def _randomize(mixer: nn.Module) -> nn.Module:
    with torch.no_grad():
        for parameter in mixer.parameters():
            parameter.copy_(SCALE * torch.randn_like(parameter))
    return mixer


def _checks_of(
    mixer: nn.Module, context: MixerContext, *, causal: bool
) -> Iterator[tuple[str, Check]]:
    dim = context.dim
    yield (
        "every parameter has an effect",
        partial(promises.check_every_gradient, mixer, torch.randn(3, 2, 33, dim)),
    )
    yield (
        "it runs on an empty batch",
        partial(promises.check_empty_batch, mixer, torch.zeros(0, context.max_length, dim)),
    )
    close = partial(promises.check_bf16, mixer.eval(), torch.randn(2, 33, dim), BF16_LIMIT)
    yield "its result in bf16 is close to that in single precision", close
    exact = copy.deepcopy(mixer).double().eval()
    x = torch.randn(2, 16, dim, dtype=torch.float64)
    mask = torch.ones(2, 16, dtype=torch.bool)
    mask[0, 7:] = False
    yield "it runs in double precision", partial(promises.check_rows, exact, x, mask)
    yield (
        "padding may hold infinities and NaN",
        partial(promises.check_padding, exact, x, mask, [torch.inf, torch.nan]),
    )
    yield "no gradient reaches padding", partial(promises.check_padding_gradient, exact, x, mask)
    yield (
        "it mixes as many positions as `reach` says",
        partial(promises.check_reach, exact, x[:1, :13], causal=causal),
    )
    longer = torch.randn(1, 2 * context.max_length, dim, dtype=torch.float64)
    yield (
        "it mixes longer sequences than it was built for, or refuses them, as `takes_longer` says",
        partial(promises.check_longer, exact, longer),
    )
    if causal and isinstance(exact, RecurrentMixer):
        yield "its recurrence equals forward", partial(promises.check_recurrence, exact, x)


def _check_docstring(component: MixerComponent) -> None:
    text = component.cls.__doc__ or ""
    missing = [name for name in component.options.model_fields if f"{name}:" not in text]
    if missing:
        raise promises.BrokenPromise(
            f"the docstring of {component.name} does not explain {', '.join(missing)}; add a line "
            f"'{missing[0]}: ...' to its Args"
        )
