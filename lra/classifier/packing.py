"""Sequences of several lengths: packed end to end, and padded only for mixers.

Everything except mixers works on single positions, or on statistics over all of them. It uses the
packed form, (positions, channels), which has real positions only. For mixers, sequences are sorted
by length and padded in a few groups of similar length, so that a random batch does not cost as
much as its longest sequence. Batches of similar length are no substitute: the statistics of batch
norm would differ between batches, and the running statistics would match none of them.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd import Function

from lra.common.tensors import copy_together
from lra.models.layers.kernel_cache import cache_kernels

SHORTEST_OVER_LONGEST = 0.7
"""Least length of a sequence in a group, as a share of its longest one's."""

SMALLEST_GROUP = 800
"""A group with fewer positions takes shorter sequences, too, because each mixer call has a cost."""

SMALLEST_GPU_GROUP = 2**14
"""The same on a GPU: the launches of a mixer call take as long as so many positions of padding."""


class _Reorder(Function):
    """Gather rows. The gradient is gathered, too, because only padding takes a row twice."""

    @staticmethod
    def forward(  # noqa: PLR0917 (an autograd function takes positional arguments alone)
        ctx: Any,
        x: Tensor,
        index: Tensor,
        zeros: Tensor | None,
        reverse: Tensor,
        reverse_zeros: Tensor | None,
    ) -> Tensor:
        """Gather x[index], (rows, channels), and zero the rows that `zeros` lists."""
        ctx.reverse, ctx.reverse_zeros = reverse, reverse_zeros
        y = x.index_select(0, index)
        return y if zeros is None else y.index_fill_(0, zeros, 0)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Gather the gradient the other way."""
        gradient = gradients[0].index_select(0, ctx.reverse)
        if ctx.reverse_zeros is not None:
            gradient.index_fill_(0, ctx.reverse_zeros, 0)
        return gradient, None, None, None, None


_reorder = cast("Callable[..., Tensor]", _Reorder.apply)


@dataclass(frozen=True)
class _Group:
    rows: int
    length: int
    mask: Tensor | None
    """(rows, length) bool; None when nothing is padded."""


class Packing:
    """Where the positions of a batch's sequences are, packed and in padded groups.

    Args:
        lengths: (sequences,) int64, all positive, on the CPU.
        device: the one of the tensors to pack.
    """

    def __init__(self, lengths: Tensor, device: torch.device) -> None:
        self.lengths = lengths
        order = torch.argsort(lengths, descending=True, stable=True)
        starts = torch.cumsum(lengths, 0) - lengths
        sequence = torch.arange(len(lengths)).repeat_interleave(lengths)
        position = torch.arange(len(sequence)) - starts[sequence]
        smallest = SMALLEST_GROUP if device.type == "cpu" else SMALLEST_GPU_GROUP
        shapes = _cut(lengths[order].tolist(), smallest)
        indices: list[Tensor] = []
        masks: list[Tensor] = []
        for chosen, (_, length) in zip(order.split([n for n, _ in shapes]), shapes, strict=True):
            columns = torch.arange(length)
            masks.append(columns < lengths[chosen, None])
            indices.append((starts[chosen, None] + columns).flatten())
        is_real = torch.cat([mask.flatten() for mask in masks])
        index = torch.where(is_real, torch.cat(indices), 0)
        real, padding = is_real.nonzero().squeeze(1), (~is_real).nonzero().squeeze(1)
        inverse = torch.empty(len(sequence), dtype=torch.int64)
        inverse[index[real]] = real
        is_padded = [not mask.all() for mask in masks]
        # One group without padding is the packed form itself.
        self.is_rectangle = len(shapes) == 1 and not any(is_padded)
        tables = [index, inverse, order, torch.argsort(order), sequence, position, padding]
        copied = copy_together([*tables, *masks], device)
        self.index, self.inverse = copied[:2]
        """(padded,) row of the packed form of each position in groups, 0 for padding; and
        (positions,) the other way."""
        self.order, self.reordered = copied[2:4]
        """(sequences,) the longest sequence first; and the other way."""
        self.sequence, self.position = copied[4:6]
        """(positions,) number of each packed position's sequence, and its position in it."""
        self.padding = copied[6] if any(is_padded) else None
        """(padding,) positions in groups that are not real."""
        self.groups = [
            _Group(*shape, mask if has_padding else None)
            for shape, mask, has_padding in zip(shapes, copied[7:], is_padded, strict=True)
        ]

    def padded(self, x: Tensor) -> list[tuple[Tensor, Tensor | None]]:
        """Pad packed positions, (positions, channels), in groups, with zeros.

        Returns: per group (sequences, length, channels) and its mask, (sequences, length).
        """
        if not self.is_rectangle:
            x = _reorder(x, self.index, self.padding, self.inverse, None)
        parts = x.split([group.rows * group.length for group in self.groups])
        return [
            (part.view(group.rows, group.length, -1), group.mask)
            for part, group in zip(parts, self.groups, strict=True)
        ]

    def packed(self, groups: list[Tensor]) -> Tensor:
        """Undo `padded`, dropping the padding: (positions, channels)."""
        if self.is_rectangle:
            return groups[0].flatten(0, 1)
        x = torch.cat([group.flatten(0, 1) for group in groups])
        return _reorder(x, self.inverse, None, self.index, self.padding)

    def mix(self, mixer: Callable[[Tensor, Tensor | None], Tensor], x: Tensor) -> Tensor:
        """Apply a mixer to packed positions: (positions, channels) -> the same shape."""
        with cache_kernels():  # the first group is the longest
            return self.packed([mixer(part, mask) for part, mask in self.padded(x)])

    def repeated(self, values: Tensor) -> Tensor:
        """Repeat values at each position: (sequences, channels) -> (positions, channels)."""
        return values.index_select(0, self.sequence)

    def reduce(self, pool: Callable[[Tensor, Tensor | None], Tensor], x: Tensor) -> Tensor:
        """Reduce each sequence to one vector: (positions, channels) -> (sequences, channels)."""
        pooled = torch.cat([pool(part, mask) for part, mask in self.padded(x)])
        return _reorder(pooled, self.reordered, None, self.order, None)


def pack(lengths: Tensor, device: torch.device) -> Packing:
    """Return the packing of sequences, see `Packing`; equal batches of equal sequences share it."""
    first = lengths[0]
    if bool((lengths == first).all()):
        return _pack_equal(len(lengths), int(first), device)
    return Packing(lengths, device)


@functools.lru_cache(maxsize=8)
def _pack_equal(sequences: int, length: int, device: torch.device) -> Packing:
    with torch.inference_mode(False):  # a training step may use it next
        return Packing(torch.full((sequences,), length), device)


def _cut(ordered: list[int], smallest: int) -> list[tuple[int, int]]:
    """Cut lengths in falling order into groups of at least `smallest` positions.

    Returns: sequences and longest length of each group.
    """
    groups: list[tuple[int, int]] = []
    first = held = 0
    for i, length in enumerate(ordered):
        if held >= smallest and length < SHORTEST_OVER_LONGEST * ordered[first]:
            groups.append((i - first, ordered[first]))
            first, held = i, 0
        held += length
    groups.append((len(ordered) - first, ordered[first]))
    return groups
