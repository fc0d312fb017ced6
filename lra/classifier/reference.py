"""The classifier as published code computes it, as a reference for tests and timings.

Its parameters have the same names as those of `Classifier`. It computes by reference forms
(`models/ops/reference.py`) and pads every sequence to the task's longest. Padding is mixed like
data and counts in the statistics of norms, and `BatchNorm1d` sees a transposed view. If all
sequences have full length, both compute the same function.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from lra.classifier.block import Residual, find_mixing
from lra.classifier.classifier import Classifier, input_length, pool
from lra.config.schema import RunConfig
from lra.models.ops.reference import reference_forms
from lra.tasks.base import TaskInfo


class ReferenceClassifier(Classifier):
    """`Classifier`, computed like published code."""

    def __init__(self, config: RunConfig, info: TaskInfo) -> None:
        super().__init__(config, info)
        self.length = input_length(config, info)

    def forward(self, inputs: Tensor, lengths: Tensor, scored: Tensor | None = None) -> Tensor:
        """See `Classifier.forward`."""
        with reference_forms():
            x, mask = self._embed(inputs, lengths.flatten())
            for block in self.blocks:
                x = _residual(block.mixer_residual, find_mixing(block.mixer), x)
                if block.channel_mixer is not None:
                    x = _residual(block.channel_residual, block.channel_mixer, x)
            if self.norm is not None:
                x = _normalise(self.norm, x)
            if self.goal.of_positions:
                logits = self.output(x)[mask]
                return logits if scored is None else logits[scored]
            return self.classify(pool(x, mask, self.pooling), len(lengths))

    def _embed(self, inputs: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Embed padded sequences: (sequences, length, dim), and which positions are real."""
        embedding = self.embedding
        has_cls = embedding.cls is not None
        real = torch.arange(self.length - has_cls) < lengths[:, None]
        real = real.to(inputs.device)
        padded = inputs.new_zeros(*real.shape, *inputs.shape[1:])
        padded[real] = inputs
        x = embedding.encode(padded)
        if embedding.cls is not None:
            first = embedding.cls.to(x.dtype).expand(len(x), 1, -1)
            x = torch.cat([first, x], dim=1)
            real = torch.cat([torch.ones_like(real[:, :1]), real], dim=1)
        position = torch.arange(self.length, device=x.device)
        return embedding.dropout(embedding.locate(x, position)), real


def _residual(residual: Residual, sublayer: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    result = sublayer(_normalise(residual.norm, x) if residual.prenorm else x)
    if residual.is_gated:
        value, gate = result.chunk(2, dim=-1)
        x = torch.lerp(x, residual.dropout(value), gate)
    else:
        x = x + residual.dropout(result)
    return x if residual.prenorm else _normalise(residual.norm, x)


def _normalise(norm: nn.Module, x: Tensor) -> Tensor:
    if isinstance(norm, nn.BatchNorm1d):
        return norm(x.transpose(1, 2)).transpose(1, 2)
    return norm(x)
