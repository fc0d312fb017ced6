"""SKI-TNN: a sparse plus a low-rank Toeplitz operator, linear in length.

Moreno et al., "SKI to go Faster: Accelerating Toeplitz Neural Networks via Asymmetric
Kernels", 2023 (arXiv:2305.09028), Algorithm 1 and section 3.2.
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from models.base import LagOperator, Mixer, MixerContext, Part
from models.layers.gated_unit import ExpandRatio, GatedToeplitzUnit, inner_channels
from models.layers.kernel_cache import kernel_for, made_once, multiply_shared
from models.layers.relative_position_encoder import Norm
from models.ops.activations import Activation
from models.ops.depthwise import depthwise_convolution
from models.ops.interpolation import InducingGrid, interpolate, spread
from models.ops.reference import plain_forms_are_used
from models.ops.toeplitz import toeplitz_matrix, toeplitz_multiply

DEGREES = {"linear": 1, "cubic": 3}
Warp = Annotated[float, Field(gt=0, lt=1)]


class WarpedPiecewiseLinear(nn.Module):
    """A kernel over lags: piecewise linear in sign(t) * warp ** |t|, and zero at t = 0.

    The warp maps every lag into [-1, 1], where knots lie evenly, so that lags beyond those of
    training lie between knots too (SKI-TNN, section 3.2.2, the inverse time warp; RPE(0) = 0).
    Kernels start as a ramp over the warped lag, that is, as an exponential decay.

    Args:
        num_knots: on either side of 0.
        scale: standard deviation, over channels, of what the decay starts from, next to lag 0.
    """

    def __init__(self, channels: int, *, num_knots: int, warp: float, scale: float) -> None:
        super().__init__()
        self.warp = warp
        ramp = scale * torch.arange(1, num_knots + 1) / num_knots
        self.negative = nn.Parameter(torch.randn(channels) * ramp.flip(0)[:, None])
        self.positive = nn.Parameter(torch.randn(channels) * ramp[:, None])

    def forward(self, lags: Tensor) -> Tensor:
        """Evaluate at lags, in positions: (num_lags,) -> (num_lags, channels)."""
        num_knots = self.positive.shape[0]
        knots = torch.cat([self.negative, torch.zeros_like(self.positive[:1]), self.positive])
        place = (1 + torch.sign(lags) * self.warp ** lags.abs()) * num_knots
        left = place.floor().clamp(max=2 * num_knots - 1)
        share = (place - left)[:, None].to(knots.dtype)
        left = left.long()
        return knots[left] * (1 - share) + knots[left + 1] * share


class SparsePlusLowRank(LagOperator):
    """T_sparse + W A W^T: a short convolution, and interpolation around a small Toeplitz matrix.

    Time and memory are linear in the length; nothing of size length x points is made.

    Args:
        num_taps: of the convolution, odd.
        grid: the inducing points.
    """

    def __init__(self, channels: int, *, num_taps: int, grid: InducingGrid, warp: float) -> None:
        super().__init__()
        self.grid = grid
        self.first_lag = -(num_taps // 2)
        bound = num_taps**-0.5
        self.taps = nn.Parameter(torch.empty(num_taps, channels).uniform_(-bound, bound))
        # Both parts start with as much energy, 1/3, at every length and warp: a low-rank part with
        # coefficients about 1 sums over so many positions that the taps do not learn.
        lags = torch.arange(1, max(2, grid.max_length), dtype=torch.float64)
        scale = float(6 * (warp ** (2 * lags)).sum()) ** -0.5
        self.encoder = WarpedPiecewiseLinear(
            channels, num_knots=grid.num_points, warp=warp, scale=scale
        )

    def coefficients(self, num_points: int) -> tuple[Tensor, int]:
        """Generate A between `num_points` inducing points.

        Returns: (2 num_points - 1, channels) for increasing lags between points, and the first.
        """
        return made_once((self, num_points), lambda: self._coefficients(num_points))

    def _coefficients(self, num_points: int) -> tuple[Tensor, int]:
        first = 1 - num_points
        # In double precision, as the spacing is a fraction; it costs next to nothing.
        steps = torch.arange(first, num_points, dtype=torch.float64, device=self.taps.device)
        return self.encoder(steps * self.grid.spacing), first

    def forward(self, x: Tensor) -> Tensor:
        """Multiply x: (batch, length, channels) -> the same shape."""
        # Sums over many positions: in single precision at least, like the transforms.
        working = x.to(torch.promote_types(torch.float32, x.dtype))
        with torch.autocast(x.device.type, enabled=False):
            if self.grid.is_every_position and not plain_forms_are_used():
                return self._as_one_kernel(working).to(x.dtype)
            far = self._low_rank(working)
        near = depthwise_convolution(x, self.taps, self.first_lag)
        return near + far.to(near.dtype)

    def _as_one_kernel(self, x: Tensor) -> Tensor:
        """Multiply by T_sparse + A at once, where W is the identity (as published on grids)."""
        key = (self, "one kernel")
        return multiply_shared(key, lambda n: kernel_for(key, n, self._one_kernel), x)

    def _one_kernel(self, length: int) -> tuple[Tensor, int]:
        far, first = self._coefficients(length)
        near, reach = self._near(length)
        return far + functional.pad(near, (0, 0, length - 1 - reach, length - 1 - reach)), first

    def _near(self, length: int) -> tuple[Tensor, int]:
        """Return the taps that sequences of a length have a use for, and the longest lag."""
        reach = min(length - 1, -self.first_lag)
        return self.taps[-self.first_lag - reach : reach - self.first_lag + 1], reach

    def _low_rank(self, x: Tensor) -> Tensor:
        at_points = spread(x, self.grid)
        coefficients, first = self.coefficients(at_points.shape[1])
        mixed = toeplitz_multiply(coefficients, first, at_points)
        return interpolate(mixed, self.grid, x.shape[1])

    def matrix(self, length: int) -> Tensor:
        """Write T_sparse + W A W^T out, (channels, length, length): the reference."""
        num_points = self.grid.points_for(length)
        coefficients, first = self.coefficients(num_points)
        a = toeplitz_matrix(coefficients, first, num_points)
        w = self.grid.matrix(length).to(a)
        near, reach = self._near(length)
        return toeplitz_matrix(near, -reach, length) + w @ a @ w.T


class SKITNN(Mixer):
    """Gated Toeplitz unit around a sparse plus low-rank operator, O(length).

    Bidirectional only: masking the future of W A W^T costs what the low rank saves (the
    paper's appendix B).

    Args:
        expand_ratio: channels inside the unit over channels outside.
        activation: of the gate and the value.
        inner_norm: norm of the gated product, before the output projection.
        num_taps: taps of the convolution, odd.
        num_inducing_points: inducing points on the task's longest sequence; beyond it, more
            follow at the same distance. The kernel has as many knots on either side of 0.
        interpolation: linear or cubic.
        warp: lambda in (0, 1) of the inverse time warp sign(t) * lambda ** |t|.
    Raises: ValueError for a causal context, an even number of taps, or more inducing points
        than positions.
    """

    name = "ski-tnn"
    has_native_grid = True

    def __init__(
        self,
        context: MixerContext,
        *,
        expand_ratio: ExpandRatio = 3.0,
        activation: Activation = "silu",
        inner_norm: Norm = "none",
        num_taps: Annotated[int, Field(ge=1, le=2**16)] = 33,
        num_inducing_points: Annotated[int, Field(ge=2, le=2**16)] = 64,
        interpolation: Literal["linear", "cubic"] = "linear",
        warp: Warp = 0.99,
    ) -> None:
        super().__init__()
        if context.causal:
            raise ValueError(
                "ski-tnn cannot be causal (model.causal): masking W A W^T costs more than the "
                "low rank saves; fd-tnn and tnn can"
            )
        if num_taps % 2 == 0:
            raise ValueError(f"num_taps {num_taps} is even, expected as many taps on either side")
        hidden = inner_channels(expand_ratio, context.dim)

        def operator(max_length: int) -> SparsePlusLowRank:
            grid = InducingGrid(num_inducing_points, max_length, DEGREES[interpolation])
            return SparsePlusLowRank(hidden, num_taps=num_taps, grid=grid, warp=warp)

        self.unit = GatedToeplitzUnit(
            context, operator, hidden=hidden, activation=activation, inner_norm=inner_norm
        )

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """See `Mixer.forward`."""
        return self.unit(x, mask)

    def parts(self) -> dict[str, Part]:
        """See `Mixer.parts`."""
        return {**super().parts(), **self.unit.parts()}
