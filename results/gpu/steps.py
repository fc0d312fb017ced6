"""The speed and the memory of one mixer's training steps on a GPU that nothing else uses:

    python -m results.gpu.steps tnn

`lra.bench` sets up each case in a process of its own, which takes longer than to measure it. Here
all cases of a mixer are measured in one process, one after the other, at the longest sequences of
ListOps. The reference is measured first, so a ratio does not compare times of the same round.
"""

from __future__ import annotations

import dataclasses
import gc
import importlib.util
import logging
import sys
from collections.abc import Iterator
from pathlib import Path

from common.errors import describe
from lra.bench.case import WARMUP_ROUNDS
from lra.bench.rounds import TimedCase, make_record
from lra.bench.steps import StepCase
from lra.config.request import RunRequest, parse_alternatives, parse_changes
from lra.runtime.cli import INCOMPLETE, Parser, absolute_path, add_flags, name_list, run_command
from lra.runtime.environment import choose_device

logger = logging.getLogger("lra.bench")

REPEATS = 5
"""Measured rounds of each case."""
GRAPHS = parse_alternatives("train.cuda_graphs=false,true", "--vary")
KERNELS = {"delta": "fla", "linear": "fla", "mamba2": "fla"}
"""The package of the public kernels of a mixer."""


class CaseInThisProcess(StepCase):
    """Training steps that are measured in this process."""

    has_own_process = False


def list_cases(mixer: str, presets: list[str], device: str, texts: list[str]) -> Iterator[StepCase]:
    """List what is measured of a mixer; its reference comes before its other cases at a preset."""
    common = parse_changes(texts)
    settings = [[f"train.precision={precision}"] for precision in ("fp32", "bf16")]
    if importlib.util.find_spec(KERNELS.get(mixer, "-")):
        settings.append(["train.kernels=auto", "train.tf32=true"])
    for preset in presets:
        request = RunRequest(task="listops", mixer=mixer, preset=preset, changes=common)
        case = CaseInThisProcess(
            mode="step", mixer=mixer, device=device, request=request, length=0, data_dir=Path()
        )
        yield dataclasses.replace(case, is_reference=True)
        for changes in map(parse_changes, settings):
            for graphs in GRAPHS:
                changed = dataclasses.replace(request, changes=(*common, *changes, graphs))
                yield dataclasses.replace(case, request=changed, varied=(GRAPHS,))


def measure(case: StepCase, reference: TimedCase | None, out: Path) -> TimedCase:
    """Time a case, and save its record unless it is a reference."""
    timed = TimedCase(case)
    try:
        for _ in range(WARMUP_ROUNDS + REPEATS):
            timed.time()
        timed.finish()
        if timed.place is not None:
            timed.facts |= timed.place.memory()
        if not case.is_reference:
            record = make_record((case.mixer,), timed, reference)
            path = record.save(out)
            logger.info(f"{path.name}: {record.steps_per_second or 0:.2f} steps/s")
        return timed
    finally:
        timed.close()
        gc.collect()  # a graph and its memory are part of a cycle


def run(arguments: list[str] | None) -> int:
    """Carry out a command line; return the exit code."""
    parser = Parser(prog="python -m results.gpu.steps", description="Measure a mixer's steps.")
    parser.add_argument("mixer", help="name of the mixer")
    parser.add_argument("--presets", type=name_list, default="budget,paper",
        help="comma-separated presets (default: %(default)s)")  # fmt: skip
    parser.add_argument("--out", type=absolute_path, default="results/bench",
        help="folder for the records (default: %(default)s)")  # fmt: skip
    add_flags(parser, "--set", "--device")
    options = parser.parse_args(arguments)
    choose_device(options.device)
    cases = [*list_cases(options.mixer, options.presets, options.device, options.overrides)]
    for case in cases:
        case.settings()  # raises mistakes before anything is measured
    reference, failed = None, 0
    for case in cases:
        reference = None if case.is_reference else reference
        try:
            timed = measure(case, reference, options.out)
            reference = timed if case.is_reference else reference
        except Exception as error:  # the other cases can be measured all the same
            failed += 1
            kind = "reference" if case.is_reference else case.settings()["changes"]
            preset = case.request.preset
            logger.warning(f"{case.mixer}, {preset}, {kind}: {describe(error)}")
    return INCOMPLETE if failed else 0


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return run_command("results.gpu.steps", lambda: run(arguments))


if __name__ == "__main__":
    sys.exit(main())
