"""Forget gates with lower bounds that grow with depth, which HGRN and HGRN2 share."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from lra.models.base import GridModule, MixerContext, Recurrence, RecurrentMixer


class LowerBounds(nn.Module):
    """The lower bounds of all layers, a cumulative softmax over layers (HGRN, equation 4)."""

    def __init__(self, depth: int, dim: int) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.ones(depth, dim))

    @classmethod
    def of(cls, context: MixerContext) -> LowerBounds:
        """Return those that all blocks share, or new ones for a mixer that is built alone."""
        shared = context.shared
        return shared if isinstance(shared, cls) else cls(context.depth, context.dim)

    def gates(self, layer: int, forget: Tensor) -> tuple[Tensor, Tensor]:
        """Return the forget gates of a layer, in [lower bound, 1], and 1 - forget gate.

        The second is not computed from the first, which is rounded to 1 before the second is 0.

        Args:
            layer: index of the layer; the lower bound of layer 0 is 0.
            forget: (..., dim), the logits of forget gates without a lower bound.
        Returns: both (..., dim).
        """
        share = self.logits.softmax(dim=0)
        bound = share[1 : layer + 1].sum(dim=0)
        room = share[0] + share[layer + 1 :].sum(dim=0)
        return bound + room * torch.sigmoid(forget), room * torch.sigmoid(-forget)


class LowerBoundedMixer(RecurrentMixer, Recurrence):
    """A mixer whose blocks share lower bounds, and which may mix along both axes of a grid."""

    has_native_grid = True

    @classmethod
    def shared(cls, context: MixerContext, **options: Any) -> LowerBounds:
        return LowerBounds.of(context)

    def __init__(self, context: MixerContext) -> None:
        super().__init__()
        self.context = context
        self.grid = None if context.grid is None else GridModule(context.grid)
        self.lower_bounds = LowerBounds.of(context)
