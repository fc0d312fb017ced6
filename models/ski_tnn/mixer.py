"""SKI-TNN: a gated unit around a sparse plus low-rank matrix, in time linear in the length.

Moreno et al., "SKI to go Faster: Accelerating Toeplitz Neural Networks via Asymmetric
Kernels", 2023 (arXiv:2305.09028), Algorithm 1 and section 3.2.

Symbols of the paper and their names here:
    d: channels
    T_sparse: SparsePlusLowRank.near
    m: num_taps
    A: SparsePlusLowRank.between_points
    W: InducingGrid.matrix; `interpolate` multiplies by it, `spread` by its transpose
    r: num_inducing_points
    p_1, ..., p_r: the inducing points, at multiples of InducingGrid.spacing
    N: InducingGrid.degree
    k, RPE: WarpedPiecewiseLinear
    x(t): the warped lag in WarpedPiecewiseLinear.forward
    lambda: warp
    TNO: SparsePlusLowRank
    GTU: GatedToeplitzUnit
"""

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from lra.models.base import Mixer, MixerContext
from lra.models.layers.basic import Activation
from lra.models.layers.kernel_cache import compute_once
from lra.models.layers.long_convolution import LongConvolution, PositionOperator
from lra.models.layers.toeplitz_unit import ExpandRatio, GatedToeplitzUnit, Norm, inner_channels
from lra.models.ops.reference import fast_form_of
from lra.models.ops.toeplitz import LagKernel, depthwise_convolution
from lra.models.ski_tnn.interpolation import InducingGrid, interpolate, spread

DEGREES = {"linear": 1, "cubic": 3}
Warp = Annotated[float, Field(ge=1e-6, lt=1)]


class WarpedPiecewiseLinear(nn.Module):
    """A kernel over lags t: piecewise linear in sign(t) * warp ** |t|, and zero at t = 0.

    This is the inverse time warp with RPE(0) = 0 (section 3.2.2). It maps every lag into [-1, 1],
    where the knots are evenly spaced. Lags that did not occur in training lie between knots as
    well. Kernels start as a linear function of the warped lag, which is an exponential decay.

    Args:
        num_knots: number of knots on each side of 0.
        warp: lambda, in (0, 1).
        scale: standard deviation, over channels, of the initial kernels next to lag 0.
    """

    def __init__(self, channels: int, *, num_knots: int, warp: float, scale: float) -> None:
        super().__init__()
        self.warp = warp
        ramp = scale * torch.arange(1, num_knots + 1) / num_knots
        self.negative = nn.Parameter(torch.randn(channels) * ramp.flip(0)[:, None])
        self.positive = nn.Parameter(torch.randn(channels) * ramp[:, None])

    def forward(self, lags: Tensor) -> Tensor:
        """Evaluate the kernels at lags, in positions: (num_lags,) -> (channels, num_lags)."""
        num_knots = self.positive.shape[0]
        knots = torch.cat([self.negative, torch.zeros_like(self.positive[:1]), self.positive])
        knot = (1 + torch.sign(lags) * self.warp ** lags.abs()) * num_knots
        left = knot.floor().clamp(max=2 * num_knots - 1)
        weight = (knot - left)[:, None].to(knots.dtype)
        left = left.long()
        return (knots[left] * (1 - weight) + knots[left + 1] * weight).T


class SparsePlusLowRank(PositionOperator):
    """The operator of Algorithm 1, T_sparse + W A W^T, in time and memory linear in the length.

    T_sparse is a short convolution, A is a small Toeplitz matrix between inducing points, and W
    interpolates between these points and all positions. W is never written out.

    Args:
        num_taps: number of taps of the convolution, odd.
        warp: lambda of the inverse time warp, in (0, 1).
    """

    def __init__(self, channels: int, *, num_taps: int, grid: InducingGrid, warp: float) -> None:
        super().__init__()
        self.channels = channels
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

    def between_points(self, num_points: int) -> LagKernel:
        """Generate A, the kernel over lags between the first `num_points` inducing points."""
        return compute_once(self, ("between points", num_points), lambda: self._far(num_points))

    def _far(self, num_points: int) -> LagKernel:
        first = 1 - num_points
        # In double precision, as the spacing is a fraction; it costs next to nothing.
        steps = torch.arange(first, num_points, dtype=torch.float64, device=self.taps.device)
        return LagKernel(self.encoder(steps * self.grid.spacing), first)

    def near(self, length: int) -> LagKernel:
        """Return T_sparse for sequences of a length: the taps at lags that they have."""
        reach = min(length - 1, -self.first_lag)
        kept = self.taps[-self.first_lag - reach : reach - self.first_lag + 1]
        return LagKernel(kept.T, -reach)

    def forward(self, x: Tensor) -> Tensor:
        """Multiply x: (batch, length, channels) -> the same shape."""
        # Sums over many positions: in single precision at least, like the transforms.
        working = x.to(torch.promote_types(torch.float32, x.dtype))
        with torch.autocast(x.device.type, enabled=False):
            at_points = spread(working, self.grid)
            mixed = self.between_points(at_points.shape[1]).multiply(at_points)
            far = interpolate(mixed, self.grid, x.shape[1])
        near = depthwise_convolution(x, self.taps.T, self.first_lag)
        return near + far.to(near.dtype)

    def matrix(self, length: int) -> Tensor:
        """Write T_sparse + W A W^T out by matrix products: (channels, length, length)."""
        num_points = self.grid.points_for(length)
        a = self.between_points(num_points).matrix(num_points)
        w = self.grid.matrix(length).to(a)
        return self.near(length).matrix(length) + w @ a @ w.T


class SparsePlusToeplitz(SparsePlusLowRank, LongConvolution):
    """T_sparse + A as one kernel over lags, if every position is an inducing point.

    W is the identity then, as in the published settings for images.
    """

    def generate(self, length: int) -> LagKernel:
        far, near = self._far(length), self.near(length)
        missing = length - 1 - near.last_lag
        taps = functional.pad(near.coefficients, (missing, missing))
        return LagKernel(far.coefficients + taps, far.first_lag)

    def forward_reference(self, x: Tensor) -> Tensor:
        """Compute `forward` as published: T_sparse and W A W^T one after the other."""
        return super().forward(x)

    @fast_form_of(forward_reference)
    def forward(self, x: Tensor) -> Tensor:
        """Multiply x: (batch, length, channels) -> the same shape."""
        working = x.to(torch.promote_types(torch.float32, x.dtype))
        return LongConvolution.forward(self, working).to(x.dtype)


class SKITNN(Mixer):
    """Gated Toeplitz unit around a sparse plus low-rank matrix, O(length).

    There is no causal form: masking later positions in W A W^T costs as much as the low rank
    saves (appendix B).

    Args:
        expand_ratio: ratio of the channels inside the unit to those outside.
        activation: activation of the gate and the value.
        inner_norm: norm of the gated product, before the output projection.
        num_taps: number of taps of the short convolution, odd.
        num_inducing_points: r, the number of inducing points for the task's longest sequence.
            Longer sequences get more points at the same distance. The kernel has r knots on each
            side of lag 0.
        interpolation: "linear" or "cubic".
        warp: lambda of the inverse time warp sign(t) * lambda ** |t|, in (0, 1).
    Raises: ValueError for a causal context, an even number of taps, more inducing points than
        positions, or too few for the interpolation.
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
            kind = SparsePlusToeplitz if grid.is_every_position else SparsePlusLowRank
            return kind(hidden, num_taps=num_taps, grid=grid, warp=warp)

        self.unit = GatedToeplitzUnit(
            context, operator, hidden=hidden, activation=activation, inner_norm=inner_norm
        )

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.unit(x, mask)
