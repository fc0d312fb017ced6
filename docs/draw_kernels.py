"""Draw the pictures of docs/mixers.md by the functions on it: python docs/draw_kernels.py."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent))

from lra.results.findings.shared import STYLE  # noqa: E402

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
"""Four colours of Okabe and Ito, which everyone can tell apart."""
GRAY = "0.5"
TEXT = "to be or not to be"
LAGS = 64


def run_page() -> SimpleNamespace:
    """Run the Python blocks of mixers.md, which also compares them with the suite's mixers."""
    blocks = re.findall(r"```python\n(.*?)```", (FOLDER / "mixers.md").read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec("\n".join(blocks), names)  # noqa: S102
    return SimpleNamespace(**names)


def show_matrix(axes: Axes, matrix: Tensor, title: str) -> None:
    """Show a matrix over positions, (n, n): blue is negative, white 0 and red positive."""
    limit = float(matrix.abs().max())
    axes.imshow(matrix.numpy(), cmap="RdBu_r", vmin=-limit, vmax=limit, interpolation="none")
    axes.grid(visible=False)
    axes.set(title=title, xlabel="from position j", ylabel="to position i")


def random_encoder(channels: int, width: int = 32) -> list[nn.Linear]:
    """Make the linear maps of an encoder as the suite's start, with one hidden layer."""
    return [nn.Linear(1, width), nn.Linear(width, width), nn.Linear(width, channels)]


def draw_attention(page: SimpleNamespace) -> Figure:
    """Draw attention maps of a text whose queries and keys are one random vector a letter."""
    of_letter = {letter: torch.randn(16) for letter in sorted(set(TEXT))}
    x = 1.6 * torch.stack([of_letter[letter] for letter in TEXT])
    figure = Figure(figsize=(7.6, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    maps = {"without positions": x, "with rotary positions": page.rotate(x)}
    for axes, (title, vectors) in zip((left, right), maps.items(), strict=True):
        show_matrix(axes, page.attention_map(vectors, vectors, causal=False), title)
        axes.set_xticks(range(len(TEXT)), list(TEXT.replace(" ", "·")))
        axes.set_yticks(range(len(TEXT)), list(TEXT.replace(" ", "·")))
    return figure


def draw_tnn(page: SimpleNamespace) -> Figure:
    """Draw the coefficients of three channels by lag, and the matrix of the first."""
    decay = 0.95
    t = page.toeplitz_coefficients(LAGS, random_encoder(3), decay, causal=False)
    lags = torch.arange(1 - LAGS, LAGS)
    figure = Figure(figsize=(7, 3.3), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    for channel, colour in zip(t.T, COLOURS, strict=False):
        left.plot(lags, channel, color=colour, linewidth=1.2)
    largest = float(t.abs().max())
    left.plot(lags, largest * decay ** lags.abs(), color=GRAY, linewidth=1, linestyle="--")
    left.set(title="coefficients t", xlabel="lag i - j", ylabel="value")
    positions = torch.arange(LAGS)
    show_matrix(right, t[positions[:, None] - positions + LAGS - 1, 0], "matrix T of one channel")
    return figure


def draw_ski(page: SimpleNamespace) -> Figure:
    """Draw the two parts of a channel's matrix and their sum."""
    p = torch.linspace(0, LAGS - 1, 10)
    table = torch.linspace(-1, 1, 21)[:, None] * torch.linspace(0.5, 1, 21)[:, None]
    W, A = page.low_rank_parts(LAGS, p, table, 0.95)
    low_rank = W @ A[..., 0] @ W.T
    taps = torch.tensor([-0.4, 0.6, 1.0, -0.5, 0.7])
    sparse = torch.zeros(LAGS, LAGS)
    for lag, tap in enumerate(taps, start=-2):
        sparse.diagonal(-lag).fill_(tap)
    figure = Figure(figsize=(7.6, 2.9), layout="constrained")
    parts = {"T_sparse": sparse, "W A Wᵀ": low_rank, "sum": sparse + low_rank}
    for axes, (title, matrix) in zip(figure.subplots(1, 3), parts.items(), strict=True):
        show_matrix(axes, matrix, title)
    return figure


def draw_fd(page: SimpleNamespace) -> Figure:
    """Draw the response of a causal channel, and its kernel."""
    k_hat = page.frequency_response(LAGS, random_encoder(1), causal=True)[:, 0]
    kernel = torch.fft.irfft(k_hat, n=2 * LAGS).roll(LAGS)
    figure = Figure(figsize=(7, 3), layout="constrained")
    left, right = figure.subplots(1, 2)
    omega = torch.linspace(0, 1, LAGS + 1)
    left.plot(omega, k_hat.real, color=COLOURS[0], label="real part, encoded")
    left.plot(omega, k_hat.imag, color=COLOURS[1], label="imaginary part, from causality")
    left.legend()
    left.set(title="frequency response", xlabel="frequency ω / π", ylabel="value")
    right.plot(torch.arange(-LAGS, LAGS), kernel, color=COLOURS[0], linewidth=0.8, marker=".")
    right.set(title="kernel", xlabel="lag i - j", ylabel="value", xlim=(-LAGS // 2, LAGS // 2))
    return figure


def draw_s4d(page: SimpleNamespace) -> Figure:
    """Draw poles, modes and the kernel of a channel that starts as S4D-Lin."""
    modes, lags = 32, torch.arange(2 * LAGS)
    A = torch.complex(torch.full((1, modes), -0.5), torch.pi * torch.arange(modes)[None])
    Delta = torch.tensor([0.03])
    C = torch.randn(1, modes, dtype=torch.complex128)
    kernel = page.s4d_kernel(A, torch.ones_like(A), C, Delta, len(lags))[:, 0]
    poles = (Delta[:, None] * A).exp()[0]
    figure = Figure(figsize=(7.6, 2.9), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    circle = torch.exp(1j * torch.linspace(0, 2 * torch.pi, 200))
    left.plot(circle.real, circle.imag, color=GRAY, linewidth=0.8)
    for sign in (1, -1):
        left.plot(poles.real, sign * poles.imag, "o", color=COLOURS[0], markersize=3)
    left.set(title="poles Ā", xlabel="real part", ylabel="imaginary part", aspect="equal")
    for number, colour in zip((0, 1, 3, 8), COLOURS, strict=False):
        middle.plot(lags, (poles[number] ** lags).real, color=colour, linewidth=1)
    middle.set(title="modes, Re Āˡ", xlabel="lag l")
    right.plot(lags, kernel, color=COLOURS[0], linewidth=1.2)
    right.set(title="kernel K", xlabel="lag l")
    return figure


def draw_mamba(page: SimpleNamespace) -> Figure:
    """Draw time steps with some large ones, the decays they make, and the mixing matrix."""
    steps = 0.02 + 0.08 * torch.rand(LAGS)
    steps[[14, 37, 52]] = 2.5
    decays = page.decay_matrix(-steps[None, :, None])[0, 0]
    B, C = torch.randn(2, LAGS, 4)
    figure = Figure(figsize=(7.6, 2.9), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    left.plot(steps, color=COLOURS[0], drawstyle="steps-mid", linewidth=1.2)
    left.set(title="time step Δ", xlabel="position")
    left.set_box_aspect(1)
    show_matrix(middle, decays, "decay matrix L")
    show_matrix(right, decays * (C @ B.T), "mixing matrix M")
    return figure


PICTURES: dict[str, Callable[[SimpleNamespace], Figure]] = {
    "attention": draw_attention,
    "tnn": draw_tnn,
    "ski-tnn": draw_ski,
    "fd-tnn": draw_fd,
    "s4d": draw_s4d,
    "mamba-2": draw_mamba,
}


@torch.no_grad()
def main(folder: Path = FOLDER) -> None:
    """Draw the pictures into a folder, beside the page if none is given, the same each time."""
    page = run_page()
    for name, draw in PICTURES.items():
        torch.manual_seed(1)
        with mpl.rc_context(STYLE):
            nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
            draw(page).savefig(folder / f"{name}.svg", metadata=nothing)


if __name__ == "__main__":
    main()
