"""What a mixer of one's own is tried for."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn

from lra.check.trials import Attempt, NotTried
from lra.classifier.plugin_check import Trial
from lra.config.mixers import MixerSource
from lra.config.registry import Section
from lra.runtime.errors import UserError
from models.base import MixerContext, begin_step

LENGTH = 96
"""Positions of the longest sequence that a mixer is built for."""
TOLERANCE = (1e-3, 1e-4)
"""Relative and absolute difference of results that are taken to be equal."""


@dataclass(frozen=True)
class MixerTrials:
    """The trials of a mixer with some options."""

    source: MixerSource
    options: Section
    dim: int

    def attempts(self) -> Iterator[tuple[str, Attempt]]:
        """List all trials."""
        context = MixerContext(dim=self.dim, max_length=LENGTH, layer=0, depth=2)
        yield "it can be constructed", lambda: self._construct(context)
        mixer = self.source.build(context, self.options)
        trial = Trial(self.source, mixer)
        yield from trial.attempts(self.dim, LENGTH, causal=False, grid=None)
        for length in (1, LENGTH):
            yield f"it takes {length} positions", partial(self._take, trial, length)
        mixer.eval()
        yield "evaluated twice, it gives the same", partial(self._twice, trial)
        yield "sequences of a batch do not touch each other", partial(self._rows, trial)
        yield "saved weights give the same again", partial(self._reload, trial, context)
        yield "gradients reach every parameter", partial(self._gradients, trial)
        yield "it computes under bf16", partial(self._bf16, trial)
        causal = replace(context, causal=True)
        yield (
            "where model.causal is true, it is causal or says that it cannot be",
            partial(self._causal, causal),
        )

    def _construct(self, context: MixerContext) -> str:
        mixer = self.source.build(context, self.options)
        count = sum(p.numel() for p in mixer.parameters())
        return f"{count:,} parameters at {self.dim} channels"

    def _take(self, trial: Trial, length: int) -> None:
        trial.apply(torch.randn(2, length, self.dim), None)

    @torch.no_grad()
    def _twice(self, trial: Trial) -> None:
        x = torch.randn(2, 31, self.dim)
        self._compare(
            trial, trial.apply(x, None), trial.apply(x, None), "the second result differs"
        )

    @torch.no_grad()
    def _rows(self, trial: Trial) -> None:
        x = torch.randn(3, 31, self.dim)
        alone = torch.cat([trial.apply(row[None], None) for row in x])
        self._compare(trial, trial.apply(x, None), alone, "a sequence gives other numbers alone")

    @torch.no_grad()
    def _reload(self, trial: Trial, context: MixerContext) -> None:
        x = torch.randn(2, 31, self.dim)
        other = self.source.build(context, self.options).eval()
        other.load_state_dict(copy.deepcopy(trial.mixer.state_dict()))
        again = Trial(self.source, other).apply(x, None)
        self._compare(
            trial, trial.apply(x, None), again, "a second one with the same weights differs"
        )

    def _gradients(self, trial: Trial) -> str | None:
        mixer = copy.deepcopy(trial.mixer).train()
        trained = {name: p for name, p in mixer.named_parameters() if p.requires_grad}
        if not trained:
            return "it has no parameters that are trained"
        begin_step(mixer)
        y = Trial(self.source, mixer).apply(torch.randn(4, 31, self.dim), None)
        if y.requires_grad:
            y.square().sum().backward()
        without = [name for name, p in trained.items() if p.grad is None]
        if without:
            raise trial.fault(f"none reaches {', '.join(without)}; use them, or remove them")
        return None

    @torch.no_grad()
    def _bf16(self, trial: Trial) -> None:
        with torch.autocast("cpu", torch.bfloat16):
            y = trial.call(torch.randn(2, 31, self.dim), None)
        if not isinstance(y, Tensor) or not y.isfinite().all():
            raise trial.fault("its result holds numbers that are not finite")

    def _causal(self, context: MixerContext) -> str | None:
        try:
            mixer: nn.Module = self.source.build(context, self.options)
        except UserError as error:
            raise NotTried(f"it says that it cannot be ({error})") from None
        for _, attempt in Trial(self.source, mixer).attempts(
            self.dim, LENGTH, causal=True, grid=None
        ):
            attempt()
        return None

    def _compare(self, trial: Trial, first: Tensor, second: Tensor, what: str) -> None:
        if not torch.allclose(first, second, *TOLERANCE):
            difference = (first - second).abs().max().item()
            raise trial.fault(f"{what} (by up to {difference:.2g})")
