"""Recurrences whose decays depend on the input, against one position at a time."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from models.ops import delta_rule as rule
from models.ops import selective_scan as selective
from models.ops.decaying_attention import decaying_attention
from models.ops.delta_rule import delta_rule, delta_rule_by_chunks
from models.ops.reference import reference_forms
from models.ops.scan import scan
from models.ops.selective_scan import selective_scan, selective_scan_by_blocks
from references import assert_equal_with_gradients, by_reference, leaf


def draw(length: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(length)
    x = torch.randn(2, length, 4, dtype=dtype, generator=generator)
    size = torch.rand(2, length, 4, dtype=torch.float64, generator=generator)
    size[..., 0] = 1 - 1e-9  # near 1
    size[..., 1] *= 1e-30  # near 0
    size[..., 2] = torch.where(size[..., 2] < 0.5, 0.0, 1.0)  # both, exactly
    if dtype.is_complex:
        size = torch.polar(size, 6 * torch.rand(2, length, 4, generator=generator).double())
    return size.to(dtype).requires_grad_(), x.requires_grad_()


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", [1, 2, 3, 16, 31, 100, 127])
@pytest.mark.parametrize("dtype", [torch.complex128, torch.float64])
def test_chunks_equal_one_position_at_a_time(
    length: int, reverse: bool, dtype: torch.dtype
) -> None:
    decay, x = draw(length, dtype)

    def compute() -> Tensor:
        y = scan(decay, x, reverse=reverse)
        return torch.cat([y.real, y.imag if y.is_complex() else y])

    assert_equal_with_gradients(compute, by_reference(compute), [decay, x])


@pytest.mark.parametrize("chunk", [1, 4, 16])
@pytest.mark.parametrize("length", [1, 3, 16, 41])
@pytest.mark.parametrize("dtype", [torch.complex128, torch.float64])
@pytest.mark.parametrize("shared", [False, True])
def test_halves_equal_one_position_at_a_time(
    length: int, chunk: int, dtype: torch.dtype, shared: bool
) -> None:
    generator = torch.Generator().manual_seed(length)
    query, key, value = (
        torch.randn(2, 3, length, n, dtype=dtype, generator=generator).requires_grad_()
        for n in (4, 4, 5)
    )
    fades = torch.rand(2, 3, length, 1 if shared else 4, generator=generator).double()
    # some do not fade, some are gone at once
    fades = torch.where(fades < 0.2, 0.0, torch.where(fades > 0.8, 800 * fades, fades))
    log_decay = (-fades).to(dtype)
    if dtype.is_complex:
        log_decay = log_decay + 1j * fades.fmod(1.0)
    log_decay.requires_grad_()

    def compute() -> Tensor:
        y = decaying_attention(query, key, value, log_decay, chunk=chunk)
        return torch.cat([y.real, y.imag if y.is_complex() else y])

    assert_equal_with_gradients(compute, by_reference(compute), [query, key, value, log_decay])


@pytest.mark.parametrize("length", [1, 31, 64, 1000])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-4)])
def test_heads_may_share_queries_and_keys(
    length: int, dtype: torch.dtype, tolerance: float
) -> None:
    query, key = (leaf(2, 2, length, 4, dtype=dtype) for _ in range(2))
    value = leaf(2, 6, length, 5, dtype=dtype)
    fades = torch.rand(2, 6, length, 1, dtype=dtype)
    fades = torch.where(fades < 0.2, 0.0, torch.where(fades > 0.8, 800 * fades, fades))
    log_decay = (-fades).requires_grad_()

    def compute() -> Tensor:
        return decaying_attention(query, key, value, log_decay)

    leaves = [query, key, value, log_decay]
    assert_equal_with_gradients(compute, by_reference(compute), leaves, tolerance)


@pytest.mark.parametrize("compute", [delta_rule, delta_rule_by_chunks])
@pytest.mark.parametrize("chunk", [1, 5, 16])
@pytest.mark.parametrize("length", [1, 3, 16, 41, 100])
def test_both_forms_of_the_delta_rule_equal_one_position_at_a_time(
    length: int, chunk: int, compute: Callable[..., Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rule, "TILE", chunk)
    generator = torch.Generator().manual_seed(length)
    query, key, value = (
        torch.randn(2, 3, length, n, dtype=torch.float64, generator=generator).requires_grad_()
        for n in (4, 4, 5)
    )
    rate, fades = torch.rand(2, 2, 3, length, dtype=torch.float64, generator=generator)
    fades = torch.where(fades < 0.2, 0.0, torch.where(fades > 0.8, 800 * fades, fades))
    rate, log_decay = rate.requires_grad_(), (-fades).requires_grad_()

    def result(run: Callable[..., Tensor]) -> Tensor:
        return run(query, unit(key), value, rate, log_decay, chunk=chunk)

    assert_equal_with_gradients(
        lambda: result(compute),
        by_reference(lambda: result(delta_rule)),
        [query, key, value, rate, log_decay],
    )


def draw_selective(
    length: int, dtype: torch.dtype, *, groups: int, channels: int = 6, states: int = 3
) -> list[Tensor]:
    """Draw x, time steps, A, B, C and a bias; some steps are 0, and some forget all at once."""
    real = dtype.to_real()
    x, fades = torch.randn(2, length, channels, dtype=real), torch.rand(2, length, channels)
    step = torch.where(fades < 0.2, 0.0, torch.where(fades > 0.9, 800 * fades, fades)).to(real)
    poles = -torch.rand(channels, states, dtype=real).to(dtype)
    if dtype.is_complex:
        poles = poles + 3j * torch.randn(channels, states, dtype=real)
    into, out = (torch.randn(2, length, groups, states, dtype=dtype) for _ in range(2))
    bias = torch.randn(channels, states, dtype=dtype)
    return [part.requires_grad_() for part in (x, step, poles, into, out, bias)]


@pytest.mark.parametrize("compute", [selective_scan, selective_scan_by_blocks])
@pytest.mark.parametrize("is_biased", [False, True])
@pytest.mark.parametrize("groups", [1, 2, 6])
@pytest.mark.parametrize("length", [1, 2, 41])
@pytest.mark.parametrize("dtype", [torch.complex128, torch.float64])
def test_selective_scans_equal_one_position_at_a_time(
    *, dtype: torch.dtype, length: int, groups: int, is_biased: bool,
    compute: Callable[..., Tensor], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(selective, "TILE", 2 * 6 * 3 * 5)  # of five positions
    monkeypatch.setattr(selective, "BLOCK", 2 * length * 3 * 2)  # of two channels
    *given, bias = draw_selective(length, dtype, groups=groups)
    leaves = [*given, bias] if is_biased else given

    def result(run: Callable[..., Tensor]) -> Tensor:
        return run(*given, bias=bias if is_biased else None)

    assert_equal_with_gradients(
        lambda: result(compute), by_reference(lambda: result(selective_scan)), leaves
    )


def test_a_selective_scan_of_nothing_is_empty() -> None:
    x, step, poles, into, out, _ = draw_selective(5, torch.float64, groups=1)
    for some in (slice(0, 0), slice(0, 2)):
        rows, positions = (some, slice(None)) if some.stop == 0 else (slice(None), slice(0, 0))
        given = [part[rows, positions] for part in (x, step, into, out)]
        y = selective_scan(given[0], given[1], poles, given[2], given[3])
        assert y.shape == given[0].shape


def unit(key: Tensor) -> Tensor:
    return torch.nn.functional.normalize(key, dim=-1)


LONG = {
    "scan": lambda a, b, x, y, z: scan(a.sigmoid(), x),
    "scan, complex": lambda a, b, x, y, z: torch.view_as_real(
        scan(torch.polar(a.sigmoid(), b), torch.complex(x, y))
    ),
    "attention": lambda a, b, x, y, z: decaying_attention(
        x[:, None], y[:, None], z[:, None], torch.nn.functional.logsigmoid(a[:, None, :, :1])
    ),
    "attention, decays of channels": lambda a, b, x, y, z: decaying_attention(
        x[:, None], y[:, None], z[:, None], torch.nn.functional.logsigmoid(a[:, None])
    ),
    "delta rule": lambda a, b, x, y, z: delta_rule(
        x[:, None], unit(y)[:, None], z[:, None], b[:, None, :, 0].sigmoid(),
        torch.nn.functional.logsigmoid(a[:, None, :, 0]),
    ),
    "delta rule, chunks": lambda a, b, x, y, z: delta_rule_by_chunks(
        x[:, None], unit(y)[:, None], z[:, None], b[:, None, :, 0].sigmoid(),
        torch.nn.functional.logsigmoid(a[:, None, :, 0]),
    ),
    "selective scan": lambda a, b, x, y, z: selective_scan(
        x, a.sigmoid(), -b[0, :4].exp(), y[:, :, None], z[:, :, None]
    ),
}  # fmt: skip
"""Each of its decays (the first, from near 0 to near 1) and of four others."""


@pytest.mark.parametrize("name", LONG)
def test_single_precision_at_16384_positions(name: str) -> None:
    given = [torch.randn(1, 16384, 4, dtype=torch.float64) for _ in range(5)]
    given[0] = 4 * given[0] + 4
    results = []
    for dtype in (torch.float32, torch.float64):
        leaves = [part.to(dtype).requires_grad_() for part in given]
        value = LONG[name](*leaves)
        gradients = torch.autograd.grad(value.square().mean(), leaves, materialize_grads=True)
        results.append([value, *gradients])
    with reference_forms(), torch.no_grad():
        results.append([LONG[name](*given)])
    single, double, reference = results
    assert (double[0] - reference[0]).norm() <= 1e-9 * reference[0].norm()
    for found, expected in zip(single, double, strict=True):
        assert (found - expected).norm() <= 1e-4 * expected.norm()
