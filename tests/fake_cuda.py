"""A CUDA device without a GPU: its tensors have no data, and the work that it is given is counted.

Tensors on the CPU are real. Tensors on the device have a shape, a type and a device only, and every
operation checks that the devices of its tensors agree. Counted are:

- **Launches.** Every operation on the device is one, whether it is a kernel or a copy. Views and
  empty tensors are not. The operations are those that autograd and autocast call.
- **Waits.** The program waits for the device where it reads a number (`item`, `tolist`, `bool`),
  where the shape of a result depends on the data (`nonzero`, a boolean index), where a tensor on
  the device is indexed by one on the CPU, and at a copy between devices, unless it is
  `non_blocking` and the memory on the CPU is pinned.

Every number that is read from the device is one. `python tests/fake_cuda.py` reads cases (task,
mixer, changed settings) as JSON and writes the counts of each. A C++ compiler is needed.
"""
# ruff: noqa: E402

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import importlib.metadata
import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).with_suffix(".cpp")


def find_compiler() -> str | None:
    """Return the path of a C++ compiler, or None if there is none."""
    return shutil.which("g++") or shutil.which("c++")


def _load_stub() -> None:
    """Compile `fake_cuda.cpp` once for each version of torch, and load it before torch is."""
    compiler, spec = find_compiler(), importlib.util.find_spec("torch")
    assert compiler is not None and spec is not None and spec.origin is not None
    package = Path(spec.origin).parent
    key = f"{importlib.metadata.version('torch')} {package}".encode() + SOURCE.read_bytes()
    folder = Path(tempfile.gettempdir()) / "lra-fake-cuda"
    library = folder / f"{hashlib.sha256(key).hexdigest()[:12]}.so"
    if not library.exists():
        folder.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            built = Path(scratch) / library.name
            command = [compiler, "-std=c++20", "-O0", "-shared", "-fPIC", SOURCE, "-o", built]
            command += [f"-I{package / 'include'}", f"-L{package / 'lib'}"]
            command += [f"-Wl,-rpath,{package / 'lib'}", "-lc10", "-ltorch_cpu"]
            subprocess.run(command, check=True, capture_output=True)
            built.replace(library)
    ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    sys.path.insert(0, str(SOURCE.parents[1]))


if __name__ == "__main__":
    _load_stub()

import numpy as np
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn import functional
from torch.utils._foreach_utils import _foreach_supported_types
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from lra.classifier.classifier import Classifier
from lra.tasks.base import Dataset, Split, TaskInfo
from lra.tasks.goals import NOT_SCORED, NextToken, PositionLabels
from lra.tasks.next_token import TokenWindows
from lra.tasks.pixels import Pixels, scale
from lra.tasks.splits import LabelledTokens, PackedSequences, Sequences
from lra.train import step_graph
from lra.train.trainer import Trainer
from requested import resolve

DEVICE = torch.device("cuda", 0)
MEMORY = 80 * 2**30
"""Bytes that the device has, of which none are taken."""

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


class FakeCuda(TorchDispatchMode):
    """Computes on the CPU what is on the CPU, and counts what is on CUDA."""

    def __init__(self) -> None:
        super().__init__()
        self.fake = FakeTensorMode()
        self.counts: Counter[str] = Counter()
        self._pinned: set[StorageWeakRef] = set()
        self._warns = False

    def set_sync_debug_mode(self, mode: int | str) -> None:
        """Stand in for torch's function: warn of waits, or do not."""
        self._warns = mode == "warn"

    @contextlib.contextmanager
    def uncounted(self) -> Iterator[None]:
        """Compute without counting, as in a capture."""
        before = self.counts.copy()
        yield
        self.counts = before

    def count(self, compute: Callable[[], object]) -> dict[str, int]:
        """Count what a computation asks of the device."""
        self.counts.clear()
        compute()
        return {name: self.counts[name] for name in ("launches", "waits")}

    def wait(self) -> None:
        """Count that the program waits for the device."""
        self.counts["waits"] += 1
        if self._warns:
            warnings.warn("called a synchronizing CUDA operation", stacklevel=2)

    def to_list(self, x: Tensor) -> Any:
        """Stand in for `Tensor.tolist`, which waits once."""
        self.wait()
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
        device = kwargs.get("device")
        has_fake = any(isinstance(x, FakeTensor) for x in tree_leaves((args, kwargs)))
        if not has_fake and (device is None or torch.device(device).type != "cuda"):
            return self._compute_on_cpu(func, args, kwargs)
        if func.namespace != "prim" and _is_composite(func):
            with self:  # without autograd, nothing has taken it apart
                return func.decompose(*args, **kwargs)
        if func is aten._local_scalar_dense.default:
            self.wait()
            return torch.ones((), dtype=args[0].dtype).item()
        if func in _COPIES:
            result = self._copy(func, args, kwargs)
        elif func in _DATA_DEPENDENT or (func is aten.index.Tensor and _has_mask(args[1])):
            self.wait()
            result = self._compute_on_ones(func, args, kwargs)
        elif func is aten._fused_adamw_.tensor_lr:
            result = None  # torch cannot check its arguments, as it does for a rate that is a float
        else:
            if func in _INDEXED:
                self._check_index(func, *args[:2])
            result = self._compute(func, args, kwargs)
        self.counts["launches"] += _has_kernel(func)
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
                *tree_map_only(Tensor, _to_fake, args), **tree_map_only(Tensor, _to_fake, kwargs)
            )
        return tree_map_only(Tensor, _to_real_if_cpu, result)

    def _compute_on_ones(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Compute an operation whose result has a shape that depends on the data."""
        found = func(*tree_map_only(Tensor, _ones_like, args), **kwargs)
        with self.fake:
            return tree_map_only(
                Tensor, lambda x: torch.empty(x.shape, dtype=x.dtype, device=DEVICE), found
            )

    def _copy(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        is_in_place = func is aten.copy_.default
        source = args[is_in_place]
        target = (
            args[0].device if is_in_place else torch.device(kwargs.get("device") or source.device)
        )
        if source.device.type == target.type:
            return self._compute(func, args, kwargs)
        if is_in_place:
            non_blocking = kwargs.get("non_blocking", args[2:] == (True,))
            on_cpu = source if source.device.type == "cpu" else args[0]
            is_pinned = self._is_pinned(on_cpu)
        else:
            non_blocking = kwargs.get("non_blocking", False)
            is_pinned = source.device.type == "cuda" or self._is_pinned(source)
        if not (non_blocking and is_pinned):
            self.wait()
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
            self.wait()

    def _is_pinned(self, x: Tensor) -> bool:
        return not isinstance(x, FakeTensor) and StorageWeakRef(x.untyped_storage()) in self._pinned

    def _pin(self, x: Tensor) -> Tensor:
        self._pinned = {storage for storage in self._pinned if not storage.expired()}
        self._pinned.add(StorageWeakRef(x.untyped_storage()))
        return x


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


@functools.cache
def _has_kernel(func: Any) -> bool:
    name = func.name().partition(".")[0]
    return not (func.is_view or name in _NO_KERNEL or func.namespace == "prim")


_attention_of_torch: Any = functional.scaled_dot_product_attention


def _attention(  # noqa: PLR0917 (as torch has them)
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
) -> Tensor:
    """Stand in for `scaled_dot_product_attention`, whose kernels for CUDA a CPU build lacks."""
    if query.device.type != "cuda":
        return _attention_of_torch(query, key, value, attn_mask, dropout_p, is_causal, scale=scale)
    bias = attn_mask
    if bias is not None:
        if bias.dtype == torch.bool:
            zeros = torch.zeros(bias.shape, dtype=query.dtype, device=bias.device)
            bias = zeros.masked_fill(~bias, -torch.inf)
        columns = bias.shape[-1]
        bias = functional.pad(bias, (0, -columns % 16))[..., :columns]
        bias = bias.expand(*query.shape[:3], key.shape[2])
    is_differentiated = torch.is_grad_enabled() and query.requires_grad
    return aten._scaled_dot_product_efficient_attention(
        query, key, value, bias, is_differentiated, dropout_p, is_causal, scale=scale
    )[0]


def _copying(make: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Make a tensor of Python's numbers on the CPU, then copy it, as torch does out of sight."""

    def make_and_copy(data: Any, *, device: Any = None, **options: Any) -> Tensor:
        return make(data, **options).to(device)

    return make_and_copy


class _Stream:
    """Stands in for `torch.cuda.Stream` and `torch.cuda.Event`."""

    def __init__(self, mode: FakeCuda) -> None:
        self.mode = mode
        self.device = DEVICE

    def synchronize(self) -> None:
        """Count a wait."""
        self.mode.wait()

    def query(self) -> bool:
        """Say that the event has happened."""
        return True

    def record(self, stream: Any = None) -> None:
        """Do nothing."""

    wait = wait_stream = wait_event = record

    def record_event(self, event: Any = None) -> Any:
        """Return an event."""
        return event or _Stream(self.mode)


class _Graph:
    """Stands in for `torch.cuda.CUDAGraph`: a replay is one launch."""

    def __init__(self, mode: FakeCuda) -> None:
        self.mode = mode

    def replay(self) -> None:
        """Count the launch of the graph."""
        self.mode.counts["launches"] += 1


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
        "get_device_capability": lambda device=None: (9, 0),
        "is_bf16_supported": lambda including_emulation=True: True,
        "is_current_stream_capturing": lambda: False,
        "mem_get_info": lambda device=None: (MEMORY, MEMORY),
        "manual_seed": lambda seed: None,
        "manual_seed_all": lambda seed: None,
        "synchronize": lambda device=None: mode.wait(),
        "current_stream": lambda device=None: stream,
        "stream": lambda _: contextlib.nullcontext(),
        "CUDAGraph": lambda: _Graph(mode),
        "graph": lambda graph, **_: mode.uncounted(),
        "get_sync_debug_mode": lambda: 0,
        "set_sync_debug_mode": mode.set_sync_debug_mode,
        "memory_allocated": lambda device=None: 0,
        "max_memory_allocated": lambda device=None: 0,
        "memory_reserved": lambda device=None: 0,
        "Stream": lambda *_, **__: _Stream(mode),
        "Event": lambda *_, **__: _Stream(mode),
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


class MovableClassifier(Classifier):
    """A classifier whose parameters are still shared after it was moved to the fake device."""

    def to(self, device: torch.device) -> MovableClassifier:  # pyright: ignore
        """Copy parameters and buffers; `nn.Module.to` would copy a shared one twice."""
        moved: dict[nn.Parameter, nn.Parameter] = {}
        for module in self.modules():
            for name, parameter in module._parameters.items():
                if parameter is not None and parameter not in moved:
                    copied = parameter.detach().to(device)
                    moved[parameter] = nn.Parameter(copied, parameter.requires_grad)
                module._parameters[name] = parameter if parameter is None else moved[parameter]
            for name, buffer in module._buffers.items():
                module._buffers[name] = buffer if buffer is None else buffer.to(device)
        return self


def random_split(info: TaskInfo, examples: int) -> Split:
    """Draw examples of a task; a sequence has a quarter of the most positions, or more."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, info.goal.outputs, examples).astype(np.uint8)
    if info.grid is not None:
        channels = info.channels or 1
        images = rng.integers(0, 256, (examples, info.max_length, channels), dtype=np.uint8)
        levels = None if info.channels is None else scale([(128.0, 64.0)] * channels)
        return Pixels(images, labels, np.arange(examples), levels)
    assert info.vocab_size is not None
    count = examples * info.towers
    lengths = rng.integers(-(-info.max_length // 4), info.max_length + 1, count)
    if isinstance(info.goal, NextToken):
        lengths[:] = info.max_length
    tokens = rng.integers(1, info.vocab_size, lengths.sum() + 1).astype(np.uint8)
    ends = np.cumsum(lengths)
    if isinstance(info.goal, NextToken):
        return TokenWindows(tokens, ends - lengths, lengths)
    sequences = Sequences(tokens[:-1], np.concatenate([[0], ends]))
    if isinstance(info.goal, PositionLabels):
        labels = rng.integers(0, info.goal.outputs, len(tokens) - 1)
        labels[rng.random(len(labels)) < 0.8] = NOT_SCORED
        labels[ends - 1] = 0
        return LabelledTokens(sequences, labels)
    return PackedSequences(sequences, labels, np.arange(count).reshape(examples, info.towers))


def count_case(
    mode: FakeCuda, task: str, mixer: str, overrides: list[str]
) -> dict[str, dict[str, int]]:
    """Count the second step of a run, a validation, and a step of a run with CUDA graphs.

    Raises: RuntimeError if tensors of an operation are on different devices.
    """
    trainer = build_trainer(task, mixer, [*overrides, "train.cuda_graphs=false"])
    trainer.train_step()
    counted = {
        "step": mode.count(trainer.train_step),
        "validation": mode.count(lambda: trainer.validate(lambda: None)),
    }
    trainer = build_trainer(task, mixer, [*overrides, "train.cuda_graphs=true"])
    for _ in range(step_graph.WARMUP_STEPS):
        trainer.train_step()
        trainer.step = 0  # the same batch again
    return {**counted, "graphed": mode.count(trainer.train_step)}


def build_trainer(task: str, mixer: str, overrides: list[str]) -> Trainer:
    """Build a trainer on the device, with examples of random lengths."""
    config = resolve(task, mixer, preset="quick", overrides=overrides)
    info = config.build_task().info
    split = random_split(info, 2 * config.train.batch_size)
    dataset = Dataset(
        splits={"train": split, "val": split}, source="generated", fingerprint="", baselines={},
        folder=Path(),
    )  # fmt: skip
    return Trainer(config, info, dataset, seed=0, device=DEVICE, classifier=MovableClassifier)


def main() -> None:
    """Count what standard input lists."""
    torch.set_num_threads(1)
    with use_fake_cuda() as mode:
        counted = [count_case(mode, *item) for item in json.load(sys.stdin)]
    json.dump(counted, sys.stdout)


if __name__ == "__main__":
    main()
