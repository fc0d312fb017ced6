"""The classes that a run names: those of the suite, or in a user's own file or module."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from common.errors import KnownError
from lra.config.component import Component
from lra.config.plugin_code import describe_error, digest, load_file, load_module
from lra.config.plugin_options import plug_in_options
from lra.config.registry import Registry, options_model
from lra.runtime.errors import UserError, unknown, user_code

FORMS = "path/to/file.py:ClassName or package.module:ClassName"

AnyComponent = TypeVar("AnyComponent", bound=Component)


@dataclass(frozen=True)
class ComponentKind:
    """A kind of class that a run names: a mixer or a task."""

    registry: Registry[Any]
    fits: Callable[[type], bool]
    """Tells whether a class can be of this kind."""
    expected: str
    """Description of such a class, for error messages."""
    first: tuple[str, ...] = ()
    """Positional arguments of its constructor, before its options."""


def find_component(
    component_type: type[AnyComponent], kind: ComponentKind, spec: str, flag: str
) -> AnyComponent:
    """Find the class that a flag names. The code of a plug-in is run.

    Args:
        component_type: class of the result.
    Raises: UserError if it cannot be found, imported, or given its options.
    """
    if ":" in spec:
        return _find_plug_in(component_type, kind, spec, flag)
    try:
        cls = kind.registry.get(spec, flag)
    except UserError as error:
        if spec.endswith(".py"):
            raise UserError(f"{flag} {spec}: add the name of the class, {spec}:ClassName") from None
        raise UserError(f"{error}; write a {kind.registry.kind} of your own as {FORMS}") from None
    return component_type(spec=spec, name=spec, cls=cls, options=options_model(cls), flag=flag)


def load_class(
    spec: str, origin: str, fits: Callable[[type], bool], expected: str
) -> tuple[ModuleType, type]:
    """Run the file or import the module that a plug-in names, and look its class up.

    Args:
        fits: tells whether a class is of the kind that is looked for.
        expected: description of such a class, for error messages.
    Raises: UserError if it cannot be found or imported.
    """
    target, _, name = spec.rpartition(":")
    if name.isidentifier() and target.endswith(".py"):
        module = load_file(Path(target), origin)
    elif name.isidentifier() and all(part.isidentifier() for part in target.split(".")):
        module = load_module(target, origin)
    else:
        raise UserError(f"{origin}: expected {FORMS}")
    user_code.add(str(module.__file__))
    if name not in vars(module):
        defined = {
            key: value
            for key, value in vars(module).items()
            if inspect.isclass(value) and value.__module__ == module.__name__
        }
        raise unknown("class", name, [key for key, value in defined.items() if fits(value)], origin)
    cls = vars(module)[name]
    if not (inspect.isclass(cls) and fits(cls)):
        what = "another class" if inspect.isclass(cls) else f"of type {type(cls).__name__}"
        raise UserError(f"{origin}: {name} is {what}, expected {expected}")
    return module, cls


def _find_plug_in(
    component_type: type[AnyComponent], kind: ComponentKind, spec: str, flag: str
) -> AnyComponent:
    origin = f"{flag} {spec}"
    module, cls = load_class(spec, origin, kind.fits, kind.expected)
    name = spec.rpartition(":")[2]
    file = str(module.__file__)
    try:
        _refuse_unfit(kind, cls, name, origin)
        user_code.add(inspect.getfile(cls))
        return component_type(
            spec=spec, name=name, cls=cls, options=plug_in_options(cls, kind.first, origin),
            flag=flag, code=_digest(module, cls), file=inspect.getfile(cls),
        )  # fmt: skip
    except (KnownError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise UserError(f"{origin}: it cannot be used: {describe_error(error, file)}") from error


@functools.cache
def _digest(module: ModuleType, cls: type) -> str:
    """Hash the named file, and the file that defines the class, as they were when they ran."""
    return digest([str(module.__file__), inspect.getfile(cls)])


def _refuse_unfit(kind: ComponentKind, cls: type, name: str, origin: str) -> None:
    """Refuse a class that is abstract, or has the name of a class of the suite."""
    if inspect.isabstract(cls):
        missing = ", ".join(sorted(cls.__abstractmethods__))
        raise UserError(f"{origin}: {name} is abstract; define {missing}")
    registered = {key.casefold() for key in kind.registry.classes}
    if name.casefold() in registered:  # some file systems ignore the case of letters
        raise UserError(
            f"{origin}: the suite has a {kind.registry.kind} of that name; rename your class, or "
            f"use {name.casefold()} without a file for that of the suite"
        )
