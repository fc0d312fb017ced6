"""Checks of a user's own mixer before it is trained."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor, nn

from lra.config.mixers import MixerComponent
from models import promises
from models.base import Mixer, MixerContext

LENGTHS = (5, 83)
"""Lengths of the sequences that a plug-in is tried on, if it can be as long."""


def check_plug_in(component: MixerComponent, mixer: nn.Module, context: MixerContext) -> None:
    """Check that a plug-in keeps the promises that the suite's mixers are tested for.

    Mixers of the suite are not checked.

    Args:
        mixer: a new mixer; it is left in evaluation mode.
        context: the context that it is built for; a grid has no padding.
    Raises: UserError for a broken promise, see `plug_in_checks`, and for anything that the mixer
        raises in training or evaluation.
    """
    if component.code is None:
        return
    with component.explain_errors("it failed in a trial"):
        for _, check in plug_in_checks(component, mixer, context):
            check()


def plug_in_checks(
    component: MixerComponent, mixer: nn.Module, context: MixerContext
) -> Iterator[tuple[str, Callable[[], None]]]:
    """List the checks of a plug-in by name; arguments as for `check_plug_in`.

    Run each check before asking for the next one.
    """
    yield "its weights can be trained and saved", partial(_check_weights, mixer)
    shapes = promises.weight_shapes(mixer)
    grid = context.grid
    lengths = [min(n, context.max_length) for n in LENGTHS] if grid is None else [math.prod(grid)]
    for length in dict.fromkeys(lengths):
        x = torch.randn(2, length, context.dim)
        mask = torch.ones(2, length, dtype=torch.bool)
        mask[1, length // 2 + 1 :] = False
        at = f"{length} positions"
        for given in (None,) if grid is not None else (mask, None):
            how = "without a mask" if given is None else "with a mask"
            yield (
                f"forward and backward pass, {at}, {how}",
                partial(_train, component, mixer, x, given),
            )
        for training in (True, False):
            mode = "training" if training else "evaluation"
            mixer.train(training)
            if grid is None:
                name = f"padding changes no real position in {mode}, {at}"
                contents = [10 * torch.randn_like(x)]
                yield name, partial(promises.check_padding, mixer, x, mask, contents)
            if context.causal:
                name = f"no position sees a later one in {mode}, {at}"
                yield name, partial(promises.check_causality, mixer, x, [length - 1])
    yield "its weights keep their shapes", partial(promises.check_weight_shapes, mixer, shapes)


def _check_weights(mixer: nn.Module) -> None:
    promises.check_weights(mixer)
    if not isinstance(mixer, Mixer) and "learning_rates" in dir(type(mixer)):
        fault = "learning_rates only works in subclasses of models.base.Mixer"
        raise promises.BrokenPromise(fault)


def _train(component: MixerComponent, mixer: nn.Module, x: Tensor, mask: Tensor | None) -> None:
    with component.explain_errors(f"forward with mask {promises.describe(mask)}"):
        promises.take_training_step(mixer, x, mask)
        mixer.zero_grad(set_to_none=True)
