"""Checks of a mixer or a task of your own: `lra.check(MyMixer)`, or `python -m lra.check`."""

import inspect
import logging
import sys
from types import ModuleType
from typing import Any

from pydantic import PositiveInt

from lra.api.arguments import AnyPath, check_arguments
from lra.api.definitions import name_plug_in
from lra.api.training import torch_defaults
from lra.check.checks import carry_out, mixer_checks, task_checks
from lra.common.errors import UserError
from lra.config.components import MixerComponent, TaskComponent
from lra.config.compose import compose_options
from lra.config.registry import FORMS, LIBRARIES, find_mixer, find_task, load_class
from lra.config.request import Change, list_changes
from lra.runtime import console
from lra.runtime.environment import seed_everything


@check_arguments
def check(
    target: str | type, /, *, dim: PositiveInt = 16, data_dir: AnyPath = "data", **options: Any
) -> bool:
    """Check a mixer or a task of your own on small inputs, and print the result of each check.

    It seeds torch, NumPy and Python globally, so that it gives the same results again.

    Args:
        target: the class, or "my_mixer.py:MyMixer".
        dim: number of channels of a mixer.
        data_dir: folder that keeps the definition of a class of a notebook or script.
        options: options of the class, as `--set KEY=VALUE` takes them.
    Returns: whether every check passed, because a failed check is a result and no mistake.
    Raises: UserError for a class that is neither a mixer nor a task, and for wrong options.
    """
    folder = console.absolute_path(str(data_dir))
    component = find_component(name_plug_in(target, folder, "lra.check"))
    name, code = (target, repr(target)) if isinstance(target, str) else (target.__name__,) * 2
    named = {"task": "'listops'", "mixer": "'tnn'", component.kind: code}
    settings = f", {component.kind}={options}" if options else ""
    step = f"next: lra.run({named['task']}, {named['mixer']}, preset='quick'{settings})"
    changes = list_changes({component.kind: options}, "lra.check")
    width = console.terminal_width()
    return print_checks(component, name, changes, dim, console.wrap_words(step, width))


def find_component(target: str) -> MixerComponent | TaskComponent:
    """Find a mixer or a task of the user's own; another class raises a UserError."""
    if ":" not in target:
        raise UserError(f"{target}: expected {FORMS}")
    is_dataset = target.partition(":")[0] in LIBRARIES
    is_mixer = not is_dataset and MixerComponent.fits(load_class(target, target)[1])
    return find_mixer(target, "--mixer") if is_mixer else find_task(target, "--task")


def print_checks(
    component: MixerComponent | TaskComponent,
    name: str,
    changes: tuple[Change, ...],
    dim: int,
    step: list[str],
) -> bool:
    """Print the results of all checks, and the next step if all passed; return whether they did."""
    options = compose_options(component, changes)
    seed_everything(0)
    # The remarks of checks say what log lines say.
    with console.display_messages(logging.WARNING), torch_defaults():
        if isinstance(component, MixerComponent):
            checks = mixer_checks(component, options, dim)
        else:
            checks = task_checks(component, options, changes)
        failed, passed = carry_out(component, checks)
    count, width = len(failed) + len(passed), console.terminal_width()
    verdict = f"all {count} checks passed"
    if failed:
        verdict = f"{len(failed)} of {count} checks failed"
        step = ["next: correct what failed, and check it again"]
    texts = (f"{component.kind} {name}: {verdict}", "", *failed, *passed, "")
    lines = [line for text in texts for line in console.wrap_words(text, width) or [""]]
    console.write_out("\n".join([*lines, *step, ""]))
    return not failed


class _CallablePackage(ModuleType):
    """What `lra.check` is once this package is imported: the package, and the function."""

    __call__ = staticmethod(check)
    __signature__ = inspect.signature(check)


sys.modules[__name__].__class__ = _CallablePackage
