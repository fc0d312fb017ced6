"""Which devices run the kernels of public packages, and whose kernels this process has run."""

from __future__ import annotations

import contextlib
import functools
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version


@dataclass
class KernelChoice:
    """The choice of this process."""

    device: str | None = None
    """Type of the device on which public kernels run, "cuda"; None: on no device."""
    used: dict[str, str] = field(default_factory=dict[str, str])
    """Versions of the packages whose kernels have run, by package."""


KERNEL_CHOICE = KernelChoice()


@functools.cache
def installed_packages() -> dict[str, str]:
    """Return the versions of all packages with public kernels that are installed, by package."""
    found: dict[str, str] = {}
    for package in ("fla-core", "triton", "mamba-ssm"):
        with contextlib.suppress(PackageNotFoundError):
            found[package] = version(package)
    return found
