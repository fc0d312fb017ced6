"""A trial of a plug-in: does a mixer of the user's own keep what a run needs of it?"""

import math
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor, nn

from lra.config.components import MixerComponent
from lra.models import run_promises
from lra.models.base import MixerContext

SHORT, LONG = 5, 300
"""Lengths of the sequences that a plug-in is tried on, if it can be as long. The longer one is more
than one chunk of most mixers that process a sequence in chunks."""


def check_plug_in(component: MixerComponent, mixer: nn.Module, context: MixerContext) -> None:
    """Check that a plug-in keeps the promises that the suite's mixers are tested for.

    Args:
        mixer: a new mixer; it is left in evaluation mode, without parameters that are all 0.
        context: the context that it is built for; a grid has no padding.
    Raises: UserError for a broken promise, and for anything that the mixer raises.
    """
    if component.code is not None:
        with component.explain_errors("it failed in a trial"):
            for name, check in plug_in_checks(mixer, context):
                with component.explain_errors(f"failed in a trial ({name})"):
                    check()


def plug_in_checks(
    mixer: nn.Module, context: MixerContext
) -> Iterator[tuple[str, Callable[[], object]]]:
    """List the checks of a plug-in by name; arguments as for `check_plug_in`.

    Run each check before asking for the next one.
    """
    yield "its weights can be trained and saved", partial(run_promises.check_weights, mixer)
    shapes = run_promises.weight_shapes(mixer)
    with torch.no_grad():  # a part behind a map of zeros has no effect that checks can see
        for parameter in mixer.parameters():
            if parameter.requires_grad and not parameter.any():
                parameter.normal_(std=0.1)
    is_padded = context.grid is None
    length = min(LONG, context.max_length) if context.grid is None else math.prod(context.grid)
    short = min(SHORT, length)
    real = {short, max(short, length // 4), -(-length // 2), length - 1, length} - {0}
    mask = torch.arange(length) < torch.tensor(sorted(real))[:, None]
    x = torch.randn(*mask.shape, context.dim)
    x[::2] += 2 * torch.randn(context.dim)  # zeros are like an average position in some rows only
    few = x[:2, :short] if is_padded else x[:2]
    step, padding = run_promises.take_training_step, "padding changes no real position"
    yield "forward and backward pass without a mask", partial(step, mixer, few)
    if is_padded:
        yield "forward and backward pass with a mask", partial(step, mixer, x, mask)
    mixer.zero_grad(set_to_none=True)
    for training in (True, False):
        mode = "training" if training else "evaluation"
        mixer.train(training)
        if is_padded:
            check = partial(run_promises.check_padding, mixer, x, mask, [10 * torch.randn_like(x)])
            yield f"{padding} in {mode}", check
            same = partial(_check_amount_of_padding, mixer, x, mask)
            yield f"results do not depend on the amount of padding in {mode}", same
        if context.causal:
            check = partial(run_promises.check_causality, mixer, x[:2], [length - 1])
            yield f"no position sees a later one in {mode}", check
    yield "its weights keep their shapes", partial(run_promises.check_weight_shapes, mixer, shapes)


def _check_amount_of_padding(mixer: nn.Module, x: Tensor, mask: Tensor) -> None:
    """Compare amounts of padding, unless a second pass differs by random numbers or a state."""
    mixer = run_promises.copy_mixer(mixer)
    check = run_promises.check_less_padding if mixer.training else run_promises.check_rows
    for module in mixer.modules():
        if isinstance(module, nn.Dropout):
            module.eval()
    copied = run_promises.copy_mixer(mixer)
    with torch.no_grad():
        first, second = (run_promises.check_output(copied, x, mask)[mask] for _ in range(2))
    if not run_promises.describe_difference(second, first):
        check(mixer, x, mask)
