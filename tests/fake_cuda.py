"""What training costs a GPU, counted without one: `python tests/fake_cuda.py --task listops --preset paper`.

The counting rules are in `fake_cuda_device`.
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


def compiler() -> str | None:
    """Return the C++ compiler, or None if there is none."""
    return shutil.which("g++") or shutil.which("c++")


def build_stub(folder: Path | None = None) -> Path:
    """Build the library that lets a CPU build of torch differentiate fake CUDA tensors, once for each version.

    Raises: subprocess.CalledProcessError if it does not compile.
    """
    found, spec = compiler(), importlib.util.find_spec("torch")
    assert found is not None and spec is not None and spec.origin is not None
    folder = folder or Path(tempfile.gettempdir()) / "fake-cuda"
    package = Path(spec.origin).parent
    version = importlib.metadata.version("torch")
    library = folder / f"{hashlib.sha256(f'{version}{package}'.encode() + SOURCE.read_bytes()).hexdigest()[:12]}.so"
    if not library.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            built = Path(scratch) / library.name
            command = [found, "-std=c++20", "-O0", "-shared", "-fPIC", str(SOURCE), "-o", str(built)]
            command += [f"-I{package / 'include'}", f"-L{package / 'lib'}", f"-Wl,-rpath,{package / 'lib'}"]
            subprocess.run([*command, "-lc10", "-ltorch_cpu"], check=True, capture_output=True)
            built.replace(library)
    return library


def load_stub() -> None:
    """Load the library, which torch looks for as soon as it is imported."""
    assert "torch" not in sys.modules
    ctypes.CDLL(str(build_stub()), mode=ctypes.RTLD_GLOBAL)


def main() -> None:
    """Print the table of one preset of a task."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", default="listops")
    parser.add_argument("--preset", default="paper")
    parser.add_argument("--mixers", help="names, separated by commas; default: all")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE", dest="overrides")
    parser.add_argument("--operations", action="store_true", help="list what launches and waits most, too")
    arguments = parser.parse_args()
    load_stub()
    sys.path.insert(0, str(SOURCE.parents[1]))
    from fake_cuda_steps import print_table

    print_table(arguments.task, arguments.preset, arguments.mixers, arguments.overrides, arguments.operations)


if __name__ == "__main__":
    main()
