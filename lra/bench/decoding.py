"""Decoding: the time that a causal mixer needs for one more position."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from common.progress import progress
from lra.bench.operators import default_mixer
from lra.bench.own_process import synchronize
from lra.bench.rounds import quartiles
from lra.config.components import MixerComponent
from lra.config.request import parse_changes
from lra.record.benchmark import BenchRecord
from lra.record.schema import ThreadsRecord
from lra.runtime.console import write_out
from lra.runtime.environment import choose_device, device_name, is_gpu_shared, versions
from lra.runtime.errors import UserError
from lra.runtime.repository import git_state
from lra.runtime.terminal import plain_matrix, terminal_width, wrap_words
from models.base import MixerContext, RecurrentMixer

WINDOW = 16
"""Number of steps before a position that its time per step is averaged over."""

MIXERS = "tnn,fd-tnn,s4,s4d,dss"
LENGTHS = [256, 1024, 4096]


@dataclass
class Decoding:
    """One mixer that is run position by position, with its measurements so far."""

    component: MixerComponent
    mixer: RecurrentMixer
    positions: Sequence[int]
    dim: int
    device: torch.device
    steps: dict[int, list[float]] = field(default_factory=dict)
    """Milliseconds per step, by position."""
    forwards: dict[int, list[float]] = field(default_factory=dict)
    """Milliseconds for mixing all positions up to a given one, by that position."""

    @torch.inference_mode()
    def measure(self) -> None:
        """Decode a sequence to the last position, and mix each prefix as a whole."""
        x = torch.randn(1, max(self.positions), self.dim, device=self.device)
        recurrence = self.mixer.recurrence(max(self.positions))
        state = recurrence.initial_state(1)

        def advance(rows: Tensor) -> None:
            nonlocal state
            for row in rows[:, None].unbind():
                _, state = recurrence.step(row, state)

        done = 0
        for position in self.positions:
            advance(x[0, done : position - WINDOW])
            window = x[0, position - WINDOW : position]
            spent = self._timed(lambda rows=window: advance(rows)) / WINDOW
            self.steps.setdefault(position, []).append(spent)
            done = position
        for position in self.positions:
            spent = self._timed(lambda end=position: self.mixer(x[:, :end]))
            self.forwards.setdefault(position, []).append(spent)

    def forget(self) -> None:
        """Drop the measurements so far."""
        self.steps.clear()
        self.forwards.clear()

    def _timed(self, compute: Callable[[], object]) -> float:
        synchronize(self.device)
        start = time.perf_counter()
        compute()
        synchronize(self.device)
        return 1e3 * (time.perf_counter() - start)

    @property
    def state_size(self) -> int:
        """Real numbers that one sequence carries from step to step."""
        return self.mixer.state_size(max(self.positions))

    def rows(self) -> list[dict[str, str]]:
        """Write the measurements as rows of a table."""
        first = statistics.median(self.steps[self.positions[0]])
        return [
            {
                "mixer": self.component.name,
                "position": f"{position:,}",
                "step, ms": spread(self.steps[position]),
                "ratio": f"{statistics.median(self.steps[position]) / first:.2f}",
                "full pass, ms": spread(self.forwards[position]),
            }
            for position in self.positions
        ]

    def records(self, mixers: tuple[str, ...], changes: Mapping[str, Any]) -> list[BenchRecord]:
        """Make the records of the measurements.

        Args:
            mixers: names of the mixers measured in the same rounds.
            changes: values of the changed options, by full name.
        """
        made = []
        for part, times in (("recurrence", self.steps), ("prefix", self.forwards)):
            for position, milliseconds in times.items():
                low, middle, high = quartiles([1e3 / spent for spent in milliseconds])
                made.append(
                    BenchRecord(
                        mode="decode",
                        part=part,
                        mixer=self.component.name,
                        mixer_code=self.component.code,
                        changes=dict(changes),
                        length=position,
                        batch_size=1,
                        channels=self.dim,
                        device=device_name(self.device),
                        threads=ThreadsRecord.now(torch.get_num_threads(), self.device.type),
                        gpu_shared=is_gpu_shared(self.device),
                        precision="fp32",
                        repeats=len(milliseconds),
                        steps_per_second=middle,
                        low_quartile=low,
                        high_quartile=high,
                        peak_memory_mib=None,
                        params=sum(p.numel() for p in self.mixer.parameters()),
                        flops_per_step=None,
                        measured_with=mixers,
                        versions=versions(),
                        git=git_state(),
                    )
                )
        return made


def spread(values: list[float]) -> str:
    """Write a median with its quartiles."""
    if len(values) == 1:
        return f"{values[0]:.3f}"
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return f"{middle:.3f} ({low:.3f} to {high:.3f})"


def _decoding(
    name: str, positions: Sequence[int], options: argparse.Namespace, device: torch.device
) -> Decoding:
    """Build a causal mixer.

    Raises: UserError for a mixer that cannot be causal or has no recurrence.
    """
    context = MixerContext(
        dim=options.dim, max_length=max(positions), layer=0, depth=1, causal=True
    )
    component, mixer = default_mixer(name, context, parse_changes(options.overrides))
    if not isinstance(mixer, RecurrentMixer):
        raise UserError(f"{component.origin}: it has no recurrence, which decoding needs")
    return Decoding(component, mixer.to(device).eval(), positions, options.dim, device)


def decode(
    options: argparse.Namespace, names: Sequence[str], positions: Sequence[int]
) -> list[BenchRecord]:
    """Measure recurrences, print a table of them and return their records."""
    if any(b - a < WINDOW for a, b in zip([0, *positions[:-1]], positions, strict=True)):
        raise UserError(
            f"--lengths {','.join(map(str, positions))}: expected lengths that are at least "
            f"{WINDOW} apart, as each time is the mean over {WINDOW} positions"
        )
    device = choose_device(options.device)
    decodings = [_decoding(name, positions, options, device) for name in names]
    with progress("decoding", total=(options.repeats + 1) * len(decodings), unit="rounds") as bar:
        for number in range(options.repeats + 1):
            for decoding in decodings:
                decoding.measure()
                bar.update()
            if number == 0:  # the first round warms up
                for decoding in decodings:
                    decoding.forget()
    width = terminal_width()
    title = f"Decoding step, {options.dim} channels, one sequence, {device_name(device)}:"
    rows = [row for decoding in decodings for row in decoding.rows()]
    note = (
        f"Medians (quartiles) of {options.repeats} rounds of {WINDOW} steps each. Step: one more "
        f"position by the recurrence. Full pass: all positions so far, which a step without a "
        f"recurrence costs. Ratio: the step's time relative to that at the first position."
    )
    sizes = [f"{one.component.name} {one.state_size:,}" for one in decodings]
    state = f"Real numbers in the state of one sequence: {', '.join(sizes)}."
    lines = [*wrap_words(title, width), "", *plain_matrix(rows, width), ""]
    lines += [*wrap_words(state, width), *wrap_words(note, width, indent="")]
    write_out("\n".join([*lines, "", ""]))
    mixers = tuple(decoding.component.name for decoding in decodings)
    changes = {one.name: one.value for one in parse_changes(options.overrides)}
    return [record for decoding in decodings for record in decoding.records(mixers, changes)]
