"""No mixing at all, to show what pooling and channel mixers reach by themselves."""

from __future__ import annotations

from torch import Tensor

from models.base import Mixer, MixerContext


class Mean(Mixer):
    """Leave every position as it is, so that only the pooling at the end joins positions.

    A classifier with such blocks sees a bag of tokens: what it scores is no merit of a mixer.
    """

    name = "mean"
    reach = (0, 0)

    def __init__(self, context: MixerContext) -> None:
        super().__init__()

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """See `Mixer.forward`."""
        return x
