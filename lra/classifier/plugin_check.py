"""Trying a user's mixer on a few numbers before anything is trained with it."""

from __future__ import annotations

import inspect

import torch
from torch import Tensor, nn

from lra.config.plugin import MixerSource, described
from lra.runtime.environment import is_out_of_memory
from lra.runtime.errors import UserError
from models.base import Mixer

LENGTH = 5


def check_plug_in(
    source: MixerSource,
    mixer: nn.Module,
    dim: int,
    *,
    causal: bool,
    grid: tuple[int, int] | None,
) -> None:
    """Hold a plug-in to what registered mixers are tested for; of those, say nothing.

    Args:
        mixer: a fresh one; it is left in evaluation.
        grid: (height, width) of its input, which then has no padding.
    Raises: UserError for parameters or learning rates that cannot be trained, anything that
        forward raises, a result of another shape or type than x, padding that reaches real
        positions, and a causal context that is not met.
    """
    if source.code is None:
        return
    _check_parameters(source, mixer)
    length = LENGTH if grid is None else grid[0] * grid[1]
    padded = torch.ones(2, length, dtype=torch.bool)
    padded[1, -2:] = False
    x = torch.randn(2, length, dim)
    for mask in (None,) if grid is not None else (padded, None):
        _try_to_train(source, mixer, x, mask)
    mixer.eval()
    if grid is None:
        changed = torch.where(padded[..., None], x, 10 * torch.randn_like(x))
        if _differ(mixer, x, changed, padded, padded):
            raise UserError(
                f"{source.origin}: what stands at padded positions (mask False) changes real "
                f"ones; set it to 0 at the input of whatever joins positions"
            )
    if causal:
        changed = x.clone()
        changed[:, -1] += 1
        earlier = torch.ones_like(padded)
        earlier[:, -1] = False
        if _differ(mixer, x, changed, None, earlier):
            raise UserError(
                f"{source.origin}: model.causal is true, and the last position changes earlier "
                f"ones; heed context.causal, or raise ValueError where it is true"
            )


def _check_parameters(source: MixerSource, mixer: nn.Module) -> None:
    for name, parameter in mixer.named_parameters():
        if not parameter.is_floating_point():
            raise UserError(
                f"{source.origin}: parameter {name} is {parameter.dtype}, expected real numbers; "
                f"complex ones can be kept as pairs (torch.view_as_real)"
            )
    if not isinstance(mixer, Mixer) and "learning_rates" in dir(type(mixer)):
        raise UserError(
            f"{source.origin}: learning_rates is read from subclasses of models.base.Mixer alone"
        )


def _try_to_train(source: MixerSource, mixer: nn.Module, x: Tensor, mask: Tensor | None) -> None:
    """Go forward and back once as a block does, x being a view that must not be overwritten."""
    given = "None" if mask is None else f"{tuple(mask.shape)} bool"
    try:
        inspect.signature(mixer.forward).bind(x, mask)
    except TypeError as error:
        raise UserError(f"{source.origin}: forward(x, mask) is not possible: {error}") from None
    try:
        (view,) = (1 * x.clone().requires_grad_()).split([len(x)])
        y = mixer(view, mask)
        if isinstance(y, Tensor) and y.requires_grad:
            y.sum().backward()
    except Exception as error:
        if is_out_of_memory(error):
            raise
        fault = described(error, inspect.getfile(source.cls))
        raise UserError(f"{source.origin}: forward with mask {given}: {fault}") from None
    if not isinstance(y, Tensor) or (y.shape, y.dtype) != (x.shape, x.dtype):
        raise UserError(
            f"{source.origin}: forward returned {_kind(y)} for x {_kind(x)} and mask {given}; "
            f"expected the shape and type of x"
        )


@torch.no_grad()
def _differ(
    mixer: nn.Module, x: Tensor, changed: Tensor, mask: Tensor | None, where: Tensor
) -> bool:
    """Whether two inputs give different results at some positions."""
    return not torch.allclose(mixer(x, mask)[where], mixer(changed, mask)[where], 1e-3, 1e-4)


def _kind(value: object) -> str:
    if not isinstance(value, Tensor):
        return f"a {type(value).__name__}"
    return f"{tuple(value.shape)} {str(value.dtype).removeprefix('torch.')}"
