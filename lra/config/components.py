"""The mixer and the task of a run: their classes, their options, and the errors of their code."""

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

from lra.common.errors import KnownError, UserError, describe
from lra.common.options import Added
from lra.models.base import Mixer, MixerContext
from lra.models.run_promises import BrokenPromise
from lra.runtime.environment import is_out_of_memory
from lra.tasks.base import DataSeed, Task
from lra.tasks.own import DATA_SEED, OwnTask

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
        marks = {name: field.metadata for name, field in type(self).model_fields.items()}
        return {
            name: value
            for name, value in self.model_dump().items()
            if not any(isinstance(m, Added) and m.default == value for m in marks[name])
        }


@functools.cache
def options_model(owner: type) -> type[Section]:
    """Derive the options of a mixer or task from the parameters of its constructor.

    The first parameter of a mixer is its context. A parameter without a type has the type of its
    default, or takes any value if it has none. A class with `examples` has `data_seed`, too.

    Raises: BrokenPromise for a constructor that would accept misspelt options, and for options that
        cannot be settings.
    """
    parameters = [*inspect.signature(owner.__init__).parameters.values()][1:]
    if owner.__init__ is object.__init__:
        parameters = []
    is_mixer = issubclass(owner, nn.Module)
    by_place = inspect.Parameter.POSITIONAL_OR_KEYWORD
    if is_mixer and not (parameters and parameters.pop(0).kind <= by_place):
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
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise BrokenPromise(
                f"its constructor takes {parameter}, which would accept misspelt options; name "
                f"each option"
            )
        if name.startswith("_") or name in dir(Section):
            raise BrokenPromise(f"an option cannot be called {name}; rename it")
        guess = type(default) if isinstance(default, (bool, int, float, str)) else Any
        fields[name] = hints.get(name, guess), ... if default is parameter.empty else default
    if not is_mixer and not issubclass(owner, Task):
        if DATA_SEED in fields:
            raise BrokenPromise(
                f"every task of your own already has an option {DATA_SEED}, which seeds rng; use "
                f"rng, or rename your option"
            )
        fields[DATA_SEED] = DataSeed, 0
    try:
        return create_model(f"{owner.__name__}Options", __base__=Section, **fields)
    except Exception as error:
        raise BrokenPromise(
            f"its options cannot be settings ({describe(error).splitlines()[0]}); use the types of "
            f"numbers, texts, booleans and lists"
        ) from None


@contextmanager
def explain_code(origin: str, what: str, file: str) -> Iterator[None]:
    """Turn whatever the code of a plug-in's `file` raises, `sys.exit` included, into a UserError.

    Its message is "origin: what: error". Errors that explain themselves, interrupts, running out of
    memory, and errors of the file system outside of the plug-in are raised as they are. The working
    directory stays the same.
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
        if isinstance(error, ModuleNotFoundError) and error.name:
            package = error.name.partition(".")[0]
            if package in ("models", "tasks", "common"):
                text += f"; the suite's {package} are lra.{package} now"
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
        """Name in records, folders and tables; of a plug-in or a data set that of its class."""
        is_dataset = self.code is None and ":" in self.spec
        return self.cls.__name__ if is_dataset else self.spec.rpartition(":")[2]

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


class MixerComponent(Component):
    """A mixer's class. A plug-in need not be a subclass of `Mixer`; `check_plug_in` tests it."""

    kind = "mixer"
    expected = "a subclass of torch.nn.Module"

    @staticmethod
    def fits(candidate: type) -> bool:
        """Whether a class can be a mixer."""
        return issubclass(candidate, nn.Module)

    def build(self, context: MixerContext, options: Section) -> Mixer:
        """Construct the mixer of one block; raises errors as `call`."""
        return self.call(self.cls, context, **dict(options))

    def share(self, context: MixerContext, options: Section) -> nn.Module | None:
        """Build the module that the mixers of all blocks share, see `Mixer.shared`."""
        if issubclass(self.cls, Mixer):
            return self.call(self.cls.shared, context, **dict(options))
        return None


class TaskComponent(Component):
    """A task's class: a subclass of `Task`, or a class with `examples`."""

    kind = "task"
    expected = "one with a method examples(self, split, rng), or a subclass of tasks.base.Task"

    @staticmethod
    def fits(candidate: type) -> bool:
        """Whether a class can be a task."""
        has_examples = callable(inspect.getattr_static(candidate, "examples", None))
        return has_examples or issubclass(candidate, Task)

    def build(self, options: Section) -> Task:
        """Construct the task, a plug-in only once as it may hold its data; errors as `call`."""
        if self.code is None:
            return self.construct(options)
        return _build_once(self, options.model_dump_json())

    def construct(self, options: Section) -> Task:
        """Construct a new task; a plug-in draws its data again."""
        values = dict(options)
        if issubclass(self.cls, Task):
            return self.call(self.cls, **values)
        del values[DATA_SEED]
        own = self.call(self.cls, **values)
        with self.explain_errors("it failed"):
            return OwnTask(
                own, name=self.name, code=self.code or "", options=options.model_dump(mode="json"),
                explain_errors=self.explain_errors,
            )  # fmt: skip


@functools.lru_cache(maxsize=4)
def _build_once(component: TaskComponent, options: str) -> Task:
    return component.construct(component.options.model_validate_json(options))
