"""A baseline without token mixing: only the pooling at the end joins positions."""

from torch import Tensor

from lra.models.base import Mixer, MixerContext


class Mean(Mixer):
    """Return the input unchanged, so that only the pooling at the end joins positions.

    A classifier with such blocks sees a bag of tokens. Its accuracy shows what the channel mixers
    and the pooling reach without a token mixer.
    """

    name = "mean"
    reach = (0, 0)

    def __init__(self, context: MixerContext) -> None:
        super().__init__()

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return x
