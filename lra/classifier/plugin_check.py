"""Checks of a user's own mixer before it is trained."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor, nn

from lra.config.components import MixerComponent
from models import promises
from models.base import Mixer, MixerContext

LENGTHS = (5, 83)
"""Lengths of the sequences that a plug-in is tried on, if it can be as long."""
PADDED_LENGTH = 300
"""Length to which shorter sequences are padded, if it can be as long. It is more than one chunk of
most mixers that process a sequence in chunks."""
SMALL = 0.1
"""Standard deviation that parameters get which are 0 at the start."""


def check_plug_in(component: MixerComponent, mixer: nn.Module, context: MixerContext) -> None:
    """Check that a plug-in keeps the promises that the suite's mixers are tested for.

    Args:
        mixer: a new mixer; it is left in evaluation mode, without parameters that are all 0.
        context: the context that it is built for; a grid has no padding.
    Raises: UserError for a broken promise, see `plug_in_checks`, and for anything that the mixer
        raises in training or evaluation.
    """
    if component.code is not None:
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
    with torch.no_grad():  # a part behind a map of zeros has no effect that checks can see
        for parameter in mixer.parameters():
            if parameter.requires_grad and not parameter.any():
                parameter.normal_(std=SMALL)
    grid = context.grid
    lengths = [min(n, context.max_length) for n in LENGTHS] if grid is None else [math.prod(grid)]
    for length in dict.fromkeys(lengths):
        x = torch.randn(2, length, context.dim)
        mask = torch.ones(2, length, dtype=torch.bool)
        mask[1, length // 2 + 1 :] = False
        at = f"{length} positions"
        for given in (None,) if grid is not None else (mask, None):
            how = "without a mask" if given is None else "with a mask"
            name = f"forward and backward pass, {at}, {how}"
            yield name, partial(_train, component, mixer, x, given)
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
    if grid is None:
        x, mask = _make_padded_batch(min(PADDED_LENGTH, context.max_length), context.dim)
        yield "results do not depend on the amount of padding", partial(_check_rows, mixer, x, mask)
    yield "its weights keep their shapes", partial(promises.check_weight_shapes, mixer, shapes)


def _check_weights(mixer: nn.Module) -> None:
    promises.check_weights(mixer)
    if not isinstance(mixer, Mixer) and "learning_rates" in dir(type(mixer)):
        fault = "learning_rates only works in subclasses of models.base.Mixer"
        raise promises.BrokenPromise(fault)


def _make_padded_batch(length: int, dim: int) -> tuple[Tensor, Tensor]:
    """Make a full sequence and shorter ones beside it: (rows, length, dim), and their mask."""
    few = min(LENGTHS[0], length // 2)
    real = {few, max(few, length // 4), -(-length // 2), length - 1, length}
    mask = torch.arange(length) < torch.tensor(sorted(real - {0}))[:, None]
    x = torch.randn(*mask.shape, dim)
    x[::2] += 2 * torch.randn(dim)  # zeros are like an average position in some rows only
    return x, mask


def _check_rows(mixer: nn.Module, x: Tensor, mask: Tensor) -> None:
    """See `promises.check_rows`, which compares nothing if evaluation draws random numbers."""
    first, second = (promises.check_output(mixer, x, mask) for _ in range(2))
    if torch.allclose(first[mask], second[mask], *promises.TOLERANCES[x.dtype]):
        promises.check_rows(mixer, x, mask)


def _train(component: MixerComponent, mixer: nn.Module, x: Tensor, mask: Tensor | None) -> None:
    with component.explain_errors(f"forward with mask {promises.describe(mask)}"):
        promises.take_training_step(mixer, x, mask)
        mixer.zero_grad(set_to_none=True)
