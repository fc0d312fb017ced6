"""The task of a run: one of the suite, by its name, or a class of the user's own."""

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
    """A task's class and its origin: a subclass of `Task`, or a class with `examples`."""

    def build(self, options: Section) -> Task:
        """Construct the task.

        Raises: UserError for options that contradict one another, and for any error of a plug-in's
            constructor.
        """
        if self.code is None:
            return self.construct(options)
        return _build_task(self, options.model_dump_json())

    def construct(self, options: Section) -> Task:
        """Construct a new task; a plug-in draws its data again."""
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
    """Construct a plug-in once for each choice of options, because it may hold drawn data."""
    return component.construct(component.options.model_validate_json(options))


def find_task(spec: str, flag: str) -> TaskComponent:
    """Find the task that a flag names; see `find_component`.

    A task of the user's own has the additional option data_seed, unless it is a subclass of `Task`.

    Raises: UserError also for a plug-in that has an option of that name itself.
    """
    found = find_component(TaskComponent, TASK, spec, flag)
    if found.code is None or issubclass(found.cls, Task):
        return found
    if DATA_SEED in found.options.model_fields:
        raise UserError(
            f"{found.origin}: every task of your own already has an option {DATA_SEED}, which "
            f"seeds rng; use rng, or rename your option"
        )
    return replace(found, options=_with_data_seed(found.options))


@functools.cache
def _with_data_seed(options: type[Section]) -> type[Section]:
    fields: dict[str, Any] = {DATA_SEED: (DataSeed, 0)}
    return create_model(options.__name__, __base__=options, **fields)
