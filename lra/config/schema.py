"""The typed configuration of a run."""

import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from lra.common.options import Added
from lra.common.strict_yaml import plain
from lra.config.components import Component, MixerComponent, Section, TaskComponent
from lra.config.request import SECTIONS, SPEED_ALONE
from lra.models.initial_values import InitialDistributionText
from lra.tasks.base import Task

Ratio = Annotated[float, Field(gt=0, le=1000)]
Fraction = Annotated[float, Field(ge=0, lt=1)]


class ModelConfig(Section):
    """The classifier around the mixer."""

    dim: Annotated[int, Field(ge=1, lt=2**31)] = 128
    """Width of the model: number of channels."""
    depth: Annotated[int, Field(ge=1, le=1000)] = 4
    """Number of blocks, each of a mixer and a channel mixer."""
    causal: bool = False
    """Whether a position sees only itself and earlier ones."""
    axes: Literal["flat", "alternate", "native"] = "flat"
    """How images are mixed. flat: as a sequence in raster order. alternate: along rows in even
    blocks and along columns in odd ones. native: along both axes in every block, by mixers that
    can."""
    positions: Literal["none", "sinusoidal", "learned"] = "none"
    """Absolute position encoding added to the embedding."""
    embedding_dropout: Fraction = 0.0
    norm: Literal["layer", "batch", "simple_rms", "scale"] = "layer"
    """Batch norm counts real positions only; simple RMS norm has no parameters."""
    prenorm: bool = True
    """True: norm before each sublayer and at the end. False: norm after each residual sum."""
    dropout: Fraction = 0.0
    """Fraction dropped from each sublayer's output."""
    inner_dropout: Annotated[Fraction, Added(0.0)] = 0.0
    """Fraction dropped within sublayers, where published code does so: of the gate of a glu, of
    the hidden values of an mlp, and by mixers as their docstrings say."""
    tied_dropout: Annotated[bool, Added(False)] = False
    """Whether dropout zeroes a channel at all positions of a sequence at once. This holds for the
    outputs of sublayers, and within mixers that say so, there for a row or a column of a grid."""
    channel_mixer: Literal["glu", "mlp", "none"] = "glu"
    channel_expand: Ratio = 1.0
    """Hidden channels of the channel mixer, as a multiple of `dim`."""
    channel_activation: Literal["relu", "silu", "gelu"] = "silu"
    pooling: Literal["mean", "max", "last", "cls"] = "mean"
    """How the positions become one vector. cls: a learned position is prepended and read."""
    head: Literal["linear", "mlp"] = "linear"
    """The mlp head has one hidden layer."""
    head_expand: Annotated[Ratio | None, Added(None)] = None
    """Hidden channels of the mlp head, as a multiple of `dim`. None: as in the channel mixer."""
    head_activation: Annotated[Literal["relu", "silu", "gelu"] | None, Added(None)] = None
    """Activation of the mlp head. None: as in the channel mixer."""
    head_bias: Annotated[bool, Added(True)] = True
    """Whether the map to classes has a bias."""
    starts: Annotated[dict[str, InitialDistributionText], Added({})] = Field(default={})
    """Distributions (`lra.models.initial_values`) from which parameters are initialized, by
    patterns of their names: {"output.weight": xavier_uniform}. At most one pattern may match a
    parameter. Parameters that none matches are initialized by their modules."""
    tied_embeddings: Annotated[bool, Added(False)] = False
    """Whether the embedding table is also the weight of the output layer. The table is then
    initialized with a deviation of dim ** -0.5, and embeddings are multiplied by dim ** 0.5."""

    @property
    def hidden(self) -> int:
        """Number of hidden channels of the channel mixer."""
        return max(1, round(self.channel_expand * self.dim))

    @property
    def head_hidden(self) -> int:
        """Number of hidden channels of the mlp head."""
        factor = self.channel_expand if self.head_expand is None else self.head_expand
        return max(1, round(factor * self.dim))


class TrainConfig(Section):
    """Optimization."""

    steps: PositiveInt | None = None
    """Number of optimizer steps. Set one of steps, epochs and minutes."""
    epochs: Annotated[float, Field(gt=0, le=1e6)] | None = None
    """Number of passes over the training set."""
    minutes: Annotated[Annotated[float, Field(gt=0, le=1e6)] | None, Added(None)] = None
    """Time of training steps, without evaluations. The schedule follows the time, so the number
    of steps and the result depend on the machine."""
    batch_size: PositiveInt = 32
    """Examples per step."""
    micro_batch: PositiveInt | None = None
    """Examples per forward pass; gradients are accumulated over the batch. None: the whole
    batch."""
    checkpoint_activations: bool | Literal["auto"] = "auto"
    """Whether blocks keep only their input and are computed again in the backward pass. This gives
    the same numbers with less memory, in about a third more time. auto: on a GPU, if the longest
    examples do not fit into its memory otherwise."""
    bucketing: bool = False
    """Whether a batch has sequences of similar length. This is faster, but harms batch norm."""
    lr: PositiveFloat = 1e-3
    """Highest learning rate."""
    schedule: Literal["cosine", "linear", "onecycle", "rsqrt", "constant", "plateau"] = "cosine"
    """Learning rate after the linear warm-up. cosine, linear: falls to 0. rsqrt: inverse square
    root of the step. constant: stays. plateau: falls when validation accuracy stops rising.
    onecycle: torch's OneCycleLR with linear annealing. The warm-up begins at 1/25 of the highest
    rate, the rate then falls to 1/250,000 of it, and beta1 falls from 0.95 to 0.85 in the warm-up
    and rises to 0.95 again."""
    plateau_patience: Annotated[NonNegativeInt | None, Added(None)] = None
    """Validations without improvement after which schedule plateau lowers the rate."""
    plateau_factor: Annotated[Annotated[float, Field(gt=0, lt=1)], Added(0.2)] = 0.2
    """Factor by which schedule plateau multiplies the rate."""
    warmup_steps: NonNegativeInt = 0
    """Steps of linear warm-up. Set warmup_steps or warmup_share."""
    warmup_share: Annotated[Annotated[float, Field(gt=0, le=1)] | None, Added(None)] = None
    """Share of the run that is warm-up."""
    schedule_steps: PositiveInt | None = None
    """Step at which the cosine reaches 0. None: the last step."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    weight_decay_on: Literal["matrices", "all", "all_but_block_biases_and_norms"] = "matrices"
    """Which parameters decay. matrices: weight matrices without embeddings. all: everything.
    all_but_block_biases_and_norms: all but biases and norms of the blocks and after them."""
    beta1: Fraction = 0.9
    beta2: Fraction = 0.999
    epsilon: PositiveFloat = 1e-8
    clip_norm: PositiveFloat | None = None
    """Largest norm of the whole gradient. None: no clipping."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """bf16: matrix products in bfloat16; transforms, the sums of norms and the loss in fp32."""
    tf32: Annotated[bool, Added(False)] = False
    """Whether a GPU may compute matrix products and convolutions in TF32, which is faster and has
    the range of float32, but only 10 bits of mantissa. It has no effect on a CPU."""
    deterministic: Annotated[bool, Added(False)] = False
    """Whether a GPU computes the same bits each time, so that a resumed run equals an uninterrupted
    one; it takes longer. It has no effect on a CPU, which always does."""
    cuda_graphs: bool | Literal["auto"] = "auto"
    """Whether a GPU launches whole training steps as CUDA graphs, where all examples have one
    length. The results are the same. Where steps cannot be graphs, a line says why. auto: if the
    run has at least 20 steps."""
    evaluate_every: PositiveInt | None = None
    """Steps between validations. None: an epoch, or a quarter of a run of minutes."""


class PretrainConfig(Section):
    """Self-pretraining: the model learns the task's training inputs before it learns its labels.

    "Never Train from Scratch" (Amos, Berant and Gupta, ICLR 2024, arXiv:2310.02980).
    """

    objective: Literal["none", "masked", "next"] = "none"
    """masked: predict masked positions. next: predict the next position, for causal models."""
    masked_share: Annotated[float, Field(gt=0, lt=1)] = 0.15
    """Share of the positions that are masked, at least one in each sequence."""
    steps: PositiveInt | None = None
    """Number of optimizer steps. Set one of steps, epochs and minutes, or none: then it is as
    many steps or epochs as train has, or half of its minutes."""
    epochs: Annotated[float, Field(gt=0, le=1e6)] | None = None
    """Passes over the training set."""
    minutes: Annotated[float, Field(gt=0, le=1e6)] | None = None
    """Time of training steps, which is a part of train.minutes."""
    batch_size: PositiveInt | None = None
    """Examples per step. None: as in training."""
    lr: PositiveFloat | None = None
    """Highest learning rate. None: as in training."""
    warmup_share: Annotated[float, Field(ge=0, le=1)] = 0.1
    """Share of the pretraining that is warm-up, before the schedule of the training."""


class LogConfig(Section):
    """What is logged during training. It has no effect on any result."""

    every_steps: PositiveInt = 50
    """Steps between lines of metrics."""
    checkpoint_minutes: PositiveFloat = 5.0
    """Minutes between checkpoints. Validations and the end of a run save one, too."""
    tensorboard: bool = False
    """Whether metrics are also written for TensorBoard, into the folder of the run."""
    wandb: bool = False
    """Whether metrics are also sent to Weights & Biases, into its project lra."""
    internals: bool = False
    """Whether activations, variances of norms, kernels and gradients of each block are written to
    internals.jsonl at the steps that are logged. Steps are then no CUDA graphs."""


RUN_SECTIONS: dict[str, type[Section]] = {
    "model": ModelConfig, "train": TrainConfig, "pretrain": PretrainConfig, "log": LogConfig,
}  # fmt: skip
"""The sections of every run. Those of the task and the mixer have the types of their options."""


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Everything that determines the result of a run, except for seed and data."""

    task_name: str
    mixer_name: str
    preset: str
    """Name of a preset; of a user's own file, the name without its ending."""
    preset_from: str | None = None
    """Path of a user's own preset."""
    preset_code: str | None = None
    """Start of the SHA-256 of a user's own preset; see `Preset`."""
    protocol: str
    task: Section
    mixer: Section
    model: ModelConfig
    train: TrainConfig
    pretrain: PretrainConfig
    log: LogConfig
    origins: Mapping[str, str]
    """Origin of each value that is not a default, by "section.key"."""
    changed: tuple[str, ...]
    """Names of the settings that `--set` and other flags changed, without those of `log`."""
    mixer_component: MixerComponent = field(compare=False, repr=False)
    task_component: TaskComponent = field(compare=False, repr=False)

    @property
    def plug_ins(self) -> dict[str, Component]:
        """The plug-ins of the run, by "task" and "mixer"."""
        components = (self.task_component, self.mixer_component)
        return {one.kind: one for one in components if one.code is not None}

    @property
    def is_pretrained(self) -> bool:
        """Whether the model learns its inputs before it learns labels."""
        return self.pretrain.objective != "none"

    @property
    def sections(self) -> list[str]:
        """The names of the sections that this run has."""
        return [name for name in SECTIONS if name != "pretrain" or self.is_pretrained]

    @property
    def settings(self) -> dict[str, Any]:
        """All settings of the run as plain values, by full name: "train.lr"."""
        return {
            f"{section}.{key}": value
            for section in self.sections
            for key, value in getattr(self, section).model_dump(mode="json").items()
        }

    @property
    def changes(self) -> dict[str, Any]:
        """The changed settings of the sections that this run has, by full name."""
        settings = self.settings
        return {name: settings[name] for name in self.changed if name in settings}

    def values(self) -> dict[str, Any]:
        """Dump the names and all settings that can change a result, as plain values."""
        names = ("task_name", "mixer_name", "preset", "protocol")
        values = {name: getattr(self, name) for name in names}
        # An edited file makes another run.
        values |= {f"{kind}_code": str(one.code) for kind, one in self.plug_ins.items()}
        if self.preset_code is not None:
            values["preset_code"] = self.preset_code
        for section in self.sections:
            hashed = getattr(self, section).hashed()
            kept = {k: v for k, v in hashed.items() if f"{section}.{k}" not in SPEED_ALONE}
            values |= {section: kept} if section != "log" else {}
        return values

    @functools.cached_property
    def hash(self) -> str:
        """Hash of all settings that can change a result: 16 hexadecimal digits."""
        text = json.dumps(self.values(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def show(self) -> str:
        """Write the configuration as YAML, each value with its origin."""
        lines = [
            f"# {key}: {value}" for key, value in self.values().items() if isinstance(value, str)
        ]
        components = (self.task_component, self.mixer_component)
        lines += [f"# {one.kind} from: {one.spec}" for one in components if one.spec != one.name]
        lines += [f"# preset from: {self.preset_from}"] if self.preset_from else []
        lines.append(f"# hash: {self.hash}")
        for name in self.sections:
            lines.append(f"{name}:")
            for key, value in getattr(self, name).model_dump().items():
                origin = self.origins.get(f"{name}.{key}", "default")
                lines.append(f"  {f'{key}: {plain(value)}':<28} # {origin}")
        return "\n".join(lines) + "\n"

    def build_task(self) -> Task:
        """Construct the task; raises as `TaskComponent.build`."""
        return self.task_component.build(self.task)
