"""Measurements of mixers without a model: of parts of them, and of decoding."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from lra.bench.case import Case, Subject
from lra.common.errors import UserError
from lra.config.components import MixerComponent
from lra.config.compose import compose_options
from lra.config.registry import find_mixer
from lra.config.request import Change
from lra.models.base import Mixer, MixerContext, RecurrentMixer
from lra.models.layers.long_convolution import LongConvolution, PositionOperator
from lra.models.ops.reference import reference_forms
from lra.models.ops.toeplitz import LagKernel
from lra.runtime.environment import choose_device
from lra.runtime.flops import FlopCounter
from lra.trial import check_plug_in

PRODUCT = "toeplitz"
"""Name, in place of a mixer's, for the product with Toeplitz matrices whose kernels are given."""
WINDOW = 16
"""Number of steps before a position that its time per decoding step is averaged over."""


Part = tuple[Callable[[Tensor], Tensor], int]
"""What maps an input (batch, length, channels) to the output of a part of a mixer, and the number
of channels; a kernel uses only the length."""


def parts_of(mixer: nn.Module, dim: int) -> dict[str, Part]:
    """Return the parts of a mixer by name: whole and, if the mixer has a module for it, mixing
    (without projections) and kernel (generating it).
    """
    parts: dict[str, Part] = {"whole": (mixer, dim)}
    operators = (module for module in mixer.modules() if isinstance(module, PositionOperator))
    operator = next(operators, None)
    if operator is not None:
        parts["mixing"] = operator, operator.channels
    if isinstance(operator, LongConvolution):
        kernel = operator.kernel
        parts["kernel"] = (lambda x: kernel(x.shape[1]).coefficients), operator.channels
    return parts


@dataclass(frozen=True, kw_only=True)
class MixerCase(Case):
    """A mixer at one length, with default options except for the changed ones."""

    part: str
    length: int
    dim: int
    changes: tuple[Change, ...]

    def build_mixer(self, length: int, *, causal: bool = False) -> tuple[MixerComponent, Mixer]:
        """Build the mixer for sequences of a length.

        Raises: UserError for options that the mixer does not have, or that have no default.
        """
        component = find_mixer(self.mixer, "--mixers")
        options = compose_options(component, self.changes)
        context = MixerContext(dim=self.dim, max_length=length, layer=0, depth=1, causal=causal)
        mixer = component.build(context, options)
        check_plug_in(component, mixer, context)
        return component, mixer

    def settings(self) -> dict[str, Any]:
        """See `Case.settings`."""
        return {
            "part": self.part,
            "mixer": self.mixer,
            "changes": {change.name: change.value for change in self.changes},
            "length": self.length,
            "channels": self.dim,
            "precision": "fp32",
        }


@dataclass(frozen=True, kw_only=True)
class OperatorCase(MixerCase):
    """A part of one mixer, forward and backward."""

    batch_size: int

    def _build(self) -> tuple[nn.Module, Part, dict[str, Any]]:
        """Build the mixer and choose its part; return also what the record says of them.

        Raises: UserError for a part that the mixer does not have.
        """
        if self.mixer == PRODUCT:
            product = _Product(self.length, self.dim)
            return product, (product, self.dim), {"part": "product"}
        component, mixer = self.build_mixer(self.length)
        parts = parts_of(mixer, self.dim)
        if self.part not in parts:
            raise UserError(
                f"--parts {self.part}: mixer {self.mixer} has no such part to itself "
                f"(valid: {', '.join(parts)})"
            )
        part = parts[self.part]
        return mixer, part, {**_names_of(component), "channels": part[1]}

    def build(self) -> Subject:
        """See `Case.build`."""
        device = choose_device(self.device)
        torch.manual_seed(0)
        module, (compute, channels), _ = self._build()
        module.to(device)
        x = torch.randn(self.batch_size, self.length, channels, device=device)
        x.requires_grad_()
        forms = reference_forms if self.is_reference else contextlib.nullcontext
        with torch.no_grad(), forms():
            gradient = torch.randn_like(compute(x))

        def run() -> None:
            with forms():
                result = compute(x)
            result.backward(gradient)
            x.grad = None
            module.zero_grad()

        def facts() -> dict[str, Any]:
            with FlopCounter() as counter:
                run()
            return {"params": _count_parameters(module), "flops_per_step": counter.total}

        return Subject(run=run, facts=facts)

    def settings(self) -> dict[str, Any]:
        """See `Case.settings`."""
        fixed = {"mode": "op", "batch_size": self.batch_size}
        return {**super().settings(), **fixed, **self._build()[2]}


class _Product(nn.Module):
    def __init__(self, length: int, channels: int) -> None:
        super().__init__()
        self.by_lag = nn.Parameter(torch.randn(2 * length - 1, channels))
        self.first_lag = 1 - length

    def forward(self, x: Tensor) -> Tensor:
        """Multiply x: (batch, length, channels) -> the same shape."""
        return LagKernel(self.by_lag.T, self.first_lag).multiply(x)


def _count_parameters(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def _names_of(component: MixerComponent) -> dict[str, Any]:
    return {"mixer": component.name, "mixer_code": component.code}


@dataclass(frozen=True, kw_only=True)
class DecodingCase(MixerCase):
    """One more position of a causal mixer: by its recurrence, or by mixing all positions so far."""

    longest: int
    """Positions for which the recurrence equals the mixer."""

    has_own_process = False

    def _build(self) -> tuple[MixerComponent, RecurrentMixer]:
        component, mixer = self.build_mixer(self.longest, causal=True)
        if not isinstance(mixer, RecurrentMixer):
            raise UserError(f"{component.origin}: it has no recurrence, which decoding needs")
        return component, mixer

    def build(self) -> Subject:
        """See `Case.build`."""
        device = choose_device(self.device)
        mixer = self._build()[1].to(device).eval()
        x = torch.randn(1, self.length, self.dim, device=device)
        facts = {"params": _count_parameters(mixer)}
        if self.part == "prefix":
            mix = torch.inference_mode()(lambda: mixer(x))
            return Subject(run=mix, facts=lambda: facts)
        recurrence = mixer.recurrence(self.longest)

        @torch.inference_mode()
        def advance(rows: Tensor, state: Any) -> Any:
            for row in rows[:, None].unbind():
                _, state = recurrence.step(row, state)
            return state

        before, window = x[0].split([self.length - WINDOW, WINDOW])
        state = advance(before, recurrence.initial_state(1))
        return Subject(run=lambda: advance(window, state), repetitions=WINDOW, facts=lambda: facts)

    def settings(self) -> dict[str, Any]:
        """See `Case.settings`."""
        fixed = {"mode": "decode", "batch_size": 1}
        return {**super().settings(), **_names_of(self._build()[0]), **fixed}
