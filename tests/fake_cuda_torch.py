"""Stand-ins for the functions of torch that ask a real GPU."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn import functional
from torch.utils._foreach_utils import _foreach_supported_types

from fake_cuda_device import DEVICE, MEMORY, Counts, FakeCuda

aten = torch.ops.aten

_attention_of_torch: Any = functional.scaled_dot_product_attention


def _attention(  # noqa: PLR0917 (as torch has them)
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Stand in for `scaled_dot_product_attention`, whose kernels for CUDA a CPU build lacks.

    The memory-efficient kernel is called, or flash attention for half precision without a mask.
    """
    inputs = [query, key, value]
    alignment = 4 if query.dtype == torch.float32 and not torch.is_autocast_enabled("cuda") else 8
    if (
        query.device.type != "cuda"
        or enable_gqa
        or query.dtype == torch.float64
        or query.shape[-1] % alignment
    ):
        return _attention_of_torch(
            *inputs, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )
    if torch.is_autocast_enabled("cuda"):
        inputs = [x.to(torch.get_autocast_dtype("cuda")) for x in inputs]
    if attn_mask is None and inputs[0].dtype != torch.float32:
        return aten._scaled_dot_product_flash_attention(
            *inputs, dropout_p, is_causal, False, scale=scale
        )[0]
    bias = attn_mask
    if bias is not None:
        if bias.dtype == torch.bool:
            zeros = torch.zeros(bias.shape, dtype=inputs[0].dtype, device=bias.device)
            bias = zeros.masked_fill(~bias, -torch.inf)
        columns = bias.shape[-1]
        if columns % 16:
            bias = functional.pad(bias, (0, -columns % 16))[..., :columns]
        shape = *query.shape[:3], key.shape[2]
        bias = bias.to(inputs[0].dtype).expand(shape)
    is_differentiated = torch.is_grad_enabled() and any(x.requires_grad for x in inputs)
    return aten._scaled_dot_product_efficient_attention(
        *inputs, bias, is_differentiated, dropout_p, is_causal, scale=scale
    )[0]


def _copying(make: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Make a tensor of Python's numbers on the CPU, then copy it, as torch does out of sight."""

    def make_and_copy(data: Any, *, device: Any = None, **options: Any) -> Tensor:
        return make(data, **options).to(device)

    return make_and_copy


class _Event:
    """Stands in for `torch.cuda.Event`."""

    def __init__(self, mode: FakeCuda, **_: Any) -> None:
        self.mode = mode

    def record(self, stream: Any = None) -> None:
        """Do nothing."""

    def query(self) -> bool:
        """Say that the event has happened."""
        return True

    def synchronize(self) -> None:
        """Count a wait."""
        self.mode.wait("event")

    def wait(self, stream: Any = None) -> None:
        """Do nothing: only the stream would wait."""

    def elapsed_time(self, end: Any) -> float:
        """Return a number of milliseconds."""
        return 1.0


class _Stream:
    """Stands in for `torch.cuda.Stream`."""

    def __init__(self, mode: FakeCuda, *_: Any, **__: Any) -> None:
        self.mode = mode
        self.device = DEVICE

    def synchronize(self) -> None:
        """Count a wait."""
        self.mode.wait("stream")

    def wait_stream(self, stream: Any) -> None:
        """Do nothing: only the stream would wait."""

    def wait_event(self, event: Any) -> None:
        """Do nothing: only the stream would wait."""

    def record_event(self, event: Any = None) -> Any:
        """Return an event."""
        return event or _Event(self.mode)


class FakeGraph:
    """Stands in for `torch.cuda.CUDAGraph`."""

    def __init__(self, mode: FakeCuda) -> None:
        self.mode = mode
        self.counts = Counts()
        """What the capture would ask of the device at each replay."""

    def replay(self) -> None:
        """Count one launch."""
        self.mode.counts.launches += 1


@contextlib.contextmanager
def _capture(graph: FakeGraph, **_: Any) -> Iterator[None]:
    """Stand in for `torch.cuda.graph`."""
    with graph.mode.counting() as graph.counts:
        yield


@contextlib.contextmanager
def use_fake_cuda() -> Iterator[FakeCuda]:
    """Compute within it with a fake device `cuda`; afterwards the process is of no other use."""
    mode = FakeCuda()
    stream = _Stream(mode)
    stand_ins: dict[str, Any] = {
        "_lazy_init": lambda: None,
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda device: None,
        "get_device_name": lambda device=None: "fake GPU",
        "get_device_capability": lambda device=None: (9, 0),
        "is_bf16_supported": lambda including_emulation=True: True,
        "is_current_stream_capturing": lambda: False,
        "mem_get_info": lambda device=None: (MEMORY - mode.live_bytes, MEMORY),
        "memory_allocated": lambda device=None: mode.live_bytes,
        "memory_reserved": lambda device=None: mode.live_bytes,
        "max_memory_allocated": lambda device=None: mode.peak_bytes,
        "max_memory_reserved": lambda device=None: mode.peak_bytes,
        "reset_peak_memory_stats": lambda device=None: mode.reset_peak(),
        "empty_cache": lambda: None,
        "manual_seed": lambda seed: None,
        "manual_seed_all": lambda seed: None,
        "get_rng_state": lambda device=None: torch.zeros(16, dtype=torch.uint8),
        "set_rng_state": lambda state, device=None: None,
        "synchronize": lambda device=None: mode.wait("synchronize"),
        "current_stream": lambda device=None: stream,
        "default_stream": lambda device=None: stream,
        "stream": lambda _: contextlib.nullcontext(),
        "Stream": functools.partial(_Stream, mode),
        "CUDAGraph": functools.partial(FakeGraph, mode),
        "graph": _capture,
        "Event": lambda *_, **__: _Event(mode),
    }
    for name, stand_in in stand_ins.items():
        setattr(torch.cuda, name, stand_in)
    for maker in ("tensor", "as_tensor"):
        setattr(torch, maker, _copying(getattr(torch, maker)))
    _foreach_supported_types.append(FakeTensor)
    functional.scaled_dot_product_attention = _attention
    FakeTensor.tolist = lambda self: mode.to_list(self)  # noqa: PLW0108 (a method)
    # A fake tensor has no address of its own.
    FakeTensor.data_ptr = lambda self: self.untyped_storage()._cdata + self.storage_offset()
    with mode:
        yield mode
