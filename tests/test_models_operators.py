"""Fast forms of operators against the references behind the same functions, with gradients."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from lra.models.fast import linear_map
from lra.models.fast.delta_rule import delta_rule_by_chunks
from lra.models.fast.doubling import matrix_recurrence
from lra.models.fast.selective_scan import selective_scan_by_blocks
from lra.models.ops import deterministic
from lra.models.ops.deterministic import cumulative_sum, stretch
from lra.models.ops.recurrences import (
    Selection,
    decaying_attention,
    delta_rule,
    gated_attention,
    scan,
    scan_both_ways,
    selective_scan,
)
from lra.models.ops.reference import reference_forms, reference_forms_are_used
from lra.models.ops.toeplitz import LagKernel, circulant_multiply, depthwise_convolution
from lra.models.toroidal.attention import toroidal_attention
from lra.models.toroidal.torus import Reach, Torus
from references import assert_equal_with_gradients, by_reference, leaf

COMPLEX = torch.complex128
Given = tuple[Callable[[], Tensor], Sequence[Tensor]]
"""What computes, and what it takes gradients of."""

BLOCKS: list[dict[str, Any]] = [
    {},
    {
        "lra.models.fast.circulant.BLOCK_POSITIONS": 10,
        "lra.models.fast.circulant.FEWEST_CHANNELS": 2,
        "lra.models.fast.circulant.FEWEST_NUMBERS": 1,
        "lra.models.fast.circulant.CHUNK_NUMBERS": 100,
        "lra.models.fast.delta_rule.CHUNK": 5,
        "lra.models.fast.delta_rule.TILE": 5,
        "lra.models.fast.gated_attention.LANES": 2,
        "lra.models.fast.depthwise.CACHED": 20,
        "lra.models.fast.selective_scan.BLOCK": 2 * 31 * 3 * 2,
        "lra.models.fast.selective_scan.TILE": 2 * 6 * 3 * 5,
        "lra.models.toroidal.attention.BLOCK": 7,
    },
]
"""Sizes of blocks: those of the suite, and small ones."""

ON_A_GPU = {
    "lra.models.fast.depthwise.FEW_TAPS": 0,
    "lra.models.fast.gated_attention.is_by_doubling": lambda x: True,
    "lra.models.fast.recurrence.is_by_doubling": lambda x: True,
}
"""What lets a CPU take the forms of a GPU."""


def real(x: Tensor) -> Tensor:
    return torch.view_as_real(x) if x.is_complex() else x


def fades(*shape: int) -> Tensor:
    """Draw how much is forgotten: some nothing, some all at once, others anything."""
    x = torch.rand(*shape, dtype=torch.float64)
    return torch.where(x < 0.2, 0.0, torch.where(x > 0.8, 800 * x, x))


def decays(*shape: int, dtype: torch.dtype) -> Tensor:
    """Draw decays of 4 channels: near 1, near 0, exactly 0 or 1, and any."""
    size = torch.rand(*shape, 4, dtype=torch.float64)
    size[..., 0] = 1 - 1e-9
    size[..., 1] *= 1e-30
    size[..., 2] = torch.where(size[..., 2] < 0.5, 0.0, 1.0)
    if dtype.is_complex:
        size = torch.polar(size, 6 * torch.rand(*shape, 4, dtype=torch.float64))
    return size.requires_grad_()


def ragged(length: int) -> Tensor:
    return torch.arange(length) < torch.tensor([[length], [(length + 1) // 2]])


def heads(length: int, *channels: int, count: int = 3) -> list[Tensor]:
    return [leaf(2, count, length, n) for n in channels]


def toeplitz(n: int, *, first: int, last: int) -> Given:
    first, last = max(first, 1 - n), min(last, n - 1)
    x, coefficients = leaf(3, n, 5), leaf(5, last - first + 1)
    return lambda: LagKernel(coefficients, first).multiply(x), [x, coefficients]


def circulant(n: int) -> Given:
    x, response = leaf(3, n, 5), leaf(5, n + 2, 2)
    size = 2 * n + 2
    return lambda: circulant_multiply(torch.view_as_complex(response), size, x), [x, response]


def short_convolution(n: int, *, first: int, count: int) -> Given:
    x, taps = leaf(3, n, 6), leaf(6, count)
    return lambda: depthwise_convolution(x, taps, first), [x, taps]


def scanned(n: int, *, dtype: torch.dtype, reverse: bool, channels: int = 4) -> Given:
    decay, x = decays(2, n, channels // 4, dtype=dtype), leaf(2, n, channels, dtype=dtype)
    decay = decay.detach().flatten(2).requires_grad_()
    return lambda: real(scan(decay, x, reverse=reverse)), [decay, x]


def scanned_both_ways(n: int) -> Given:
    decay, x = decays(2, 2, n, dtype=COMPLEX), leaf(2, n, 4, dtype=COMPLEX)
    poles = decays(2, dtype=COMPLEX)[0].detach().requires_grad_()
    leaves = [decay, poles, x]
    return lambda: real(torch.stack([*scan_both_ways(decay, x), *scan_both_ways(poles, x)])), leaves


def recurrence(n: int, *, dtype: torch.dtype, reverse: bool) -> Given:
    poles, x = decays(dtype=dtype), leaf(2, n, 4, dtype=dtype)
    return lambda: real(scan(poles, x, reverse=reverse)), [poles, x]


def matrices(n: int) -> Given:
    maps = torch.linalg.qr(torch.randn(2, n, 3, 3, dtype=torch.float64))[0]
    maps[:, ::7] = 0
    x = leaf(2, n, 3, 5)
    return lambda: matrix_recurrence(maps, x), [maps.requires_grad_(), x]


def fading_attention(n: int, *, groups: int) -> Given:
    query, key, value = leaf(2, groups, n, 4), leaf(2, groups, n, 4), leaf(2, 3, n, 5)
    leaves = [query, key, value, (-fades(2, 3, n)).requires_grad_()]
    return lambda: decaying_attention(*leaves), leaves


def matrix_states(n: int, *, causal: bool) -> Given:
    query, key, value = (leaf(2, n, 2, 4) for _ in range(3))
    kept = decays(2, n, 2, dtype=torch.float64)
    leaves = [query, key, value, kept]
    return lambda: gated_attention(*leaves, causal=causal), leaves


def delta(n: int, *, compute: Callable[..., Tensor]) -> Given:
    query, key, value = heads(n, 4, 4, 5)
    rate = torch.rand(2, 3, n, dtype=torch.float64, requires_grad=True)
    log_decay = (-fades(2, 3, n)).requires_grad_()

    def run() -> Tensor:
        rule = delta_rule if reference_forms_are_used() else compute
        unit = functional.normalize(key, dim=-1)
        return rule(query, unit, value, rate, log_decay)

    return run, [query, key, value, rate, log_decay]


def selective(n: int, *, compute: Callable[..., Tensor], dtype: torch.dtype, groups: int) -> Given:
    x, step = leaf(2, n, 6), fades(2, n, 6).requires_grad_()
    poles = -torch.rand(6, 3, dtype=torch.float64).to(dtype)
    poles = poles + 3j * torch.randn(6, 3) if dtype.is_complex else poles
    into, out = (leaf(2, n, groups, 3, dtype=dtype) for _ in range(2))
    bias = leaf(6, 3, dtype=dtype)
    given = Selection(x, step, into, out)

    def run() -> Tensor:
        scanned = selective_scan if reference_forms_are_used() else compute
        return scanned(given, poles, bias if groups > 1 else None)

    return run, [*given, poles.requires_grad_(), bias]


def on_torus(n: int, *, torus: Torus, window: int | None, causal: bool = False) -> Given:
    query, key, value = (leaf(2, 2, n, torus.num_platters, 4) for _ in range(3))
    weight = torch.rand(2, dtype=torch.float64, requires_grad=True)
    mask, reach = ragged(n), Reach(torus, causal=causal, window=window)

    def run() -> Tensor:
        mixed = toroidal_attention([query, key, value], reach, weight, mask)
        return mixed * mask[:, None, :, None, None]

    return run, [query, key, value, weight]


OPERATORS: dict[str, Callable[[int], Given]] = {}


def add(name: str, build: Callable[..., Given], **options: Any) -> None:
    OPERATORS[name] = functools.partial(build, **options)


for _name, _first, _last in (("full", -99, 99), ("causal", 0, 99), ("window", -4, 2)):
    add(f"toeplitz, {_name}", toeplitz, first=_first, last=_last)
add("circulant", circulant)
for _first, _count in ((0, 1), (0, 4), (-3, 4), (-8, 17), (-20, 61)):
    add(f"convolution from {_first}, {_count}", short_convolution, first=_first, count=_count)
for _dtype in (torch.float64, COMPLEX):
    for _reverse in (False, True):
        _way = f"{_dtype}, {'reverse' if _reverse else 'forward'}"
        add(f"scan, {_way}", scanned, dtype=_dtype, reverse=_reverse)
        add(f"recurrence, {_way}", recurrence, dtype=_dtype, reverse=_reverse)
    for _compute in (selective_scan, selective_scan_by_blocks):
        for _groups in (1, 2):
            add(f"{_compute.__name__}, {_dtype}, {_groups} groups", selective,
                compute=_compute, dtype=_dtype, groups=_groups)  # fmt: skip
add("scan of blocks of channels", scanned, dtype=COMPLEX, reverse=True, channels=300)
add("scan both ways", scanned_both_ways)
for _groups in (1, 3):
    add(f"decaying attention, {_groups} groups", fading_attention, groups=_groups)
add("matrices", matrices)
add("delta rule", delta, compute=delta_rule)
add("delta rule by chunks", delta, compute=delta_rule_by_chunks)
for _causal in (False, True):
    add(f"HGRN2, {_causal}", matrix_states, causal=_causal)
    add(f"torus, {_causal}", on_torus, torus=Torus((31,), 2), window=None, causal=_causal)
    add(f"torus, window, {_causal}", on_torus, torus=Torus((31,), 3), window=3, causal=_causal)
    add(f"line longer than it, {_causal}", on_torus,
        torus=Torus((9,), 1, wrap=False), window=5, causal=_causal)  # fmt: skip


def assert_equals_reference(given: Given, tolerance: float = 1e-9) -> None:
    compute, leaves = given
    assert_equal_with_gradients(compute, by_reference(compute), leaves, tolerance)


@pytest.mark.parametrize("name", OPERATORS)
def test_fast_forms_equal_references(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    is_torus = name.startswith("torus")
    for blocks in BLOCKS:
        with monkeypatch.context() as patch:
            for place, value in blocks.items():
                patch.setattr(place, value)
            for length in (1, 2, 31) if blocks or is_torus else (31, 100):
                assert_equals_reference(OPERATORS[name](length))


@pytest.mark.parametrize(
    "name",
    [n for n in OPERATORS if n.startswith(("scan", "recurrence", "HGRN2", "convolution", "torus"))],
)
def test_forms_of_a_gpu_equal_references(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for place, value in ON_A_GPU.items():
        monkeypatch.setattr(place, value)
    # Tables of a torus that are kept are in single precision.
    tolerance = 1e-6 if name.startswith("torus") else 1e-9
    for length in (31,) if name.startswith("torus") else (1, 2, 31, 64, 100):
        assert_equals_reference(OPERATORS[name](length), tolerance)


@pytest.mark.parametrize("shape", [(1,), (43,), (2, 2, 64), (4, 0)])
def test_linear_maps_by_convolutions_equal_torchs(
    shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a processor that is not Intel's, whatever this one is."""
    monkeypatch.setattr(linear_map, "_mkl_is_slow", lambda: True)
    for name in ("FEWEST_PRODUCTS", "FEWEST_ROWS", "FEWEST_CHANNELS"):
        monkeypatch.setattr(linear_map, name, 1)
    x, weight, bias = (leaf(*size, dtype=torch.float32) for size in ((*shape, 24), (10, 24), (10,)))

    def compute() -> Tensor:
        return linear_map.linear_map(x, weight, bias)

    assert compute().is_contiguous()
    if x.numel():
        assert_equal_with_gradients(compute, by_reference(compute), [x, weight, bias], 1e-4)


def test_forms_for_gpus_without_deterministic_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    x = leaf(2, 33, 5)

    def compute() -> Tensor:
        parts = [cumulative_sum(x, 1), cumulative_sum(x, -1), stretch(x, 4)]
        return torch.cat([part.flatten() for part in parts])

    expected = torch.cat([x.cumsum(1).flatten(), x.cumsum(-1).flatten()])
    usual = compute().detach()
    monkeypatch.setattr(deterministic, "must_be_deterministic", lambda _: True)
    torch.testing.assert_close(compute(), usual, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(compute()[: len(expected)], expected)
    x = torch.tensor([1.0, 2.0, -torch.inf, 3.0])
    assert cumulative_sum(x, 0).tolist() == [1, 3, -torch.inf, -torch.inf]


def unit(key: Tensor) -> Tensor:
    return functional.normalize(key, dim=-1)


LONG = {
    "scan": lambda a, b, x, y, z: scan(a.sigmoid(), x),
    "scan, complex": lambda a, b, x, y, z: real(
        scan(torch.polar(a.sigmoid(), b), torch.complex(x, y))
    ),
    "attention": lambda a, b, x, y, z: decaying_attention(
        x[:, None], y[:, None], z[:, None], functional.logsigmoid(a[:, None, :, 0])
    ),
    "delta rule": lambda a, b, x, y, z: delta_rule(
        x[:, None], unit(y)[:, None], z[:, None], b[:, None, :, 0].sigmoid(),
        functional.logsigmoid(a[:, None, :, 0]),
    ),
    "selective scan": lambda a, b, x, y, z: selective_scan(
        Selection(x, a.sigmoid(), y[:, :, None], z[:, :, None]), -b[0, :4].exp()
    ),
}  # fmt: skip
"""Each of its decays (the first, from near 0 to near 1) and of four others."""


@pytest.mark.thorough
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
