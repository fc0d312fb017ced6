"""One classifier for every task and mixer."""

import functools
import math
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from lra.classifier.block import NORMS, Block, build_layers
from lra.classifier.packing import Packing, pack
from lra.common.errors import UserError
from lra.config.schema import RunConfig
from lra.models.base import GridModule, RecurrentMixer
from lra.models.initial_values import Fan, parse_initial_distribution
from lra.models.layers.basic import ACTIVATIONS, Dropout, LinearMap
from lra.tasks.base import TaskInfo


def sinusoidal_positions(length: int, dim: int) -> Tensor:
    """Sines and cosines of positions at geometric wavelengths ("Attention Is All You Need", 3.5).

    Returns: (length, dim).
    """
    rates = torch.exp(torch.arange(0, dim, 2) * (-math.log(10000.0) / dim))
    angles = torch.arange(length)[:, None] * rates
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)[:, :dim]


class Embedding(nn.Module):
    """Embedding of tokens or real values, with encodings of positions and an optional CLS position.

    Args:
        trained: the task that the weights are trained on; it sets the number of learned positions.
    """

    def __init__(self, config: RunConfig, info: TaskInfo, trained: TaskInfo) -> None:
        super().__init__()
        dim = config.model.dim
        self.table = None if info.vocab_size is None else nn.Embedding(info.vocab_size, dim)
        self.factor = 1.0
        if config.model.tied_embeddings and self.table is not None:
            self.factor = math.sqrt(dim)
            nn.init.normal_(self.table.weight, std=1 / self.factor)
        self.linear = None if info.channels is None else LinearMap(info.channels, dim)
        self.cls = nn.Parameter(torch.zeros(dim)) if _has_cls(config, info) else None
        self.learned = None
        self.register_buffer("sinusoidal", None, persistent=False)
        if config.model.positions == "learned":
            self.learned = nn.Embedding(input_length(config, trained), dim)
            nn.init.normal_(self.learned.weight, std=0.02)
        elif config.model.positions == "sinusoidal":
            self.sinusoidal = sinusoidal_positions(input_length(config, info), dim)
        self.dropout = Dropout(config.model.embedding_dropout)

    def forward(self, inputs: Tensor, lengths: Tensor) -> tuple[Tensor, Packing]:
        """Embed packed sequences.

        Args:
            inputs: (positions,) tokens or (positions, channels) real values.
            lengths: (sequences,) on the CPU.
        Returns: (positions', dim) and its packing; with CLS each sequence has one more position.
        """
        packing = pack(lengths if self.cls is None else lengths + 1, inputs.device)
        x, position = self.encode(inputs), packing.position
        if self.cls is not None:
            is_cls = position == 0
            row = torch.where(is_cls, 0, torch.cumsum(~is_cls, 0))
            x = torch.cat([self.cls.to(x.dtype)[None], x]).index_select(0, row)
        return self.dropout(self.locate(x, position)), packing

    def encode(self, inputs: Tensor) -> Tensor:
        """Embed tokens (...), or real values (..., channels): (..., dim)."""
        encode = self.linear if self.table is None else self.table
        assert encode is not None
        x = encode(inputs)
        return x if self.factor == 1 else self.factor * x

    def locate(self, x: Tensor, position: Tensor) -> Tensor:
        """Add encodings of `position` (positions,), if any, to x (..., positions, dim)."""
        if self.learned is not None:
            return x + self.learned(position)
        return x if self.sinusoidal is None else x + self.sinusoidal[position].to(x.dtype)


def input_length(config: RunConfig, info: TaskInfo) -> int:
    """Return the length of the longest sequence, CLS included."""
    return info.max_length + _has_cls(config, info)


def _has_cls(config: RunConfig, info: TaskInfo) -> bool:
    """Whether sequences begin with a learned position that pooling reads."""
    return not info.goal.of_positions and config.model.pooling == "cls"


def pool(x: Tensor, mask: Tensor | None, how: str) -> Tensor:
    """Reduce the real positions to one vector, at least in single precision.

    Args:
        x: (batch, length, dim).
        mask: (batch, length); None when all positions are real.
        how: mean, max, last or cls.
    Returns: (batch, dim).
    """
    x = x.to(torch.promote_types(x.dtype, torch.float32))
    if how == "cls":
        return x[:, 0]
    if mask is None:
        mask = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
    counts = mask.sum(dim=1)
    if how == "last":
        return x[torch.arange(len(x), device=x.device), counts - 1]
    if how == "max":
        return x.masked_fill(~mask[..., None], -torch.inf).amax(dim=1)
    return x.masked_fill(~mask[..., None], 0).sum(dim=1) / counts[:, None]


class Classifier(nn.Module):
    """Embedding, blocks, pooling and head. Two towers share everything but the head.

    If positions have targets, there is no pooling and a linear head reads every position.

    Args:
        trained: the task that the weights were trained on, if the model is applied to other
            lengths. Mixers are built for it.
    Raises: UserError for options of the mixer that contradict one another.
    """

    def __init__(
        self, config: RunConfig, info: TaskInfo, *, trained: TaskInfo | None = None
    ) -> None:
        super().__init__()
        model = config.model
        known = trained or info
        self.pooling = model.pooling
        self.goal = info.goal
        self.towers = info.towers
        self.checkpoint_activations = config.train.checkpoint_activations is True
        self.embedding = Embedding(config, info, known)
        self.trained_length = length = input_length(config, known)
        layers = build_layers(config, known, length, model.depth)
        blocks = nn.ModuleList(Block(model, layer) for layer in layers)
        self.blocks = cast("Sequence[Block]", blocks)
        if info.grid is not None:
            for module in self.modules():
                if isinstance(module, GridModule):
                    module.take_grid(info.grid)
        self.norm = NORMS[model.norm](model.dim) if model.prenorm else None
        self.activation = None
        if info.goal.of_positions:
            self.output = LinearMap(model.dim, info.goal.outputs, bias=not model.tied_embeddings)
            if model.tied_embeddings and self.embedding.table is not None:
                self.output.weight = self.embedding.table.weight
        else:
            features = model.dim * (4 if info.towers > 1 else 1)
            if model.head == "mlp":
                self.activation = ACTIVATIONS[model.head_activation or model.channel_activation]
                self.hidden = LinearMap(features, model.head_hidden)
                features = model.head_hidden
            self.output = LinearMap(features, info.goal.outputs, bias=model.head_bias)
        initialize_parameters(self, config)

    @property
    def num_parameters(self) -> int:
        """Number of trainable parameters."""
        return sum(p.numel() for p in self.parameters() if p.requires_grad)

    @property
    def has_batch_norm(self) -> bool:
        """Whether results depend on which examples of a batch are computed together."""
        return any(isinstance(module, _BatchNorm) for module in self.modules())

    def forward(self, inputs: Tensor, lengths: Tensor, scored: Tensor | None = None) -> Tensor:
        """Compute the logits of a packed batch.

        Args:
            inputs: (positions,) tokens or (positions, channels) real values, packed.
            lengths: (batch, towers) positions of each sequence, on the CPU.
            scored: (targets,) the only positions whose logits are needed, where positions have
                targets. None: all.
        Returns: (batch, classes) logits; (positions, classes) if positions have targets.
        """
        x, packing = self.embedding(inputs, lengths.flatten())
        again = self.checkpoint_activations and torch.is_grad_enabled()
        for block in self.blocks:
            x = block.checkpointed(x, packing) if again else block(x, packing)
        if self.norm is not None:
            x = self.norm(x)
        if self.goal.of_positions:
            return self.output(x if scored is None else x.index_select(0, scored))
        features = packing.reduce(functools.partial(pool, how=self.pooling), x)
        return self.classify(features, len(lengths))

    def classify(self, features: Tensor, examples: int) -> Tensor:
        """Join the towers and apply the head: (sequences, dim) -> (examples, classes)."""
        if self.towers > 1:
            a, b = features.view(examples, self.towers, -1).unbind(dim=1)
            features = torch.cat([a, b, a * b, a - b], dim=-1)
        if self.activation is not None:
            features = self.activation(self.hidden(features))
        return self.output(features)


def count_state(model: Classifier, length: int) -> int | None:
    """Count the real numbers that a sequence of `length` positions carries from one to the next.

    Returns: the number for all layers; None if the model is not causal, or has no recurrence.
    """
    mixers = [block.mixer for block in model.blocks]
    recurrent = [m for m in mixers if isinstance(m, RecurrentMixer) and m.context.causal]
    return sum(m.state_size(length) for m in recurrent) if recurrent == mixers else None


def compute_fans(model: nn.Module) -> dict[str, Fan]:
    """Return the fan of each parameter by its name. A bias has the fan of its module's weight.

    A parameter that does not belong to a linear map or an embedding has the fan (0, 0).
    """
    fans: dict[str, Fan] = {}
    for path, module in model.named_modules():
        fan = Fan(0, 0)
        if isinstance(module, (nn.Linear, nn.Embedding)):
            rows, columns = module.weight.shape
            fan = Fan(rows, columns) if isinstance(module, nn.Embedding) else Fan(columns, rows)
        for name, _ in module.named_parameters(prefix=path, recurse=False):
            fans[name] = fan
    return fans


@torch.no_grad()
def initialize_parameters(model: nn.Module, config: RunConfig) -> None:
    """Draw the parameters that `model.starts` names.

    Patterns of a settings file may match nothing: a model may lack the hidden layer of a head.

    Raises: UserError for two patterns that match one parameter, because settings have no order;
        for a pattern of a flag that matches none; and for a distribution that needs the size of a
        linear map, if the parameter belongs to none.
    """
    starts, fan_of = config.model.starts, compute_fans(model)
    unused = set(starts)
    for name, parameter in model.named_parameters():
        patterns = [pattern for pattern in starts if fnmatchcase(name, pattern)]
        if len(patterns) > 1:
            both = " and ".join(patterns[:2])
            raise UserError(f"model.starts: {both} both match {name}; remove one")
        for pattern in patterns:
            unused.discard(pattern)
            try:
                parse_initial_distribution(starts[pattern])(parameter, fan_of[name])
            except ZeroDivisionError:
                raise UserError(
                    f"model.starts: distribution {starts[pattern]} needs the size of a linear map, "
                    f"and {name} belongs to none; use normal with a deviation"
                ) from None
    if unused and "model.starts" in config.changed:
        raise UserError(
            f"model.starts: {min(unused)} matches no parameter; expected patterns of names like "
            f"{', '.join([*fan_of][:3])}"
        )
