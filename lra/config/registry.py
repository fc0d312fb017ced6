"""Mixers and tasks by name, found by looking through their packages."""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
from collections.abc import Iterable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Generic, TypeVar, get_args, get_type_hints

from pydantic import BaseModel, ConfigDict, create_model

import models
import tasks
from common.options import Added
from lra.runtime.errors import unknown
from models.base import Mixer
from tasks.base import Task

T = TypeVar("T", Mixer, Task)


@dataclass(frozen=True)
class NoEffect:
    """Marks, in its type, a setting that changes no number and therefore no hash of a run."""


class Section(BaseModel):
    """A section of the configuration: typed, immutable, closed to unknown keys."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, validate_default=True
    )

    def hashed(self) -> dict[str, Any]:
        """Dump the settings that enter the hash of a run.

        A setting marked `NoEffect` never does. One that is marked `Added` does if it differs from
        the value that runs had before the setting existed.
        """
        fields = type(self).model_fields
        return {
            name: value
            for name, value in self.model_dump().items()
            if not any(_is_idle(mark, value) for mark in fields[name].metadata)
        }


def _is_idle(mark: object, value: object) -> bool:
    added = isinstance(mark, Added) and mark.default == value
    return added or isinstance(mark, NoEffect)


class Registry(Generic[T]):
    """The concrete subclasses of a base class in a package that have a name.

    These are defined in the package's modules, or imported by the `__init__` of its folders.
    """

    def __init__(self, kind: str, package: ModuleType, base: type[T]) -> None:
        self.kind = kind
        self.package = package
        self.base = base

    @functools.cached_property
    def classes(self) -> dict[str, type[T]]:
        """All classes by name. A name that is used twice is a TypeError that names both modules."""
        found: dict[str, type[T]] = {}
        for entry in sorted(pkgutil.iter_modules(self.package.__path__), key=lambda e: e.name):
            if entry.name.startswith("_"):
                continue
            module = importlib.import_module(f"{self.package.__name__}.{entry.name}")
            for cls in vars(module).values():
                if not (inspect.isclass(cls) and issubclass(cls, self.base)):
                    continue
                is_own = f"{cls.__module__}.".startswith(f"{module.__name__}.")
                if inspect.isabstract(cls) or not is_own or not hasattr(cls, "name"):
                    continue
                if cls.name in found:
                    other = found[cls.name].__module__
                    raise TypeError(f"{self.kind} {cls.name!r} is in {other} and {cls.__module__}")
                found[cls.name] = cls  # pyright: ignore[reportArgumentType]
        return found

    def get(self, name: str, origin: str) -> type[T]:
        """Look up a name that the flag or file `origin` gave.

        Raises: UserError naming the nearest valid name and all of them.
        """
        if name not in self.classes:
            raise unknown(self.kind, name, self.classes, origin)
        return self.classes[name]


MIXERS: Registry[Mixer] = Registry("mixer", models, Mixer)
TASKS: Registry[Task] = Registry("task", tasks, Task)


@functools.cache
def options_model(owner: type) -> type[Section]:
    """Derive the options of a mixer or task from its typed keyword-only arguments.

    Raises: TypeError for **kwargs, which would accept misspelt options, and for an option that is
        not keyword-only.
    """
    options: list[inspect.Parameter] = []
    for parameter in inspect.signature(owner.__init__).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            raise TypeError(f"{owner.__name__}.__init__ takes **{parameter.name}: name the options")
        has_default = parameter.default is not parameter.empty
        if parameter.kind is not parameter.KEYWORD_ONLY and has_default:
            raise TypeError(f"{owner.__name__}.__init__: make {parameter.name} keyword-only")
        if parameter.kind is parameter.KEYWORD_ONLY:
            options.append(parameter)
    return options_section(owner, options)


def options_section(owner: type, parameters: Iterable[inspect.Parameter]) -> type[Section]:
    """Make a section from parameters of a constructor.

    A parameter without a type has the type of its default, or takes any value if it has none.

    Raises: TypeError for a mark inside of a type, where it would have no effect.
    """
    hints = get_type_hints(owner.__init__, include_extras=True)
    for name, hint in hints.items():
        _refuse_hidden_marks(hint, f"{owner.__name__}.__init__: {name}")
    fields: dict[str, Any] = {}
    for p in parameters:
        is_plain = isinstance(p.default, (bool, int, float, str))
        fields[p.name] = (
            hints.get(p.name, type(p.default) if is_plain else Any),
            ... if p.default is p.empty else p.default,
        )
    return create_model(f"{owner.__name__}Options", __base__=Section, **fields)


def _refuse_hidden_marks(hint: Any, where: str) -> None:
    for inner in get_args(hint):
        for mark in getattr(inner, "__metadata__", ()):
            if isinstance(mark, (Added, NoEffect)):
                raise TypeError(
                    f"{where}: write Annotated[whole type, {mark}], not within the type"
                )
        _refuse_hidden_marks(inner, where)
