"""HGRN2: a gated linear recurrence whose state is a matrix for each head.

Qin et al., "HGRN2: Gated Linear RNNs with State Expansion", COLM 2024 (arXiv:2404.07904), section
3. What the paper leaves open follows OpenNLPLab/hgru2-pytorch.

Symbols of the paper and their names here:
    d: context.dim
    n: state_size
    i_t: value
    f_t: kept
    1 - f_t: key
    o_t: query
"""

from typing import Literal

import torch
from pydantic import PositiveInt
from torch import Tensor, nn
from torch.nn import functional

from lra.models.base import MixerContext
from lra.models.layers.basic import LinearMap
from lra.models.layers.lower_bounds import LowerBoundedMixer
from lra.models.ops.recurrences import gated_attention


class HGRN2(LowerBoundedMixer):
    """Gated linear recurrence of matrices, O(length dim state_size); O(dim state_size) a step.

    If the context is not causal, it runs in both directions, which share all parameters and are
    added.

    Args:
        state_size: states of each channel, which is also the number of channels of a head.
        grid_axes: how both axes of an image are mixed if the context has a grid. "parallel" adds
            what the recurrence gives along rows and along columns, before the norm; "series"
            applies the whole mixer along columns and then along rows.
    Raises: ValueError if state_size does not divide the channels, and for series without a grid.
    """

    name = "hgrn2"

    def __init__(
        self,
        context: MixerContext,
        *,
        state_size: PositiveInt = 4,
        grid_axes: Literal["parallel", "series"] = "parallel",
    ) -> None:
        super().__init__(context)
        dim = context.dim
        if dim % state_size:
            raise ValueError(f"state_size {state_size} does not divide model.dim {dim}")
        if grid_axes == "series" and context.grid is None:
            raise ValueError("grid_axes series concerns the grid of an image (model.axes=native)")
        self.head_size = state_size
        self.is_series = grid_axes == "series"
        self.value_query_forget = LinearMap(dim, 3 * dim)
        self.norm = nn.LayerNorm(dim)
        self.output = LinearMap(dim, dim)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        if self.grid is None:
            return self._mix_lines(x, mask)
        if self.is_series:
            masks = () if mask is None else (mask,)
            mixed = self.grid.along_columns(self._mix_lines, x, *masks)
            return self.grid.along_rows(self._mix_lines, mixed, *masks)
        heads = self.heads(x, mask)
        rows = self.grid.along_rows(self._attend, *heads)
        return self.project(x, rows + self.grid.along_columns(self._attend, *heads))

    def _mix_lines(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.project(x, self._attend(*self.heads(x, mask)))

    def _attend(self, query: Tensor, key: Tensor, value: Tensor, kept: Tensor) -> Tensor:
        return gated_attention(query, key, value, kept, causal=self.context.causal)

    def heads(self, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor, ...]:
        """Compute queries, keys, values and forget gates: four of (..., heads, size)."""
        x = self.without_padding(x, mask)
        value, query, forget = self.value_query_forget(x).chunk(3, dim=-1)
        kept, key = self.lower_bounds.gates(self.context.layer, forget)
        if mask is not None:
            key = key * mask[..., None]
        parts = torch.sigmoid(query), key, functional.silu(value), kept
        working = torch.promote_types(x.dtype, torch.float32)
        return tuple(part.to(working).unflatten(-1, (-1, self.head_size)) for part in parts)

    def project(self, x: Tensor, mixed: Tensor) -> Tensor:
        """Normalise and project: mixed (..., heads, size) -> (..., dim) of the type of x."""
        return self.output(self.norm(mixed.flatten(-2).to(x.dtype)))

    def initial_state(self, batch: int) -> Tensor:
        """Return zeros: (batch, heads, key size, value size)."""
        size = self.head_size
        return self.output.weight.new_zeros(batch, self.context.dim // size, size, size)

    @torch.no_grad()
    def step(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        query, key, value, kept = self.heads(x)
        state = kept[..., None] * state + key[..., None] * value[..., None, :]
        return self.project(x, (query[..., None] * state).sum(dim=-2)), state

    @torch.no_grad()
    def prefill(self, x: Tensor) -> tuple[Tensor, Tensor]:
        heads = _, key, value, kept = self.heads(x)
        later = torch.cat([kept[:, 1:], torch.ones_like(kept[:, :1])], dim=1)
        to_end = later.flip(1).cumprod(dim=1).flip(1)
        state = torch.einsum("blhk,blhv->bhkv", to_end * key, value)
        return self.project(x, self._attend(*heads)), state
