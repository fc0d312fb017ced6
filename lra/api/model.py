"""Models to train, and trained models, with their data."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor

from common.files import write_atomically
from lra.api.arguments import AnyPath, Indices, Seed, check_arguments
from lra.classifier.classifier import Classifier
from lra.classifier.loss import is_scored
from lra.classifier.resolve import resolve
from lra.config.request import DEFAULT_PROTOCOL, PAPER, RunRequest, list_changes
from lra.config.schema import RunConfig
from lra.evaluate.trained import load_best_model, prepare_data, recompose_config
from lra.record.packed import has_file
from lra.record.run import RunRecord, load_record
from lra.runtime.environment import choose_device, seed_everything, use_kernels, use_tf32
from lra.runtime.errors import UnknownName, UserError
from lra.train.checkpoint import describe_missing
from lra.train.evaluation import Evaluator
from tasks.base import Batch, Dataset, TaskInfo, check_indices


class Built(NamedTuple):
    """The parts that a run starts with."""

    config: RunConfig
    model: Classifier
    """Maps `inputs` and `lengths` of a batch to logits, (batch, classes), or (positions, classes)
    if every position has a target."""
    dataset: Dataset
    info: TaskInfo


@check_arguments
def build(
    task: str,
    mixer: str,
    /,
    *,
    preset: str = PAPER,
    protocol: str = DEFAULT_PROTOCOL,
    data_dir: AnyPath = "data",
    seed: Seed = 0,
    **settings: Any,
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
    seed_everything(seed)
    with config.mixer_component.explain_errors("its model cannot be built"):
        model = Classifier(config, built_task.info)
    return Built(config, model, dataset, built_task.info)


@dataclass(eq=False, repr=False)
class TrainedRun:
    """A run: its record and settings, and its model and data, which are loaded when first used."""

    folder: Path
    record: RunRecord
    """Result of the run: accuracy, speed, memory, status."""
    config: RunConfig
    data_dir: Path
    """Folder of official files and caches."""
    device: torch.device

    def __repr__(self) -> str:
        return f"TrainedRun({str(self.folder)!r})"

    @functools.cached_property
    @check_arguments
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
    @check_arguments
    def dataset(self) -> Dataset:
        """The data of the run.

        Raises: DataError if it can neither be found nor made; UserError if it differs from the data
            that the run was trained on.
        """
        return prepare_data(self.folder, self.record, self.config, self.data_dir)

    @check_arguments
    def save_weights(self, path: AnyPath) -> None:
        """Write the weights of `model` to a safetensors file, without optimizer or run state.

        Its metadata has the names of task, mixer and run, and `settings`: the settings of task,
        mixer and model as JSON.

        Args:
            path: the file, which is replaced if it exists.
        Raises: UserError if there is no checkpoint, or if a weight is of a type that safetensors
            does not have (complex128).
        """
        sections = {name: getattr(self.config, name) for name in ("task", "mixer", "model")}
        settings = {name: section.model_dump(mode="json") for name, section in sections.items()}
        metadata = {
            "task": self.record.task,
            "mixer": self.record.mixer,
            "run": self.record.run_id,
            "settings": json.dumps(settings),
        }
        # Copies, as tied weights share memory, which the format cannot say.
        weights = {name: w.cpu().clone() for name, w in self.model.state_dict().items()}
        try:
            content = save(weights, metadata)
        except KeyError as error:
            raise UserError(f"{path}: safetensors has no type {error}") from None
        write_atomically(Path(path), content)

    @check_arguments
    def logits(self, split: str = "test", indices: Indices = None) -> np.ndarray:
        """Compute the logits of the targets: of examples, or of the positions that are scored.

        `run.logits(split)` has a row for each entry of `run.dataset.splits[split].labels`, in the
        same order.

        Args:
            split: train, val or test.
            indices: indices of examples, (examples,) whole numbers. None: all examples.
        Returns: (examples, classes) float32 in the order of `indices`; if positions have targets,
            (targets, classes), the scored positions of one example after another.
        Raises: UserError for an unknown split or index.
        """
        if split not in self.dataset.splits:
            raise UnknownName("split", split, self.dataset.splits, "split")
        examples = self.dataset.splits[split]
        count = len(examples)
        chosen = np.arange(count) if indices is None else check_indices(indices, count)
        # One more than there are examples, and it stays empty: of no examples, an array is made.
        found = [np.empty((0, self.model.output.out_features), np.float32)] * (len(chosen) + 1)

        def receive(places: np.ndarray, logits: Tensor, batch: Batch) -> None:
            counts = batch.label_counts.tolist()
            rows, kept = logits.float().cpu(), is_scored(batch.labels).cpu()
            parts = zip(places, rows.split(counts), kept.split(counts), strict=True)
            for place, of_example, is_target in parts:
                found[place] = of_example[is_target].numpy()

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
        return np.concatenate(found)

    @check_arguments
    def predict(self, split: str = "test", indices: Indices = None) -> np.ndarray:
        """Predict the class of each example, or the next token or label of each scored position.

        `(run.predict(split) == run.dataset.splits[split].labels).sum()` counts what is right, as
        the record does. For the whole test set of a task with classes of examples these are the
        predictions in predictions.csv.

        Args:
            split: train, val or test.
            indices: indices of examples, (examples,) whole numbers. None: all examples.
        Returns: (examples,) int64 in the order of `indices`; or (targets,), see `logits`.
        Raises: UserError for an unknown split or index, and for logits that are not finite.
        """
        logits = self.logits(split, indices)
        wrong = int((~np.isfinite(logits).all(axis=1)).sum())
        if wrong:
            raise UserError(
                f"{self.folder}: the logits of {wrong:,} of {len(logits):,} "
                f"{self.model.targets}s are not finite, so they predict nothing; see logits()"
            )
        return logits.argmax(axis=1)


@check_arguments
def load(
    run: AnyPath,
    *,
    data_dir: AnyPath = "data",
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
    if folder.name == "result.json":
        folder = folder.parent
    path = folder / "result.json"
    if not has_file(path):
        raise UserError(f"{folder}: there is no {path.name}, expected the folder of a run")
    record, folder = load_record(path), folder.absolute()
    config = recompose_config(folder, record, trust_code=trust_code)
    return TrainedRun(folder, record, config, data_dir, choose_device(device))
