"""Made-up records, and results folders of them."""

import csv
import itertools
import json
import math
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lra.config.request import parse_changes
from lra.goals.next_token import NextTokenResult, PositionLoss, bin_range, perplexity_of
from lra.record.benchmark import BenchRecord
from lra.record.evaluation import EvaluationRecord
from lra.record.run import RunRecord, folder_of

VALUES = {
    "run_id": "abc-s0", "task": "listops", "mixer": "tnn", "preset": "paper",
    "protocol": "s4", "settings": {}, "origins": {}, "overrides": [], "seed": 0, "status": "done",
    "message": None,
    "test_accuracy": 40.0, "test_correct": 800, "test_total": 2000, "val_accuracy": 41.0,
    "selected_on": "val", "best_step": 10, "steps": 20, "total_steps": 20, "epochs": 1.0,
    "steps_per_second": 2.5, "flops_per_step": 1e9, "peak_memory_mib": 100.0, "params": 1000,
    "length": 2048, "batch_size": 32, "wall_seconds": 9.0, "device": "CPU", "precision": "fp32",
    "versions": {}, "git": {}, "config_hash": "abc", "baselines": {"majority class": 17.0},
    "data": {"source": "generated", "fingerprint": "f" * 64, "sizes": {"train": 1}},
}  # fmt: skip
BENCH_VALUES = {
    "mode": "step", "mixer": "tnn", "task": "listops", "preset": "paper", "protocol": "s4",
    "length": 1024, "batch_size": 8, "device": "CPU", "precision": "fp32", "repeats": 5,
    "steps_per_second": 2.0, "low_quartile": 1.9, "high_quartile": 2.1, "peak_memory_mib": 500.0,
    "params": 10, "flops_per_step": 1e9, "measured_with": ("tnn",), "versions": {}, "git": {},
}  # fmt: skip
NOT_DONE = {"test_accuracy": None, "test_correct": None, "test_total": None}

TASKS = {
    "listops": (2048, 17.0), "text": (4096, 50.0), "retrieval": (4000, 50.0),
    "image": (1024, 10.0), "pathfinder": (1024, 50.0), "pathx": (16384, 50.0),
}  # fmt: skip
"""Length and majority class by task."""
MIXERS = ("tnn", "ski-tnn", "fd-tnn", "transformer", "s4", "mean")
DEVICES = ("CPU A, 2 threads", "GPU B")
SMALL_TEST = 400


def record(**changes: object) -> RunRecord:
    """Make a record whose count of right answers fits its accuracy.

    The field `overrides` has changed settings as `--set` takes them. Results are given as in
    schema 2, by the side of other fields.
    """
    values: dict[str, Any] = {**VALUES, **changes}
    given = {one.name: one.value for one in parse_changes(values.pop("overrides"))}
    values["settings"] = {**values["settings"], **given}
    values["changed"] = [*given]
    if values["status"] != "done":
        values |= NOT_DONE
    elif "test_correct" not in changes:
        values["test_correct"] = round(values["test_accuracy"] * values["test_total"] / 100)
    return RunRecord.model_validate({"schema_version": 2, **values})


NEXT_TOKENS = {
    "task": "lm", "preset": "budget", "length": 512, "test_accuracy": 50.0, "test_total": 1000,
    "train_seconds": 600.0, "baselines": {"majority class": 17.0},
    "data": {"source": "official", "fingerprint": "t" * 64, "sizes": {"test": 4}},
}  # fmt: skip
"""Fields of a record whose targets are the bytes of a text."""


def scores(bits: float, *, length: int = 512, **changes: object) -> dict[str, Any]:
    """Make what a model needs that is worse at the first positions of its windows.

    Args:
        bits: a byte, in the mean over the test set.
        length: positions of the windows, a power of 2.
    """
    ranges = [bin_range(number) for number in range(length.bit_length())]
    losses = [bits * math.log(2) * (1 + 1 / (last + 1) - 1 / length) for _, last in ranges]
    by_position = [
        PositionLoss(first=first, last=last, targets=4 * (last - first + 1), loss=loss)
        for (first, last), loss in zip(ranges, losses, strict=True)
    ]
    loss = bits * math.log(2)
    values: dict[str, object] = {
        "val_loss": loss + 0.1, "loss": loss, "bits_per_byte": bits,
        "perplexity": perplexity_of(loss), "text_bytes": 1000,
        "baseline_bits": {"order-0": 4.62, "xz": 1.86}, "by_position": by_position,
    }  # fmt: skip
    return {**values, **changes}


def next_token_run(bits: float, **changes: object) -> RunRecord:
    """Make the record of a run whose targets are the bytes of a text."""
    return record(**{**NEXT_TOKENS, "positions": scores(bits), **changes})


def save_evaluation(results: Path, run: RunRecord, length: int, bits: float) -> None:
    """Write what a model needs in windows of another length."""
    result = NextTokenResult(
        test_accuracy=50.0, test_correct=500, test_total=1000,
        baselines={"majority class": 17.0}, largest_class=17.0, **scores(bits, length=length),
    )  # fmt: skip
    EvaluationRecord(
        run_id=run.run_id, task=run.task, mixer=run.mixer, seed=run.seed, result=result,
        config_hash=run.config_hash, length=length, changes={}, trained_length=run.length,
        loss=bits * math.log(2), examples_per_second=9.0, device="CPU", precision="fp32",
        versions={}, git={}, data=run.data.model_copy(update={"fingerprint": f"{length:064}"}),
    ).save(folder_of(results, run))  # fmt: skip


def bench_record(**changes: object) -> BenchRecord:
    """Make the record of a measurement."""
    values: dict[str, Any] = {**BENCH_VALUES, **changes}
    for change in parse_changes(values.pop("overrides", ())):
        values.setdefault("changes", {})[change.name] = change.value
    return BenchRecord.model_validate(values)


def made_records(count: int) -> list[RunRecord]:
    """Make records of every status, device, seed, protocol, preset and kind of data."""
    rng = random.Random(0)
    kinds = itertools.product(range(99), ("paper", "quick"), ("s4", "lra"), MIXERS, TASKS)
    records = []
    for seed, preset, protocol, mixer, task in itertools.islice(kinds, count):
        length, chance = TASKS[task]
        status = rng.choices(("done", "stopped", "diverged", "oom"), (90, 4, 3, 3))[0]
        top = chance if rng.random() < 0.1 else chance + 35 * rng.random()
        source = "unofficial" if rng.random() < 0.1 else "official"
        changes = ["model.dim=64"] if rng.random() < 0.1 else []
        fingerprint = f"{source}-{task}-{preset}-{protocol}"
        records.append(
            record(
                run_id=f"{preset[0]}{protocol}{len(changes)}{source[0]}-s{seed}",
                task=task, mixer=mixer, preset=preset, protocol=protocol, seed=seed, status=status,
                overrides=changes, test_accuracy=100 * round(4 * top) / SMALL_TEST,
                test_total=SMALL_TEST, length=length, device=DEVICES[seed % 2],
                steps_per_second=None if status == "oom" else 0.5 + 5 * rng.random(),
                peak_memory_mib=100 + 900 * rng.random(), baselines={"majority class": chance},
                config_hash=f"{mixer}{task}{preset}{protocol}{len(changes)}",
                data={"source": source, "fingerprint": fingerprint, "sizes": {"test": SMALL_TEST}},
            )
        )  # fmt: skip
    return records


def save(results: Path, saved: RunRecord) -> Path:
    """Write a record where it belongs; return the path of its result.json."""
    folder = folder_of(results, saved)
    folder.mkdir(parents=True)
    saved.save(folder)
    return folder / "result.json"


def save_all(results: Path, records: Iterable[RunRecord]) -> Path:
    """Write records, return the results folder."""
    for one in records:
        save(results, one)
    return results


def write_metrics(results: Path, run: RunRecord, accuracies: Iterable[float]) -> None:
    """Write validations every 10 steps and 5 seconds."""
    lines = [
        {"step": 10 * k, "seconds": 5.0 * k, "val_accuracy": accuracy, "val_loss": 1.0}
        for k, accuracy in enumerate(accuracies, start=1)
    ]
    path = folder_of(results, run) / "metrics.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def write_predictions(
    results: Path, run: RunRecord, rows: Iterable[tuple[object, ...]], *metadata: str
) -> None:
    """Write label, prediction, length, and metadata of each example."""
    with (folder_of(results, run) / "predictions.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["label", "prediction", "length", *metadata])
        writer.writerows(rows)
