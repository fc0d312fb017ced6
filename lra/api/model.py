"""Models to train, and trained models, with their data."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from lra.api.arguments import (
    ANYTHING,
    NAME,
    PATH,
    SEED,
    SWITCH,
    check_arguments,
    format_value,
    instance_of,
)
from lra.classifier.classifier import Classifier
from lra.classifier.resolve import resolve
from lra.config.request import DEFAULT_PROTOCOL, PAPER, RunRequest, list_changes
from lra.config.schema import RunConfig
from lra.evaluate.trained import load_best_model, prepare_data, recompose_config
from lra.record.run import RunRecord, load_record
from lra.runtime.environment import choose_device, seed_everything, use_kernels, use_tf32
from lra.runtime.errors import UserError, unknown
from lra.train.checkpoint import describe_missing
from lra.train.evaluation import Evaluator
from tasks.base import Batch, Dataset, TaskInfo
from tasks.errors import describe

RESULT = "result.json"


class Built(NamedTuple):
    """The parts that a run starts with."""

    config: RunConfig
    model: Classifier
    """Maps `inputs` and `lengths` of a batch to logits, (batch, classes), or (positions, classes)
    if every position has a target."""
    dataset: Dataset
    info: TaskInfo


@check_arguments(
    "lra.build", task=NAME, mixer=NAME, preset=NAME, protocol=NAME, data_dir=PATH, seed=SEED
)
def build(
    task: str,
    mixer: str,
    /,
    *,
    preset: str = PAPER,
    protocol: str = DEFAULT_PROTOCOL,
    data_dir: Path | str = "data",
    seed: int = 0,
    **settings: Mapping[str, object],
) -> Built:
    """Build the model that a run of these settings starts with, and prepare its data.

    Args:
        task: a name of `lra.tasks()`, or a task of your own, "parity.py:Parity".
        mixer: a name of `lra.mixers()`, or a mixer of your own, "gated_mean.py:GatedMean".
        preset: paper, quick, budget, or a preset of the mixer's own.
        protocol: s4 or lra.
        data_dir: folder of official files and caches.
        seed: seed of the model's parameters. It seeds torch, NumPy and Python globally.
        **settings: changed settings by section: mixer={"rpe_dim": 16}, train={"lr": 1e-3}.
    Raises: UserError for settings that a run would refuse, DataError for data that can neither be
        found nor made.
    """
    data_dir = Path(data_dir).absolute()  # code of the user's own may change the working directory
    changes = list_changes(settings, "lra.build")
    config = resolve(
        RunRequest(task=task, mixer=mixer, preset=preset, protocol=protocol, changes=changes)
    )
    built_task = config.build_task()
    dataset = built_task.prepare(data_dir)
    seed_everything(int(seed))
    with config.mixer_component.explain_errors("its model cannot be built"):
        model = Classifier(config, built_task.info)
    return Built(config, model, dataset, built_task.info)


@check_arguments("lra.load", run=PATH, data_dir=PATH, trust_code=SWITCH, device=NAME)
def load(
    run: Path | str,
    *,
    data_dir: Path | str = "data",
    trust_code: bool = False,
    device: str = "cpu",
) -> TrainedRun:
    """Load a run from its folder.

    Args:
        run: folder of the run, for instance results/runs/listops/tnn/f5730151-s0.
        data_dir: folder of official files and caches.
        trust_code: whether to run the code of a mixer or task of your own even if its file has
            changed since the run.
        device: device of the model: auto, cpu, cuda or cuda:N.
    Raises: UserError if there is no such run, or if its settings or code have changed since.
    """
    folder, data_dir = Path(run), Path(data_dir).absolute()
    if folder.name == RESULT:
        folder = folder.parent
    path = folder / RESULT
    if not path.is_file():
        raise UserError(f"{folder}: there is no {RESULT}, expected the folder of a run")
    record, folder = load_record(path), folder.absolute()
    config = recompose_config(folder, record, trust_code=trust_code)
    return TrainedRun(folder, record, config, data_dir, choose_device(device))


class TrainedRun:
    """A run: its record and settings, and its model and data, which are loaded when first used.

    Attributes:
        folder: folder of the run.
        record: result of the run: accuracy, speed, memory, status.
        config: settings of the run.
        data_dir: folder of official files and caches.
        device: device of the model.
    """

    @check_arguments(
        "lra.TrainedRun",
        folder=instance_of(Path),
        record=instance_of(RunRecord),
        config=instance_of(RunConfig),
        data_dir=instance_of(Path),
        device=instance_of(torch.device),
    )
    def __init__(
        self,
        folder: Path,
        record: RunRecord,
        config: RunConfig,
        data_dir: Path,
        device: torch.device,
    ) -> None:
        self.folder = folder
        self.record = record
        self.config = config
        self.data_dir = data_dir
        self.device = device

    def __repr__(self) -> str:
        return f"TrainedRun({str(self.folder)!r})"

    @functools.cached_property
    @check_arguments("TrainedRun.model")
    def model(self) -> Classifier:
        """The model with the weights of its best validation, in evaluation mode.

        Raises: UserError if there is no checkpoint, or if it does not fit the settings.
        """
        with self.config.mixer_component.explain_errors("its trained model cannot be built"):
            model = load_best_model(self.folder, self.config, self.config.build_task().info)
        if model is None:
            raise UserError(f"{self.folder}: {describe_missing(self.folder / 'checkpoints')}")
        return model.to(self.device)

    @functools.cached_property
    @check_arguments("TrainedRun.dataset")
    def dataset(self) -> Dataset:
        """The data of the run.

        Raises: DataError if it can neither be found nor made; UserError if it differs from the data
            that the run was trained on.
        """
        return prepare_data(self.folder, self.record, self.config, self.data_dir)

    @check_arguments("TrainedRun.logits", split=NAME, indices=ANYTHING)
    def logits(
        self, split: str = "test", indices: Sequence[int] | np.ndarray | None = None
    ) -> np.ndarray:
        """Compute the logits of examples, or of all their positions if positions have targets.

        Args:
            split: train, val or test.
            indices: indices of examples, (examples,) whole numbers. None: all examples.
        Returns: (examples, classes) float32 in the order of `indices`; or (positions, classes), the
            positions of one example after another.
        Raises: UserError for an unknown split or index.
        """
        if split not in self.dataset.splits:
            raise unknown("split", split, self.dataset.splits, "split")
        examples = self.dataset.splits[split]
        chosen = _indices(indices, len(examples))
        of_positions = self.config.build_task().info.targets != "example"
        counts = examples.lengths[chosen] if of_positions else np.ones(len(chosen), dtype=np.int64)
        firsts = np.cumsum(counts) - counts
        found = np.empty((counts.sum(), self.model.output.out_features), dtype=np.float32)

        def receive(rows: np.ndarray, logits: Tensor, batch: Batch) -> None:
            places = [slice(int(firsts[row]), int(firsts[row] + counts[row])) for row in rows]
            found[np.r_[*places]] = logits.float().cpu().numpy()

        use_tf32(self.device, self.config.train.tf32)
        use_kernels(self.device, self.config.train.kernels)
        evaluator = Evaluator(
            model=self.model,
            batch_size=self.record.micro_batch or self.record.batch_size,  # as the run's own test
            device=self.device,
            precision=self.config.train.precision,
        )
        with self.config.mixer_component.explain_errors("the evaluation failed"):
            evaluator.compute_logits(examples, receive, chosen)
        return found

    @check_arguments("TrainedRun.predict", split=NAME, indices=ANYTHING)
    def predict(
        self, split: str = "test", indices: Sequence[int] | np.ndarray | None = None
    ) -> np.ndarray:
        """Predict the class of each example, or the next token or label at each position.

        For the whole test set of a task with classes of examples these are the predictions in
        predictions.csv.

        Args:
            split: train, val or test.
            indices: indices of examples, (examples,) whole numbers. None: all examples.
        Returns: (examples,) int64 in the order of `indices`; or (positions,), see `logits`.
        Raises: UserError for an unknown split or index, and for logits that are not finite.
        """
        logits = self.logits(split, indices)
        wrong = int((~np.isfinite(logits).all(axis=1)).sum())
        if wrong:
            raise UserError(
                f"{self.folder}: the logits of {wrong:,} of {len(logits):,} examples are not "
                f"finite, so they predict nothing; see logits()"
            )
        return logits.argmax(axis=1)


def _indices(given: Sequence[int] | np.ndarray | None, count: int) -> np.ndarray:
    """Check indices of examples and return them, (examples,) int64.

    Raises: UserError for anything but whole numbers from 0 to count - 1.
    """
    if given is None:
        return np.arange(count)
    try:
        indices = np.asarray(given)
    except Exception as error:
        raise UserError(
            f"indices: got {format_value(given)}, expected whole numbers ({describe(error)})"
        ) from None
    if not indices.size:
        return np.empty(0, dtype=np.int64)
    if indices.ndim != 1 or indices.dtype.kind not in "iu":
        raise UserError(f"indices: got {indices.dtype} {indices.shape}, expected whole numbers")
    if indices.min() < 0 or indices.max() >= count:
        raise UserError(
            f"indices: got {indices.min()} to {indices.max()}, expected 0 to {count - 1}"
        )
    return indices.astype(np.int64)
