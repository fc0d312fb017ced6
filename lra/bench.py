"""Measure mixers: `python -m lra.bench --help`.

Absolute times on a shared machine are noise: what is compared is measured in turns in one
process, and shown as medians with quartiles.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from pydantic import ValidationError
from torch import Tensor

from lra.cli import Parser, carry_out, positive_int, write_out
from lra.environment import choose_device, device_name
from lra.errors import UserError
from lra.plugin import find_mixer
from lra.plugin_check import check_plug_in
from lra.tables import markdown
from models.base import MixerContext, RecurrentMixer
from tasks.progress import progress, say

WINDOW = 16
"""Steps, up to a position, that its time is measured over."""


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = Parser(
        prog="python -m lra.bench",
        description="Measure mixers in turns. decode: what one more position costs a causal "
        "mixer, by its recurrence and by mixing all positions so far again. step: whole training "
        "steps of a task's classifier, with records that report.py tabulates.",
    )
    parser.add_argument("--mode", choices=MODES, default="decode", help="decode (default)")
    parser.add_argument(
        "--mixers", default="tnn,fd-tnn,s4,s4d,dss", help="names, comma-separated (%(default)s)"
    )
    parser.add_argument(
        "--lengths", default="256,1024,4096", help="positions to measure at (%(default)s)"
    )
    parser.add_argument(
        "--dim", type=positive_int, default=64, help="channels, decode (%(default)s)"
    )
    parser.add_argument("--task", default="listops", help="step: its classifier (%(default)s)")
    parser.add_argument("--preset", default="paper", help="step: paper (default) or quick")
    parser.add_argument("--protocol", default="s4", help="step: s4 (default) or lra")
    parser.add_argument(
        "--results-dir", type=Path, default=Path("results"), help="step: where bench/ is (results)"
    )
    parser.add_argument("--repeats", type=positive_int, default=5, help="turns (%(default)s)")
    parser.add_argument("--device", default="cpu", help="cpu (default), cuda or cuda:N")
    return parser.parse_args(arguments)


@dataclass
class Decoding:
    """One mixer, run position by position."""

    name: str
    mixer: RecurrentMixer
    positions: list[int]
    dim: int
    device: torch.device
    steps: dict[int, list[float]] = field(default_factory=dict)
    """Milliseconds a step, by position."""
    forwards: dict[int, list[float]] = field(default_factory=dict)
    """Milliseconds for mixing all positions up to one, by position."""

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
        """Drop what was measured so far."""
        self.steps.clear()
        self.forwards.clear()

    def _timed(self, compute: Callable[[], object]) -> float:
        self._synchronize()
        start = time.perf_counter()
        compute()
        self._synchronize()
        return 1e3 * (time.perf_counter() - start)

    def _synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def rows(self) -> list[dict[str, str]]:
        """Tabulate what was measured."""
        first = statistics.median(self.steps[self.positions[0]])
        return [
            {
                "mixer": self.name,
                "position": f"{position:,}",
                "step, ms": spread(self.steps[position]),
                "of the first row's": f"{statistics.median(self.steps[position]) / first:.2f}",
                "all so far, ms": spread(self.forwards[position]),
            }
            for position in self.positions
        ]


def spread(values: list[float]) -> str:
    """Write a median with its quartiles."""
    if len(values) == 1:
        return f"{values[0]:.3f}"
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return f"{middle:.3f} ({low:.3f} to {high:.3f})"


def _positions(text: str) -> list[int]:
    try:
        positions = sorted({int(part) for part in text.split(",")})
    except ValueError:
        raise UserError(f"--lengths {text}: expected whole numbers, 256,1024 say") from None
    if any(b - a < WINDOW for a, b in itertools.pairwise([0, *positions])):
        raise UserError(f"--lengths {text}: expected steps of at least {WINDOW}, a time is so many")
    return positions


def _decoding(name: str, positions: list[int], dim: int, device: torch.device) -> Decoding:
    """Build a causal mixer of default options.

    Raises: UserError for one that cannot be causal or has no recurrence.
    """
    context = MixerContext(dim=dim, max_length=max(positions), layer=0, depth=1, causal=True)
    source = find_mixer(name, "--mixers")
    try:
        options = source.options()
    except ValidationError:
        raise UserError(
            f"{source.origin}: an option has no default, and the benchmark takes defaults alone"
        ) from None
    mixer = source.build(context, options)
    check_plug_in(source, mixer, dim, causal=True, grid=None)
    if not isinstance(mixer, RecurrentMixer):
        raise UserError(f"{source.origin}: it has no recurrence to decode by")
    return Decoding(source.name, mixer.to(device).eval(), positions, dim, device)


def decode(options: argparse.Namespace) -> int:
    """Measure recurrences and tabulate them; return the exit code."""
    device = choose_device(options.device)
    positions = _positions(options.lengths)
    names = _names(options.mixers)
    decodings = [_decoding(name, positions, options.dim, device) for name in names]
    with progress("decoding", total=(options.repeats + 1) * len(decodings), unit="turn") as bar:
        for turn in range(options.repeats + 1):
            for decoding in decodings:
                decoding.measure()
                bar.update()
            if turn == 0:  # the first turn warms up
                for decoding in decodings:
                    decoding.forget()
    say(f"{options.dim} channels, one sequence, {device_name(device)}")
    say(f"medians and quartiles of {options.repeats} turns, {WINDOW} steps each")
    write_out(markdown([row for decoding in decodings for row in decoding.rows()]) + "\n")
    return 0


def step(options: argparse.Namespace) -> int:
    """Measure training steps; return the exit code."""
    from lra import bench_step

    return bench_step.step(options, _names(options.mixers), _positions(options.lengths))


def _names(text: str) -> list[str]:
    return list(dict.fromkeys(name.strip() for name in text.split(",")))


MODES = {"decode": decode, "step": step}


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    options = parse_arguments(arguments)
    return carry_out("lra.bench", lambda: MODES[options.mode](options))


if __name__ == "__main__":
    sys.exit(main())
