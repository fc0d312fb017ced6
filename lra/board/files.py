"""The mark *files*: what a contribution or a shipped run says, checked by reading alone."""

import re
import stat
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from safetensors.torch import load
from torch import Tensor

from lra.board.settings import check_settings, list_deviations, list_differences
from lra.common.errors import KnownError, describe_os_error, format_value
from lra.common.untrusted import MIB, explain_errors, read_regular
from lra.config.registry import MIXERS, digest
from lra.record.community import COMMUNITY, RUN_FILES, SUBMISSION, read_marked, read_submission
from lra.record.contribution import NAME, PROTOCOL_VERSION, Division
from lra.record.known_data import Known, digest_labels
from lra.record.packed import PACK, read_pack
from lra.record.run import RunRecord, Runs, read_runs
from lra.record.run_files import read_metrics, read_predictions
from lra.record.schema import SHIPPED
from lra.report.scores import group_by

LAYOUT = {
    re.escape(SUBMISSION): MIB // 16,
    re.escape(PACK): 4 * MIB,
    r"code/[A-Za-z_]\w{0,60}\.py": MIB // 4,
    r"weights/[\w.-]{1,200}\.safetensors": 3 * MIB,
}
"""Names of the files that a contribution may have, and the most bytes of each."""
MOST_FILES, LARGEST = 200, 16 * MIB
"""Most files of a contribution, and most bytes of all of them."""
UNLICENSED = ("retrieval",)
"""Tasks whose texts forbid to give away weights that were trained on them."""
BASELINE_TOLERANCE = 0.1
"""Points by which trivial baselines may differ between processors."""


def check_files(folder: Path, known: Known, changed: Sequence[str] = ()) -> list[str]:
    """Check a contribution without running anything of it; return a line for each fault.

    Args:
        known: the data sets of shipped runs, by task and fingerprint.
        changed: paths of the files that a pull request changes, in the repository.
    """
    own = f"results/{COMMUNITY}/{folder.name}/"
    findings = [
        f"{format_value(path)}: changed by the pull request; expected only files in {own}"
        for path in changed
        if not path.startswith(own)
    ]
    findings += _check_layout(folder)
    if not findings:  # else what is there is not read further
        findings += _list_findings(folder.name, _check_content(folder, known))
    return [" ".join(finding.replace(f"{folder}/", "").split()) for finding in findings]


def check_shipped(folder: Path, known: Known) -> list[str]:
    """Check the marked runs of the shipped results as those of a contribution. What submission.yaml
    says of a contribution, the repository says of them.
    """
    runs, faults = read_marked(folder)
    return [*faults, *_list_findings("it", _check_runs(folder, runs, known))]


def _list_findings(what: str, findings: Iterator[str]) -> Iterator[str]:
    """List findings and, as the last one, the error that ends the check of what is named."""
    try:
        with explain_errors(what):
            yield from findings
    except (KnownError, OSError) as error:
        yield describe_os_error(error) if isinstance(error, OSError) else str(error)


def most_bytes(name: str) -> int:
    """Return the most bytes that a file of a contribution may have; -1 for no such file."""
    sizes = (size for form, size in LAYOUT.items() if re.fullmatch(form, name, re.ASCII))
    return next(sizes, -1)


def _check_layout(folder: Path) -> Iterator[str]:
    """Check kinds, names, numbers and sizes of files; links are not followed."""
    if missing := [name for name in (SUBMISSION, PACK) if not (folder / name).is_file()]:
        yield f"{folder.name}: expected a contribution, which has {' and '.join(missing)}"
        return
    if folder.is_symlink() or not NAME.fullmatch(folder.name) or folder.name == SHIPPED:
        yield (
            f"{folder.name!r}: expected a folder, no link, whose name has up to 40 lower-case "
            f"letters, digits or hyphens, and is not {SHIPPED}"
        )
    paths = islice(folder.rglob("*"), MOST_FILES + 1)
    files = {path.relative_to(folder).as_posix(): path.lstat() for path in paths}
    for name, facts in files.items():
        is_folder = name in ("code", "weights") and stat.S_ISDIR(facts.st_mode)
        is_file = stat.S_ISREG(facts.st_mode) and facts.st_size <= most_bytes(name)
        if not (is_folder or is_file):
            yield (
                f"{format_value(name)}: {facts.st_size:,} bytes; expected only regular files: "
                f"{SUBMISSION} of up to 64 KiB, {PACK} of 4 MiB, code/NAME.py of 256 KiB, "
                f"weights/RUN.safetensors of 3 MiB"
            )
    if len(files) > MOST_FILES or sum(facts.st_size for facts in files.values()) > LARGEST:
        yield f"{folder.name}: expected at most {MOST_FILES} files of {LARGEST:,} bytes in all"


def _check_content(folder: Path, known: Known) -> Iterator[str]:
    """Check the submission, the runs, and what one says of the other."""
    submission, (runs, faults) = read_submission(folder), read_runs(folder)
    yield from faults if runs else [*faults, f"{PACK}: expected at least one run"]
    for name in read_pack(folder):
        if not re.fullmatch(r"runs(/[\w.-]+){3}/(" + "|".join(RUN_FILES) + ")", name, re.ASCII):
            yield f"{PACK}: {format_value(name)}; expected runs/TASK/MIXER/RUN/ with {RUN_FILES}"
    yield from _check_runs(folder, runs, known)
    settings = {(run.task, run.mixer, run.config_hash) for _, run in runs}
    tried = Counter((task, mixer) for task, mixer, _ in settings)
    stated = submission.division, submission.differences
    yield from list_deviations(
        {"protocol_version": (submission.protocol_version, PROTOCOL_VERSION),
         "settings_tried": (submission.settings_tried,
                            max([submission.settings_tried, *tried.values()])),
         "division": (stated, divide(submission.chosen_on, runs, known))}
    )  # fmt: skip
    if not any(run.mixer_code for _, run in runs):
        yield from (f"code/{path.name}: no run has a plug-in" for path in folder.glob("code/*"))


def _check_runs(folder: Path, runs: Runs, known: Known) -> Iterator[str]:
    """Check each run, the seeds of runs with the same settings, and weights."""
    for path, run in runs:
        findings = _list_findings("it", check_run(folder, path, run, known))
        yield from (f"{run.name}: {finding}" for finding in findings)
    groups = group_by((run for _, run in runs), lambda run: (run.task, run.mixer, run.config_hash))
    yield from list_deviations(
        {f"{'/'.join(key)}: seeds": (sorted(run.seed for run in same), [*range(len(same))])
         for key, same in groups.items()}
    )  # fmt: skip
    allowed = {weights_name(run) for _, run in runs if run.task not in UNLICENSED}
    for path in sorted(folder.glob("weights/*")):
        if path.name not in allowed:
            yield f"weights/{path.name}: weights of no run, or of texts that forbid it"
        elif not all(tensor.isfinite().all() for tensor in read_weights(path).values()):
            yield f"weights/{path.name}: weights that are not finite"


def check_run(folder: Path, path: Path, run: RunRecord, known: Known) -> Iterator[str]:
    """List what is wrong with a run of a contribution."""
    data = known.get((run.task, run.data.fingerprint))
    if data is None or run.status == "stopped":
        yield (
            f"status {run.status}, data {run.data.fingerprint[:8]}; expected a run that has ended, "
            f"on the data of shipped runs on {run.task} (results/known_data.csv)"
        )
        return
    if run.task_code or run.task_from or run.preset_code or run.preset_from:
        yield "a task or a preset of the submitter's own; expected those of the suite"
        return
    yield from _check_code(folder, run)
    yield from check_settings(run)
    baselines = dict(run.result.trivial_scores)
    is_close = baselines.keys() == data.baselines.keys() and all(
        abs(value - baselines[name]) <= BASELINE_TOLERANCE for name, value in data.baselines.items()
    )
    facts: dict[str, tuple[object, object]] = {
        "run_id": (run.run_id, f"{run.config_hash[:8]}-s{run.seed}"),
        "data.source": (run.data.source, data.source),
        "baselines": (baselines, baselines if is_close else data.baselines),
    }
    if run.status == "done":
        lines, faults = read_metrics(path / "metrics.jsonl")
        yield from faults
        scores = {line.step: line.val_accuracy for line in lines if line.val_accuracy is not None}
        best = max(scores, key=scores.__getitem__, default=None)  # of equal ones the first
        facts |= {
            "the model was selected on": (run.selected_on, "val"),
            "metrics.jsonl: best_step": (run.best_step, best),
            "metrics.jsonl: val_accuracy": (run.val_accuracy, max(scores.values(), default=None)),
            "metrics.jsonl: steps": (run.steps, max([run.steps, *scores])),
        }
    yield from list_deviations(facts)
    if run.status == "done":
        labels = digest_labels(read_predictions(run, path / "predictions.csv"))
        what = "predictions.csv: labels or metadata of other test examples:"
        yield from list_deviations({what: (labels, data.labels)})


def _check_code(folder: Path, run: RunRecord) -> Iterator[str]:
    """Check that the plug-in is the file that the record names and has hashed."""
    name, spec = run.mixer, run.mixer_from or ""
    form = rf"code/[A-Za-z_]\w*\.py:{re.escape(name)}"
    is_named = name.isascii() and re.fullmatch(form, spec, re.ASCII)
    if run.mixer_code is None and (spec or name not in MIXERS.classes):
        yield f"mixer {name} without code; expected a mixer of the suite, or a plug-in"
    elif run.mixer_code is not None and (name.casefold() in MIXERS.classes or not is_named):
        given = format_value(spec)
        yield f"the plug-in {given}; expected code/FILE.py:CLASS with a name of its own"
    elif run.mixer_code is not None:
        file = spec.rpartition(":")[0]
        code = digest([str(folder / file)])
        yield from list_deviations({f"{file} has the hash": (code, run.mixer_code)})


def divide(chosen_on: str, runs: Runs, known: Known) -> tuple[Division, list[str]]:
    """Return the division of runs, and why it is open.

    Args:
        chosen_on: split that settings were chosen on.
    """
    data = [(run, known.get((run.task, run.data.fingerprint))) for _, run in runs]
    differences = {text for run, of in data if of for text in list_differences(run, of)}
    if chosen_on == "test":
        differences.add("settings were chosen on the test split")
    return ("open" if differences else "closed"), sorted(differences)


def weights_name(run: RunRecord) -> str:
    """Return the name of the file with the weights of a run."""
    return f"{run.task}-{run.mixer}-{run.run_id}.safetensors"


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read submitted weights by name; raises DataError or OSError for a damaged file."""
    with explain_errors(f"{path.parent.name}/{path.name}"):
        return load(read_regular(path))
