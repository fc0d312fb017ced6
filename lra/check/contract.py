"""The checks of a subclass of `Mixer`: what this suite needs of its own mixers."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import partial

import torch
from torch import nn

from common.errors import UserError
from lra.check.checks import Checks
from lra.config.components import MixerComponent, Section
from models import promises, suite_promises
from models.base import MixerContext, RecurrentMixer

SCALE = 0.5
"""Standard deviation of random parameters, at which every part of a mixer has an effect."""
BF16_LIMIT = 0.05
"""Largest difference of a result in bf16, relative to that in single precision."""


def contract_checks(component: MixerComponent, options: Section, context: MixerContext) -> Checks:
    """List the checks that tests/test_models_contract.py makes, each by its name."""
    yield "its docstring explains every option", partial(_check_docstring, component)
    for causal in (False, True):
        try:
            mixer = component.build(replace(context, layer=1, causal=causal), options)
        except UserError:
            continue  # it refuses a causal model
        with torch.no_grad():
            for parameter in mixer.parameters():
                parameter.copy_(SCALE * torch.randn_like(parameter))
        for name, check in _list_promises(mixer, context, causal=causal):
            yield name + " in a causal model" * causal, check


def _list_promises(mixer: nn.Module, context: MixerContext, *, causal: bool) -> Checks:
    dim, longest = context.dim, context.max_length
    batches, empty = torch.randn(3, 2, 33, dim), torch.zeros(0, longest, dim)
    yield (
        "every parameter has an effect",
        partial(suite_promises.check_every_gradient, mixer, batches),
    )
    yield "it runs on an empty batch", partial(suite_promises.check_empty_batch, mixer, empty)
    close = partial(suite_promises.check_bf16, mixer.eval(), torch.randn(2, 33, dim), BF16_LIMIT)
    yield "its result in bf16 is close to that in single precision", close
    exact = copy.deepcopy(mixer).double().eval()
    x = torch.randn(2, 16, dim, dtype=torch.float64)
    mask = torch.ones(2, 16, dtype=torch.bool)
    mask[0, 7:] = False
    yield "it runs in double precision", partial(promises.check_rows, exact, x, mask)
    padding = partial(promises.check_padding, exact, x, mask, [torch.inf, torch.nan])
    yield "padding may hold infinities and NaN", padding
    yield (
        "no gradient reaches padding",
        partial(suite_promises.check_padding_gradient, exact, x, mask),
    )
    reach = partial(suite_promises.check_reach, exact, x[:1, :13], causal=causal)
    yield "it mixes as many positions as `reach` says", reach
    longer = torch.randn(1, 2 * longest, dim, dtype=torch.float64)
    yield (
        "it mixes longer sequences than it was built for, or refuses them, as `takes_longer` says",
        partial(suite_promises.check_longer, exact, longer),
    )
    if causal and isinstance(exact, RecurrentMixer):
        yield "its recurrence equals forward", partial(suite_promises.check_recurrence, exact, x)


def _check_docstring(component: MixerComponent) -> None:
    text = component.cls.__doc__ or ""
    missing = [name for name in component.options.model_fields if f"{name}:" not in text]
    if missing:
        raise promises.BrokenPromise(
            f"the docstring of {component.name} does not explain {', '.join(missing)}; add a line "
            f"'{missing[0]}: ...' to its Args"
        )
