"""Measurements of parts of mixers alone, forward and backward."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from lra.bench.case import Case, Subject
from lra.classifier.plugin_check import check_plug_in
from lra.config.components import MixerComponent
from lra.config.compose import compose_options
from lra.config.registry import find_mixer
from lra.config.request import Change
from lra.runtime.environment import choose_device
from lra.runtime.errors import UserError
from lra.runtime.flops import FlopCounter
from models.base import Mixer, MixerContext
from models.layers.long_convolution import LongConvolution, PositionOperator
from models.ops.reference import reference_forms
from models.ops.toeplitz import LagKernel

PRODUCT = "toeplitz"
"""Name, in place of a mixer's, for the product with Toeplitz matrices whose kernels are given."""


def default_mixer(
    name: str, context: MixerContext, changes: Sequence[Change]
) -> tuple[MixerComponent, Mixer]:
    """Build a mixer with default options, except those that are overridden.

    Args:
        name: name of the mixer, or place of a plug-in.
        context: what the mixer is built for.
        changes: changed options.
    Raises: UserError for options that the mixer does not have, or that have no default.
    """
    component = find_mixer(name, "--mixers")
    options = compose_options(component, changes)
    mixer = component.build(context, options)
    check_plug_in(component, mixer, context)
    return component, mixer


class Part(NamedTuple):
    """A part of a mixer that can be timed alone."""

    compute: Callable[[Tensor], Tensor]
    """Maps an input (batch, length, channels) to the part's output; kernel uses only its length."""
    channels: int


def parts_of(mixer: nn.Module, dim: int) -> dict[str, Part]:
    """Return the parts of a mixer by name: whole and, if the mixer has a module for it, mixing
    (without projections) and kernel (generating it).
    """
    parts = {"whole": Part(mixer, dim)}
    operators = (module for module in mixer.modules() if isinstance(module, PositionOperator))
    operator = next(operators, None)
    if operator is not None:
        parts["mixing"] = Part(operator, operator.channels)
    if isinstance(operator, LongConvolution):
        kernel = operator.kernel
        parts["kernel"] = Part(lambda x: kernel(x.shape[1]).coefficients, operator.channels)
    return parts


@dataclass(frozen=True, kw_only=True)
class OperatorCase(Case):
    """A part of one mixer at one length."""

    part: str
    length: int
    batch_size: int
    dim: int
    changes: tuple[Change, ...]

    def _context(self) -> MixerContext:
        return MixerContext(dim=self.dim, max_length=self.length, layer=0, depth=1)

    def build(self) -> Subject:
        """See `Case.build`.

        Raises: UserError for a part that the mixer does not have.
        """
        device = choose_device(self.device)
        torch.manual_seed(0)
        if self.mixer == PRODUCT:
            module: nn.Module = _Product(self.length, self.dim)
            part = Part(module, self.dim)
        else:
            module = default_mixer(self.mixer, self._context(), self.changes)[1]
            part = self._part(module)
        module.to(device)
        x = torch.randn(self.batch_size, self.length, part.channels, device=device)
        return Operating(part.compute, module, x, is_reference=self.is_reference)

    def _part(self, mixer: nn.Module) -> Part:
        parts = parts_of(mixer, self.dim)
        if self.part not in parts:
            raise UserError(
                f"--parts {self.part}: mixer {self.mixer} has no such part to itself "
                f"(valid: {', '.join(parts)})"
            )
        return parts[self.part]

    def settings(self) -> dict[str, Any]:
        """See `Case.settings`."""
        code, name, channels = None, self.mixer, self.dim
        if self.mixer != PRODUCT:
            component, mixer = default_mixer(self.mixer, self._context(), self.changes)
            name, code = component.name, component.code
            channels = self._part(mixer).channels
        return {
            "mode": "op",
            "part": "product" if self.mixer == PRODUCT else self.part,
            "mixer": name,
            "mixer_code": code,
            "changes": {change.name: change.value for change in self.changes},
            "length": self.length,
            "batch_size": self.batch_size,
            "channels": channels,
            "precision": "fp32",
        }


class _Product(nn.Module):
    def __init__(self, length: int, channels: int) -> None:
        super().__init__()
        self.by_lag = nn.Parameter(torch.randn(2 * length - 1, channels))
        self.first_lag = 1 - length

    def forward(self, x: Tensor) -> Tensor:
        """Multiply x: (batch, length, channels) -> the same shape."""
        return LagKernel(self.by_lag.T, self.first_lag).multiply(x)


class Operating(Subject):
    """A part of a mixer on random numbers."""

    def __init__(
        self,
        compute: Callable[[Tensor], Tensor],
        module: nn.Module,
        x: Tensor,
        *,
        is_reference: bool,
    ) -> None:
        self.compute = compute
        self.module = module
        self.x = x.requires_grad_()
        self.is_reference = is_reference
        with torch.no_grad(), self._forms():
            self.gradient = torch.randn_like(compute(x))

    def _forms(self) -> contextlib.AbstractContextManager[None]:
        return reference_forms() if self.is_reference else contextlib.nullcontext()

    def run(self) -> None:
        """Compute the part and its gradients."""
        with self._forms():
            result = self.compute(self.x)
        result.backward(self.gradient)
        self.x.grad = None
        self.module.zero_grad()

    def facts(self) -> dict[str, Any]:
        """See `Subject.facts`."""
        with FlopCounter() as counter:
            self.run()
        params = sum(p.numel() for p in self.module.parameters())
        return {"params": params, "flops_per_step": counter.total}
