"""Trained models, with their data, loaded from the folders of their runs."""

import functools
import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor

from lra.api.arguments import AnyPath, Indices, check_arguments
from lra.api.recompose import find_changed_code, recompose
from lra.classifier.classifier import Classifier
from lra.common.errors import UnknownName, UserError
from lra.common.files import write_output
from lra.config.schema import RunConfig
from lra.goals.registry import scorer_of
from lra.goals.scorer import Scorer
from lra.record.packed import read_file
from lra.record.run import RunRecord, load_record
from lra.runtime.environment import choose_device, set_arithmetic
from lra.tasks.base import Batch, Dataset, TaskInfo, check_indices
from lra.train.checkpoint import read_newest
from lra.train.evaluation import Evaluator
from lra.train.state import Best


@dataclass(eq=False, repr=False)
class TrainedRun:
    """A run: its record and settings, and its model and data, which are loaded when first used."""

    folder: Path
    record: RunRecord
    """Result of the run: score, speed, memory, status."""
    config: RunConfig
    data_dir: Path
    """Folder of official files and caches."""
    device: torch.device

    def __repr__(self) -> str:
        return f"TrainedRun({str(self.folder)!r})"

    @functools.cached_property
    def model(self) -> Classifier:
        """The model with the weights of its best validation, in evaluation mode.

        Raises: UserError as `load_model`.
        """
        return self.load_model(self.config.build_task().info)

    @functools.cached_property
    def dataset(self) -> Dataset:
        """The data of the run.

        Raises: DataError if it can neither be found nor made; UserError if it differs from the data
            that the run was trained on.
        """
        dataset = self.config.build_task().prepare(self.data_dir)
        trained_on = self.record.data
        if dataset.fingerprint != trained_on.fingerprint:
            raise UserError(
                f"{self.folder}: the data in {dataset.folder} is {dataset.source} "
                f"({dataset.fingerprint[:8]}), that of the run was {trained_on.source} "
                f"({trained_on.fingerprint[:8]}); give the folder that has it (data_dir=..., "
                f"--data-dir)"
            )
        return dataset

    def scorer_of(self, info: TaskInfo) -> Scorer:
        """Return what the goal of a task answers, with what the training took from its labels."""
        return scorer_of(replace(info, goal=self.record.result.fitted(info.goal)))

    def load_model(self, info: TaskInfo) -> Classifier:
        """Load the best model for data that may differ from that of the training.

        Mixers are built as in training: S4's readout, for example, is valid only for the length
        that it was trained at.

        Raises: UserError if there is no checkpoint, or one of another version of the suite, if the
            run is still in its pretraining, if the model has parameters for fewer positions than
            the data has, or if the weights do not fit, or are not those that a finished run was
            tested with.
        """
        weights = self.read_weights()
        config, component = self.config, self.config.mixer_component
        trained = config.build_task().info
        is_bound = config.model.positions == "learned" or not getattr(
            component.cls, "takes_longer", True
        )
        if info.max_length > trained.max_length and is_bound:
            raise UserError(
                f"{self.folder}: the model has parameters for {trained.max_length:,} positions, "
                f"expected data of at most so many; got {info.max_length:,}"
            )
        with component.explain_errors("its trained model cannot be built"):
            model = Classifier(config, info, trained=trained)
            try:
                model.load_state_dict(weights)
            except RuntimeError as error:
                said = " ".join(str(error).split())
                raise UserError(
                    f"{self.folder}: the weights do not fit a model for this data: {said}"
                ) from None
        return model.eval().to(self.device)

    def read_weights(self) -> dict[str, Tensor]:
        """Read the best weights from the newest checkpoint; raises UserError as `load_model`."""
        state = read_newest(self.folder / "checkpoints")
        if state is None:
            raise UserError(
                f"{self.folder}: there is no checkpoint of this run that can be loaded; train it "
                f"again with --resume never, or copy its checkpoints again from where they are"
            )
        if self.config.is_pretrained and state["pretraining"] is None:
            raise UserError(
                f"{self.folder}: the run was stopped in its pretraining, and its model has learned "
                f"no labels; the run's own command goes on with it"
            )
        best = state["trainer"]["best"]
        self._refuse_other_weights(best)
        return (best or state["trainer"])["model"]

    def _refuse_other_weights(self, best: Best | None) -> None:
        """Raise UserError if the best weights are not those that a finished run was tested with."""
        record = self.record
        pretrained = record.pretraining.steps if record.pretraining else 0
        step = None if best is None else pretrained + best["step"]
        if record.status == "done" and record.best_step not in (None, step):
            raise UserError(
                f"{self.folder}: the run was tested with the weights of step {record.best_step:,}, "
                f"and its newest checkpoint has those of step {step}; copy the checkpoint again "
                f"from where it is whole, or train the run again with --resume never"
            )

    def evaluator(self, model: torch.nn.Module, batch_size: int, title: str = "") -> Evaluator:
        """Apply a model as the run did in its own test."""
        train = self.config.train
        set_arithmetic(self.device, tf32=train.tf32, deterministic=train.deterministic)
        return Evaluator(
            model=model,
            batch_size=batch_size,
            device=self.device,
            precision=train.precision,
            title=title,
        )  # fmt: skip

    @check_arguments
    def save_weights(self, path: AnyPath) -> None:
        """Write the weights of `model` to a safetensors file, without optimizer or run state.

        Its metadata has the names of task, mixer and run, and `settings`: the settings of task,
        mixer and model as JSON.

        Args:
            path: the file, which is replaced if it exists.
        Raises: UserError if there is no checkpoint.
        """
        settings = {
            name: getattr(self.config, name).model_dump(mode="json")
            for name in ("task", "mixer", "model")
        }
        names = {"task": self.record.task, "mixer": self.record.mixer, "run": self.record.run_id}
        # Copies, as tied weights share memory, which the format cannot say.
        weights = {name: w.cpu().clone() for name, w in self.model.state_dict().items()}
        content = save(weights, {**names, "settings": json.dumps(settings)})
        write_output(Path(path), content)

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
        # The last array stays empty, so that there is one to join even without examples.
        outputs = [np.empty((0, self.model.output.out_features), np.float32)] * (len(chosen) + 1)

        def receive(numbers: np.ndarray, logits: Tensor, batch: Batch) -> None:
            counts = batch.label_counts.tolist()
            rows, kept = logits.float().cpu(), is_target(batch.labels).cpu()
            parts = zip(numbers, rows.split(counts), kept.split(counts), strict=True)
            for number, of_example, is_scored in parts:
                outputs[number] = of_example[is_scored].numpy()

        is_target = self.model.goal.is_target
        evaluator = self.evaluator(self.model, self.record.micro_batch or self.record.batch_size)
        with self.config.mixer_component.explain_errors("the evaluation failed"):
            evaluator.compute_logits(examples, receive, chosen)
        return np.concatenate(outputs)

    @check_arguments
    def predict(self, split: str = "test", indices: Indices = None) -> np.ndarray:
        """Predict the class of each example, or the next token or label of each scored position.

        Of several labels these are probabilities; real numbers are in the unit of the labels.
        `(run.predict(split) == run.dataset.splits[split].labels).sum()` counts what is right, as
        the record does. For the whole test set of a task with classes of examples these are the
        predictions in predictions.csv.

        Args:
            split: train, val or test.
            indices: indices of examples, (examples,) whole numbers. None: all examples.
        Returns: (examples,) int64 or (examples, outputs), in order; or (targets,), see `logits`.
        Raises: UserError for an unknown split or index, and for logits that are not finite.
        """
        logits = self.logits(split, indices)
        wrong = int((~np.isfinite(logits).all(axis=1)).sum())
        if wrong:
            what = "positions" if self.model.goal.of_positions else "examples"
            raise UserError(
                f"{self.folder}: the logits of {wrong:,} of {len(logits):,} {what} are not finite, "
                f"so they predict nothing; see logits()"
            )
        return self.scorer_of(self.config.build_task().info).predict(logits)


@check_arguments
def load(
    run: AnyPath, *, data_dir: AnyPath = "data", trust_code: bool = False, device: str = "cpu"
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
    try:
        read_file(path)
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(
            f"{folder}: there is no {path.name}, expected the folder of a run, "
            f"results/runs/TASK/MIXER/RUN (python -m lra.record list names them)"
        ) from None
    record, folder = load_record(path), folder.absolute()
    changed = None if trust_code else find_changed_code(folder, record)
    if changed is not None:
        raise UserError(f"{folder}: {changed}")
    config = recompose(folder, record)
    return TrainedRun(folder, record, config, data_dir, choose_device(device))


def load_finished(run: Path, *, data_dir: Path, trust_code: bool, device: str) -> TrainedRun:
    """Load the run that --run names.

    Raises: UserError as `load`, and if the run is not finished.
    """
    trained = load(run, data_dir=data_dir, trust_code=trust_code, device=device)
    if trained.record.status != "done":
        raise UserError(f"--run {run}: the run is {trained.record.status}, expected a finished one")
    return trained
