"""Copies of tensors to devices, and which devices run the kernels of public packages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import Tensor


def send(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy a tensor to a device; to a GPU from pinned memory, so that nothing waits for it."""
    if device.type == "cuda" and tensor.device.type == "cpu":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


@dataclass
class KernelChoice:
    """The choice of this process."""

    device: str | None = None
    """Type of the device on which public kernels run, "cuda"; None: on no device."""
    used: dict[str, str] = field(default_factory=dict[str, str])
    """Versions of the packages whose kernels have run, by package."""


KERNEL_CHOICE = KernelChoice()
