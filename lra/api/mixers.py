"""Mixers of the suite for models of one's own."""

from typing import Any

import torch
from torch import Tensor, nn

from lra.api.arguments import check_arguments
from lra.common.errors import UserError
from lra.config.compose import compose_options
from lra.config.registry import MIXERS, find_mixer
from lra.config.request import list_changes
from lra.models.base import Mixer, MixerContext


def list_mixers() -> list[str]:
    """Return the names of the suite's mixers, as `--mixer` takes them."""
    return sorted(MIXERS.classes)


@check_arguments
def mixer(
    name: str,
    /,
    *,
    dim: int,
    length: int | None = None,
    causal: bool = False,
    grid: tuple[int, int] | None = None,
    layer: int = 0,
    depth: int = 1,
    **options: Any,
) -> Mixer:
    """Build a mixer for a model of your own: x of (batch, length, dim) to the same shape.

    The module takes a second argument `mask`, (batch, length) bool, True at real positions, which
    come first in each row; None: all positions are real.

    Args:
        name: name of a mixer, or FILE.py:CLASS.
        dim: channels in and out.
        length: longest sequence, in positions. None: any, for mixers that need not know it.
        causal: whether position i only depends on positions up to i.
        grid: (height, width) of images, for mixers that mix along both axes.
        layer: index of the block that the mixer is for, from 0; few mixers use it.
        depth: number of blocks.
        options: options of the mixer, as `--set mixer.KEY=VALUE` takes them.
    Raises: UserError for an unknown mixer or option, a value that does not fit, and a mixer that
        needs a length.
    """
    for argument, number in {"dim": dim, "length": length, "depth": depth}.items():
        if number is not None and number < 1:
            raise UserError(f"lra.mixer: {argument}: got {number}, expected at least 1")
    component = find_mixer(name, "lra.mixer")
    section = compose_options(component, list_changes({"mixer": options}, "lra.mixer"))
    kind = _ContextOfAnyLength if length is None else MixerContext
    context = kind(
        dim=dim, max_length=length or 0, layer=layer, depth=depth, causal=causal, grid=grid
    )
    module = component.build(context, section)
    module.register_forward_pre_hook(_refuse_other_masks, with_kwargs=True)
    return module


class _ContextOfAnyLength(MixerContext):
    """The context of a mixer that must not depend on the longest sequence."""

    def __getattribute__(self, name: str) -> Any:
        if name == "max_length":
            raise ValueError("it needs the longest sequence that it gets, for example length=1024")
        return super().__getattribute__(name)


def _refuse_other_masks(
    module: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]
) -> None:
    """Raise UserError for a mask of numbers, which would be read as another thing than it is."""
    mask = named.get("mask", arguments[1] if len(arguments) > 1 else None)
    if isinstance(mask, Tensor) and mask.dtype != torch.bool:
        raise UserError(
            f"mask: got {mask.dtype}, expected torch.bool of (batch, length), True at real "
            f"positions; for a mask that is added to scores: mask == 0"
        )
