"""The checks of a mixer or a task of the user's own, and their results."""

import copy
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from lra.common.errors import DataError, KnownError, UserError
from lra.config.components import Component, MixerComponent, Section, TaskComponent
from lra.config.request import Change, RunRequest, list_changes
from lra.models.base import Mixer, MixerContext, RecurrentMixer
from lra.models.run_promises import BrokenPromise, check_output, check_padding, check_rows
from lra.models.suite_promises import (
    check_bf16,
    check_determinism,
    check_empty_batch,
    check_every_gradient,
    check_gradients,
    check_longer,
    check_padding_gradient,
    check_reach,
    check_recurrence,
    check_saved_weights,
)
from lra.resolve import resolve
from lra.runtime.tables import count_nouns
from lra.tasks.base import Dataset, Task
from lra.tasks.goals import ExampleClass, ExampleValues, NextToken
from lra.tasks.own import OwnTask
from lra.train.trainer import Trainer
from lra.trial import plug_in_checks

Check = Callable[[], object]
"""A check: it raises an error that says what is wrong, or returns a remark, or anything else."""
Checks = Iterator[tuple[str, Check]]
"""Checks by their names, each a statement that is true if the check passes."""
LENGTH = 300
"""Longest sequence that a mixer is built for, in positions."""
SCALE = 0.1
"""Standard deviation of the random numbers that are added to parameters, so that every part of a
mixer has an effect. A larger one makes some recurrences unstable."""
BF16_LIMIT = 0.05
"""Largest difference of a result in bf16, relative to that in single precision."""
TRAIN = {"steps": 2, "batch_size": 4, "warmup_steps": 0, "evaluate_every": 2}
"""Settings of the training on the task."""
_UNMADE = "the next check can run"


def carry_out(component: Component, checks: Checks) -> tuple[list[str], list[str]]:
    """Carry out all checks, each before the next one is made, also those after a failed one.

    Returns: a line for each check that failed, and one for each that passed.
    Raises: errors that come neither from the code of a plug-in nor from a broken promise.
    """
    failed: list[str] = []
    passed: list[str] = []
    faults: set[str] = set()
    while True:
        name = _UNMADE
        try:
            with component.explain_errors("it failed"):
                name, check = next(checks, ("", None))
                if check is None:
                    return failed, passed
                remark = check()
                said = f": {remark}" if isinstance(remark, str) and remark else ""
                passed.append(f"passed  {name}{said}")
        except (BrokenPromise, KnownError) as error:
            fault = str(error).removeprefix(f"{component.origin}: ")
            # A check that could not be made repeats an earlier fault.
            if name != _UNMADE or fault not in faults:
                failed.append(f"FAILED  {name}: {fault}")
            faults.add(fault)


def mixer_checks(component: MixerComponent, options: Section, dim: int) -> Checks:
    """List all checks of a mixer with some options at `dim` channels, each by its name."""
    context = MixerContext(dim=dim, max_length=LENGTH, layer=0, depth=2)
    build = partial(component.build, options=options)

    def describe() -> str:
        count = sum(parameter.numel() for parameter in build(context).parameters())
        return f"{count:,} parameters at {dim} channels"

    yield "its constructor works", describe
    mixer = build(context)
    yield from plug_in_checks(mixer, context)
    for length in (1, LENGTH):
        name = f"it runs on {count_nouns(length, 'position')}"
        yield name, partial(check_output, mixer, torch.randn(2, length, dim))
    mixer.eval()
    x = torch.randn(4, 31, dim)
    yield "two evaluations give the same result", partial(check_determinism, mixer, x)
    yield "sequences of a batch are independent", partial(check_rows, mixer, x)
    again = build(context).eval()
    yield "saved weights give the same result", partial(check_saved_weights, mixer, again, x)
    yield "every parameter has a gradient", partial(_check_gradients, mixer, x)
    yield "it runs in bf16", partial(check_bf16, mixer, x)
    causal = partial(_check_causal, component, options, replace(context, causal=True))
    yield "with model.causal=true it is causal, or refuses", causal
    if isinstance(mixer, Mixer):
        yield from contract_checks(component, options, context)


def _check_gradients(mixer: nn.Module, x: Tensor) -> str | None:
    check_gradients(copy.deepcopy(mixer).train(), x)
    is_trainable = any(parameter.requires_grad for parameter in mixer.parameters())
    return None if is_trainable else "it has no trainable parameters"


def _check_causal(component: MixerComponent, options: Section, context: MixerContext) -> str | None:
    try:
        mixer = component.build(context, options)
    except UserError as error:
        return f"does not apply, as it refuses a causal model ({error})"
    for _, check in plug_in_checks(mixer, context):
        check()
    return None


def contract_checks(component: MixerComponent, options: Section, context: MixerContext) -> Checks:
    """List the checks that tests/test_models_contract.py makes, each by its name."""
    yield "its docstring explains every option", partial(_check_docstring, component)
    for causal in (False, True):
        try:
            mixer = component.build(replace(context, layer=1, causal=causal), options)
        except UserError:
            continue  # it refuses a causal model
        with torch.no_grad():
            for parameter in mixer.parameters():
                parameter.add_(SCALE * torch.randn_like(parameter))
        for name, check in _list_promises(mixer, context, causal=causal):
            yield f"{name} in a causal model" if causal else name, check


def _list_promises(mixer: nn.Module, context: MixerContext, *, causal: bool) -> Checks:
    dim, longest = context.dim, context.max_length
    batches, empty = torch.randn(3, 2, 33, dim), torch.zeros(0, longest, dim)
    yield "every parameter has an effect", partial(check_every_gradient, mixer, batches)
    yield "it runs on an empty batch", partial(check_empty_batch, mixer, empty)
    close = partial(check_bf16, mixer.eval(), torch.randn(2, 33, dim), BF16_LIMIT)
    yield "its result in bf16 is close to that in single precision", close
    exact = copy.deepcopy(mixer).double().eval()
    x = torch.randn(2, 16, dim, dtype=torch.float64)
    mask = torch.arange(16) < torch.tensor([[7], [16]])
    yield "it runs in double precision", partial(check_rows, exact, x, mask)
    padding = partial(check_padding, exact, x, mask, [torch.inf, torch.nan])
    yield "padding may hold infinities and NaN", padding
    yield "no gradient reaches padding", partial(check_padding_gradient, exact, x, mask)
    reach = partial(check_reach, exact, x[:1, :13], causal=causal)
    yield "it mixes as many positions as `reach` says", reach
    longer = torch.randn(1, 2 * longest, dim, dtype=torch.float64)
    refuses = "it mixes longer sequences, or refuses them, as `takes_longer` says"
    yield refuses, partial(check_longer, exact, longer)
    if causal and isinstance(exact, RecurrentMixer):
        yield "its recurrence equals forward", partial(check_recurrence, exact, x)


def _check_docstring(component: MixerComponent) -> None:
    text = component.cls.__doc__ or ""
    missing = [name for name in component.options.model_fields if f"{name}:" not in text]
    if missing:
        raise BrokenPromise(
            f"the docstring of {component.name} does not explain {', '.join(missing)}; add a line "
            f"'{missing[0]}: ...' to its Args"
        )


def task_checks(component: TaskComponent, options: Section, changes: tuple[Change, ...]) -> Checks:
    """List all checks of a task, each by its name; its options come from the changed settings."""
    with tempfile.TemporaryDirectory(prefix="lra-check-") as name:
        folder = Path(name)
        yield "its constructor works", partial(component.build, options)
        task = component.build(options)
        if isinstance(task, OwnTask):
            yield "examples(split, rng) returns sequences and labels", partial(_describe_own, task)
            _ = task.drawn  # without them, there is nothing else to check
            yield "examples depend on the seed alone", task.check_drawn
            for split, other in (("val", "train"), ("test", "train"), ("val", "test")):
                known = partial(_check_known, task, split, other)
                where = "training" if other == "train" else other
                yield f"{split} examples are not in the {where} split", known
        right = "its data can be prepared, and is as the class states"
        yield right, lambda: _describe_data(task.prepare(folder))
        dataset = task.prepare(folder)
        again = partial(_prepare_again, component.construct(options), folder, dataset)
        yield "a second preparation gives the same data", again
        yield "its data passes its own verification", lambda: "; ".join(task.verify(dataset))
        if not isinstance(task.info.goal, ExampleValues):
            yield "every class is in the training split", partial(_check_classes, task, dataset)
        yield "batches hold the right examples", partial(_check_batches, task, dataset)
        needs = {"causal": True, "norm": "layer"} if isinstance(task.info.goal, NextToken) else {}
        small = {"model": {"dim": 8, "depth": 1, **needs}, "train": TRAIN}
        chosen = (*changes, *list_changes(small, "lra.check"))
        yield "a model trains on it", partial(_train, component, chosen, dataset)


def _describe_own(task: OwnTask) -> str:
    lengths = np.concatenate([split.lengths for split in task.drawn.values()])
    info, goal = task.info, task.info.goal
    inputs = f"{info.vocab_size} tokens" if info.vocab_size else f"{info.channels} real numbers"
    pairs = "pairs of " if info.towers > 1 else ""
    return (
        f"{goal.described}, {pairs}up to {info.max_length:,} positions, {inputs}; "
        f"lengths {lengths.min():,} to {lengths.max():,}"
    )


def _describe_data(dataset: Dataset) -> str:
    sizes = ", ".join(f"{name} {count:,}" for name, count in dataset.sizes.items())
    baselines = (f"; {name} {value:.2f} %" for name, value in dataset.baselines.items())
    return f"{sizes}{''.join(baselines)}"


def _prepare_again(task: Task, folder: Path, dataset: Dataset) -> None:
    if task.prepare(folder / "again").fingerprint != dataset.fingerprint:
        raise DataError("its fingerprint differs; take random numbers only from rng")


def _train(component: TaskComponent, changes: tuple[Change, ...], dataset: Dataset) -> str:
    config = resolve(RunRequest(task=component.spec, mixer="mean", changes=changes))
    trainer = Trainer(config, config.build_task().info, dataset, 0, torch.device("cpu"))
    trainer.train_step()
    trainer.read()
    return f"validation loss {trainer.validate(lambda: None).loss:.3f} after a step"


def _check_known(task: OwnTask, split: str, other: str) -> str | None:
    """Check that not all examples of a split are in another one."""
    count, total = task.count_known(split, other), len(task.drawn[split])
    if count == total and other == "test":
        return f"except all {total:,}, so the best model is selected on the test set; tables say so"
    if count == total:
        raise DataError(
            f"all {total:,} of them are, so a model can score by memorizing; draw from more "
            f"sequences, or leave out those of the training split"
        )
    return f"except {count:,} of {total:,}" if count else None


def _check_classes(task: Task, dataset: Dataset) -> str | None:
    missing = task.info.goal.list_unseen(dataset.splits["train"].labels)
    if missing and isinstance(task.info.goal, ExampleClass):
        raise DataError(f"classes {', '.join(map(str, missing[:5]))} are missing")
    # Not all bytes occur in a text.
    return f"except {len(missing):,} of {task.info.goal.outputs:,}" if missing else None


def _check_batches(task: Task, dataset: Dataset) -> None:
    for name, split in dataset.splits.items():
        chosen = np.arange(min(3, len(split)))[::-1]
        together, single = split.batch(chosen), [split.batch(np.array([i])) for i in chosen]
        inputs = torch.cat([batch.inputs for batch in single])
        labels = torch.cat([batch.labels for batch in single])
        if not task.info.goal.of_positions:
            labels = torch.from_numpy(split.labels[chosen]).to(together.labels.dtype)
        if not (torch.equal(together.inputs, inputs) and torch.equal(together.labels, labels)):
            raise DataError(f"a batch of {name} differs from its examples one by one")
        if together.lengths.max(dim=1).values.tolist() != split.lengths[chosen].tolist():
            raise DataError(f"lengths of a batch of {name} are not those of its examples")
