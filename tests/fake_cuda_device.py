"""A CUDA device without a GPU: its tensors have no data, and the work that it is given is counted.

Tensors on the CPU are real. Tensors on the device have a shape, a type and a device only, and every
operation checks that the devices of its tensors agree. `fake_cuda_torch.use_fake_cuda` puts
the device in place.

`FakeCuda` counts:

- **Launches.** Every operation on the device is one launch, whether it is a kernel or a copy. Views
  and empty tensors are not launches. The operations are those that autograd and autocast call, such
  as `aten.bmm` or `aten._fused_adamw_`. A GPU launches several kernels for some, such as a sort.
- **Waits.** The program waits for the device where it reads a number (`item`, `tolist`, `bool`),
  where the shape of a result depends on the data (`nonzero`, a boolean index), where a tensor on
  the device is indexed by one on the CPU, at `synchronize` of a device, stream or event, and at a
  copy between devices, unless it is `non_blocking` and the memory on the CPU is pinned.
- **Transfers.** Copies between the CPU and the device, whether or not the program waits.
- **Bytes.** The sizes of all tensors on the device that operations read and write.
- **Peak bytes.** The most memory that tensors on the device hold at once. Each tensor is rounded up
  to 512 bytes, as the caching allocator does. The workspaces of kernels are not included. A tensor
  that does not fit into the device's memory raises `torch.OutOfMemoryError`.

Every number that is read from the device is one.
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
_INDEXED = {
    aten.index.Tensor,
    aten.index_put.default,
    aten.index_put_.default,
    aten._index_put_impl_.default,
}
_NO_KERNEL = {
    "aten::empty", "aten::empty_like", "aten::empty_strided", "aten::new_empty",
    "aten::new_empty_strided", "aten::detach", "aten::alias", "aten::lift_fresh",
    "aten::_unsafe_view", "aten::_reshape_alias", "aten::set_", "aten::resize_",
    "aten::record_stream",
}  # fmt: skip


@dataclass
class Counts:
    """What a computation asked of the device."""

    launches: int = 0
    waits: int = 0
    transfers: int = 0
    bytes: int = 0
    peak_bytes: int = 0
    operations: Counter[str] = field(default_factory=Counter)
    """Launches of each operation."""
    waiting: Counter[str] = field(default_factory=Counter)
    """Waits of each operation."""
    on_floats: set[str] = field(default_factory=set)
    """Operations that were given real or complex numbers."""

    def summary(self) -> dict[str, Any]:
        """Return the numbers, and the operations on floats, as JSON has them."""
        names = ("launches", "waits", "transfers", "bytes", "peak_bytes")
        return {name: getattr(self, name) for name in names} | {"on_floats": sorted(self.on_floats)}


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

    def forget_held(self) -> None:
        """Count no memory of the tensors that are held now, such as tables of earlier models."""
        self._known.clear()
        self.live_bytes = 0

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
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
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
        if func.namespace != "prim" and _is_composite(
            func
        ):  # without autograd, nothing has taken it apart
            with self:
                return func.decompose(*args, **kwargs)
        if func is aten._local_scalar_dense.default:
            self.wait("item")
            return torch.ones((), dtype=args[0].dtype).item()
        if func in _COPIES:
            result = self._copy(func, args, kwargs)
        elif func in _DATA_DEPENDENT or (func is aten.index.Tensor and _has_mask(args[1])):
            self.wait(func.name())
            result = self._compute_on_ones(func, args, kwargs)
        elif func is aten._fused_adamw_.tensor_lr:
            result = None  # torch cannot check its arguments, as it does for a rate that is a float
        else:
            if func in _INDEXED:
                self._check_index(func, *args[:2])
            result = self._compute(func, args, kwargs)
        self._account(func, inputs, result)
        return result

    def _compute_on_cpu(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if func is aten.is_pinned.default:
            return self._is_pinned(args[0])
        if func in (aten._pin_memory.default, aten.pin_memory.default):
            return self._pin(args[0].clone())
        if kwargs.pop("pin_memory", None):
            return self._pin(func(*args, **kwargs))
        return func(*args, **kwargs)

    def _compute(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with self.fake:
            result = func(
                *_map(_to_fake, args),
                **{key: _map(_to_fake, value) for key, value in kwargs.items()},
            )
        return _map(_to_real_if_cpu, result)

    def _compute_on_ones(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Compute an operation whose result has a shape that depends on the data."""
        found = func(*_map(_ones_like, args), **kwargs)
        with self.fake:
            return _map(lambda x: torch.empty(x.shape, dtype=x.dtype, device=DEVICE), found)

    def _copy(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        is_in_place = func is aten.copy_.default
        source = args[is_in_place]
        target = (
            args[0].device if is_in_place else torch.device(kwargs.get("device") or source.device)
        )
        if source.device.type == target.type:
            return self._compute(func, args, kwargs)
        self.counts.transfers += 1
        if is_in_place:
            non_blocking = kwargs.get("non_blocking", args[2:] == (True,))
            on_cpu = source if source.device.type == "cpu" else args[0]
            is_pinned = self._is_pinned(on_cpu)
        else:
            non_blocking = kwargs.get("non_blocking", False)
            is_pinned = source.device.type == "cuda" or self._is_pinned(source)
        if not (non_blocking and is_pinned):
            self.wait(f"copy to {target.type}")
        if target.type == "cuda":
            return self._compute(func, args, kwargs)
        if is_in_place:
            return args[0].fill_(1)
        copied = torch.ones(source.shape, dtype=kwargs.get("dtype") or source.dtype)
        return self._pin(copied) if non_blocking else copied

    def _check_index(self, func: Any, x: Tensor, indices: Any) -> None:
        """Count a wait for an index that is on the CPU, or is a mask.

        Raises: RuntimeError if only the index is on the device.
        """
        on_cpu = [i.device.type == "cpu" for i in indices if i is not None]
        if x.device.type == "cpu" and not all(on_cpu):
            raise RuntimeError(f"{func.name()}: the index is on another device than the tensor")
        if (any(on_cpu) and x.device.type == "cuda") or _has_mask(indices):
            self.wait(func.name())

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
        if any(x.is_floating_point() or x.is_complex() for x in inputs):
            self.counts.on_floats.add(_name(func).partition("::")[2])
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
        if self.live_bytes + size > MEMORY:
            raise torch.OutOfMemoryError(f"{size:,} bytes do not fit beside {self.live_bytes:,}")
        self._known[key] = weakref.ref(storage, functools.partial(self._release, key, size))
        self.live_bytes += size

    def _release(self, key: int, size: int, _: Any) -> None:
        del self._known[key]
        self.live_bytes -= size


@functools.cache
def _is_composite(func: Any) -> bool:
    key = torch._C.DispatchKey.CompositeImplicitAutograd
    return torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), key)


def _has_mask(indices: Any) -> bool:
    return any(i is not None and i.dtype in (torch.bool, torch.uint8) for i in indices)


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
