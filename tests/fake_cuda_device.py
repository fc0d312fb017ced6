"""A CUDA device without a GPU: tensors on it have no data, and what a GPU would have to do is counted.

Tensors on the CPU are real. Tensors on CUDA are fake: they have a shape, a type and a device, and operations between
them check that the devices agree. `use_fake_cuda` puts stand-ins in place of the functions of `torch.cuda`, so it
belongs into a process of its own, which has called `fake_cuda.load_stub` before it imported torch.

`FakeCuda` counts:

- **Launches.** Each operation that reaches the device counts once, whether it is a kernel or a copy. Views, metadata
  and empty tensors do not count. Operations are those that autograd and autocast leave, such as `aten.bmm` or
  `aten._fused_adamw_`. A real GPU starts some more kernels for one operation (a sort, a long list of parameters).
- **Waits.** Each place where the program waits for the device: a number that is read (`item`, `tolist`, `bool`), an
  operation whose result has a shape that depends on the data (`nonzero`, a boolean index), a copy between devices
  unless it is `non_blocking` and the memory of the CPU is pinned, an index on the CPU for a tensor on the device, and
  `synchronize` of a device, a stream or an event.
- **Bytes.** The sizes of all tensors on the device that the counted operations read and write.
- **Peak bytes.** The most memory that live tensors on the device held at once, each rounded up to 512 bytes as the
  caching allocator does. Workspaces inside of kernels are missing.

All numbers that are read from the device are ones.
"""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn import functional
from torch.utils._foreach_utils import _foreach_supported_types
from torch.utils._python_dispatch import TorchDispatchMode

DEVICE = torch.device("cuda", 0)
MEMORY = 80 * 2**30
"""Bytes that the device has."""
BLOCK = 512
"""Bytes by which the caching allocator rounds up."""

aten = torch.ops.aten
_COPIES = {aten._to_copy.default, aten.copy_.default}
_DATA_DEPENDENT = {
    aten.nonzero.default,
    aten.masked_select.default,
    aten._unique2.default,
    aten.unique_consecutive.default,
    aten.unique_dim.default,
}
_INDEXED = {aten.index.Tensor, aten.index_put.default, aten.index_put_.default, aten._index_put_impl_.default}
_NO_KERNEL = {
    "aten::empty", "aten::empty_like", "aten::empty_strided", "aten::new_empty", "aten::new_empty_strided",
    "aten::detach", "aten::alias", "aten::lift_fresh", "aten::_unsafe_view", "aten::_reshape_alias", "aten::set_",
    "aten::resize_", "aten::_local_scalar_dense", "aten::is_pinned", "aten::record_stream",
}  # fmt: skip


@dataclass
class Counts:
    """What a computation asked of the device."""

    launches: int = 0
    waits: int = 0
    bytes: int = 0
    peak_bytes: int = 0
    operations: Counter[str] = field(default_factory=Counter)
    """Launches of each operation."""
    waiting: Counter[str] = field(default_factory=Counter)
    """Waits of each operation."""


class FakeCuda(TorchDispatchMode):
    """Computes on the CPU what is on the CPU, and counts what is on CUDA."""

    def __init__(self) -> None:
        super().__init__()
        self.fake = FakeTensorMode()
        self.counts = Counts()
        self.live_bytes = 0
        self.peak_bytes = 0
        """Since the last call of `reset_peak`, which programs call, too."""
        self._known: dict[int, weakref.ref[Any]] = {}
        self._pinned: set[StorageWeakRef] = set()

    @contextlib.contextmanager
    def counting(self) -> Iterator[Counts]:
        """Count what happens within it, from zero."""
        before, self.counts = self.counts, Counts(peak_bytes=self.live_bytes)
        try:
            yield self.counts
        finally:
            self.counts = before

    def reset_peak(self) -> None:
        """Forget the peak that `torch.cuda.max_memory_allocated` returns."""
        self.peak_bytes = self.live_bytes

    def wait(self, why: str) -> None:
        """Count that the program waits for the device."""
        self.counts.waits += 1
        self.counts.waiting[why] += 1

    def to_list(self, x: Tensor) -> Any:
        """Stand in for `Tensor.tolist`, which waits once."""
        self.wait("tolist")
        return torch.ones(x.shape, dtype=x.dtype).tolist()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled within it, and the wrapper takes time

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is torch.ops.prim.device.default:
            return args[0].fake_device
        kwargs = kwargs or {}
        inputs: list[FakeTensor] = []
        _collect(args, inputs)
        _collect(tuple(kwargs.values()), inputs)
        device = kwargs.get("device")
        if not inputs and (device is None or torch.device(device).type != "cuda"):
            return self._compute_on_cpu(func, args, kwargs)
        if func.namespace != "prim" and _is_composite(func):  # without autograd, nothing has taken it apart
            with self:
                return func.decompose(*args, **kwargs)
        if func is aten._local_scalar_dense.default:
            self.wait("item")
            return torch.ones((), dtype=args[0].dtype).item()
        if func in _COPIES:
            result = self._copy(func, args, kwargs)
        elif func in _DATA_DEPENDENT:
            self.wait(func.name())
            result = self._compute_on_ones(func, args, kwargs)
        else:
            if func in _INDEXED and self._index_waits(args[1]):
                self.wait(func.name())
            result = self._compute(func, args, kwargs)
        self._account(func, inputs, result)
        return result

    def _compute_on_cpu(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if func is aten.is_pinned.default:
            return self._is_pinned(args[0])
        if func is aten._pin_memory.default:
            return self._pin(args[0].clone())
        if kwargs.pop("pin_memory", None):
            return self._pin(func(*args, **kwargs))
        return func(*args, **kwargs)

    def _compute(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with self.fake:
            result = func(*_map(_to_fake, args), **{key: _map(_to_fake, value) for key, value in kwargs.items()})
        return _map(_to_real_if_cpu, result)

    def _compute_on_ones(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Compute an operation whose result has a shape that depends on the data."""
        found = func(*_map(_ones_like, args), **kwargs)
        with self.fake:
            return _map(lambda x: torch.empty_like(x, device=DEVICE), found)

    def _copy(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        source = args[0] if func is aten._to_copy.default else args[1]
        target = torch.device(kwargs.get("device") or source.device) if func is aten._to_copy.default else args[0].device
        if source.device.type == target.type:
            return self._compute(func, args, kwargs)
        if func is aten.copy_.default:
            non_blocking = bool(kwargs.get("non_blocking", args[2] if len(args) > 2 else False))
            on_cpu = source if source.device.type == "cpu" else args[0]
            is_pinned = self._is_pinned(on_cpu)
        else:
            non_blocking = kwargs.get("non_blocking", False)
            is_pinned = source.device.type == "cuda" or self._is_pinned(source)
        if not (non_blocking and is_pinned):
            self.wait(f"copy to {target.type}")
        if target.type == "cuda":
            return self._compute(func, args, kwargs)
        if func is aten.copy_.default:
            return args[0].fill_(1)
        copied = torch.ones(source.shape, dtype=kwargs.get("dtype") or source.dtype)
        return self._pin(copied) if non_blocking else copied

    def _index_waits(self, indices: Any) -> bool:
        """Whether an index is on the CPU, or a mask whose positions must be found."""
        tensors = [i for i in indices if i is not None]
        return any(i.device.type == "cpu" and i.ndim or i.dtype in (torch.bool, torch.uint8) for i in tensors)

    def _is_pinned(self, x: Tensor) -> bool:
        return not isinstance(x, FakeTensor) and StorageWeakRef(x.untyped_storage()) in self._pinned

    def _pin(self, x: Tensor) -> Tensor:
        self._pinned = {storage for storage in self._pinned if not storage.expired()}
        self._pinned.add(StorageWeakRef(x.untyped_storage()))
        return x

    def _account(self, func: Any, inputs: list[FakeTensor], result: Any) -> None:
        outputs: list[FakeTensor] = []
        _collect((result,), outputs)
        for x in outputs:
            self._hold(x)
        self.counts.peak_bytes = max(self.counts.peak_bytes, self.live_bytes)
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)
        if not _has_kernel(func):
            return
        self.counts.launches += 1
        self.counts.operations[_name(func)] += 1
        self.counts.bytes += sum(map(_size, inputs)) + sum(map(_size, outputs))

    def _hold(self, x: FakeTensor) -> None:
        storage = x.untyped_storage()
        key = storage._cdata
        if key in self._known:
            return
        size = -(-storage.nbytes() // BLOCK) * BLOCK
        self._known[key] = weakref.ref(storage, functools.partial(self._release, key, size))
        self.live_bytes += size

    def _release(self, key: int, size: int, _: Any) -> None:
        del self._known[key]
        self.live_bytes -= size


_attention_of_torch = functional.scaled_dot_product_attention


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Stand in for scaled_dot_product_attention, which chooses among kernels that a CPU build lacks."""
    inputs = [query, key, value]
    alignment = 4 if query.dtype == torch.float32 and not torch.is_autocast_enabled("cuda") else 8
    if query.device.type != "cuda" or enable_gqa or query.dtype == torch.float64 or query.shape[-1] % alignment:
        return _attention_of_torch(*inputs, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
    if torch.is_autocast_enabled("cuda"):
        inputs = [x.to(torch.get_autocast_dtype("cuda")) for x in inputs]
    if attn_mask is None and inputs[0].dtype != torch.float32:
        return aten._scaled_dot_product_flash_attention(*inputs, dropout_p, is_causal, False, scale=scale)[0]
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


@functools.cache
def _is_composite(func: Any) -> bool:
    key = torch._C.DispatchKey.CompositeImplicitAutograd
    return torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), key)


def _to_fake(x: Tensor) -> Tensor:
    if isinstance(x, FakeTensor):
        return x
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, requires_grad=x.requires_grad)


def _to_real_if_cpu(x: Tensor) -> Tensor:
    is_real = not isinstance(x, FakeTensor) or x.fake_device.type == "cuda"
    return x if is_real else torch.ones(x.shape, dtype=x.dtype)


def _ones_like(x: Tensor) -> Tensor:
    return torch.ones(x.shape, dtype=x.dtype)


def _collect(values: Any, found: list[FakeTensor]) -> None:
    """Append the fake tensors among arguments, and in lists of them."""
    for value in values:
        if isinstance(value, FakeTensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            _collect(value, found)


def _map(change: Callable[[Tensor], Tensor], value: Any) -> Any:
    """Change all tensors of an argument or a result."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, (list, tuple)):
        return type(value)([_map(change, each) for each in value])
    return value


@functools.cache
def _name(func: Any) -> str:
    return func.name().partition(".")[0]


@functools.cache
def _has_kernel(func: Any) -> bool:
    return not (func.is_view or _name(func) in _NO_KERNEL or func.namespace == "prim")


def _size(x: Tensor) -> int:
    """Count the bytes of the numbers that a tensor holds, repeated ones once."""
    count = 1
    for size, stride in zip(x.shape, x.stride(), strict=True):
        count *= size if stride else 1
    return count * x.element_size() if x.numel() else 0


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
        "Event": lambda *_, **__: _Event(mode),
    }
    for name, stand_in in stand_ins.items():
        setattr(torch.cuda, name, stand_in)
    for maker in ("tensor", "as_tensor"):
        setattr(torch, maker, _copying(getattr(torch, maker)))
    _foreach_supported_types.append(FakeTensor)
    functional.scaled_dot_product_attention = _attention
    FakeTensor.tolist = lambda self: mode.to_list(self)
    # A fake tensor has no address of its own.
    FakeTensor.data_ptr = lambda self: self.untyped_storage()._cdata + self.storage_offset()
    with mode:
        yield mode
