"""Commands in forked children of one process that has imported torch already.

`Forked` starts that process and sends it a command line at a time. A child has its own session,
limits of memory and time, and files for what it prints. Forks of pytest itself would inherit
threads that are not there, and hang.
"""

import contextlib
import gc
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parent
IMPORTED = """
    lra.run_task lra.report.__main__ lra.prepare lra.record.__main__ lra.sweep.__main__ lra.evaluate
    lra.generate lra.submit lra.bench.__main__ lra.check.__main__ lra.train.run
    lra.resolve lra.report.page.page lra.report.paper
    lra.report.compare lra.report.screen pandas PIL.Image PIL.PngImagePlugin
    lra.tasks.listops.files
    lra.tasks.pathfinder.draw lra.tasks.pathfinder.markers
    lra.tasks.pathfinder.files torch.utils.checkpoint
"""
"""What commands import late, too."""


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    """Exit code, or minus the signal; None of both if it was still at work after its time."""
    out: str
    err: str
    seconds: float
    peak_mib: float
    """Memory that it took beyond what it was forked with."""
    hung: bool


class Forked:
    """A process that forks commands."""

    def __init__(self) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(TESTS.parent)}
        self._server = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env=environment, text=True,
        )  # fmt: skip

    def run(
        self,
        command: str,
        arguments: Sequence[str],
        folder: Path,
        *,
        seconds: float = 25.0,
        **limits: Any,
    ) -> Ended:
        """Run a command's `main` in a folder.

        Args:
            command: name of its module, `run_task` for instance.
            arguments: of its command line.
            folder: where it works, and its home and temporary folder.
            seconds: after which it has hung.
            limits: `largest_file` in bytes; `user`, the number of a user without rights;
                `kill_after` and `interrupt_after`, seconds after which SIGKILL or SIGINT is sent;
                `sends`, signals, each as (pattern of a file to wait for, seconds to wait then,
                number); `working`, where it works.
        """
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        job = {
            "command": command, "arguments": list(arguments), "folder": str(folder),
            "seconds": seconds, **limits,
        }  # fmt: skip
        outputs = [folder / name for name in (".out", ".err")]
        for path in outputs:
            path.touch()
            path.chmod(0o666)
        self._server.stdin.write(json.dumps(job) + "\n")
        self._server.stdin.flush()
        line = self._server.stdout.readline()
        assert line, "the process that forks commands has died"
        out, err = (path.read_bytes().decode(errors="replace") for path in outputs)
        return Ended(out=out, err=err, **json.loads(line))

    def close(self) -> None:
        """End the process."""
        self._server.communicate()


def _serve() -> None:
    """Fork a child for every line of standard input, and write how it ended."""
    _import_everything()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # until a child has begun to be a command
    gc.collect()
    gc.freeze()  # a collection in a child would copy all memory
    for line in sys.stdin:
        job = json.loads(line)
        start = time.monotonic()
        pid = os.fork()
        if pid == 0:
            _work(job)
        sys.stdout.write(json.dumps(_await(pid, job, start)) + "\n")
        sys.stdout.flush()


def _import_everything() -> None:
    import importlib

    import torch

    torch.set_num_threads(1)
    for name in IMPORTED.split():
        importlib.import_module(name)
    _make_a_run()
    _draw_an_image()


def _make_a_run() -> None:
    """Make a run of a few steps, which imports the rest of torch."""
    from lra import run_task

    sizes = ["task.train=20", "task.val=5", "task.test=5", "task.max_length=40", "train.steps=2"]
    arguments = ["--task", "listops", "--mixer", "mean", "--preset", "quick", "--device", "cpu"]
    arguments += [part for text in sizes for part in ("--set", f"{text}")]
    streams = sys.stdout, sys.stderr
    with tempfile.TemporaryDirectory() as folder, Path(os.devnull).open("w") as nowhere:
        sys.stdout = sys.stderr = nowhere
        places = ["--data-dir", f"{folder}/data", "--results-dir", f"{folder}/results"]
        code = run_task.main([*arguments, *places, "--set", "train.warmup_steps=1"])
        sys.stdout, sys.stderr = streams
    assert code == 0


def _draw_an_image() -> None:
    """Draw an image, which compiles what draws: a child that is killed would not keep that."""
    import numpy as np

    from lra.tasks.pathfinder.draw import draw_images
    from lra.tasks.pathfinder.law import find_law

    image, label = np.empty((1, 32, 32), dtype=np.uint8), np.empty(1, dtype=np.uint8)
    draw_images(find_law(32, 14, border_quirk=True), 0, 0, image, label)


def _work(job: dict[str, Any]) -> None:
    """Be the child: never returns."""
    from tqdm import tqdm

    code = 70
    try:
        os.setsid()
        # A child that was killed may have held the lock that forked processes share.
        tqdm.set_lock(threading.RLock())
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run under nohup
        folder = Path(job["folder"])
        os.environ |= {"HOME": str(folder), "TMPDIR": str(folder)}
        for stream, name in ((1, ".out"), (2, ".err")):
            os.dup2(os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.chdir(job.get("working", folder))
        if (most := job.get("largest_file")) is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        memory = _kib("VmSize") * 1024 + 2**31
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        if (user := job.get("user")) is not None:
            os.setuid(user)
        random.seed()
        from lra.record import schema

        schema.SHIPPED_RESULTS = Path("nowhere")  # a test's results are its own alone
        module = sys.modules[job["command"]]
        try:
            code = module.main(job["arguments"])
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else 1
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the command is over
        sys.stdout.flush()
    except BaseException:
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
        code = 1
    finally:
        os._exit(code)


def _kib(name: str) -> int:
    """Read a number of KiB that the kernel knows of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    return 2**24


def _await(pid: int, job: dict[str, Any], start: float) -> dict[str, Any]:
    kill_after, interrupt_after = job.get("kill_after"), job.get("interrupt_after")
    sends = [*job.get("sends", ())]
    last = start
    hung = False
    own = _kib("VmRSS") / 1024
    pause = 0.002
    while True:
        done, status, used = os.wait4(pid, os.WNOHANG)
        seconds = time.monotonic() - start
        if done:
            break
        with contextlib.suppress(ProcessLookupError):
            if interrupt_after is not None and seconds > interrupt_after:
                os.kill(pid, signal.SIGINT)
                interrupt_after = None
            if sends and any(Path(job["folder"]).glob(sends[0][0])):
                if time.monotonic() - last >= sends[0][1]:
                    os.kill(pid, sends.pop(0)[2])
                    last = time.monotonic()
            else:
                last = time.monotonic()
            if kill_after is not None and seconds > kill_after:
                os.kill(pid, signal.SIGKILL)
            elif seconds > job["seconds"]:
                hung = True
                os.killpg(pid, signal.SIGKILL)
        time.sleep(pause)
        pause = min(0.02, pause * 1.2)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)  # what it has started
    code = os.waitstatus_to_exitcode(status)
    peak = used.ru_maxrss / 1024 - own
    return {"code": code, "seconds": seconds, "peak_mib": peak, "hung": hung}


if __name__ == "__main__":
    _serve()
