"""The open leaderboard: contributions, `results/community/NAME/`, which are never executed, and the
marks that they and shipped runs have.
"""

import hashlib
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from lra.common.errors import KnownError, UserError
from lra.common.strict_yaml import parse_yaml
from lra.common.untrusted import read_text
from lra.record.contribution import PRESET, Contribution, Mark, Submission
from lra.record.packed import PACK, has_file, read_file
from lra.record.run import RunRecord, Runs, read_runs
from lra.record.schema import SHIPPED, shipped_dir
from lra.schema import fault_of

COMMUNITY = "community"
"""Folder of the contributions, in the results folder of the repository."""
SUBMISSION, MARKS = "submission.yaml", "marks.yaml"
RUN_FILES = ("result.json", "metrics.jsonl", "predictions.csv")
"""Files of a run that marks are about."""
Marks = dict[str, list[Mark]]
"""The marks of contributions, and of the shipped runs, by folder in the order of their dates."""
Content = TypeVar("Content")


def community_dir(results_dir: Path) -> Path:
    """Return the folder of the contributions that are shown with a results folder."""
    shipped = results_dir if results_dir.name == SHIPPED else shipped_dir(results_dir)
    return shipped.parent / COMMUNITY


def marks_path(folder: Path) -> Path:
    """Return the file that has the marks of a contribution, or of the shipped results."""
    return (community_dir(folder) if folder.name == SHIPPED else folder.parent) / MARKS


def read_marked(folder: Path) -> tuple[Runs, list[str]]:
    """Read the runs that marks are about, of the shipped results those of `PRESET`; list faults."""
    runs, faults = read_runs(folder)
    return [item for item in runs if folder.name != SHIPPED or item[1].preset == PRESET], faults


def digest_of(folder: Path) -> str:
    """Hash names and contents of the files that marks are about: 64 hexadecimal digits.

    Of the shipped results these are weights and the files of marked runs, else all files.
    """
    digest, paths = hashlib.sha256(), folder.rglob("*")
    if folder.name == SHIPPED:
        of_runs = [path / name for path, _ in read_marked(folder)[0] for name in RUN_FILES]
        paths = [*folder.glob("weights/*"), *of_runs]
    for path in sorted(filter(has_file, paths)):
        content = hashlib.sha256(read_file(path)).hexdigest()
        digest.update(f"{content} {path.relative_to(folder).as_posix()}\n".encode())
    return digest.hexdigest()


def check_fields(kind: type[Content], content: Any, origin: Path) -> Content:
    """Check the content of a YAML file; raises UserError naming the first wrong field."""
    try:
        return TypeAdapter(kind).validate_python(content)
    except ValidationError as error:
        raise UserError(f"{origin}: {fault_of(error)}") from None


def read_submission(folder: Path) -> Submission:
    """Read submission.yaml; raises UserError, DataError or OSError for a file that is wrong."""
    path = folder / SUBMISSION
    return check_fields(Submission, parse_yaml(read_text(path), str(path)), path)


def read_marks(path: Path) -> Marks:
    """Read the file of all marks, which maintainers write."""
    content = parse_yaml(read_text(path), str(path)) if path.is_file() else {}
    return check_fields(Marks, content or {}, path)


def valid_marks(folder: Path, marks: Marks) -> list[Mark]:
    """List the marks that hold for the present files of a folder."""
    given = marks.get(folder.name, [])
    digest = digest_of(folder) if given else ""
    return [mark for mark in given if mark.digest == digest]


def _add_marks(run: RunRecord, marks: list[Mark], of: Contribution | None = None) -> RunRecord:
    """Add a contribution, and the marks: fresh to the runs that were tested on new examples."""
    own = {m.mark: m for m in marks if m.mark != "fresh" or run.name in m.fresh}
    return run.model_copy(update={"contribution": of, "marks": own})


def read_contributions(community: Path, marks: Marks) -> tuple[Runs, list[str]]:
    """Read the runs of all contributions, each with its contribution; list the faults of files."""
    runs: Runs = []
    faults: list[str] = []
    for folder in sorted(path.parent for path in community.glob(f"*/{PACK}")):
        withdrawn = [m for m in marks.get(folder.name, []) if m.mark == "withdrawn"]
        try:
            said = {"name": folder.name, "withdrawn": withdrawn[-1] if withdrawn else None}
            of = check_fields(Contribution, {**dict(read_submission(folder)), **said}, folder)
            given = [] if withdrawn else valid_marks(folder, marks)
            contributed, more = read_runs(folder)
        except (KnownError, OSError) as error:
            faults.append(f"{folder}: left out: {error}")
        else:
            runs += [(path, _add_marks(run, given, of)) for path, run in contributed]
            faults += more
    return runs, faults


def read_every_run(results_dir: Path, flag: str) -> tuple[Runs, list[str]]:
    """Read one's own runs, shipped and contributed ones, with their marks; list the faults of
    files. Raises: UserError as `read_runs`.
    """
    runs, faults = read_runs(results_dir, flag, shipped=True)
    community, marks, given = community_dir(results_dir), {}, []
    shipped = community.with_name(SHIPPED)
    try:
        marks = read_marks(community / MARKS)
        given = valid_marks(shipped, marks)
    except (KnownError, OSError) as error:
        faults.append(str(error))
    runs = [
        (path, _add_marks(run, given if run.preset == PRESET and shipped in path.parents else []))
        for path, run in runs
    ]
    contributed, more = read_contributions(community, marks)
    return [*runs, *contributed], [*faults, *more]
