"""Imports point one way, through the whole tree and inside every package."""

import ast
import graphlib
import re

from conftest import ROOT

ROW = re.compile(r"^\| ((?:`[\w/.]+` ?)+)\|", re.MULTILINE)
"""The first cell of a row of the table in lra/README.md: folders and modules."""

PARTS = [
    f"lra.{name.removesuffix('/').removesuffix('.py')}"
    for cell in ROW.findall((ROOT / "lra" / "README.md").read_text(encoding="utf-8"))
    for name in cell.replace("`", "").split()
]
"""The parts of lra in the order of that table: from the top down, and in a row from the left."""

ABOVE = {
    "lra.generate": ("lra.run_task", "lra"),
    "lra.report": (
        "lra.report.__main__", "lra.report.paper", "lra.report.page", "lra.report.readme",
        "lra.report.run_screen",
        "lra.report.screen", "lra.report.compare",
        "lra.report.leaderboard_figures", "lra.report.leaderboard",
        "lra.report.drawing", "lra.report.charts", "lra.report.styles",
        "lra.report.repeated", "lra.report.repeats", "lra.report.known_data",
        "lra.report.windows", "lra.report.tables", "lra.report.data",
        "lra.report.boards", "lra.report.scores", "lra.report.published", "lra.report.names",
    ),
    "lra.config": ("lra.runtime.cli",),
}  # fmt: skip
"""What that table does not have, by the part that it stands just above."""

BELOW = """
    tasks tasks.pathfinder tasks.image tasks.listops tasks.lm tasks.periodic tasks.recall
    tasks.languages tasks.groups tasks.flip_flop tasks.named tasks.generated tasks.documents
    tasks.sources tasks.baselines tasks.pixels tasks.next_token tasks.unlabelled tasks.splits
    tasks.base tasks.preparation tasks.cache tasks.batch tasks.goals tasks.random_words
    models models.layers models.base models.fast models.ops
    common common.threads common.progress common.strict_yaml common.spreadsheets common.tensors
    common.tables common.untrusted common.files common.errors common.options
"""
"""What is below the parts of that table, from the top down."""

ORDER = (
    "run_task",
    "report",
    *(name for part in PARTS for name in (*ABOVE.get(part, ()), part)),
    *(f"lra.{name}" for name in BELOW.split()),
)
"""From the top down: what a name here covers imports itself and what stands behind it."""

APART = {("lra.tasks", "lra.models"), ("lra.models", "lra.tasks")}
"""Packages of which the first never imports the second."""

LATE = {
    "lra.runtime.cli": "torch, for help texts and mistakes, with what they suggest",
    "lra.tasks.pathfinder.task": "numba, for data that is read",
}
"""Modules whose functions import others of ours, so as to be light: what they save."""

READERS = (
    ".read_bytes", ".read_text", "np.load", "torch.load", "yaml.load", "tarfile.open", "Image.open",
    ".read_csv", "pickle.load", "pickle.loads", ".Unpickler", "json.load", ".open", "np.fromfile",
    "np.memmap", "zipfile.ZipFile",
)  # fmt: skip
"""Calls that take in what somebody else may have written."""

BOUNDARY = {
    "lra.common.untrusted": "regular files of a sane size, arrays, and images of a known size",
    "lra.common.files": "files that are written or appended to",
    "lra.tasks.sources.archives": "archives, whose headers and sizes are counted",
    "lra.tasks.named.dataset": "images of data sets, whose size Pillow limits",
    "lra.tasks.preparation": "arrays of an unfinished cache, and files of its own to sync",
    "lra.common.strict_yaml": "YAML, without references and deep nesting",
    "lra.train.checkpoint": "checkpoints, whose content is checked",
    "lra.record.run_files": "predictions, which are checked",
    "lra.report.page.page": "a template of this repository",
    "lra.train.training_time": "a table of this repository",
    "lra.report.published": "a table of this repository",
    "lra.report.readme": "README files of this repository",
    "lra.common.threads": "what the kernel says of control groups",
    "lra.runtime.environment": "what the kernel says",
    "lra.bench.rounds": "what the kernel says of control groups",
    "lra.runtime.repository": "code of this repository",
    "lra.models.fast.linear_map": "what the kernel says of the processor",
    "lra.runtime.console": "the null device",
}
"""The only modules that call them: what they take in, and why it is safe there."""

FILES = [ROOT / "run_task.py", ROOT / "report.py"]
FILES += [path for name in ("lra", "models", "tasks") for path in (ROOT / name).rglob("*.py")]
TREES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    .removesuffix(".__init__")
    .replace("models", "lra.models", path.is_relative_to(ROOT / "models"))
    .replace("tasks", "lra.tasks", path.is_relative_to(ROOT / "tasks")): ast.parse(path.read_text())
    for path in sorted(FILES)
}
"""The syntax trees of all modules by name; `lra/models` and `lra/tasks` are links."""


def imports(tree: ast.AST) -> set[str]:
    """List the modules of ours that a tree imports."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            inside = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= inside & TREES.keys() or {str(node.module)}
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            found |= {str(arg.value) for arg in node.args if isinstance(arg, ast.Constant)}
    return {n for n in found if n.partition(".")[0] in ("lra", "tests", "run_task", "report")}


def place(module: str) -> tuple[int, bool]:
    """Return how far down a module stands; a command line stands above the rest of its folder."""
    names = [n for n in ORDER if n == module or (n != "lra" and module.startswith(f"{n}."))]
    assert names, f"{module} has no place in ORDER: import a module of it by its whole name"
    return ORDER.index(max(names, key=len)), not module.endswith("__main__")


def test_imports_point_down() -> None:
    for module, tree in TREES.items():
        for name in imports(tree):
            rooms = [".".join(one.split(".")[:2]) for one in (module, name)]
            assert tuple(rooms) not in APART, (module, name)
            assert place(name) >= place(module), f"{module} imports {name}"


def test_the_readme_of_lra_has_each_of_its_parts() -> None:
    rows = set(PARTS)
    modules = {".".join(name.split(".")[:2]) for name in TREES if name.startswith("lra.")}
    modules -= {"lra.run_task", "lra.models", "lra.tasks", "lra.common"}
    assert not modules - rows, f"lra/README.md has no row for {modules - rows}"
    assert not rows - modules, f"lra/README.md has a row, but lra no module, for {rows - modules}"


def test_no_modules_import_each_other() -> None:
    """Nor in a circle of more; a package's __init__ imports its own modules to export them."""
    below = {
        module: {name for name in imports(tree) if not name.startswith(f"{module}.")} - {module}
        for module, tree in TREES.items()
    }
    graphlib.TopologicalSorter(below).prepare()


def test_functions_import_nothing_of_ours_but_to_be_light() -> None:
    """The start of a command may; any other import in a function could hide a circle."""
    late = {
        module
        for module, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and imports(node)
    }
    starts = {name for name in late if name == "lra.run_task" or "__main__" in name}
    assert late - starts == LATE.keys()


def reads(call: ast.Call) -> bool:
    """Whether a call takes in what somebody else may have written."""
    inner = [node for argument in call.args[:1] for node in ast.walk(argument)]
    modes = {node.value for node in inner if isinstance(node, ast.Constant)}
    opens_to_write = modes and modes <= {"wb", "ab", "w", "a", "r+b"}
    name = ast.unparse(call.func)
    methods = tuple(reader for reader in READERS if reader.startswith("."))
    return (name in READERS or name.endswith(methods)) and not opens_to_write


def test_what_others_wrote_comes_in_through_the_boundary() -> None:
    found = {
        name
        for name, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and reads(node)
    }
    assert found == BOUNDARY.keys(), "use common.untrusted"
