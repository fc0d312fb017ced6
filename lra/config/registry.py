"""Finding a mixer or task: one of the suite by its name, a class in a user's own file or module, or
a data set of another library.

The classes of the suite are found by looking through their packages.
"""

import functools
import hashlib
import importlib
import inspect
import os
import pkgutil
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

from lra import models, tasks
from lra.common.errors import UnknownName, UserError, user_code
from lra.common.untrusted import read_regular
from lra.config.components import MixerComponent, TaskComponent, explain_code
from lra.models.base import Mixer
from lra.tasks.base import Task
from lra.tasks.named.dataset import NamedDataset
from lra.tasks.named.hugging_face import HuggingFaceDataset
from lra.tasks.named.prepared import PreparedDataset

AnyComponent = TypeVar("AnyComponent", MixerComponent, TaskComponent)

LIBRARIES = {"tfds": PreparedDataset, "hf": HuggingFaceDataset}
"""The class that reads the data sets of a library, by what their names begin with."""
FORMS = "path/to/file.py:ClassName or package.module:ClassName"


class Registry(Generic[AnyComponent]):
    """The named subclasses of a base class in a package, and plug-ins of the same kind."""

    def __init__(self, package: ModuleType, base: type, component: type[AnyComponent]) -> None:
        self.package = package
        self.base = base
        self.component = component

    @functools.cached_property
    def classes(self) -> dict[str, type[Any]]:
        """The classes of the package by name.

        They are defined in modules of the package, or imported by the `__init__` of its folders.
        """
        found: dict[str, type[Any]] = {}
        for entry in sorted(pkgutil.iter_modules(self.package.__path__), key=lambda e: e.name):
            module = importlib.import_module(f"{self.package.__name__}.{entry.name}")
            for cls in filter(inspect.isclass, vars(module).values()):
                is_own = f"{cls.__module__}.".startswith(f"{module.__name__}.")
                if is_own and issubclass(cls, self.base) and not inspect.isabstract(cls):
                    found[getattr(cls, "name", "")] = cls
        found.pop("", None)
        return found

    def find(self, spec: str, flag: str) -> AnyComponent:
        """Find the class that a flag names. The code of a plug-in is run.

        Raises: UserError if it cannot be found or imported.
        """
        kind, origin = self.component.kind, f"{flag} {spec}"
        if ":" not in spec:
            if spec not in self.classes:
                unknown = UnknownName(kind, spec, self.classes, flag)
                more = ", or a data set as tfds:NAME or hf:NAME" if kind == "task" else ""
                raise UserError(f"{unknown}; write a {kind} of your own as {FORMS}{more}")
            return self.component(spec=spec, cls=self.classes[spec], origin=origin)
        if kind == "task" and spec.partition(":")[0] in LIBRARIES:
            return self.component(spec=spec, cls=bind_name(spec), origin=origin)
        module, cls = load_class(spec, origin)
        name, named = spec.rpartition(":")[2], str(module.__file__)
        with explain_code(origin, "it cannot be used", named):
            if not self.component.fits(cls):
                raise UserError(
                    f"{origin}: {name} is another class, expected {self.component.expected}"
                )
            if name.casefold() in self.classes:  # folders of results ignore case on some systems
                raise UserError(
                    f"{origin}: the suite has a {kind} of that name; rename your class, or use "
                    f"{name.casefold()} without a file for that of the suite"
                )
            file = inspect.getfile(cls)
            user_code.add(file)
            code = _digest_once(module, named, file)
        return self.component(spec=spec, cls=cls, origin=origin, code=code, file=file)


MIXERS = Registry(models, Mixer, MixerComponent)
TASKS = Registry(tasks, Task, TaskComponent)
find_mixer, find_task = MIXERS.find, TASKS.find


@functools.cache
def _digest_once(module: ModuleType, *files: str) -> str:
    """Hash the files of a module as they were when they ran."""
    return digest(files)


def digest(files: Iterable[str]) -> str:
    """Hash files of code: 16 hexadecimal digits."""
    contents = b"".join(read_regular(Path(file)) for file in dict.fromkeys(files))
    return hashlib.sha256(contents).hexdigest()[:16]


@functools.cache
def bind_name(spec: str) -> type[NamedDataset]:
    """Make the class of one data set, LIBRARY:NAME, called as the task is in tables."""
    library, _, name = spec.partition(":")
    shown = Path(name).resolve().name if Path(name).is_dir() else name
    task = re.sub(r"[^\w.-]+", "-", f"{library}-{shown}")[:100]
    return type(task, (LIBRARIES[library],), {"origin": spec, "dataset": name})


def load_class(spec: str, origin: str) -> tuple[ModuleType, type]:
    """Run the file or import the module that a plug-in names, and look its class up.

    Raises: UserError if it cannot be found or imported.
    """
    target, _, name = spec.rpartition(":")
    if name.isidentifier() and target.endswith(".py"):
        module = _run_file(Path(target), origin)
    elif name.isidentifier() and all(part.isidentifier() for part in target.split(".")):
        _add_to_path(Path.cwd())
        with explain_code(origin, "its import failed", target.replace(".", "/")):
            module = importlib.import_module(target)
    else:
        raise UserError(f"{origin}: expected {FORMS}")
    if getattr(module, "__file__", None) is None:
        raise UserError(f"{origin}: {target} is not a file of Python code, expected {FORMS}")
    user_code.add(str(module.__file__))
    classes = {key: value for key, value in vars(module).items() if inspect.isclass(value)}
    if name not in classes:
        own = [key for key, cls in classes.items() if cls.__module__ == module.__name__]
        raise UnknownName("class", name, own, origin)
    return module, classes[name]


def _run_file(path: Path, origin: str) -> ModuleType:
    """Run a file as a module. The same file with the same text runs once."""
    if not path.is_file():
        raise UserError(f"{origin}: there is no file {path} (looked for in {Path.cwd()})")
    path = path.resolve()
    content = read_regular(path)
    identity = hashlib.sha256(os.fsencode(path) + b"\0" + content).hexdigest()
    module = ModuleType(f"_mixer_plug_in_{identity[:16]}")
    if module.__name__ in sys.modules:
        return sys.modules[module.__name__]
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # dataclasses and type hints look names up there
    _add_to_path(path.parent)
    try:
        with explain_code(origin, "its import failed", str(path)):
            # An import could use bytecode from before an edit.
            exec(compile(content, str(path), "exec", dont_inherit=True), module.__dict__)  # noqa: S102
    except BaseException:
        del sys.modules[module.__name__]
        raise
    return module


def _add_to_path(folder: Path) -> None:
    """Let plug-ins import modules of a folder."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
