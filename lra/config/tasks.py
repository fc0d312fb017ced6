"""A run's task: a registered name, or a class of the user's own."""

from __future__ import annotations

import functools
import inspect
from dataclasses import dataclass, replace
from typing import Any

from pydantic import create_model

from lra.config.component import Component
from lra.config.plugin import ComponentKind, find_component
from lra.config.registry import TASKS, Section
from lra.runtime.errors import UserError
from tasks.base import Task
from tasks.own import DATA_SEED, DataSeed, OwnTask


def _is_task(cls: type) -> bool:
    return issubclass(cls, Task) or callable(inspect.getattr_static(cls, "examples", None))


TASK = ComponentKind(
    registry=TASKS,
    fits=_is_task,
    expected="one with a method examples(self, split, rng), or a subclass of tasks.base.Task",
)


@dataclass(frozen=True, kw_only=True)
class TaskComponent(Component):
    """A task's class and where it is from: a subclass of `Task`, or one with `examples`."""

    def build(self, options: Section) -> Task:
        """Construct the task.

        Raises: UserError for options that contradict one another, and for whatever the constructor
            of a plug-in raises.
        """
        if self.code is None:
            return self.construct(options)
        return _build_task(self, options.model_dump_json())

    def construct(self, options: Section) -> Task:
        """Construct the task anew, as `build` does if it has not yet; a plug-in draws again."""
        values: dict[str, Any] = dict(options)
        with self.explain_errors("its constructor failed"):
            try:
                if issubclass(self.cls, Task):
                    return self.cls(**values)
                seed = values.pop(DATA_SEED)
                own = self.cls(**values)
            except ValueError as error:
                raise UserError(f"task {self.name}: {error}") from None
        with self.explain_errors("it failed"):
            return OwnTask(
                own, name=self.name, code=str(self.code), options=options.model_dump(mode="json"),
                data_seed=seed, explain_errors=self.explain_errors,
            )  # fmt: skip


@functools.lru_cache(maxsize=4)
def _build_task(component: TaskComponent, options: str) -> Task:
    """Construct a plug-in once for each choice of options: it may hold what it has drawn."""
    return component.construct(component.options.model_validate_json(options))


def find_task(spec: str, flag: str) -> TaskComponent:
    """Find the task that a flag names; see `find_component`.

    A task of the user's own, unless it is a subclass of `Task`, has the option data_seed, too.

    Raises: UserError also for an option of its own that has that name.
    """
    found = find_component(TaskComponent, TASK, spec, flag)
    if found.code is None or issubclass(found.cls, Task):
        return found
    if DATA_SEED in found.options.model_fields:
        raise UserError(
            f"{found.origin}: {DATA_SEED} is an option that every task of one's own has already; "
            f"draw by rng, which follows it, or rename yours"
        )
    return replace(found, options=_with_data_seed(found.options))


@functools.cache
def _with_data_seed(options: type[Section]) -> type[Section]:
    fields: dict[str, Any] = {DATA_SEED: (DataSeed, 0)}
    return create_model(options.__name__, __base__=options, **fields)
