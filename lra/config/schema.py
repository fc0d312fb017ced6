"""The typed configuration of a run."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from lra.config.component import Component
from lra.config.initial_values import InitialDistributionText
from lra.config.mixers import MixerComponent
from lra.config.registry import NoEffect, Section
from lra.config.request import SECTIONS
from lra.config.strict_yaml import plain
from lra.config.tasks import TaskComponent
from models.base import Added
from tasks.base import Task

Ratio = Annotated[float, Field(gt=0, le=1000)]
Fraction = Annotated[float, Field(ge=0, lt=1)]


class ModelConfig(Section):
    """The classifier around the mixer."""

    dim: Annotated[int, Field(ge=1, lt=2**31)] = 128
    """Channels."""
    depth: Annotated[int, Field(ge=1, le=1000)] = 4
    """Blocks of a mixer and a channel mixer."""
    causal: bool = False
    """Whether positions see only those before them."""
    axes: Literal["flat", "alternate", "native"] = "flat"
    """How a grid is mixed: as a sequence in raster order; along rows in even blocks and along
    columns in odd ones; or along both axes by the mixer itself."""
    positions: Literal["none", "sinusoidal", "learned"] = "none"
    """Absolute position encoding added to the embedding."""
    embedding_dropout: Fraction = 0.0
    norm: Literal["layer", "batch", "simple_rms", "scale"] = "layer"
    """Batch norm counts real positions only; simple RMS norm has no parameters."""
    prenorm: bool = True
    """Norm before each sublayer and at the end, or after each residual sum."""
    dropout: Fraction = 0.0
    """Fraction dropped from each sublayer's output."""
    inner_dropout: Annotated[Fraction, Added(0.0)] = 0.0
    """Fraction dropped within sublayers, where published code does: of a glu's gate, of an mlp's
    hidden values, and by mixers where their docstrings say."""
    tied_dropout: Annotated[bool, Added(False)] = False
    """Whether dropout of sublayers' outputs, and where a mixer says so within it, zeroes a channel
    at all positions of a sequence at once; within a mixer along axes, of a row or a column."""
    channel_mixer: Literal["glu", "mlp", "none"] = "glu"
    channel_expand: Ratio = 1.0
    """Inner channels of the channel mixer over `dim`."""
    channel_activation: Literal["relu", "silu", "gelu"] = "silu"
    pooling: Literal["mean", "max", "last", "cls"] = "mean"
    """How positions become one vector; cls prepends a learned position and reads it."""
    head: Literal["linear", "mlp"] = "linear"
    """The mlp head has one hidden layer."""
    head_expand: Annotated[Ratio | None, Added(None)] = None
    """Hidden channels of the mlp head over `dim`. None: as many as the channel mixer's."""
    head_activation: Annotated[Literal["relu", "silu", "gelu"] | None, Added(None)] = None
    """What the mlp head applies in between. None: what the channel mixer does."""
    head_bias: Annotated[bool, Added(True)] = True
    """Whether the map to classes has a bias."""
    starts: Annotated[dict[str, InitialDistributionText], Added({})] = Field(default={})
    """Distributions of `lra.config.initial_values` that parameters are drawn from at the start, by
    patterns of their names: {"output.weight": xavier_uniform}. One pattern at most may fit a
    parameter; those that none fits start as their modules do."""
    tied_embeddings: Annotated[bool, Added(False)] = False
    """Whether the logits of a position are the products of its features with the embeddings of
    tokens; these then start at a deviation of dim ** -0.5 and enter dim ** 0.5 times as large."""

    @model_validator(mode="after")
    def _consistent(self) -> ModelConfig:
        if self.causal and self.pooling == "cls":
            raise ValueError(
                "model.causal with model.pooling cls: a CLS position comes first and would see "
                "nothing; use --set model.pooling=last or mean"
            )
        if self.axes != "flat" and self.pooling == "cls":
            raise ValueError(
                f"model.axes {self.axes} with model.pooling cls: a CLS position lies on no grid; "
                "use --set model.pooling=mean"
            )
        return self

    @property
    def hidden(self) -> int:
        """Inner channels of the channel mixer."""
        return max(1, round(self.channel_expand * self.dim))

    @property
    def head_hidden(self) -> int:
        """Hidden channels of the mlp head."""
        return (
            self.hidden if self.head_expand is None else max(1, round(self.head_expand * self.dim))
        )


class TrainConfig(Section):
    """Optimization."""

    steps: PositiveInt | None = None
    """Optimizer steps; this, epochs or minutes."""
    epochs: Annotated[float, Field(gt=0, le=1e6)] | None = None
    """Passes over the training set; this, steps or minutes."""
    minutes: Annotated[Annotated[float, Field(gt=0, le=1e6)] | None, Added(None)] = None
    """Time of training steps, evaluations apart; this, steps or epochs. The schedule follows the
    time, so that how far a run comes, and its result, depend on the machine."""
    batch_size: PositiveInt = 32
    """Examples per step."""
    micro_batch: PositiveInt | Literal["auto"] | None = None
    """Examples per forward pass; the gradients of a batch are accumulated. None: all. auto: as
    many as fit into memory."""
    checkpoint_activations: Annotated[bool, NoEffect()] = False
    """Whether blocks keep their input alone and are computed again in the backward pass: the same
    numbers with less memory, for about a third more time."""
    bucketing: bool = False
    """Whether batches hold sequences of like length: faster, but no company for batch norm."""
    lr: PositiveFloat = 1e-3
    """Highest learning rate."""
    schedule: Literal["cosine", "linear", "rsqrt", "constant", "plateau"] = "cosine"
    """After the linear warm-up: cosine to 0, a straight line to 0, the inverse square root of the
    step, flat, or flat until the validation accuracy stays where it is, then lower."""
    plateau_patience: Annotated[NonNegativeInt | None, Added(None)] = None
    """Validations without a better one that schedule plateau waits for."""
    plateau_factor: Annotated[Annotated[float, Field(gt=0, lt=1)], Added(0.2)] = 0.2
    """What schedule plateau multiplies the rate by then."""
    warmup_steps: NonNegativeInt = 0
    """Steps in which the rate rises; this or warmup_share."""
    warmup_share: Annotated[Annotated[float, Field(gt=0, le=1)] | None, Added(None)] = None
    """Share of the run in which the rate rises; this or warmup_steps."""
    schedule_steps: PositiveInt | None = None
    """Step at which the cosine reaches 0. None: the last."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    weight_decay_on: Literal["matrices", "all", "all_but_block_biases_and_norms"] = "matrices"
    """What decays: weight matrices, but for embeddings; everything; or everything but biases and
    norms of the blocks and of what follows the last one."""
    beta1: Fraction = 0.9
    beta2: Fraction = 0.999
    epsilon: PositiveFloat = 1e-8
    clip_norm: PositiveFloat | None = None
    """Largest norm of the whole gradient. None: no clipping."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """bf16 concerns matrix products; transforms, norms' sums and the loss stay in fp32."""
    evaluate_every: PositiveInt | None = None
    """Steps between validations. None: an epoch, or of a run of minutes a quarter."""

    @model_validator(mode="after")
    def _consistent(self) -> TrainConfig:
        if self.schedule_steps is not None and self.schedule != "cosine":
            raise ValueError(
                f"train.schedule_steps has no meaning for schedule {self.schedule}; use --set "
                f"train.schedule_steps=null"
            )
        if self.schedule == "plateau" and self.plateau_patience is None:
            raise ValueError(
                "train.schedule plateau needs the validations to wait; use --set "
                "train.plateau_patience=5 for instance"
            )
        if self.schedule != "plateau" and self.plateau_patience is not None:
            raise ValueError(
                f"train.plateau_patience has no meaning for schedule {self.schedule}; use --set "
                f"train.plateau_patience=null"
            )
        if isinstance(self.micro_batch, int) and self.micro_batch > self.batch_size:
            raise ValueError(
                f"train.micro_batch {self.micro_batch} exceeds batch_size {self.batch_size}"
            )
        if self.steps is None and self.epochs is None and self.minutes is None:
            raise ValueError(
                "none of train.steps, train.epochs and train.minutes is set; use "
                "--set train.steps=N"
            )
        if self.minutes is not None and self.schedule_steps is not None:
            raise ValueError("train.schedule_steps has no meaning for a run of train.minutes")
        return self


class PretrainConfig(Section):
    """Self-pretraining: the model learns the task's training inputs before it learns its labels.

    "Never Train from Scratch" (Amos, Berant and Gupta, ICLR 2024, arXiv:2310.02980).
    """

    objective: Literal["none", "masked", "next"] = "none"
    """What is learned: masked positions, or for causal models what comes next."""
    masked_share: Annotated[float, Field(gt=0, lt=1)] = 0.15
    """Share of the positions that are masked; each sequence has one at least."""
    steps: PositiveInt | None = None
    """Optimizer steps; this, epochs or minutes. None of them: as many as train has of either, or
    half of its minutes."""
    epochs: Annotated[float, Field(gt=0, le=1e6)] | None = None
    """Passes over the training set."""
    minutes: Annotated[float, Field(gt=0, le=1e6)] | None = None
    """Time of training steps; those of train.minutes include it."""
    batch_size: PositiveInt | None = None
    """Examples per step. None: as in training."""
    lr: PositiveFloat | None = None
    """Highest learning rate. None: as in training."""
    warmup_share: Annotated[float, Field(ge=0, le=1)] = 0.1
    """Share of the pretraining in which the rate rises; what follows is training's schedule."""


class LogConfig(Section):
    """What is written on the way; without effect on any result."""

    every_steps: PositiveInt = 50
    """Steps between lines of metrics."""
    checkpoint_minutes: PositiveFloat = 5.0
    """Minutes between checkpoints, besides those at validations and at the end."""
    tensorboard: bool = False
    """Whether metrics are written for TensorBoard, too, into the run's folder."""
    wandb: bool = False
    """Whether they are sent to Weights & Biases, too, into its project lra."""


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Everything that determines a run's result, but for seed and data."""

    task_name: str
    mixer_name: str
    preset: str
    protocol: str
    task: Section
    mixer: Section
    model: ModelConfig
    train: TrainConfig
    pretrain: PretrainConfig
    log: LogConfig
    origins: Mapping[str, str]
    """Where each value that is no default came from, and what it replaced: by "section.key"."""
    overrides: tuple[str, ...]
    """What `--set` and other flags changed of the preset, `log` apart: "section.key=value"."""
    settings_citation: str
    """Where the settings of this mixer on this task were published, if they were."""
    mixer_component: MixerComponent = field(compare=False, repr=False)
    task_component: TaskComponent = field(compare=False, repr=False)

    @property
    def plug_ins(self) -> dict[str, Component]:
        """The plug-ins among task and mixer, by what they are."""
        components: dict[str, Component] = {
            "task": self.task_component,
            "mixer": self.mixer_component,
        }
        return {kind: found for kind, found in components.items() if found.code is not None}

    @property
    def is_pretrained(self) -> bool:
        """Whether the model learns its inputs before it learns labels."""
        return self.pretrain.objective != "none"

    @property
    def sections(self) -> list[str]:
        """The sections that concern this run."""
        return [name for name in SECTIONS if name != "pretrain" or self.is_pretrained]

    def values(self) -> dict[str, Any]:
        """Dump names and all settings that can change a number as plain values."""
        sections = {name: getattr(self, name).hashed() for name in self.sections if name != "log"}
        names = {
            "task_name": self.task_name,
            "mixer_name": self.mixer_name,
            "preset": self.preset,
            "protocol": self.protocol,
        }
        # An edited file makes other runs.
        names |= {f"{kind}_code": str(one.code) for kind, one in self.plug_ins.items()}
        return {**names, **sections}

    @functools.cached_property
    def hash(self) -> str:
        """Hash of all settings that can change a result: 16 hexadecimal digits."""
        text = json.dumps(self.values(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def show(self) -> str:
        """Write the configuration as YAML, each value with where it came from."""
        lines = [
            f"# {key}: {value}" for key, value in self.values().items() if isinstance(value, str)
        ]
        lines += [f"# {kind} from: {plug_in.spec}" for kind, plug_in in self.plug_ins.items()]
        lines += [f"# hash: {self.hash}", f"# settings: {self.settings_citation}"]
        for name in self.sections:
            lines.append(f"{name}:")
            for key, value in getattr(self, name).model_dump().items():
                origin = self.origins.get(f"{name}.{key}", "default")
                lines.append(f"  {f'{key}: {plain(value)}':<28} # {origin}")
        return "\n".join(lines) + "\n"

    def build_task(self) -> Task:
        """Construct the task.

        Raises: UserError as `TaskComponent.build`.
        """
        return self.task_component.build(self.task)
