"""The HiPPO-LegS matrix and its normal plus low-rank form.

Gu et al., HiPPO, NeurIPS 2020; "Efficiently Modeling Long Sequences with Structured State
Spaces" (S4), ICLR 2022, equation 2, Theorem 1 and appendix C.1. Both are computed once, in
double precision, by NumPy.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

INPUT_CLIP = 2.0
"""Bound on the imaginary part of B in the published code; its authors found it more stable."""


def legs(state_size: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return A, (state_size, state_size), and B, (state_size,), of HiPPO-LegS (S4, equation 2)."""
    n = np.arange(state_size, dtype=np.float64)
    root = np.sqrt(2 * n + 1)
    a = -np.tril(root[:, None] * root[None, :], -1) - np.diag(n + 1)
    return a, root


def normal_part(state_size: int) -> tuple[Tensor, Tensor]:
    """Diagonalise the normal part of HiPPO-LegS: A + P P* = V diag(poles) V*.

    One state of each conjugate pair is returned, that with a positive imaginary part.

    Returns: poles, (state_size / 2,), by rising imaginary part, and V, (state_size,
        state_size / 2); complex128.
    Raises: ValueError for an odd state_size.
    """
    poles, v = _diagonalised(state_size)
    return torch.from_numpy(poles), torch.from_numpy(v)


def normal_plus_low_rank(state_size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Diagonalise the normal part of HiPPO-LegS: A = V (diag(poles) - P P*) V*.

    Returns: poles, P and V* B, each (state_size / 2,) complex128; see `normal_part`.
    Raises: ValueError for an odd state_size.
    """
    poles, v = _diagonalised(state_size)
    _, b = legs(state_size)
    return (
        torch.from_numpy(poles),
        torch.from_numpy(v.conj().T @ _low_rank(state_size)),
        torch.from_numpy(v.conj().T @ b),
    )


def _low_rank(state_size: int) -> NDArray[np.float64]:
    """Return P of HiPPO-LegS, (state_size,)."""
    return np.sqrt(np.arange(state_size) + 0.5)


def _diagonalised(
    state_size: int,
) -> tuple[NDArray[np.complex128], NDArray[np.complex128]]:
    """Return the poles and V of `normal_part`."""
    if state_size % 2:
        raise ValueError(f"state_size {state_size} is odd, expected pairs of conjugate states")
    a, _ = legs(state_size)
    p = _low_rank(state_size)
    # A + P P^T is skew-symmetric but for -1/2 on its diagonal, so i times that is Hermitian.
    skew = a + p[:, None] * p[None, :] + 0.5 * np.eye(state_size)
    imaginary, v = np.linalg.eigh(-1j * skew)
    half = slice(state_size // 2, None)
    return -0.5 + 1j * imaginary[half], v[:, half]


def clip_imaginary(values: Tensor, limit: float) -> Tensor:
    """Clip the imaginary parts of complex numbers of any shape at -limit and limit."""
    return torch.complex(values.real, values.imag.clamp(-limit, limit))
