"""Which devices run the kernels of public packages, and whose kernels this process has run."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class KernelChoice:
    """The choice of this process."""

    device: str | None = None
    """Type of the device on which public kernels run, "cuda"; None: on no device."""
    used: dict[str, str] = field(default_factory=dict[str, str])
    """Versions of the packages whose kernels have run, by package."""


KERNEL_CHOICE = KernelChoice()
