"""Sequences of several lengths: packed end to end, and padded only for mixers.

Everything except mixers works on single positions, or on statistics over all of them. It uses the
packed form, (positions, channels), which has real positions only. For mixers, sequences are sorted
by length and padded in a few groups of similar length, so that a random batch does not cost as
much as its longest sequence. Batches of similar length are no substitute: the statistics of batch
norm would differ between batches, and the running statistics would match none of them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.autograd import Function

from common.tensors import copy_together, join, send, separate
from lra.classifier.layouts import Layout
from models.layers.kernel_cache import cache_kernels
from models.layers.norms import RealRows

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


class _Tables(NamedTuple):
    """Indices between the packed form and groups, first on the CPU, then on the device."""

    row: Tensor
    """(padded,) row of the packed form of each position in groups; 0 for padding."""
    inverse: Tensor
    """(positions,) the other way."""
    order: Tensor
    """(sequences,) the longest sequence first."""
    reordered: Tensor
    """(sequences,) the other way."""
    sequence: Tensor
    """(positions,) number of each packed position's sequence."""
    position: Tensor
    """(positions,) its position in the sequence."""
    padding: Tensor
    """(padding,) positions in groups that are not real."""
    mask: Tensor
    """(padded,) bool, True for real positions."""

    @classmethod
    def build(cls, lengths: Tensor, groups: Sequence[tuple[int, int]]) -> _Tables:
        """Build the tables of sequences, lengths (sequences,), on the CPU."""
        order = torch.argsort(lengths, descending=True, stable=True)
        starts = torch.cumsum(lengths, 0) - lengths
        sequence = torch.arange(len(lengths)).repeat_interleave(lengths)
        position = torch.arange(len(sequence)) - starts[sequence]
        indices: list[Tensor] = []
        masks: list[Tensor] = []
        first = 0
        for rows, length in groups:
            chosen, columns = order[first : first + rows, None], torch.arange(length)
            masks.append((columns < lengths[chosen]).flatten())
            indices.append((starts[chosen] + columns).flatten())
            first += rows
        mask = torch.cat(masks)
        index = torch.where(mask, torch.cat(indices), 0)
        real = mask.nonzero().squeeze(1)
        inverse = torch.empty(len(sequence), dtype=torch.int64)
        inverse[index[real]] = real
        padding = (~mask).nonzero().squeeze(1)
        return cls(index, inverse, order, torch.argsort(order), sequence, position, padding, mask)

    def extended(self, layout: Layout) -> _Tables:
        """Repeat last entries, so that sizes depend on the layout only."""
        size = layout.padded - layout.least
        return self._replace(
            inverse=_extend(self.inverse, layout.capacity),
            sequence=_extend(self.sequence, layout.capacity),
            position=_extend(self.position, layout.capacity),
            padding=_extend(self.padding, size),
        )

    def split_mask(self, groups: Sequence[tuple[int, int]]) -> list[Tensor]:
        """Return the mask of each group, (rows, length)."""
        parts = self.mask.split([rows * length for rows, length in groups])
        return [part.view(shape) for part, shape in zip(parts, groups, strict=True)]


def _extend(table: Tensor, size: int) -> Tensor:
    return torch.cat([table, table[-1:].expand(size - len(table))])


class Packing:
    """Where the positions of a batch's sequences are, packed and in padded groups.

    Args:
        lengths: (sequences,) int64, all positive, on the CPU.
        device: the one of the tensors to pack.
        groups: sequences and padded length of each group, the longest first. None: groups of
            similar length.
    """

    real: RealRows | None = None
    """Which rows of the packed form are real; None for all."""
    empty: Tensor | None = None
    """(rows,) rows of the packed form that are not real."""

    def __init__(
        self,
        lengths: Tensor,
        device: torch.device,
        groups: Sequence[tuple[int, int]] | None = None,
    ) -> None:
        self.lengths = lengths
        if groups is None:
            smallest = SMALLEST_GROUP if device.type == "cpu" else SMALLEST_GPU_GROUP
            groups = _cut(lengths.sort(descending=True).values.tolist(), smallest)
        tables = _Tables.build(lengths, groups)
        copied = _Tables(*copy_together(tables, device))
        is_padded = [not mask.all() for mask in tables.split_mask(groups)]
        # One group without padding is the packed form itself.
        self.is_rectangle = len(groups) == 1 and not any(is_padded)
        self._take(copied, groups)
        if not any(is_padded):
            self.padding = None
        self.groups = [
            group if has_padding else replace(group, mask=None)
            for group, has_padding in zip(self.groups, is_padded, strict=True)
        ]

    def _take(self, tables: _Tables, groups: Sequence[tuple[int, int]]) -> None:
        """Use tables on the device."""
        self.index, self.inverse = tables.row, tables.inverse
        self.order, self.reordered = tables.order, tables.reordered
        self.padding: Tensor | None = tables.padding
        self.sequence, self.position = tables.sequence, tables.position
        """(positions,) number of each packed position's sequence, and its position in it."""
        self.groups = [
            _Group(*shape, mask)
            for shape, mask in zip(groups, tables.split_mask(groups), strict=True)
        ]

    def padded(self, x: Tensor) -> list[tuple[Tensor, Tensor | None]]:
        """Pad packed positions, (positions, channels), in groups, with zeros.

        Returns: per group (sequences, length, channels) and its mask, (sequences, length).
        """
        if not self.is_rectangle:
            x = _reorder(x, self.index, self.padding, self.inverse, self.empty)
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
        return _reorder(x, self.inverse, self.empty, self.index, self.padding)

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


class FixedPacking(Packing):
    """The packing of one batch after another of a layout, in the same memory.

    The packed form has as many rows as the layout's capacity. Those after the real positions are
    empty: they repeat the last position, mixers neither read nor change them, and their gradient is
    zero.

    Args:
        lengths: see `Packing`.
        device: the one of the tensors to pack.
        layout: one that holds the lengths; each of its groups has padding.
    """

    is_rectangle = False

    def __init__(self, lengths: Tensor, device: torch.device, layout: Layout) -> None:
        self.layout = layout
        tables = self._build_tables(lengths)
        self._joined = send(join(tables), device)
        *copied, self.empty, count = separate(self._joined, tables)
        self._take(_Tables(*copied), layout.groups)
        self.real = RealRows(count, layout.least)

    def refill(self, lengths: Tensor) -> None:
        """Take the lengths of another batch, (sequences,) int64 on the CPU: one copy."""
        joined = join(self._build_tables(lengths))
        if self._joined.is_cuda:
            joined = joined.pin_memory()
        self._joined.copy_(joined, non_blocking=True)

    def _build_tables(self, lengths: Tensor) -> list[Tensor]:
        """Build tables whose sizes depend on the layout only, on the CPU."""
        self.lengths, layout = lengths, self.layout
        tables, real = _Tables.build(lengths, layout.groups), int(lengths.sum())
        rows = torch.arange(layout.least, layout.capacity)
        count = torch.tensor(float(real), dtype=torch.float64)
        return [*tables.extended(layout), rows.clamp(min=real), count]


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
