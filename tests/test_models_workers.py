"""Products whose chunks are shared out among threads."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from lra.models.fast import circulant
from lra.models.fast.workers import num_workers, on_workers
from lra.models.ops.reference import reference_forms
from lra.models.ops.toeplitz import circulant_multiply
from lra.runtime.flops import FlopCounter

CPU = torch.device("cpu")
SIZE = 48


@pytest.fixture(autouse=True)
def shared_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Share small products out, too."""
    monkeypatch.setattr(circulant, "FEWEST_NUMBERS", 1)


@pytest.fixture(params=[2])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def product(
    channels: int, dtype: torch.dtype = torch.float64, batch: int = 3
) -> tuple[Tensor, Tensor, Tensor]:
    """Multiply once: the product, and the gradients of what was multiplied and of the response."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(batch, 20, channels, generator=generator, dtype=dtype)
    parts = torch.randn(channels, SIZE // 2 + 1, 2, generator=generator, dtype=dtype)
    response = torch.view_as_complex(parts)
    response[:, [0, -1]] = response[:, [0, -1]].real.to(response.dtype)
    x, response = x.requires_grad_(), response.requires_grad_()
    y = circulant_multiply(response, SIZE, x)
    y.backward(y.detach().cos())
    assert x.grad is not None
    assert response.grad is not None
    return y.detach(), x.grad, response.grad


@pytest.mark.parametrize("threads", [1, 2, 6], indirect=True)
def test_any_number_of_threads_computes_the_reference(threads: int) -> None:
    for channels in (1, 31, 97):
        found = product(channels)
        with reference_forms():
            expected = product(channels)
        for ours, theirs in zip(found, expected, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


@pytest.mark.usefixtures("threads")
def test_what_is_watched_is_computed_on_one_thread_to_the_same_bits() -> None:
    shared = product(64, torch.float32)
    with FlopCounter() as counter:
        counted = product(64, torch.float32)
    with torch.autograd.profiler.profile(use_kineto=False) as profile:
        profiled = product(64, torch.float32)
    assert counter.total > 0
    assert profile is not None
    names = [event.name for event in profile.function_events or []]
    assert names.count("aten::_fft_r2c") == 3 * num_workers(CPU)
    for other in (counted, profiled):
        assert all(torch.equal(a, b) for a, b in zip(shared, other, strict=True))


@pytest.mark.usefixtures("threads")
def test_no_gradients_are_kept_on_workers_and_inference_stays_inference() -> None:
    weight = torch.ones(1, requires_grad=True)
    assert not any(on_workers(lambda share: (weight * share).requires_grad, [1, 2]))
    with torch.inference_mode():
        x = torch.ones(2, 20, 64)
        y = circulant_multiply(torch.ones(64, SIZE // 2 + 1, dtype=torch.complex64), SIZE, x)
    assert y.is_inference()
    torch.testing.assert_close(y.clone(), x.clone())


@pytest.mark.usefixtures("threads")
def test_an_error_on_a_worker_is_the_callers() -> None:
    def fail(share: int) -> None:
        raise ValueError(f"share {share}")

    with pytest.raises(ValueError, match="share 1"):
        on_workers(fail, [1, 2])
    assert on_workers(lambda share: share, [1, 2]) == [1, 2]
