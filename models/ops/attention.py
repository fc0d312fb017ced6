"""Softmax attention whose weights may be dropped."""

from torch import Tensor
from torch.nn import functional

from lra.models.ops.reference import has_fast_form


@has_fast_form("attention")
def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    allowed: Tensor | None = None,
    *,
    dropout: float,
    causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """Return the mean of values by the softmax of query-key products.

    Args:
        query: (batch, heads, queries, channels).
        key: (batch, heads, keys, channels).
        value: (batch, heads, keys, any number of channels).
        allowed: broadcasts to (batch, heads, queries, keys); bool, True where a query may attend
            to a key, or numbers that are added to the products.
        dropout: fraction of weights dropped.
        causal: whether query i attends to key j <= i only; allowed is None then.
        scale: that of the products; None: 1 / sqrt(channels).
    Returns: (batch, heads, queries, channels of the values).
    """
    return functional.scaled_dot_product_attention(
        query, key, value, allowed, dropout, is_causal=causal, scale=scale
    )
