"""What the platters of toroidal attention tell each other after attention."""

from typing import Literal

import torch
from torch import Tensor, nn

Fusion = Literal["low_rank", "attention", "mean", "none"]


class LowRankFusion(nn.Module):
    """Multiply the platters, (..., platters, channels), by I + U V^T.

    The description has U V^T without I. With rank 1 this would leave a single vector, multiplied by
    one number per platter.
    """

    def __init__(self, num_platters: int, rank: int) -> None:
        super().__init__()
        self.left = nn.Parameter(torch.randn(num_platters, rank) * 0.1)
        self.right = nn.Parameter(torch.randn(num_platters, rank) * 0.1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.left @ (self.right.T @ x)


class AttentionFusion(nn.Module):
    """Attention between platters, softmax(Q K^T / sqrt(channels)) V.

    Q, K and V are linear maps from platters to platters that all channels share.
    """

    def __init__(self, num_platters: int) -> None:
        super().__init__()
        self.query_key_value = nn.Parameter(
            torch.randn(3, num_platters, num_platters) * num_platters**-0.5
        )

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (weight @ x for weight in self.query_key_value)
        scores = query @ key.transpose(-1, -2) * x.shape[-1] ** -0.5
        return scores.softmax(dim=-1) @ value


class MeanFusion(nn.Module):
    """Replace each platter by the mean of all platters."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(dim=-2, keepdim=True).expand_as(x)


def build_fusion(fusion: Fusion, num_platters: int, rank: int | None) -> nn.Module:
    """Build a fusion of platters, (..., platters, channels) -> the same shape.

    Args:
        rank: of "low_rank". None: a quarter of the platters, at least 1.
    Raises: ValueError for a rank that the fusion cannot have, and for a fusion by mean or attention
        of one platter.
    """
    if rank is not None and (fusion != "low_rank" or rank > num_platters):
        raise ValueError(f"fusion_rank {rank} concerns low_rank of {num_platters} platters at most")
    if num_platters == 1 and fusion in ("attention", "mean"):
        raise ValueError(f"fusion {fusion} has no effect: num_platters is 1; use fusion none")
    return {
        "low_rank": lambda: LowRankFusion(num_platters, rank or max(1, num_platters // 4)),
        "attention": lambda: AttentionFusion(num_platters),
        "mean": MeanFusion,
        "none": nn.Identity,
    }[fusion]()
