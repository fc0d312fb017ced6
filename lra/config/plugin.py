"""A run's mixer: a registered name, or a class of the user's own file or module."""

from __future__ import annotations

import functools
import inspect
import json
import reprlib
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import cast, get_type_hints

from pydantic import BaseModel, ValidationError
from torch import nn

from lra.config.plugin_code import described, digest, file_of, load_file, load_module
from lra.config.registry import MIXERS, Section, options_model, options_section
from lra.record.schema import Name, Text
from lra.runtime.environment import is_out_of_memory
from lra.runtime.errors import UserError, unknown, user_code
from models.base import Mixer, MixerContext
from tasks.errors import KnownError
from tasks.untrusted import refuse_endless

FORMS = "path/to/file.py:ClassName or package.module:ClassName"


@dataclass(frozen=True, kw_only=True)
class MixerSource:
    """A mixer's class and where it is from."""

    given: str
    """What the flag said."""
    name: str
    """What records, folders and tables call it: a plug-in by its class."""
    cls: type[Mixer]
    """A plug-in's need not be a subclass; `check_plug_in` looks whether it behaves as one."""
    options: type[Section]
    flag: str
    """The flag that said it."""
    code: str | None = None
    """Start of the SHA-256 of a plug-in's file; None for a registered mixer."""
    file: str | None = None
    """The file that defines a plug-in's class."""

    @property
    def origin(self) -> str:
        """What errors begin with: the flag and what it said."""
        return f"{self.flag} {self.given}"

    def build(self, context: MixerContext, options: Section) -> Mixer:
        """Construct the mixer of one block.

        Raises: UserError for options that contradict one another or the context, and for
            whatever the constructor of a plug-in raises.
        """
        with self.faults_named("its constructor failed"):
            try:
                return self.cls(context, **dict(options))
            except ValueError as error:
                raise UserError(f"mixer {self.name}: {error}") from None

    @contextmanager
    def faults_named(self, what: str) -> Iterator[None]:
        """Turn whatever is raised while a plug-in is at work, `sys.exit` too, into its fault.

        Errors that explain themselves pass, and so do interruptions, too little memory, and errors
        of the file system that did not come through its file. With a registered mixer all pass.

        Args:
            what: what it means, "its constructor failed" for instance.
        Raises: UserError naming the plug-in, the error and its place.
        """
        try:
            yield
        except (KnownError, KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:
            if self.file is None or is_out_of_memory(error) or _is_of_the_system(error, self.file):
                raise
            raise UserError(f"{self.origin}: {what}: {described(error, self.file)}") from error


def find_mixer(spec: str, flag: str, code: str | None = None) -> MixerSource:
    """Find the mixer that a flag names: registered, or a plug-in, whose code is then run.

    Args:
        code: of a plug-in that a record names: start of the SHA-256 that its file must have to be
            run. None: the user has named it.
    Raises: UserError for whatever keeps it from being found, imported or given its options.
    """
    if ":" in spec:
        if code is not None:
            _refuse_other_code(spec, code)
        return _find_plug_in(spec, flag)
    try:
        cls = MIXERS.get(spec, flag)
    except UserError as error:
        if spec.endswith(".py"):
            raise UserError(f"{flag} {spec}: name the class too, {spec}:ClassName") from None
        raise UserError(f"{error}; one of your own is {FORMS}") from None
    return MixerSource(given=spec, name=spec, cls=cls, options=options_model(cls), flag=flag)


def _find_plug_in(spec: str, flag: str) -> MixerSource:
    origin = f"{flag} {spec}"
    target, _, name = spec.rpartition(":")
    if name.isidentifier() and target.endswith(".py"):
        module = load_file(Path(target), origin)
    elif name.isidentifier() and all(part.isidentifier() for part in target.split(".")):
        module = load_module(target, origin)
    else:
        raise UserError(f"{origin}: expected {FORMS}")
    _refuse_unrecordable(spec, name, origin)
    file = str(module.__file__)
    user_code.add(file)
    try:
        cls = _class_of(module, name, origin)
        user_code.add(inspect.getfile(cls))
        return MixerSource(
            given=spec, name=name, cls=cls, options=_options(cls, origin), flag=flag,
            code=_digest(module, cls), file=inspect.getfile(cls),
        )  # fmt: skip
    except (KnownError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise UserError(f"{origin}: it cannot be used: {described(error, file)}") from error


@functools.cache
def _digest(module: ModuleType, cls: type) -> str:
    """Hash the file that was named, and the one that defines the class, as they were when run."""
    return digest([str(module.__file__), inspect.getfile(cls)])


def _refuse_other_code(spec: str, code: str) -> None:
    """Refuse to run the code that a record names unless it is the code of then."""
    file = file_of(spec.rpartition(":")[0])
    if file is None or not file.is_file():
        raise UserError(f"{spec}: there is no such code here (seen from {Path.cwd()})")
    if digest([str(file)]) != code:
        raise UserError(
            f"{spec}: {file} is not the code that the run was made with, or takes its class from "
            f"another file; to run it, use --trust-code"
        )


class _InRecords(BaseModel):
    """What records say of a plug-in."""

    given: Text
    name: Name


def _refuse_unrecordable(spec: str, name: str, origin: str) -> None:
    """Refuse what a run's record and folder could not be named after."""
    try:
        _InRecords(given=spec, name=name)
    except ValidationError as error:
        what = {"given": "the name of its file", "name": "its name"}
        first = error.errors()[0]
        raise UserError(
            f"{origin}: {what[str(first['loc'][0])]} cannot stand in a record ({first['msg']}); "
            f"rename it"
        ) from None


def _is_of_the_system(error: BaseException, file: str) -> bool:
    """Whether an error is one of the file system that did not pass through a file of code."""
    if not isinstance(error, OSError) or error.errno is None:
        return False
    return all(file != frame.filename for frame in traceback.extract_tb(error.__traceback__))


def _class_of(module: ModuleType, name: str, origin: str) -> type[Mixer]:
    """Look a class up in a module, refusing what cannot be a mixer."""
    if name not in vars(module):
        defined = {
            key: value
            for key, value in vars(module).items()
            if inspect.isclass(value) and value.__module__ == module.__name__
        }
        valid = [key for key, value in defined.items() if issubclass(value, nn.Module)]
        raise unknown("class", name, valid, origin)
    cls = vars(module)[name]
    if not (inspect.isclass(cls) and issubclass(cls, nn.Module)):
        what = "another class" if inspect.isclass(cls) else f"of type {type(cls).__name__}"
        raise UserError(f"{origin}: {name} is {what}, expected a subclass of torch.nn.Module")
    if inspect.isabstract(cls):
        raise UserError(f"{origin}: {name} is abstract; define forward(self, x, mask)")
    registered = {key.casefold() for key in MIXERS.classes}
    if name.casefold() in registered:  # a folder's name may not tell upper from lower case
        raise UserError(
            f"{origin}: {name} is the name of a registered mixer; rename the class, or use "
            f"{name.casefold()} alone"
        )
    return cast("type[Mixer]", cls)


def _options(cls: type, origin: str) -> type[Section]:
    """Derive the options of a plug-in from its constructor's parameters after the context."""
    _, *parameters = inspect.signature(cls.__init__).parameters.values()
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if not parameters or parameters[0].kind not in by_position:
        raise UserError(f"{origin}: expected a constructor __init__(self, context, ...)")
    options: list[inspect.Parameter] = []
    for parameter in parameters[1:]:
        if parameter.kind is parameter.VAR_KEYWORD:
            raise UserError(
                f"{origin}: its constructor takes **{parameter.name}, which would swallow misspelt "
                f"options; name each option"
            )
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise UserError(
                f"{origin}: its constructor takes {parameter.name} by position alone; remove the /"
            )
        if parameter.kind is not parameter.VAR_POSITIONAL:
            options.append(parameter)
    _refuse_unsettable(cls, options, origin)
    return options_section(cls, options)


def _refuse_unsettable(cls: type, options: list[inspect.Parameter], origin: str) -> None:
    """Refuse types and defaults that a setting's text cannot give or a record cannot hold."""
    try:
        get_type_hints(cls.__init__)
    except Exception as error:
        raise UserError(
            f"{origin}: a type hint of its constructor: {type(error).__name__}: {error}; import "
            f"its names at run time"
        ) from None
    for option in options:
        if option.name.startswith("_") or option.name in dir(Section):
            raise UserError(f"{origin}: an option cannot be called {option.name}; rename it")
        try:
            refuse_endless(option.default)
            json.dumps(None if option.default is option.empty else option.default)
            settings = options_section(cls, [option])
            if option.default is not option.empty:
                settings.model_validate({})
        except Exception as error:
            raise UserError(
                f"{origin}: no setting can hold {_shown(option)} ({type(error).__name__}); give "
                f"it a plain type, and a default of it: a number, text, boolean or list"
            ) from None


def _shown(option: inspect.Parameter) -> str:
    """Write an option as a constructor does, a long default cut short."""
    default = "" if option.default is option.empty else f"={reprlib.repr(option.default)}"
    return f"{option.replace(default=option.empty)}{default}"
