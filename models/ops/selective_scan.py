"""Selective state spaces with separate states for each channel.

Gu and Dao, "Mamba: Linear-Time Sequence Modeling with Selective State Spaces", 2023
(arXiv:2312.00752), section 3.2.
"""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from models.ops.public_kernels import SELECTIVE_SCAN, on_gpu_by
from models.ops.reference import fast_form_of
from models.ops.scan import scan

BLOCK = 2**29
"""Largest number of states of a block of channels that are in memory at once, on a GPU."""
TILE = 2**19
"""Largest number of states of a tile of positions that are in memory at once."""

_COMPILED: set[tuple[object, torch.dtype, torch.dtype]] = set()
"""Loops that have run, with the types of decays and of inputs."""


def selective_scan_reference(
    x: Tensor,
    step: Tensor,
    poles: Tensor,
    into: Tensor,
    out: Tensor,
    *,
    bias: Tensor | None = None,
) -> Tensor:
    """Compute `selective_scan` one position at a time."""
    groups = into.shape[2]
    size = x.shape[-1] // groups
    state = (x[:, 0, :, None] * poles) * 0
    results = []
    for k in range(x.shape[1]):
        b, c = (part[:, k].repeat_interleave(size, dim=1) for part in (into, out))
        b = b if bias is None else b + bias
        dt = step[:, k, :, None]
        state = (dt * poles).exp() * state + dt * b * x[:, k, :, None]
        results.append((c * state).real.sum(dim=-1))
    return torch.stack(results, dim=1) if results else torch.zeros_like(x)


@fast_form_of(selective_scan_reference)
@on_gpu_by(SELECTIVE_SCAN)
def selective_scan(
    x: Tensor,
    step: Tensor,
    poles: Tensor,
    into: Tensor,
    out: Tensor,
    *,
    bias: Tensor | None = None,
) -> Tensor:
    """Run h[k] = exp(dt[k] A) h[k - 1] + dt[k] (B[k] + bias) x[k], and y[k] = Re(C[k] h[k]).

    On a CPU, compiled loops process tiles of positions, and only the states between tiles are saved
    for the backward pass. On a GPU, channels are processed in blocks, and the backward pass
    computes their states again. Memory is O(length) on both, for any number of states.

    Args:
        x: (batch, length, channels).
        step: (batch, length, channels), dt, not negative. At padding, which may come first
            or last, it must be 0.
        poles: (channels, states), A, real or complex, of real part at most 0.
        into: (batch, length, groups, states), B, of the type of A; a group is of neighbours among
            the channels.
        out: (batch, length, groups, states), C.
        bias: (channels, states), or None.
    Returns: (batch, length, channels), real.
    """
    if x.numel() == 0 or poles.numel() == 0:
        return torch.zeros_like(x)
    if x.device.type != "cpu":
        return selective_scan_by_blocks(x, step, poles, into, out, bias=bias)
    groups = into.shape[2]
    x, step = (part.unflatten(-1, (groups, -1)) for part in (x, step))
    bias = torch.zeros_like(poles) if bias is None else bias
    poles, bias = (part.unflatten(0, (groups, -1)).mT for part in (poles, bias))
    result = _Compiled.apply(x, step, poles, into, out, bias)
    assert isinstance(result, Tensor)
    return result.flatten(2)


def selective_scan_by_blocks(
    x: Tensor,
    step: Tensor,
    poles: Tensor,
    into: Tensor,
    out: Tensor,
    *,
    bias: Tensor | None = None,
) -> Tensor:
    """Compute `selective_scan` by blocks of channels, on any device."""
    batch, length, _ = x.shape
    groups = into.shape[2]
    x, step = (part.unflatten(-1, (groups, -1)) for part in (x, step))
    poles, *biases = (part.unflatten(0, (groups, -1)) for part in (poles, bias) if part is not None)
    states = poles.shape[2] * (2 if poles.is_complex() else 1)
    width = max(1, BLOCK // (batch * length * groups * states))
    # Each block has some channels of every group.
    results = [
        checkpoint(_block, *given[:3], into, out, *given[3:], use_reentrant=False)
        for given in zip(
            *(part.split(width, dim=-1) for part in (x, step)),
            *(part.split(width, dim=1) for part in (poles, *biases)),
            strict=True,
        )
    ]
    return torch.cat(results, dim=-1).flatten(2)


def _block(  # noqa: PLR0917 (checkpoint passes positional arguments)
    x: Tensor,
    step: Tensor,
    poles: Tensor,
    into: Tensor,
    out: Tensor,
    bias: Tensor | None = None,
) -> Tensor:
    """Compute `selective_scan` of x and dt, (batch, length, groups, some channels)."""
    decay = (step[..., None] * poles).exp()
    into, out = into[..., None, :], out[..., None]
    added = (step * x)[..., None] * (into if bias is None else into + bias)
    states = scan(decay.flatten(2), added.expand_as(decay).flatten(2)).unflatten(2, poles.shape)
    if not states.is_complex():
        return (states @ out)[..., 0]
    # The real part of a product is a product of real parts with those of the conjugate.
    states, out = (
        torch.view_as_real(part.resolve_conj()).flatten(-2) for part in (states, out.conj().mT)
    )
    return (states @ out.mT)[..., 0]


class _Compiled(Function):
    """x and dt: (batch, length, groups, size); A and what B gains: (groups, states, size)."""

    @staticmethod
    def forward(  # noqa: PLR0917 (an autograd function takes positional arguments alone)
        ctx: Any, x: Tensor, step: Tensor, poles: Tensor, into: Tensor, out: Tensor, bias: Tensor
    ) -> Tensor:
        from models.ops.compiled_scan import run_tile

        x, step, poles, into, out, bias = (
            part.detach().resolve_conj().contiguous() for part in (x, step, poles, into, out, bias)
        )
        y = torch.empty_like(x)
        state = poles.new_zeros(len(x), *poles.shape)
        states = []
        for tile in _tiles(x, poles):
            states.append(state.clone())
            decay = _decay(step[:, tile], poles)
            _side_by_side(run_tile, tile.start, decay, (x, step), (into, out, bias), state, y)
        ctx.save_for_backward(x, step, poles, into, out, bias, *states)
        return y

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, to_y: Tensor
    ) -> tuple[Tensor, ...]:
        from models.ops.compiled_scan import run_tile_back

        x, step, poles, into, out, bias, *states = ctx.saved_tensors
        to_inputs = [torch.empty_like(x) for _ in range(2)]
        to_state, *to_parameters = (torch.zeros_like(states[0]) for _ in range(3))
        to_maps = [torch.zeros_like(into), torch.zeros_like(out), *to_parameters]
        inputs, maps = (x, step, to_y.contiguous()), (into, out, bias, poles)
        for tile, state in reversed(list(zip(_tiles(x, poles), states, strict=True))):
            decay = _decay(step[:, tile], poles)
            given = decay, inputs, maps, state, to_inputs, to_maps, to_state
            _side_by_side(run_tile_back, tile.start, *given)
        to_into, to_out, to_bias, to_poles = to_maps
        return *to_inputs, to_poles.sum(dim=0), to_into, to_out, to_bias.sum(dim=0)


def _tiles(x: Tensor, poles: Tensor) -> list[slice]:
    """Cut positions into tiles."""
    batch, length = x.shape[:2]
    size = max(1, TILE // (batch * poles.numel()))
    return [slice(start, min(start + size, length)) for start in range(0, length, size)]


def _decay(step: Tensor, poles: Tensor) -> Tensor:
    """Compute exp(dt A): (..., groups, size), (groups, states, size) -> (..., states, size)."""
    step = step[..., None, :]
    if not poles.is_complex():
        return (step * poles).exp_()
    # torch's exponential of complex numbers is not vectorised.
    size, angle = (step * poles.real).exp_(), step * poles.imag
    return torch.complex(angle.cos().mul_(size), angle.sin_().mul_(size))


def _side_by_side(
    kernel: Callable[..., None],
    start: int,
    decay: Tensor,
    inputs: Sequence[Tensor],
    maps: Sequence[Tensor],
    *others: Tensor | Sequence[Tensor],
) -> None:
    """Run a kernel for all pairs of a sequence and a group of channels, some on each thread."""
    arrays = [_as_arrays(given) for given in (decay, inputs, maps, *others)]
    count = len(decay) * maps[0].shape[2]
    threads = min(torch.get_num_threads(), count)
    types = kernel, decay.dtype, inputs[0].dtype
    if threads == 1 or types not in _COMPILED:
        # The first call compiles: in this thread, as interruptions reach the main one alone.
        kernel((0, count), start, *arrays)
        _COMPILED.add(types)
        return
    ends = [count * thread // threads for thread in range(threads + 1)]
    pairs = itertools.pairwise(ends)
    list(_pool(os.getpid(), threads).map(lambda some: kernel(some, start, *arrays), pairs))


def _as_arrays(given: Tensor | Sequence[Tensor]) -> Any:
    return given.numpy() if isinstance(given, Tensor) else tuple(part.numpy() for part in given)


@functools.cache
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """Return the threads of a process, which a fork of it would lack."""
    return ThreadPoolExecutor(threads, thread_name_prefix="selective-scan")
