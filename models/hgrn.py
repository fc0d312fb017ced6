"""HGRN: a gated linear recurrence whose forget gates have lower bounds that grow with depth.

Qin et al., "Hierarchically Gated Recurrent Neural Network for Sequence Modeling", NeurIPS 2023
(arXiv:2311.04823), section 3. What the paper leaves open follows Doraemonzzz/hgru-pytorch.

Symbols of the paper and their names here:
    d: context.dim
    c_t: candidate
    mu_t: the sigmoid of forget
    lambda_t: kept
    theta: phase
    gamma^k: the lower bound of `LowerBounds`
    g_t: the activated gate
    h_t: states
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from lra.models.base import MixerContext
from lra.models.layers.basic import LinearMap
from lra.models.layers.lower_bounds import LowerBoundedMixer
from lra.models.ops.recurrences import scan, scan_both_ways


class HGRN(LowerBoundedMixer):
    """Complex gated linear recurrence, O(length dim); O(dim) a step.

    If the context is not causal, it runs in both directions. Each has its own phases, and all
    other parameters are shared. On a grid it runs along rows and along columns. All results are
    added.
    """

    name = "hgrn"

    def __init__(self, context: MixerContext) -> None:
        super().__init__(context)
        dim = context.dim
        self.candidate = LinearMap(dim, 2 * dim)
        self.forget = LinearMap(dim, dim)
        self.gate = LinearMap(dim, 2 * dim)
        self.output = LinearMap(2 * dim, dim)
        self.norm = nn.LayerNorm(2 * dim)
        rates = 10000.0 ** (-2 / dim * torch.arange(dim))
        self.phase = nn.Parameter(rates.repeat(1 if context.causal else 2, 1))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        x = self.without_padding(x, mask)
        candidate, kept = self.candidates(x)
        if mask is not None:
            candidate = candidate * mask[..., None]
        if self.grid is None:
            states = self._both_ways(candidate, kept)
        else:
            states = self.grid.along_rows(self._both_ways, candidate, kept)
            states = states + self.grid.along_columns(self._both_ways, candidate, kept)
        return self.project(x, states)

    def candidates(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the candidates c, complex, and the forget gates lambda, in [lower bound, 1]."""
        kept, entering = self.lower_bounds.gates(self.context.layer, self.forget(x))
        pairs = functional.silu(self.candidate(x)).unflatten(-1, (-1, 2))
        pairs = pairs.to(torch.promote_types(pairs.dtype, torch.float32))
        return entering * torch.view_as_complex(pairs), kept

    def turned(self, kept: Tensor) -> Tensor:
        """Rotate forget gates by the phases: (..., dim) -> (directions, ..., dim) complex."""
        phase = self.phase.view(len(self.phase), *[1] * (kept.dim() - 1), -1)
        return torch.polar(kept.expand(len(phase), *kept.shape), phase.expand(-1, *kept.shape))

    def _both_ways(self, candidate: Tensor, kept: Tensor) -> Tensor:
        decays = self.turned(kept.to(candidate.real.dtype))
        if len(decays) == 1:
            return scan(decays[0], candidate)
        ahead, back = scan_both_ways(decays, candidate)
        return ahead + back

    def project(self, x: Tensor, states: Tensor) -> Tensor:
        """Normalise, gate and project: x (..., dim), states (..., dim) complex -> (..., dim)."""
        feature = torch.cat([states.real, states.imag], dim=-1).to(x.dtype)
        return self.output(self.norm(feature) * functional.silu(self.gate(x)))

    def initial_state(self, batch: int) -> Tensor:
        """Return zeros: (batch, dim) complex."""
        return self.phase.new_zeros(batch, self.context.dim, dtype=self.phase.dtype.to_complex())

    @torch.no_grad()
    def step(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        candidate, kept = self.candidates(x)
        state = self.turned(kept)[0] * state + candidate
        return self.project(x, state), state

    @torch.no_grad()
    def prefill(self, x: Tensor) -> tuple[Tensor, Tensor]:
        candidate, kept = self.candidates(x)
        states = scan(self.turned(kept)[0], candidate)
        return self.project(x, states), states[:, -1].clone()
