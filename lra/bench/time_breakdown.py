"""How a training step's time divides by purpose, which shows the next bottleneck."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.autograd import DeviceType  # pyright: ignore[reportPrivateImportUsage]
from torch.autograd.profiler import profile as autograd_profile
from torch.profiler import ProfilerActivity, profile

PROFILED_STEPS = 3

_RANGES = {"data": "data", "kernel": "kernels", "Optimizer.step": "optimizer"}
"""Purposes of the marked ranges of a step, by the start of their names in a profile."""

_OPERATIONS = {
    "Fourier transforms": ("_fft_",),
    "matrix products": ("mm", "addmm", "bmm", "baddbmm", "convolution", "mkldnn", "_scaled_dot"),
}
"""For operations outside these ranges, by purpose, the starts of their names after aten::."""


def profile_steps(step: Callable[[], None], device: torch.device) -> dict[str, float]:
    """Profile training steps, and divide their time by purpose.

    Returns: percent of the time by purpose. A backward pass counts with its forward pass, and
        matrix products and transforms that generate kernels count as kernels.
    """
    on_device = device.type == "cuda"
    events: list[Any] = []
    for _ in range(2):  # the first one also finds memory for itself
        if on_device:
            profiler: Any = profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])
        else:  # by autograd's own profiler: Kineto slows some operations down threefold
            profiler = autograd_profile(use_kineto=False)
        with profiler as recorded:
            for _ in range(PROFILED_STEPS):
                step()
        events = list((recorded.events() if on_device else recorded.function_events) or [])
    spent = add_up_times(events, on_device=on_device)
    total = sum(spent.values()) or 1.0
    return {name: round(100 * time / total, 1) for name, time in spent.items()}


def add_up_times(events: Sequence[Any], *, on_device: bool) -> dict[str, float]:
    """Add up the time of a profile's events by purpose, in microseconds.

    A kernel of a GPU is an event of its own, and counts with the operation that launched it, too.
    """
    events = [event for event in events if event.device_type == DeviceType.CPU]
    of_kernels = _nodes_of_kernels(events)
    spent = dict.fromkeys([*_RANGES.values(), *_OPERATIONS, "other"], 0.0)
    for event in events:
        time = event.self_device_time_total if on_device else event.self_cpu_time_total
        spent[_purpose(event, of_kernels)] += time
    return spent


def _ancestors(event: Any) -> Iterator[Any]:
    while event is not None:
        yield event
        event = event.cpu_parent


def _range_of(event: Any) -> str | None:
    names = [one.name for one in _ancestors(event)]
    found = (p for name in names for start, p in _RANGES.items() if name.startswith(start))
    return next(found, None)


def _backward_nodes(event: Any) -> set[int]:
    """Return the numbers of the autograd nodes whose backward pass an event belongs to."""
    return {one.sequence_nr for one in _ancestors(event) if one.name.startswith("autograd::")}


def _nodes_of_kernels(events: Sequence[Any]) -> set[int]:
    """Return the numbers of the autograd nodes that generating kernels made."""
    by_range: dict[bool, set[int]] = {True: set(), False: set()}
    for event in events:
        is_operation = event.sequence_nr >= 0 and event.name.startswith("aten::")
        if is_operation and not _backward_nodes(event):
            by_range[_range_of(event) == "kernels"].add(event.sequence_nr)
    # An operation without a node of its own has the number of the next one.
    return by_range[True] - by_range[False]


def _purpose(event: Any, of_kernels: set[int]) -> str:
    if (found := _range_of(event)) is not None:
        return found
    if _backward_nodes(event) & of_kernels:
        return "kernels"
    operation = event.name.removeprefix("aten::")
    return next((p for p, starts in _OPERATIONS.items() if operation.startswith(starts)), "other")
