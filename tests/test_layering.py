"""Imports point one way, through the whole tree and inside every package."""

from __future__ import annotations

import ast
import functools
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import lra
import models
from conftest import ROOT
from lra.config.registry import MIXERS, TASKS

ORDER = (
    "lra.__main__", "run_task", "report", "lra",
    "lra.api", "lra.bench", "lra.sweep",
    "lra.report.paper", "lra.report.page", "lra.report.readme", "lra.report.run_screen",
    "lra.report.screen", "lra.report.compare", "lra.report.commands",
    "lra.report.figures", "lra.report.styles", "lra.report.points", "lra.report.tables",
    "lra.report.published", "lra.report.data", "lra.report.boards", "lra.report.scores",
    "lra.report.names",
    "lra.report", "lra.generate", "lra.evaluate",
    "lra.check", "lra.prepare", "lra.train",
    "lra.classifier", "lra.record", "lra.config", "lra.runtime",
    "tasks", "tasks.pathfinder", "tasks.image", "tasks.listops", "tasks.lm", "tasks.periodic",
    "tasks.recall", "tasks.languages", "tasks.groups",
    "tasks.generated", "tasks.documents", "tasks.sources", "tasks.resident", "tasks.baselines",
    "tasks.cache", "tasks.manifest", "tasks.order", "tasks.labelled", "tasks.next_token",
    "tasks.unlabelled", "tasks.splits", "tasks.base", "tasks.vocabulary",
    "tasks.random_words",
    "models", "models.layers", "models.base", "models.ops",
    "common", "common.cores", "common.kernel_choice", "common.progress", "common.strict_yaml",
    "common.tensors", "common.untrusted", "common.files", "common.errors", "common.options",
)  # fmt: skip
"""From the top down: what a name here covers imports itself and what stands behind it.

The package lra itself, not its rooms, only exports.
"""

APART = {("tasks", "models"), ("models", "tasks"), ("models", "lra"), ("tasks", "lra")}
"""Packages of which the first never imports the second."""

LATE = {
    "lra.report.published": "torch, for reports without settings of published runs",
    "lra.report.tables.published": "torch, for reports without estimates of time",
    "lra.runtime.cli": "torch, for help texts and mistakes",
    "lra.sweep.ray_cluster": "what a node of a cluster may not have",
    "models.ops.delta_rule": "numba, for the delta rule",
    "models.ops.selective_scan": "numba, for states of single channels",
    "tasks.pathfinder.files": "numba, for data that is no release",
    "tasks.pathfinder.task": "numba, for data that is read",
}
"""Modules whose functions import others of ours, so as to be light: what they save."""

PACKAGES = ("lra", "models", "tasks", "common")
FILES = [ROOT / "run_task.py", ROOT / "report.py"]
FILES += [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
TESTS = {"tests", *(path.stem for path in (ROOT / "tests").glob("*.py"))}


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in FILES}


@functools.cache
def imports(source: str) -> list[tuple[str, bool]]:
    """List the modules of ours that a source imports, and whether a function does.

    What is for the type checker alone counts, too, and so does a call of import_module.
    """
    tree = ast.parse(source)
    inner = {
        node
        for function in ast.walk(tree)
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
        for node in ast.walk(function)
    }
    return [
        (name, node in inner)
        for node in ast.walk(tree)
        for name in imported_names(node)
        if name.partition(".")[0] in {*PACKAGES, *TESTS, "run_task", "report"}
    ]


def imported_names(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        assert node.level == 0, "imports are absolute here"
        inside = [f"{node.module}.{alias.name}" for alias in node.names]
        return [name if name in MODULES else str(node.module) for name in inside]
    if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(
        ("import_module", "__import__")
    ):
        return [str(arg.value) for arg in node.args if isinstance(arg, ast.Constant)]
    return []


def place(module: str) -> tuple[int, bool]:
    """Return how far down a module stands; a command line stands above the rest of its room."""
    covering = [
        k
        for k, name in enumerate(ORDER)
        if name == module or (name != "lra" and module.startswith(f"{name}."))
    ]
    assert covering, f"{module} has no place in ORDER: import a module of it by its whole name"
    return max(covering, key=lambda k: len(ORDER[k])), not module.endswith("__main__")


def faults(module: str, source: str) -> list[str]:
    """Name every import of a module that points up, or at what it must not see."""
    found = []
    for name, _ in imports(source):
        pair = (module.partition(".")[0], name.partition(".")[0])
        if pair in APART or pair[1] in TESTS or place(name) < place(module):
            found.append(f"{module} imports {name}")
    return found


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_imports_point_down() -> None:
    found = [fault for path in FILES for fault in faults(module_name(path), path.read_text())]
    assert found == []


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("common.files", "from lra.config.schema import RunConfig"),
        ("lra.record.run", "import lra.train.run"),
        ("lra.record.run", "from lra.record.__main__ import list_runs"),
        ("lra.train.trainer", "from lra.evaluate import trained"),
        ("lra.train.run", "import importlib\nimportlib.import_module('lra.bench.steps')"),
        ("lra.classifier.block", "def f():\n    from lra.train.run import Run"),
        ("lra.config.compose", "from conftest import TINY"),
        ("models.ops.circulant", "from models.layers import norms"),
        ("models.ops.circulant", "from models.base import Mixer"),
        ("models.base", "from models.tnn import TNN"),
        ("models.tnn", "from tasks.base import Task"),
        ("tasks.base", "from tasks.cache import Cache"),
        ("tasks.sources.archives", "from tasks.documents.pairs import Pairs"),
        ("lra.sweep.plan", "import run_task"),
        ("lra.train.run", "import lra"),
        ("lra.evaluate.trained", "from lra.api.model import load"),
        ("lra.record.merge_results", "from lra.api.frame import records"),
    ],
)
def test_an_upward_import_is_noticed(module: str, line: str) -> None:
    source = MODULES[module].read_text()
    assert faults(module, source) == []
    assert len(faults(module, f"{source}\n{line}\n")) == 1


def test_the_runtime_knows_no_mixers_and_no_tasks() -> None:
    found = {
        name
        for module, path in MODULES.items()
        if module.startswith("lra.runtime")
        for name, _ in imports(path.read_text())
        if name.partition(".")[0] in ("models", "tasks")
    }
    assert found == {"models.layers.norms"}  # batch norm, which has a form for several processes


def test_no_modules_import_each_other() -> None:
    """Nor in a circle of more, whatever room they are in."""
    below = {
        module: {name for name, _ in imports(path.read_text()) if name in MODULES}
        for module, path in MODULES.items()
    }
    done: set[str] = set()

    def descend(module: str, above: tuple[str, ...]) -> None:
        assert module not in above, " -> ".join([*above, module])
        if module not in done:
            # A package's __init__ imports its own modules to export them.
            is_export = MODULES[module].name == "__init__.py"
            for name in below[module] - {module}:
                if not (is_export and name.startswith(f"{module}.")):
                    descend(name, (*above, module))
            done.add(module)

    for module in MODULES:
        descend(module, ())


def test_functions_import_nothing_of_ours_but_to_be_light() -> None:
    """The start of a command may; any other import in a function could hide a circle."""
    late = {
        module
        for module, path in MODULES.items()
        if any(is_inner for _, is_inner in imports(path.read_text()))
    }
    starts = {name for name in late if name in ("run_task", "report") or "__main__" in name}
    assert late - starts == LATE.keys()


@pytest.mark.parametrize("path", [p for p in FILES if p.name == "__init__.py"], ids=named)
def test_packages_say_what_may_live_there_and_what_others_may_use(path: Path) -> None:
    tree, package = ast.parse(path.read_text()), module_name(path)
    assert (ast.get_docstring(tree) or "").endswith(".")
    (exported,) = [
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, (ast.Assign, ast.AnnAssign))
        and node.value is not None
        and "__all__" in ast.unparse(node)
    ]
    modules = {name.rpartition(".")[2] for name in MODULES if name.rpartition(".")[0] == package}
    assert all(
        name in modules or hasattr(importlib.import_module(package), name) for name in exported
    )
    used = {
        name.rpartition(".")[2]
        for module, other in MODULES.items()
        if not f"{module}.".startswith(f"{package}.")
        for name, _ in imports(other.read_text())
        if name.rpartition(".")[0] == package
    }
    assert not [name for name in used if name.startswith("_")]
    if set(exported) & modules:  # a package of a task exports its class alone
        assert used <= set(exported)


def test_packages_are_this_repositorys() -> None:
    assert Path(models.__file__ or "").parent.parent == ROOT


def test_run_task_imports_light() -> None:
    code = "import run_task, lra.train.run, lra.classifier.resolve, sys; "
    code += "sys.exit(bool({'pandas', 'matplotlib', 'pyarrow'} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_the_package_imports_nothing_until_it_is_used() -> None:
    """Nor do its errors, and its frame no more than records need."""
    code = "import lra, sys; lra.UserError, lra.DataError, dir(lra); "
    code += "sys.exit(bool({'torch', 'pandas', 'pydantic'} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_what_the_package_exports_is_there() -> None:
    assert {name for name in dir(lra) if not name.startswith("_")} >= set(lra.__all__)
    assert all(hasattr(lra, n) for n in ("build", "load", "records", "UserError", "DataError"))
    with pytest.raises(AttributeError, match="module 'lra' has no attribute 'bild'"):
        lra.bild  # noqa: B018  # pyright: ignore[reportAttributeAccessIssue]


def test_no_file_names_a_mixer_in_an_if_chain() -> None:
    names = MIXERS.classes.keys() | TASKS.classes.keys()
    for path in [*(ROOT / "lra").rglob("*.py"), ROOT / "run_task.py", ROOT / "report.py"]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Compare):
                literals = {c.value for c in ast.walk(node) if isinstance(c, ast.Constant)}
                assert not literals & names, path


READERS = (
    ".read_bytes", ".read_text", "np.load", "torch.load", "yaml.load", "tarfile.open", "Image.open",
    ".read_csv", "pickle.load", "pickle.loads", ".Unpickler", "json.load", "os.open", "gzip.open",
    ".open_memmap", ".open", "np.fromfile", "np.memmap", "np.loadtxt", "np.genfromtxt",
    "zipfile.ZipFile",
)  # fmt: skip
"""Calls that take in what somebody else may have written."""

BOUNDARY = {
    "common.untrusted": "regular files of a sane size, arrays, and images of a known size",
    "common.files": "files that are written or appended to",
    "tasks.sources.archives": "archives, whose headers and sizes are counted",
    "tasks.pathfinder.files": "arrays out of files that were read",
    "tasks.cache": "arrays of an unfinished cache, whose request was compared; files to be synced",
    "common.strict_yaml": "YAML, without references and deep nesting",
    "lra.train.checkpoint": "checkpoints, whose content is checked",
    "lra.record.predictions": "predictions, which are checked",
    "lra.report.page.page": "a template of this repository",
    "lra.report.published": "a table of this repository",
    "lra.report.readme": "README files of this repository",
    "common.cores": "what the kernel says of control groups",
    "lra.runtime.environment": "what the kernel says",
    "lra.runtime.repository": "code of this repository",
    "models.ops.circulant": "what the kernel says of the cache",
    "models.ops.linear_map": "what the kernel says of the processor",
    "lra.runtime.console": "the null device",
}
"""The only modules that call them: what they take in, and why it is safe there."""


def readers(source: str) -> list[str]:
    """List the calls in a source that take in what somebody else may have written."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    methods = tuple(reader for reader in READERS if reader.startswith("."))
    named = [ast.unparse(call.func) for call in calls if not opens_to_write(call)]
    return [name for name in named if name in READERS or name.endswith(methods)]


def opens_to_write(call: ast.Call) -> bool:
    """Whether a call opens a file for nothing but writing."""
    inner = [node for argument in call.args[:1] for node in ast.walk(argument)]
    modes = {node.value for node in inner if isinstance(node, ast.Constant)}
    return bool(modes) and modes <= {"wb", "ab", "w", "a", "r+b"}


def test_what_others_wrote_comes_in_through_the_boundary() -> None:
    found = {name for name, path in MODULES.items() if readers(path.read_text())}
    assert found == BOUNDARY.keys(), "use common.untrusted"


def test_a_reader_is_noticed() -> None:
    assert readers("x = path.read_bytes()") == ["path.read_bytes"]
    assert readers("path.open('wb')\npath.open()") == ["path.open"]
    assert readers("numpy.x\nnp.load(path)\njson.load(file)") == ["np.load", "json.load"]
