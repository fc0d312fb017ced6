"""Kernels of public packages, which can run in place of our forms on a GPU.

fla-core (fla-org/flash-linear-attention, MIT) has the delta rule and attention with decays, and
mamba-ssm (state-spaces/mamba, Apache-2.0) has Mamba's selective scan. Arguments that a package does
not support run in our form, and a debug message says why.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any, ParamSpec

import torch
from torch import Tensor

from models.ops.recurrences import Selection
from models.ops.reference import KERNEL_CHOICE

logger = logging.getLogger(__name__)

P = ParamSpec("P")
Entry = Callable[..., Any]
"""A function of a public package."""

HEAD_SIZES = range(16, 257)
"""Channels of a head for which fla-core has kernels."""
MOST_STATES = 256
"""States of a channel for which mamba-ssm has a kernel."""

FLA = ("fla-core", "triton")
MAMBA = ("mamba-ssm",)


@functools.cache
def installed_packages() -> dict[str, str]:
    """Return the versions of all packages with public kernels that are installed, by package."""
    found: dict[str, str] = {}
    for package in ("fla-core", "triton", "mamba-ssm"):
        with contextlib.suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


@dataclass(frozen=True)
class PublicKernel:
    """A function of a public package that computes the same as a form of ours.

    Args:
        packages: what must be installed.
        module: the module of the function.
        function: its name.
        run: takes the function and the arguments of our form, and returns the result of our form.
        refuse: takes the arguments of our form, and says why the function does not support them;
            None if it does.
    """

    packages: tuple[str, ...]
    module: str
    function: str
    run: Callable[..., Tensor]
    refuse: Callable[..., str | None]

    @property
    def versions(self) -> dict[str, str]:
        """The installed versions of its packages."""
        return {name: installed_packages()[name] for name in self.packages}

    @functools.cached_property
    def entry(self) -> Entry | str:
        """The function, or why there is none on this machine."""
        for package in self.packages:
            if package not in installed_packages():
                return f"{package} is not installed"
        try:
            found: Entry = getattr(importlib.import_module(self.module), self.function)
        except (ImportError, AttributeError, OSError, RuntimeError) as error:
            return f"{self.packages[0]} cannot be used here: {error}"
        return found


def on_gpu_by(kernel: PublicKernel) -> Callable[[Callable[P, Tensor]], Callable[P, Tensor]]:
    """Decorate our form of a function with the public kernel that may run in its place."""

    def decorate(own: Callable[P, Tensor]) -> Callable[P, Tensor]:
        @functools.wraps(own)
        def choose(*args: P.args, **kwargs: P.kwargs) -> Tensor:
            if not any(
                isinstance(x, Tensor) and x.device.type == KERNEL_CHOICE.device for x in args
            ):
                return own(*args, **kwargs)
            entry = kernel.entry
            reason = entry if isinstance(entry, str) else kernel.refuse(*args, **kwargs)
            _describe(own.__name__, kernel, reason)
            if isinstance(entry, str) or reason is not None:
                return own(*args, **kwargs)
            KERNEL_CHOICE.used.update(kernel.versions)
            return kernel.run(entry, *args, **kwargs)

        return choose

    return decorate


@functools.cache
def _describe(name: str, kernel: PublicKernel, reason: str | None) -> None:
    """Say which form runs, once for each reason."""
    if reason is None:
        packages = ", ".join(map(" ".join, kernel.versions.items()))
        logger.debug(f"{name}: computed by {kernel.function} of {packages}")
    else:
        logger.debug(f"{name}: computed by our form instead of {kernel.function}: {reason}")


def _refuse_types(*given: Tensor) -> str | None:
    """Refuse types other than float32, in which alone the kernels are tested."""
    others = sorted({str(x.dtype) for x in given} - {"torch.float32"})
    if others:
        return f"arguments are {', '.join(others)}, expected torch.float32"
    return "there are no positions" if any(x.numel() == 0 for x in given) else None


def _refuse_products(*sizes: int) -> str | None:
    """Refuse heads of other sizes, and products in another precision than the run's.

    Triton multiplies in TF32 unless this variable says otherwise when a kernel is compiled.
    """
    for size in sizes:
        if size not in HEAD_SIZES:
            return f"heads have {size} channels, expected {HEAD_SIZES[0]} to {HEAD_SIZES[-1]}"
    precision = "tf32" if torch.backends.cuda.matmul.allow_tf32 else "ieee"
    chosen = os.environ.setdefault("TRITON_F32_DEFAULT", precision)
    if chosen != precision:
        return f"Triton multiplies in {chosen} in this process, expected {precision}"
    return None


def _refuse_heads(*given: Tensor, **options: Any) -> str | None:
    return _refuse_types(*given) or _refuse_products(given[0].shape[-1], given[2].shape[-1])


def _refuse_delta(*given: Tensor, **options: Any) -> str | None:
    if not torch.backends.cuda.matmul.allow_tf32:
        return "it solves triangular systems in TF32, which train.tf32=true allows"
    return _refuse_heads(*given)


def _run_delta(entry: Entry, *given: Tensor, **options: Any) -> Tensor:
    query, key, value, rate, log_decay = (x.transpose(1, 2) for x in given)
    return entry(query, key, value, log_decay, rate, scale=1.0)[0].transpose(1, 2)


DELTA_RULE = PublicKernel(
    FLA, "fla.ops.gated_delta_rule", "chunk_gated_delta_rule", _run_delta, _refuse_delta
)


def _run_attention(entry: Entry, *given: Tensor, **options: Any) -> Tensor:
    query, key, value, log_decay = given
    shared = value.shape[1] // query.shape[1]
    query, key = (x.repeat_interleave(shared, dim=1) for x in (query, key))
    parts = (x.transpose(1, 2) for x in (query, key, value, log_decay))
    return entry(*parts, scale=1.0)[0].transpose(1, 2)


DECAYING_ATTENTION = PublicKernel(
    FLA, "fla.ops.simple_gla", "chunk_simple_gla", _run_attention, _refuse_heads
)


def _refuse_selective(inputs: Selection, poles: Tensor, bias: Tensor | None = None) -> str | None:
    if poles.is_complex():
        return "poles are complex"
    if bias is not None:
        return "B has a bias"
    if poles.shape[1] > MOST_STATES:
        return f"channels have {poles.shape[1]} states, expected at most {MOST_STATES}"
    return _refuse_types(*inputs, poles)


def _run_selective(
    entry: Entry, inputs: Selection, poles: Tensor, bias: Tensor | None = None
) -> Tensor:
    """Run mamba-ssm's scan, whose positions are last: (batch, channels, length)."""
    x, step, into, out = inputs
    x, step = (part.mT.contiguous() for part in (x, step))
    into, out = (part.permute(0, 2, 3, 1).contiguous() for part in (into, out))
    return entry(x, step, poles.contiguous(), into, out).mT


SELECTIVE_SCAN = PublicKernel(
    MAMBA,
    "mamba_ssm.ops.selective_scan_interface",
    "selective_scan_fn",
    _run_selective,
    _refuse_selective,
)
