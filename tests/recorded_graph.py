"""CUDA graphs on a CPU: operations are recorded, undone, and repeated on the same memory.

As on a GPU, the capture changes nothing, a replay runs no Python code and sees only what is in the
tensors of the capture, and no real number must be read during the capture. Whole numbers may be,
because the lengths of a batch are always on the CPU.
"""

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

aten = torch.ops.aten


class RecordedGraph:
    """Stands in for `torch.cuda.CUDAGraph`."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, Any, Any, list[Tensor]]] = []
        self.replays = 0

    def replay(self) -> None:
        """Compute all recorded operations again."""
        self.replays += 1
        with torch._C._AutoDispatchBelowAutograd():
            for func, args, kwargs, outputs in self.calls:
                results = _tensors(func(*args, **kwargs))
                for output, result in zip(outputs, results, strict=True):
                    if output.data_ptr() != result.data_ptr():
                        output.copy_(result)


class _Recorder(TorchDispatchMode):
    """Records operations, and the memory before they write to it."""

    def __init__(self, graph: RecordedGraph) -> None:
        super().__init__()
        self.graph = graph
        self.before: dict[int, tuple[Tensor, Tensor]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is aten._local_scalar_dense.default and args[0].is_floating_point():
            raise RuntimeError("operation not permitted when stream is capturing")
        arguments = func._schema.arguments
        named = {argument.name: value for argument, value in zip(arguments, args, strict=False)}
        for argument in arguments:
            if _is_written(func, argument):
                for x in _tensors((named | kwargs).get(argument.name)):
                    if x.data_ptr() not in self.before:
                        self.before[x.data_ptr()] = (x, x.clone())
        result = func(*args, **kwargs)
        self.graph.calls.append((func, args, kwargs, _tensors(result)))
        return result

    def undo(self) -> None:
        """Give memory back what it held."""
        with torch._C._AutoDispatchBelowAutograd():
            for x, before in reversed(self.before.values()):
                x.copy_(before)


def _is_written(func: Any, argument: Any) -> bool:
    if func is aten.native_batch_norm.default:  # whose schema does not say so
        return argument.name.startswith("running_")
    return argument.alias_info is not None and argument.alias_info.is_write


def _tensors(value: Any) -> list[Tensor]:
    return [x for x in tree_leaves(value) if isinstance(x, Tensor)]


@contextlib.contextmanager
def _capture(graph: RecordedGraph, **_: Any) -> Iterator[None]:
    """Stand in for `torch.cuda.graph`."""
    drawn = torch.get_rng_state()
    recorder = _Recorder(graph)
    try:
        with recorder:
            yield
    finally:
        recorder.undo()
        torch.set_rng_state(drawn)


def use_recorded_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a CPU capture graphs."""
    stream = SimpleNamespace(wait_stream=lambda other: None)
    monkeypatch.setattr("torch.cuda.Stream", lambda: stream)
    monkeypatch.setattr("torch.cuda.current_stream", lambda: stream)
    monkeypatch.setattr("torch.cuda.stream", lambda chosen: contextlib.nullcontext())
    monkeypatch.setattr("torch.cuda.CUDAGraph", RecordedGraph)
    monkeypatch.setattr("torch.cuda.graph", _capture)
    monkeypatch.setattr("torch.cuda.get_sync_debug_mode", lambda: 0)
    monkeypatch.setattr("torch.cuda.set_sync_debug_mode", lambda mode: None)
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda: (1, 1))
