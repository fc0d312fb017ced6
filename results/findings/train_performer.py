r"""Train the Performer with the errors that the code of Nyströmformer's authors has, one or both.

Its published accuracy on ListOps is 18.80 %. In mlpen/Nystromformer@5689313, queries and keys are
scaled twice, and padded keys count in the sum of weights. The suite's Performer has neither error.

    python -m results.findings.train_performer --task listops --mixer linear --protocol lra \
        --preset nystromformer --label "scaled twice"

The arguments are those of run_task.py. The label says which errors the run has, as in `ERRORS`. It
is saved under this label, in a results folder that has no ordinary run of the same settings.
"""

import sys
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from lra import run_task
from lra.classifier.classifier import Classifier
from lra.common.errors import UnknownName
from lra.models.layers.heads import split_parts
from lra.models.linear import Linear, positive_features
from lra.runtime.cli import run_command

ERRORS: Mapping[str, tuple[bool, bool]] = {
    "scaled twice": (True, False),
    "padding counted": (False, True),
    "scaled twice, padding counted": (True, True),
}
"""By label, whether queries and keys are scaled twice, and whether padding counts."""


class ReleasedPerformer(Linear):
    """Linear attention with random features, with the released scores and sums of weights.

    The released code calls the library performer-pytorch, in which no gradient flows through the
    largest products (softmax_kernel).
    """

    scaled_twice = True
    """Whether queries and keys are divided by the fourth root of the channels of a head twice: by
    LRA/code/attention_performer.py:21-22 and by the library."""
    padded_length: int | None = 2048
    """Length in positions up to which padding counts in the sum of weights, as keys of zeros; None
    if it does not count."""

    def _sums(self, x: Tensor, mask: Tensor | None) -> Tensor:
        real = x.new_ones(x.shape[:2]) if mask is None else mask.to(x.dtype)
        real = real[:, None, :, None]
        query, key, value = split_parts(self.query_key_value(x), 3, self.num_heads)
        if self.scaled_twice:
            query, key = (part * part.shape[-1] ** -0.25 for part in (query, key))
        products, half_square = self._random_products(query)
        queries = positive_features(products - half_square - products.detach().amax(-1, True))
        products, half_square = self._random_products(key)
        missing = real.new_zeros(1)
        if self.padded_length is not None:
            missing = self.padded_length - real.sum(dim=2, keepdim=True)
        largest = products.detach().masked_fill(real == 0, -torch.inf).amax((-2, -1), True)
        # The products of padded keys are 0.
        largest = torch.where(missing > 0, largest.clamp(min=0), largest)
        keys = positive_features(products - half_square - largest) * real
        of_padding = missing * positive_features(-largest.expand_as(products[:, :, :1]))
        sums = queries @ (keys.mT @ value)
        weights = queries @ (keys.sum(dim=2, keepdim=True) + of_padding).mT
        return torch.cat([sums, weights], dim=-1)


def classifier_with(*, scaled_twice: bool, padding_counted: bool) -> type[Classifier]:
    """Make the classifier whose Performers have some of the errors."""

    class WithErrors(Classifier):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            for block in self.blocks:
                block.mixer.__class__ = ReleasedPerformer
                block.mixer.scaled_twice = scaled_twice
                block.mixer.padded_length = 2048 if padding_counted else None

    return WithErrors


def main(arguments: list[str]) -> int:
    """Train with the errors that the label names."""

    def train() -> int:
        options = run_task.parse_arguments(arguments)
        if options.label not in ERRORS:
            raise UnknownName("label", str(options.label), ERRORS, "--label")
        scaled_twice, padding_counted = ERRORS[options.label]
        made = classifier_with(scaled_twice=scaled_twice, padding_counted=padding_counted)
        return run_task.run(options, made)

    return run_command("train_performer", train)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
