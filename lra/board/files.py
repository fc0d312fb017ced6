"""The mark *files*: what a contribution says, checked by reading alone. Nothing of it is run."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from safetensors.torch import load

from lra.board.settings import check_settings, list_differences
from lra.common.errors import KnownError, describe_os_error, format_value
from lra.common.untrusted import MIB, explain_errors, read_regular
from lra.config.registry import MIXERS, digest
from lra.record.community import COMMUNITY, SUBMISSION, read_submission
from lra.record.contribution import PROTOCOL_VERSION, Division, Submission
from lra.record.known_data import KnownData, digest_labels
from lra.record.packed import PACK, read_pack
from lra.record.run import RunRecord, Runs, read_runs
from lra.record.run_files import read_metrics, read_predictions
from lra.report.scores import group_by

LAYOUT = {
    re.compile(re.escape(SUBMISSION)): MIB // 16,
    re.compile(re.escape(PACK)): 4 * MIB,
    re.compile(r"code/[A-Za-z_]\w{0,60}\.py", re.ASCII): MIB // 4,
    re.compile(r"weights/[\w.-]{1,200}\.safetensors", re.ASCII): 3 * MIB,
}
"""Names of the files that a contribution may have, and the most bytes of each."""
NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
"""The form of the name of a contribution."""
MOST_FILES, LARGEST = 200, 16 * MIB
"""Most files of a contribution, and most bytes of all of them."""
PACKED = ("result.json", "metrics.jsonl", "predictions.csv")
"""Files of a run in a contribution."""
UNLICENSED = ("retrieval",)
"""Tasks whose texts forbid to give away weights that were trained on them."""
BASELINE_TOLERANCE = 0.1
"""Points by which trivial baselines may differ between processors."""
Known = Mapping[tuple[str, str], KnownData]


def check_files(folder: Path, known: Known, changed: Sequence[str] | None = None) -> list[str]:
    """Check a contribution without running anything of it; return a finding for each fault.

    Args:
        known: the data sets of shipped runs, by task and fingerprint.
        changed: paths of the files that a pull request changes, in the repository; None: not known.
    """
    findings = [] if changed is None else [*_check_door(folder.name, changed)]
    if not NAME.fullmatch(folder.name):
        findings.append(f"{folder.name!r}: expected up to 40 lower-case letters, digits or hyphens")
    findings += _check_layout(folder)
    try:
        if not findings:  # else what is there is not read further
            with explain_errors(str(folder)):
                findings += _check_content(folder, known)
    except (KnownError, OSError) as error:
        said = describe_os_error(error) if isinstance(error, OSError) else str(error)
        findings.append(said.replace(f"{folder}/", ""))
    return [" ".join(finding.split()) for finding in findings]


def _check_door(name: str, changed: Sequence[str]) -> Iterator[str]:
    """Check that a pull request adds a folder and touches nothing else."""
    own = f"results/{COMMUNITY}/{name}/"
    for path in changed:
        if not path.startswith(own):
            yield f"{format_value(path)}: changed by the pull request; expected only files in {own}"


def _check_layout(folder: Path) -> Iterator[str]:
    """Check kinds, names, numbers and sizes of files; links are not followed."""
    if folder.is_symlink() or not folder.is_dir():
        yield f"{folder.name}: expected the folder of a contribution"
        return
    total, count = 0, 0
    for root, folders, files in os.walk(folder):
        for name in [*folders, *files]:
            path = Path(root, name)
            facts, shown = path.lstat(), path.relative_to(folder).as_posix()
            if stat.S_ISDIR(facts.st_mode) and shown in ("code", "weights"):
                continue
            count, total = count + 1, total + facts.st_size
            largest = next((size for form, size in LAYOUT.items() if form.fullmatch(shown)), None)
            if not stat.S_ISREG(facts.st_mode) or largest is None:
                yield (
                    f"{format_value(shown)}: expected only regular files {SUBMISSION}, {PACK}, "
                    f"code/NAME.py and weights/RUN.safetensors"
                )
            elif facts.st_size > largest:
                yield f"{shown}: {facts.st_size:,} bytes; expected at most {largest:,}"
            if count > MOST_FILES:
                yield f"{folder.name}: expected at most {MOST_FILES} files"
                return
    if total > LARGEST:
        yield f"{folder.name}: {total:,} bytes; expected at most {LARGEST:,}"
    for name in (SUBMISSION, PACK):
        if not (folder / name).is_file():
            yield f"{name}: not there"


def _check_content(folder: Path, known: Known) -> Iterator[str]:
    submission = read_submission(folder)
    if submission.protocol_version != PROTOCOL_VERSION:
        yield (
            f"{SUBMISSION}: protocol_version {submission.protocol_version}; expected "
            f"{PROTOCOL_VERSION}"
        )
    for name in read_pack(folder):
        if not re.fullmatch(r"runs(/[\w.-]+){3}/(" + "|".join(PACKED) + ")", name, re.ASCII):
            yield f"{PACK}: {format_value(name)}; expected runs/TASK/MIXER/RUN/ with {PACKED}"
    runs, faults = read_runs(folder)
    yield from (f"{PACK}: {fault.replace(f'{folder}/', '')}" for fault in faults)
    if not runs:
        yield f"{PACK}: expected at least one run"
    for path, run in runs:
        try:
            with explain_errors("it"):
                found = [*check_run(folder, path, run, known)]
        except (KnownError, OSError) as error:
            found = [str(error).replace(f"{folder}/", "")]
        yield from (f"{run.task}/{run.mixer}/{run.run_id}: {one}" for one in found)
    yield from _check_together(folder, submission, runs, known)


def check_run(folder: Path, path: Path, run: RunRecord, known: Known) -> Iterator[str]:
    """List what is wrong with a run of a contribution."""
    data = known.get((run.task, run.data.fingerprint))
    if data is None or data.source != run.data.source:
        yield (
            f"data {run.data.fingerprint[:8]} ({run.data.source}); expected data of shipped runs "
            f"on {run.task} (results/known_data.csv)"
        )
        return
    if run.task_code or run.preset_code:
        yield "a task or a preset of the submitter's own; expected those of the suite"
        return
    if run.run_id != (first := f"{run.config_hash[:8]}-s{run.seed}"):
        yield f"run {run.run_id}; expected {first}, the first attempt"
    if of_code := [*_check_code(folder, run)]:
        yield from of_code
        return
    yield from check_settings(run)
    baselines = run.result.trivial_scores
    if baselines.keys() != data.baselines.keys() or any(
        abs(value - baselines[name]) > BASELINE_TOLERANCE for name, value in data.baselines.items()
    ):
        yield f"baselines {dict(baselines)}; expected {data.baselines}"
    if run.status == "done":
        predictions = read_predictions(run, path / "predictions.csv")
        if len(predictions.merits) != data.test_examples:
            yield f"{len(predictions.merits):,} predictions; expected {data.test_examples:,}"
        elif digest_labels(predictions) != data.labels:
            yield "predictions.csv: labels or metadata of other test examples than the data's"
        yield from _check_choice(path, run)
    elif run.status == "stopped":
        yield "it was stopped; expected a run that has ended"


def _check_code(folder: Path, run: RunRecord) -> Iterator[str]:
    """Check that the plug-in is the file that the record names and has hashed."""
    if run.mixer_code is None:
        if run.mixer not in MIXERS.classes:
            yield f"mixer {run.mixer} without code; expected a mixer of the suite, or a plug-in"
        return
    form = rf"(code/[A-Za-z_]\w*\.py):{re.escape(run.mixer)}"
    match = re.fullmatch(form, run.mixer_from or "", re.ASCII)
    if run.mixer.casefold() in MIXERS.classes or not run.mixer.isascii() or match is None:
        given = format_value(run.mixer_from)
        yield f"the plug-in {given}; expected code/FILE.py:CLASS with a name of its own"
    elif not (folder / match[1]).is_file():
        yield f"{match[1]} is not there; expected the file of the plug-in"
    elif (code := digest([str(folder / match[1])])) != run.mixer_code:
        yield f"{match[1]} has the hash {code}; expected {run.mixer_code} of the record"


def _check_choice(path: Path, run: RunRecord) -> Iterator[str]:
    """Check that the validation of the logged metrics chose the model that was tested."""
    lines, faults = read_metrics(path / "metrics.jsonl")
    yield from faults
    scores = {line.step: line.val_accuracy for line in lines if line.val_accuracy is not None}
    best = max(scores, key=scores.__getitem__, default=None)  # of equal ones the first
    if run.selected_on != "val":
        yield f"the model was selected on {run.selected_on}; expected val"
    if best is None or run.best_step != best:
        yield f"best_step {run.best_step}; expected {best}, the best validation of metrics.jsonl"
    elif run.val_accuracy is None or abs(run.val_accuracy - scores[best]) > 1e-6:  # noqa: PLR2004
        yield f"validation accuracy {run.val_accuracy}; expected {scores[best]} of metrics.jsonl"
    if scores and max(scores) > run.steps:
        yield f"a validation at step {max(scores):,}; expected at most {run.steps:,} steps"


def divide(submission: Submission, runs: Runs, known: Known) -> tuple[Division, list[str]]:
    """Return the division of a contribution, and why it is open."""
    of_runs = [
        difference
        for _, run in runs
        if (data := known.get((run.task, run.data.fingerprint))) is not None
        for difference in list_differences(run, data)
    ]
    if submission.chosen_on == "test":
        of_runs.append("settings were chosen on the test split")
    differences = sorted({*of_runs})
    return ("open" if differences else "closed"), differences


def _check_together(
    folder: Path, submission: Submission, runs: Runs, known: Known
) -> Iterator[str]:
    """Check what the runs of a contribution have to be together."""
    division, differences = divide(submission, runs, known)
    if (submission.division, submission.differences) != (division, differences):
        yield (
            f"{SUBMISSION}: division {submission.division}: {submission.differences}; expected "
            f"{division}: {differences}"
        )
    groups = group_by((run for _, run in runs), lambda run: (run.task, run.mixer, run.config_hash))
    for (task, mixer, code), same in groups.items():
        if (seeds := sorted(run.seed for run in same)) != [*range(len(seeds))]:
            numbers = ", ".join(map(str, seeds))
            yield f"{task}/{mixer}/{code[:8]}: seeds {numbers}; expected all seeds from 0 on"
    tried = group_by(groups, lambda key: key[:2])
    if (most := max(map(len, tried.values()), default=0)) > submission.settings_tried:
        yield f"{SUBMISSION}: settings_tried {submission.settings_tried}; expected at least {most}"
    if not any(run.mixer_code for _, run in runs) and (folder / "code").exists():
        yield "code/: no run has a plug-in; expected no such folder"
    allowed = {weights_name(run) for _, run in runs if run.task not in UNLICENSED}
    for path in sorted(folder.glob("weights/*")):
        if path.name not in allowed:
            yield f"weights/{path.name}: weights of no run, or of texts that forbid it"
            continue
        with explain_errors(f"weights/{path.name}"):
            if not all(tensor.isfinite().all() for tensor in load(read_regular(path)).values()):
                yield f"weights/{path.name}: weights that are not finite"


def weights_name(run: RunRecord) -> str:
    """Return the name of the file with the weights of a run."""
    return f"{run.task}-{run.mixer}-{run.run_id}.safetensors"
