"""Count what training asks of a GPU, without one: launches, waits, bytes and peak memory.

    python tests/fake_cuda.py --task listops --preset paper --mixers tnn,s4

The counting rules are in `fake_cuda_device`. A C++ compiler is needed.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import importlib.metadata
import importlib.util
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(__file__).with_suffix(".cpp")


def find_compiler() -> str | None:
    """Return the path of a C++ compiler, or None if there is none."""
    return shutil.which("g++") or shutil.which("c++")


def build_stub() -> Path:
    """Compile `fake_cuda.cpp` once for each version of torch, and return the library.

    Raises: subprocess.CalledProcessError if it does not compile.
    """
    compiler, spec = find_compiler(), importlib.util.find_spec("torch")
    assert compiler is not None and spec is not None and spec.origin is not None
    package = Path(spec.origin).parent
    key = f"{importlib.metadata.version('torch')} {package}".encode() + SOURCE.read_bytes()
    folder = Path(tempfile.gettempdir()) / "lra-fake-cuda"
    library = folder / f"{hashlib.sha256(key).hexdigest()[:12]}.so"
    if not library.exists():
        folder.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            built = Path(scratch) / library.name
            command = [compiler, "-std=c++20", "-O0", "-shared", "-fPIC", SOURCE, "-o", built]
            command += [f"-I{package / 'include'}", f"-L{package / 'lib'}"]
            command += [f"-Wl,-rpath,{package / 'lib'}", "-lc10", "-ltorch_cpu"]
            subprocess.run(command, check=True, capture_output=True)
            built.replace(library)
    return library


def load_stub() -> None:
    """Load the library, which must happen before torch is imported."""
    assert "torch" not in sys.modules
    ctypes.CDLL(str(build_stub()), mode=ctypes.RTLD_GLOBAL)
    sys.path.insert(0, str(SOURCE.parents[1]))


def main() -> None:
    """Print a table of mixers, or answer each line of standard input, a list of cases as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--task", default="listops")
    parser.add_argument("--preset", default="paper")
    parser.add_argument("--protocol", default="s4")
    parser.add_argument("--mixers", default="", help="names, with commas between; default: all")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides")
    parser.add_argument("--operations", action="store_true", help="list the costliest operations")
    parser.add_argument("--step-only", action="store_true", help="count only the training step")
    parser.add_argument("--json", action="store_true", help="answer lines of cases")
    arguments = parser.parse_args()
    load_stub()
    from fake_cuda_steps import Case, answer_lines, format_table
    from lra.train import step_graph

    step_graph.WARMUP_STEPS = 1  # after one, a second step asks the same of a device without data
    if arguments.json:
        answer_lines(sys.stdin, sys.stdout)
        return
    case = Case(
        task=arguments.task,
        mixer="",
        preset=arguments.preset,
        protocol=arguments.protocol,
        overrides=arguments.overrides,
        is_step_only=arguments.step_only,
    )
    mixers = arguments.mixers.split(",") if arguments.mixers else None
    for line in format_table(case, mixers, arguments.operations):
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
