"""The machine a run is on: device, seeds, memory, versions."""

import contextlib
import ctypes
import os
import platform
import random
import re
import resource
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import AfterValidator, Field
from typing_extensions import TypedDict

from lra.common.errors import UserError
from lra.common.threads import core_count, default_count, free_cores

# As glibc's malloc.h has them. One heap for all threads: what one has freed, another uses again.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX, _ARENA_MAX = -1, -2, -4, -8
_KEEPING = ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, -1), (_TOP_PAD, 256 * 2**20), (_ARENA_MAX, 1))

LEAST_FREE = 0.75
"""Free cores per thread from which on nothing is said."""
OWN_CONTEXT_BYTES = 2 * 2**30
"""More memory of a GPU than a process takes beside its tensors, for kernels and libraries."""


def choose_device(name: str) -> torch.device:
    """Turn auto, cpu, cuda or cuda:N into a device; a GPU computes as `set_arithmetic` has it.

    Raises: UserError if there is no such device here.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    count = torch.cuda.device_count()
    valid = ["auto", "cpu", *(["cuda"] if count else []), *(f"cuda:{i}" for i in range(count))]
    if name not in valid:
        raise UserError(f"--device: no device {name!r} here (valid: {', '.join(valid)})")
    device = torch.device(name)
    set_arithmetic(device)
    return device


def set_arithmetic(
    device: torch.device, *, tf32: bool = False, deterministic: bool = False
) -> None:
    """Choose how a GPU computes; a CPU always computes in the same way.

    Args:
        device: what computes.
        tf32: whether matrix products and convolutions may round to TF32.
        deterministic: whether the bits are the same each time; what cannot then raises
            RuntimeError.
    """
    if device.type == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
        if deterministic:  # cuBLAS reads its variable when it is first used
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(deterministic)


def use_threads(count: int | None) -> None:
    """Compute with so many threads on a CPU; None: as many as torch chose, or as a quota allows."""
    count = count or default_count()
    if count is not None and count != torch.get_num_threads():
        torch.set_num_threads(count)


def describe_busy_cores(device: torch.device) -> str:
    """Say which --threads to use beside other processes; empty if the default is right.

    It is not chosen silently, as the last bits of results depend on the number of threads. What the
    user has chosen by OMP_NUM_THREADS holds.
    """
    count = torch.get_num_threads()
    if device.type != "cpu" or count == 1 or "OMP_NUM_THREADS" in os.environ:
        return ""
    free = free_cores()
    if free >= LEAST_FREE * count:
        return ""
    return (
        f"other processes leave {free:.1f} cores free for {count} threads, which wait for each "
        f"other: --threads {max(1, int(free))} can be several times as fast (it changes the last "
        f"bits of results)"
    )


def device_name(device: torch.device) -> str:
    """Name the hardware, as records and tables show it."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    model = _find_fact("cpuinfo", "model name") or platform.processor() or platform.machine()
    return f"CPU {model}, {torch.get_num_threads()} threads"


def _find_fact(file: str, name: str) -> str | None:
    """Find a fact of Linux's /proc: None where it is not told."""
    with contextlib.suppress(OSError):
        match = re.search(rf"^{name}\s*:\s*(.*\S)", Path("/proc", file).read_text(), re.MULTILINE)
        return match and match[1]
    return None


def is_gpu_shared(device: torch.device) -> bool | None:
    """Say whether other processes hold memory of a GPU, and so make it slower; None for a CPU."""
    if device.type != "cuda":
        return None
    free, total = torch.cuda.mem_get_info(device)
    return total - free - torch.cuda.memory_reserved(device) > OWN_CONTEXT_BYTES


def reset_peak_memory(device: torch.device) -> None:
    """Forget earlier peaks, of preparing data for one, where the system lets us."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def return_freed_memory() -> None:
    """Hand back to the system what is freed by now."""
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)


def keep_freed_memory() -> None:
    """Tell glibc to serve large blocks from its heap and never to trim that.

    By default glibc hands every large temporary back to the system and faults fresh pages in for
    the next one. On a CPU that can cost more than the arithmetic of a step. To hold a little less
    memory, start Python with GLIBC_TUNABLES=glibc.malloc.tcache_count=0.
    """
    if platform.libc_ver()[0] == "glibc":
        for name, value in _KEEPING:
            ctypes.CDLL(None).mallopt(name, value)


def peak_memory_mib(device: torch.device) -> float:
    """Return the most memory held since the last reset: allocated on a GPU, resident on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    if kib := _find_fact("self/status", "VmHWM"):
        return int(kib.split()[0]) / 2**10
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def copy_to_cpu(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Copy tensors of one device to the CPU; a GPU is waited for once."""
    copies = {
        name: tensor.detach().to("cpu", non_blocking=True, copy=True)
        for name, tensor in tensors.items()
    }
    for device in {t.device for t in tensors.values() if t.device.type == "cuda"}:
        torch.cuda.synchronize(device)
    return copies


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error is running out of memory, which torch reports in several ways."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    texts = ("out of memory", "not enough memory", "can't allocate memory", "alloc_failed")
    return isinstance(error, RuntimeError) and any(text in str(error).lower() for text in texts)


def seed_everything(seed: int) -> None:
    """Seed every generator that a model or a library may draw from."""
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 (the global state, for libraries that use it)
    torch.manual_seed(seed)


def _require_dense(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.layout is not torch.strided or tensor.device.type != "cpu":
        raise ValueError("expected a dense tensor on the CPU")
    return tensor


SavedTensor = Annotated[torch.Tensor, AfterValidator(_require_dense)]


class RandomState(TypedDict):
    """The state of all generators."""

    python: tuple[int, tuple[int, ...], float | None]
    numpy: tuple[str, SavedTensor, Annotated[int, Field(ge=0, le=624)], int, float]
    """numpy reads beyond its keys at any other place than 0 to 624."""
    torch: SavedTensor
    cuda: SavedTensor | None


def random_state(device: torch.device) -> RandomState:
    """Capture the state of all generators as tensors and plain values."""
    numpy_state: Any = np.random.get_state()  # noqa: NPY002
    kind, keys, position, has_gauss, cached = numpy_state
    return {
        "python": random.getstate(),
        "numpy": (kind, torch.tensor(keys.astype(np.int64)), position, has_gauss, cached),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
    }


def restore_random_state(state: RandomState, device: torch.device) -> None:
    """Put all generators back into a captured state."""
    random.setstate(state["python"])
    kind, keys, position, has_gauss, cached = state["numpy"]
    words = keys.numpy().astype(np.uint32)
    np.random.set_state((kind, words, position, has_gauss, cached))  # noqa: NPY002
    torch.set_rng_state(state["torch"])
    if device.type == "cuda" and state["cuda"] is not None:
        torch.cuda.set_rng_state(state["cuda"], device)


def describe_machine(device: torch.device) -> dict[str, Any]:
    """List the fields of a measured record that are about the machine."""
    threads = {"count": torch.get_num_threads(), "cores": core_count()}
    return {
        "device": device_name(device),
        "threads": threads if device.type == "cpu" else None,
        "gpu_shared": is_gpu_shared(device),
        "versions": versions(),
    }


def versions() -> dict[str, str]:
    """Return the versions that can change a number, and the names of preloaded libraries."""
    preloaded = [Path(path).name for path in re.split("[ :]+", os.environ.get("LD_PRELOAD", ""))]
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda or "none",
        "numpy": version("numpy"),
        **({"LD_PRELOAD": ascii(" ".join(preloaded))[1:-1][:80]} if any(preloaded) else {}),
    }
