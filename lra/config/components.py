"""The mixer and the task of a run: their classes, their options, and the errors of their code."""

from __future__ import annotations

import functools
import inspect
import json
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, chdir, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar, get_type_hints

from pydantic import BaseModel, ConfigDict, create_model, field_validator
from torch import nn

from common.errors import KnownError, UserError, describe
from common.options import Added
from lra.runtime.environment import is_out_of_memory
from models.base import Mixer, MixerContext
from models.promises import BrokenPromise
from tasks.base import DataSeed, Task
from tasks.own import DATA_SEED, OwnTask

T = TypeVar("T")


class Section(BaseModel):
    """A section of the configuration: typed, immutable, closed to unknown keys."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, validate_default=True
    )

    @field_validator("*")
    @classmethod
    def _refuse_unrecordable(cls, value: Any) -> Any:
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError, RecursionError):
            raise ValueError(
                f"a record cannot hold a {type(value).__name__}; use a number, text, boolean or "
                f"list"
            ) from None
        return value

    def hashed(self) -> dict[str, Any]:
        """Dump the settings, without those marked `Added` that have the value from before them."""
        fields = type(self).model_fields
        return {
            name: value
            for name, value in self.model_dump().items()
            if not any(
                isinstance(mark, Added) and mark.default == value for mark in fields[name].metadata
            )
        }


@functools.cache
def options_model(owner: type) -> type[Section]:
    """Derive the options of a mixer or task from the parameters of its constructor.

    The first parameter of a mixer is its context. A parameter without a type has the type of its
    default, or takes any value if it has none.

    Raises: BrokenPromise for a constructor that would accept misspelt options, and for options that
        cannot be settings.
    """
    parameters = [*inspect.signature(owner.__init__).parameters.values()][1:]
    if owner.__init__ is object.__init__:
        parameters = []
    if issubclass(owner, nn.Module):
        kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        if not parameters or parameters.pop(0).kind not in kinds:
            raise BrokenPromise("expected a constructor __init__(self, context, ...)")
    try:
        hints = get_type_hints(owner.__init__, include_extras=True)
    except Exception as error:
        raise BrokenPromise(
            f"a type hint of its constructor cannot be evaluated ({describe(error)}); import its "
            f"names at run time"
        ) from None
    fields: dict[str, Any] = {}
    for parameter in parameters:
        name, default = parameter.name, parameter.default
        if parameter.kind is parameter.VAR_KEYWORD:
            raise BrokenPromise(
                f"its constructor takes **{name}, which would accept misspelt options; name each "
                f"option"
            )
        if parameter.kind is parameter.VAR_POSITIONAL:
            continue
        if name.startswith("_") or name in dir(Section):
            raise BrokenPromise(f"an option cannot be called {name}; rename it")
        guess = type(default) if isinstance(default, (bool, int, float, str)) else Any
        fields[name] = hints.get(name, guess), ... if default is parameter.empty else default
        try:
            create_model("Option", __base__=Section, **{name: fields[name]})
        except Exception:
            raise BrokenPromise(
                f"{name} cannot be a setting; use the type of a number, text, boolean or list"
            ) from None
    return create_model(f"{owner.__name__}Options", __base__=Section, **fields)


@contextmanager
def explain_code(origin: str, what: str, file: str) -> Iterator[None]:
    """Turn whatever a plug-in's code raises, `sys.exit` included, into a UserError.

    Errors that explain themselves, interrupts, running out of memory, and errors of the file system
    outside of the plug-in are raised as they are. The working directory stays the same.

    Args:
        origin: start of the message.
        what: the consequence of an error, "its constructor failed" for instance.
        file: the file of the plug-in, or a part of its path.
    """
    try:
        with chdir("."):
            yield
    except (KnownError, KeyboardInterrupt, GeneratorExit):
        raise
    except BrokenPromise as error:
        raise UserError(f"{origin}: {error}") from None
    except BaseException as error:
        own = [f for f in traceback.extract_tb(error.__traceback__) if file in f.filename]
        is_of_system = isinstance(error, OSError) and error.errno is not None
        if is_out_of_memory(error) or (is_of_system and not own):
            raise
        text = f"{origin}: {what}: {describe(error)}"
        if own and not isinstance(error, SyntaxError):  # it names its line itself
            text += f" ({own[-1].filename}, line {own[-1].lineno})"
        raise UserError(text) from error


@dataclass(frozen=True, kw_only=True)
class Component:
    """A class of the suite, or a plug-in: a class in a user's own file or module."""

    kind: ClassVar[str]
    """mixer or task."""
    expected: ClassVar[str]
    """Description of the classes that can be of this kind, for error messages."""

    spec: str
    """A name, or the place of a plug-in."""
    origin: str
    """Start of error messages: the flag with the spec."""
    cls: type[Any]
    code: str | None = None
    """Start of the SHA-256 of a plug-in's file; None for a class of the suite."""
    file: str | None = None
    """The file that defines a plug-in's class."""

    @property
    def name(self) -> str:
        """Name in records, folders and tables; of a plug-in that of its class."""
        return self.spec.rpartition(":")[2]

    @property
    def options(self) -> type[Section]:
        """The type of the options; UserError for a plug-in whose constructor has no valid ones."""
        with self.explain_errors("it cannot be used"):
            return options_model(self.cls)

    def explain_errors(self, what: str) -> AbstractContextManager[None]:
        """Explain errors of a plug-in's code, see `explain_code`; the suite's own are raised."""
        return nullcontext() if self.file is None else explain_code(self.origin, what, self.file)

    def call(self, build: Callable[..., T], *arguments: Any, **options: Any) -> T:
        """Call a constructor; its ValueError, for contradicting options, becomes a UserError."""
        with self.explain_errors("its constructor failed"):
            try:
                return build(*arguments, **options)
            except ValueError as error:
                raise UserError(f"{self.kind} {self.name}: {error}") from None


@dataclass(frozen=True, kw_only=True)
class MixerComponent(Component):
    """A mixer's class. A plug-in need not be a subclass of `Mixer`; `check_plug_in` tests it."""

    kind: ClassVar[str] = "mixer"
    expected: ClassVar[str] = "a subclass of torch.nn.Module"

    @staticmethod
    def fits(candidate: type) -> bool:
        """Whether a class can be a mixer."""
        return issubclass(candidate, nn.Module)

    @property
    def takes_longer(self) -> bool:
        """Whether the mixer also mixes longer sequences than it was built for."""
        return getattr(self.cls, "takes_longer", True)

    def build(self, context: MixerContext, options: Section) -> Mixer:
        """Construct the mixer of one block; raises errors as `call`."""
        return self.call(self.cls, context, **dict(options))

    def share(self, context: MixerContext, options: Section) -> nn.Module | None:
        """Build the module that the mixers of all blocks share, see `Mixer.shared`."""
        if issubclass(self.cls, Mixer):
            return self.call(self.cls.shared, context, **dict(options))
        return None


@dataclass(frozen=True, kw_only=True)
class TaskComponent(Component):
    """A task's class: a subclass of `Task`, or a class with `examples`."""

    kind: ClassVar[str] = "task"
    expected: ClassVar[str] = (
        "one with a method examples(self, split, rng), or a subclass of tasks.base.Task"
    )

    @staticmethod
    def fits(candidate: type) -> bool:
        """Whether a class can be a task."""
        has_examples = callable(inspect.getattr_static(candidate, "examples", None))
        return has_examples or issubclass(candidate, Task)

    @property
    def options(self) -> type[Section]:
        """The type of the options; that of a class with `examples` has data_seed, too."""
        options = super().options
        if issubclass(self.cls, Task):
            return options
        if DATA_SEED in options.model_fields:
            text = f"every task of your own already has an option {DATA_SEED}, which seeds rng"
            raise UserError(f"{self.origin}: {text}; use rng, or rename your option")
        return _add_data_seed(options)

    def build(self, options: Section) -> Task:
        """Construct the task, a plug-in only once as it may hold its data; errors as `call`."""
        if self.code is None:
            return self.construct(options)
        return _build_once(self, options.model_dump_json())

    def construct(self, options: Section) -> Task:
        """Construct a new task; a plug-in draws its data again."""
        if issubclass(self.cls, Task):
            return self.call(self.cls, **dict(options))
        values = dict(options)
        del values[DATA_SEED]
        own = self.call(self.cls, **values)
        with self.explain_errors("it failed"):
            return OwnTask(
                own, name=self.name, code=str(self.code), options=options.model_dump(mode="json"),
                explain_errors=self.explain_errors,
            )  # fmt: skip


@functools.lru_cache(maxsize=4)
def _build_once(component: TaskComponent, options: str) -> Task:
    return component.construct(component.options.model_validate_json(options))


@functools.cache
def _add_data_seed(options: type[Section]) -> type[Section]:
    return create_model(options.__name__, __base__=options, data_seed=(DataSeed, 0))
