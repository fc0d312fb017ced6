"""Recurrences, one position at a time: reference forms of what `lra.models.fast` computes.

Selective scans: Gu and Dao, "Mamba: Linear-Time Sequence Modeling with Selective State Spaces",
2023 (arXiv:2312.00752), section 3.2. Attention with decays: state-space duality (Dao and Gu,
"Transformers are SSMs", ICML 2024, arXiv:2405.21060, section 6). Delta rule: Yang, Kautz and
Hatamizadeh, "Gated Delta Networks", ICLR 2025 (arXiv:2412.06464), section 3; Siems et al.,
"DeltaProduct", NeurIPS 2025 (arXiv:2502.10297), section 3.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from lra.models.ops.reference import has_fast_form


@has_fast_form("recurrence")
def scan(factors: Tensor, x: Tensor, *, reverse: bool = False) -> Tensor:
    """Run h[k] = factors[k] * h[k - 1] + x[k], from h = 0 before the first position.

    Args:
        factors: (batch, length, channels), real or complex; (channels,) if they are the same at all
            positions. They may be 0.
        x: (batch, length, channels), of the same type. At padding, which may come first or last, it
            must be 0.
        reverse: whether it runs from the last position to the first, h[k] = factors[k] * h[k + 1]
            + x[k].
    Returns: (batch, length, channels).
    """
    state, states = torch.zeros_like(x[:, :1]).sum(dim=1), []
    order = range(x.shape[1] - 1, -1, -1) if reverse else range(x.shape[1])
    for k in order:
        state = (factors if factors.dim() == 1 else factors[:, k]) * state + x[:, k]
        states.append(state)
    return torch.stack(states[::-1] if reverse else states, dim=1) if states else x.clone()


@has_fast_form("recurrence")
def scan_both_ways(factors: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Run `scan` from the first position to the last, and in reverse.

    Args:
        factors: (2, batch, length, channels), of each direction, or (channels,) of both.
        x: (batch, length, channels), of the same type.
    Returns: the states of each direction, (batch, length, channels).
    """
    ahead, back = (factors, factors) if factors.dim() == 1 else factors
    return scan(ahead, x), scan(back, x, reverse=True)


class Selection(NamedTuple):
    """The inputs of selective states at each position; a group is of neighbouring channels."""

    x: Tensor
    """(batch, length, channels), the values that enter the states."""
    step: Tensor
    """(batch, length, channels), dt, not negative; (..., heads) for `decaying_attention`. At
    padding, which may come first or last, it must be 0."""
    into: Tensor
    """(batch, length, groups, states), B."""
    out: Tensor
    """(batch, length, groups, states), C."""


@has_fast_form("selective_scan")
def selective_scan(inputs: Selection, poles: Tensor, bias: Tensor | None = None) -> Tensor:
    """Run h[k] = exp(dt[k] A) h[k - 1] + dt[k] (B[k] + bias) x[k], and y[k] = Re(C[k] h[k]).

    Args:
        inputs: x, dt, B and C; B and C have the type of A.
        poles: (channels, states), A, real or complex, of real part at most 0.
        bias: (channels, states), or None.
    Returns: (batch, length, channels), real.
    """
    x, step, into, out = inputs
    size = x.shape[-1] // into.shape[2]
    state = (x[:, 0, :, None] * poles) * 0
    results = []
    for k in range(x.shape[1]):
        b, c = (part[:, k].repeat_interleave(size, dim=1) for part in (into, out))
        b = b if bias is None else b + bias
        dt = step[:, k, :, None]
        state = (dt * poles).exp() * state + dt * b * x[:, k, :, None]
        results.append((c * state).real.sum(dim=-1))
    return torch.stack(results, dim=1) if results else torch.zeros_like(x)


@has_fast_form("decaying_attention")
def decaying_attention(query: Tensor, key: Tensor, value: Tensor, log_decay: Tensor) -> Tensor:
    """Compute y[i] = sum over j <= i of exp(a[j + 1] + ... + a[i]) (q[i] . k[j]) v[j].

    Args:
        query: (batch, groups, length, channels); groups of neighbouring heads share queries and
            keys.
        key: of the same shape. At padding, which may come first or last, it must be 0.
        value: (batch, heads, length, value channels).
        log_decay: (batch, heads, length), a, at most 0.
    Returns: (batch, heads, length, value channels).
    """
    shared = value.shape[1] // max(1, key.shape[1])
    query, key = (x.repeat_interleave(shared, dim=1) for x in (query, key))
    state = torch.zeros_like(key[..., 0, :, None] * value[..., 0, None, :])
    results = []
    for k in range(key.shape[-2]):
        decay = log_decay[..., k, None, None].exp()
        state = decay * state + key[..., k, :, None] * value[..., k, None, :]
        results.append((query[..., k, None, :] @ state)[..., 0, :])
    return torch.stack(results, dim=-2)


@has_fast_form("gated_attention")
def gated_attention(
    query: Tensor, key: Tensor, value: Tensor, kept: Tensor, *, causal: bool
) -> Tensor:
    """Compute S[i]^T q[i], S[i] = diag(f[i]) S[i - 1] + k[i] v[i]^T.

    If it is not causal, results from the last position to the first are added.

    Args:
        query: (batch, length, heads, size), q.
        key: of the same shape, k. At padding, which comes last, it must be 0.
        value: of the same shape, v.
        kept: of the same shape, f, the decays of the rows of S.
    Returns: of the same shape.
    """
    state = torch.zeros_like(key[:, 0, ..., None] * value[:, 0, ..., None, :])
    results = []
    for i in range(query.shape[1]):
        state = kept[:, i, ..., None] * state + key[:, i, ..., None] * value[:, i, ..., None, :]
        results.append((query[:, i, ..., None, :] @ state)[..., 0, :])
    behind = torch.stack(results, dim=1)
    if causal:
        return behind
    backwards = (part.flip(1) for part in (query, key, value, kept))
    return behind + gated_attention(*backwards, causal=True).flip(1)


@has_fast_form("delta_rule")
def delta_rule(
    query: Tensor, key: Tensor, value: Tensor, rate: Tensor, log_decay: Tensor
) -> Tensor:
    """Compute S[i]^T q[i], S[i] = a[i] S[i - 1] + b[i] k[i] (v[i] - a[i] S[i - 1]^T k[i])^T.

    Args:
        query: (batch, heads, length, channels).
        key: of the same shape, of length 1 at most. At padding, which may come first or last, it
            must be 0.
        value: (batch, heads, length, value channels).
        rate: (batch, heads, length), b, in [0, 2].
        log_decay: (batch, heads, length), the logarithm of a, at most 0.
    Returns: (batch, heads, length, value channels).
    """
    state = torch.zeros_like(key[..., 0, :, None] * value[..., 0, None, :])
    results = []
    for k in range(key.shape[-2]):
        state = log_decay[..., k, None, None].exp() * state
        held = (key[..., k, None, :] @ state)[..., 0, :]
        change = rate[..., k, None] * (value[..., k, :] - held)
        state = state + key[..., k, :, None] * change[..., None, :]
        results.append((query[..., k, None, :] @ state)[..., 0, :])
    return torch.stack(results, dim=-2)


def delta_products(
    query: Tensor, key: Tensor, value: Tensor, rate: Tensor, log_decay: Tensor
) -> Tensor:
    """Compute `delta_rule` with several keys a position: decay once, store each, read at the end.

    Args:
        query: (batch, heads, length, channels).
        key: (batch, heads, length, products, channels).
        value: (batch, heads, length, products, value channels).
        rate: (batch, heads, length, products).
        log_decay: (batch, heads, length).
    Returns: (batch, heads, length, value channels).
    """
    products = key.shape[3]
    query = functional.pad(query[..., None, :], (0, 0, products - 1, 0))
    log_decay = functional.pad(log_decay[..., None], (0, products - 1))
    each = (part.flatten(2, 3) for part in (query, key, value, rate, log_decay))
    return delta_rule(*each)[..., products - 1 :: products, :]
