"""A run's mixer: a registered name, or a class of the user's own file or module."""

from __future__ import annotations

import functools
import hashlib
import importlib
import inspect
import json
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import cast, get_type_hints

from pydantic import BaseModel, ValidationError
from torch import nn

from lra.config.registry import MIXERS, Section, options_model, options_section
from lra.record.schema import Name, Text
from lra.runtime.environment import is_out_of_memory
from lra.runtime.errors import UserError, unknown, user_code
from models.base import Mixer, MixerContext
from tasks.errors import KnownError, describe
from tasks.untrusted import read_regular

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
            file = None if self.code is None else inspect.getfile(self.cls)
            if file is None or is_out_of_memory(error) or _is_of_the_system(error, file):
                raise
            raise UserError(f"{self.origin}: {what}: {described(error, file)}") from error


def find_mixer(spec: str, flag: str) -> MixerSource:
    """Find the mixer that a flag names: registered, or a plug-in, whose code is then run.

    Raises: UserError for whatever keeps it from being found, imported or given its options.
    """
    if ":" in spec:
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
        module = _load_file(Path(target), origin)
    elif name.isidentifier() and all(part.isidentifier() for part in target.split(".")):
        module = _load_module(target, origin)
    else:
        raise UserError(f"{origin}: expected {FORMS}")
    _refuse_unrecordable(spec, name, origin)
    cls = _class_of(module, name, origin)
    user_code.update({inspect.getfile(module), inspect.getfile(cls)})
    options, code = _options(cls, origin), _digest(module, cls)
    return MixerSource(given=spec, name=name, cls=cls, options=options, flag=flag, code=code)


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


def _load_file(path: Path, origin: str) -> ModuleType:
    """Run a file as a module; the same file with the same text only once."""
    if not path.is_file():
        raise UserError(f"{origin}: there is no file {path} (seen from {Path.cwd()})")
    path = path.resolve()
    source = read_regular(path)
    identity = hashlib.sha256(os.fsencode(path) + b"\0" + source).hexdigest()
    module = ModuleType(f"_mixer_plug_in_{identity[:16]}")
    if module.__name__ in sys.modules:
        return sys.modules[module.__name__]
    module.__file__ = str(path)
    _search_also(path.parent)
    sys.modules[module.__name__] = module  # where dataclasses and type hints look names up
    try:
        # Not by an import, whose cache of bytecode may lag behind an edit.
        exec(compile(source, str(path), "exec", dont_inherit=True), module.__dict__)  # noqa: S102
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        del sys.modules[module.__name__]
        raise _failed_import(error, origin, str(path)) from None
    return module


def _load_module(name: str, origin: str) -> ModuleType:
    _search_also(Path.cwd())
    try:
        return importlib.import_module(name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is not None and f"{name}.".startswith(f"{missing}."):
            raise UserError(
                f"{origin}: there is no module {missing}, neither installed nor in {Path.cwd()}; "
                f"a file can be given as path/to/file.py:ClassName"
            ) from None
        raise _failed_import(error, origin, name.replace(".", "/")) from None


def _search_also(folder: Path) -> None:
    """Let imports find a folder's modules, after all others."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def _failed_import(error: BaseException, origin: str, file: str) -> UserError:
    return UserError(f"{origin}: its import failed: {described(error, file)}")


def described(error: BaseException, file: str) -> str:
    """Name an exception and its place, in a file whose path contains `file` if it passed one."""
    text = describe(error)
    if isinstance(error, SyntaxError):
        return text  # names the place itself
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return text
    place = ([frame for frame in frames if file in frame.filename] or frames)[-1]
    return f"{text} ({place.filename}, line {place.lineno})"


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
            json.dumps(None if option.default is option.empty else option.default)
            settings = options_section(cls, [option])
            if option.default is not option.empty:
                settings.model_validate({})
        except Exception as error:
            raise UserError(
                f"{origin}: no setting can hold {option} ({type(error).__name__}); give it a plain "
                f"type, and a default of it: a number, text, boolean or list"
            ) from None


@functools.cache
def _digest(module: ModuleType, cls: type) -> str:
    """Hash the file that was named, and the one that defines the class if that is another."""
    files = dict.fromkeys([str(module.__file__), inspect.getfile(cls)])
    return hashlib.sha256(b"".join(read_regular(Path(file)) for file in files)).hexdigest()[:16]
