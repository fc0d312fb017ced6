import gc
import os
import re
import sys
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import submitit  # noqa: F401  # before absl: its import closes what absl writes to, pytest's captured stream
import torch
from torch import nn

from attack import Place
from forked import Forked
from lra.common import threads
from lra.common.errors import user_code
from lra.common.strict_yaml import parse_yaml
from lra.config.compose import EXCLUSIVE
from lra.config.registry import MIXERS
from lra.models.base import MixerContext
from lra.record import schema

ROOT = Path(__file__).resolve().parent.parent

PATIENCE = 600
"""Seconds that a process may take to start, or to make its whole run, until it counts as hanging.

A busy machine needs many times what an idle one does. How soon a process reacts is another matter:
where that is promised, a test has a limit of its own.
"""

TINY = [
    "task.train=200",
    "task.val=40",
    "task.test=50",
    "task.max_length=64",
    "task.sequence_length=80",
    "model.dim=16",
    "model.depth=2",
    "train.batch_size=16",
    "train.steps=20",
    "train.warmup_steps=4",
    "train.evaluate_every=10",
    "log.every_steps=4",
]
"""Settings, over the quick preset, of a run of a second."""


def tiny_settings(*changes: str) -> list[str]:
    """List the settings of a tiny run, without those that changes of them exclude."""
    names = [text.partition("=")[0] for text in changes]
    excluded = {other for name in names for other in EXCLUSIVE.get(name, ())}
    return [text for text in TINY if text.partition("=")[0] not in excluded] + list(changes)


Settings = dict[str, Any]
"""Settings by section, as Python code gives them."""


def tiny_sections(*changes: str) -> Settings:
    """Write the settings of a tiny run as Python code does."""
    settings: Settings = {}
    for text in (*TINY, *changes):
        name, _, value = text.partition("=")
        section, _, key = name.partition(".")
        settings.setdefault(section, {})[key] = parse_yaml(value, text)
    return settings


def tiny_arguments(
    folder: Path, *more: str, mixer: str = "tnn", settings: Sequence[str] = ()
) -> list[str]:
    """Write the command line of a tiny run whose data and results lie in a folder."""
    changes = [part for text in tiny_settings(*settings) for part in ("--set", text)]
    places = ["--data-dir", str(folder / "data"), "--results-dir", str(folder / "results")]
    start = ["--task", "listops", "--mixer", mixer, "--preset", "quick", "--device", "cpu"]
    return [*start, *places, *changes, *more]


@pytest.fixture(scope="session")
def forked() -> Iterator[Forked]:
    """Start the process that forks commands, once for all tests of a worker."""
    server = Forked()
    yield server
    server.close()


@pytest.fixture(autouse=True)
def search_path() -> Iterator[None]:
    """Let no test leave the folder of a plug-in among those that imports are looked up in."""
    before = [*sys.path]
    yield
    sys.path[:] = before


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Work in a folder of one's own, whose modules are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    for name, module in list(sys.modules.items()):
        if str(vars(module).get("__file__")).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture
def place(tmp_path: Path, forked: Forked) -> Place:
    """Make a place for a hostile case."""
    made = Place(tmp_path, forked)
    made.folder.mkdir()
    made.outside.mkdir()
    (made.outside / "secret").write_text("root:x:0:0\n")
    return made


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def threads_wait_as_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no test hear of the waiting that another test chose."""
    for name in threads.SHORT_SPIN:
        monkeypatch.setenv(name, "")  # so that it is as before, afterwards
        monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def no_code_is_the_users() -> None:
    """Forget plug-ins of other tests, whose faults a later one's would be taken for."""
    user_code.clear()


@pytest.fixture(autouse=True, scope="session")
def results_of_tests_are_their_own() -> None:
    """Show no results of this repository beside those in the folder that a test works in."""
    schema.SHIPPED_RESULTS = Path("nowhere")


def pytest_configure() -> None:
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if workers > 1:  # tests side by side, and the processes they start, must not fight for cores
        threads = max(1, torch.get_num_threads() // workers)
        torch.set_num_threads(threads)
        os.environ["OMP_NUM_THREADS"] = str(threads)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--thorough", action="store_true", help="run the slow proofs alone")
    parser.addoption("--learn", action="store_true", help="train each mixer for minutes, too")
    parser.addoption("--write-golden", action="store_true", help="accept tables as they are now")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    thorough = config.getoption("--thorough")
    left_out = [item for item in items if ("thorough" in item.keywords) != thorough]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in set(left_out)]
    reasons = {}
    if not torch.cuda.is_available():
        reasons["gpu"] = "needs a CUDA device"
    if not config.getoption("--learn"):
        reasons["learn"] = "takes minutes: pytest --learn"
    for item in items:
        for marker in reasons.keys() & item.keywords.keys():
            item.add_marker(pytest.mark.skip(reason=reasons[marker]))


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()  # modules and thousands of tests stay, and no collection has to look through them


def python_example(file: str, section: str = "") -> str:
    """Read the first Python example of a page, or of one of its sections."""
    text = (ROOT / file).read_text()
    if section:
        text = text.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    return re.findall(r"```python\n(.*?)```", text, re.S)[0]


def _example_class() -> type[nn.Module]:
    """Run the example of a mixer in docs/your_mixer.md and return the class it defines."""
    module = types.ModuleType("mixer_example")
    sys.modules[module.__name__] = module
    source = python_example("docs/your_mixer.md")
    exec(compile(source, "docs/your_mixer.md", "exec"), module.__dict__)
    (found,) = [c for c in vars(module).values() if getattr(c, "__module__", "") == module.__name__]
    return found


EVERY_MIXER: dict[str, type[nn.Module]] = {
    **MIXERS.classes,
    "example of the docs": _example_class(),
}
"""All that the contract holds for."""


def build_mixer(
    name: str,
    *,
    causal: bool = False,
    randomized: bool = True,
    max_length: int = 128,
    **options: Any,
) -> nn.Module:
    """Build a small mixer, its parameters of a size at which every part of it matters.

    Skips the test where the mixer cannot be causal.
    """
    context = MixerContext(dim=8, max_length=max_length, layer=1, depth=2, causal=causal)
    try:
        mixer = EVERY_MIXER[name](context, **options)
    except ValueError as error:
        if causal and not options:
            pytest.skip(f"not causal: {error}")
        raise
    with torch.no_grad():
        for parameter in mixer.parameters() if randomized else ():
            parameter.copy_(torch.randn_like(parameter) * 0.5)
    return mixer
