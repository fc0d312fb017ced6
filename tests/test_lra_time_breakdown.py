"""How the time of a training step is divided by purpose."""

from __future__ import annotations

from types import SimpleNamespace

from torch.autograd import DeviceType  # pyright: ignore[reportPrivateImportUsage]

from lra.bench.time_breakdown import add_up_times


def event(name: str, kind: DeviceType, device_time: float, cpu_time: float) -> SimpleNamespace:
    return SimpleNamespace(
        name=name, device_type=kind, cpu_parent=None, sequence_nr=-1,
        self_device_time_total=device_time, self_cpu_time_total=cpu_time,
    )  # fmt: skip


def test_a_kernel_of_a_gpu_counts_once() -> None:
    """With the operation that launched it, not as an event of its own, too."""
    events = [
        event("aten::bmm", DeviceType.CPU, 30.0, 2.0),
        event("sm90_gemm", DeviceType.CUDA, 30.0, 0.0),
        event("aten::_fft_r2c", DeviceType.CPU, 10.0, 1.0),
        event("regular_fft", DeviceType.CUDA, 10.0, 0.0),
    ]
    spent = add_up_times(events, on_device=True)
    assert (spent["matrix products"], spent["Fourier transforms"], spent["other"]) == (30, 10, 0)
    on_cpu = add_up_times(events, on_device=False)
    assert (on_cpu["matrix products"], on_cpu["Fourier transforms"]) == (2, 1)
