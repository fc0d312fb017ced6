"""Copies of tensors to a device, without a wait."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import Tensor

ALIGNMENT = 16
"""Bytes that each tensor's place in the joint copy is a multiple of; no type needs more."""


def copy_together(tensors: Sequence[Tensor], device: torch.device) -> list[Tensor]:
    """Copy tensors of any types and shapes from the CPU to a device.

    To a GPU, they are one asynchronous copy from pinned memory: a copy for each tensor from
    ordinary memory would wait for the GPU each time.
    """
    if device.type != "cuda":
        return [tensor.to(device) for tensor in tensors]
    import torch
    from torch.nn import functional

    rows = [tensor.contiguous().flatten().view(torch.uint8) for tensor in tensors]
    joined = torch.cat([functional.pad(row, (0, -len(row) % ALIGNMENT)) for row in rows])
    copied, results, start = send(joined, device), [], 0
    for tensor, row in zip(tensors, rows, strict=True):
        part = copied[start : start + len(row)].view(tensor.dtype)
        results.append(part.view(tensor.shape))
        start += len(row) + -len(row) % ALIGNMENT
    return results


def send(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy a tensor to a device; to a GPU from pinned memory, so that nothing waits for it."""
    if device.type == "cuda" and tensor.device.type == "cpu":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)
