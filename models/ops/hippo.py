"""The HiPPO-LegS matrix and its normal plus low-rank form.

Gu et al., HiPPO, NeurIPS 2020; "Efficiently Modeling Long Sequences with Structured State
Spaces" (S4), ICLR 2022, equation 2, Theorem 1 and appendix C.1. Both are computed once, in
double precision, by NumPy.
"""

from typing import NamedTuple

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


class DiagonalLegS(NamedTuple):
    """HiPPO-LegS as A = V (diag(poles) - P P*) V*, one state of each conjugate pair; complex128."""

    poles: Tensor
    """(states,), with positive imaginary parts that rise."""
    low_rank: Tensor
    """P, (states,)."""
    into: Tensor
    """V* B, (states,)."""
    vectors: Tensor
    """V, (2 states, states)."""


def diagonalize_legs(state_size: int) -> DiagonalLegS:
    """Diagonalise the normal part of HiPPO-LegS, A + P P*, with state_size / 2 results.

    Raises: ValueError for an odd state_size.
    """
    if state_size % 2:
        raise ValueError(f"state_size {state_size} is odd, expected pairs of conjugate states")
    a, b = legs(state_size)
    p = np.sqrt(np.arange(state_size) + 0.5)
    # A + P P^T is skew-symmetric but for -1/2 on its diagonal, so i times that is Hermitian.
    skew = a + p[:, None] * p[None, :] + 0.5 * np.eye(state_size)
    imaginary, v = np.linalg.eigh(-1j * skew)
    half = slice(state_size // 2, None)
    poles, v = -0.5 + 1j * imaginary[half], v[:, half]
    return DiagonalLegS(*map(torch.from_numpy, (poles, v.conj().T @ p, v.conj().T @ b, v)))


def clip_imaginary(values: Tensor, limit: float) -> Tensor:
    """Clip the imaginary parts of complex numbers of any shape at -limit and limit."""
    return torch.complex(values.real, values.imag.clamp(-limit, limit))
