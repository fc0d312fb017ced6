"""The contributions to the open leaderboard: `results/community/NAME/`, which is never executed."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from lra.common.errors import KnownError, UserError
from lra.common.strict_yaml import parse_yaml
from lra.common.untrusted import read_regular, read_text
from lra.record.contribution import Contribution, Mark, Submission
from lra.record.packed import PACK
from lra.record.run import Runs, read_runs
from lra.record.schema import SHIPPED, shipped_dir
from lra.schema import fault_of

COMMUNITY = "community"
"""Folder of the contributions, in the results folder of the repository."""
SUBMISSION, MARKS = "submission.yaml", "marks.yaml"
Marks = dict[str, list[Mark]]
"""The marks of contributions by name, in the order of their dates."""
Content = TypeVar("Content")


def community_dir(results_dir: Path) -> Path:
    """Return the folder of the contributions that are shown with a results folder."""
    shipped = results_dir if results_dir.name == SHIPPED else shipped_dir(results_dir)
    return shipped.parent / COMMUNITY


def digest_of(folder: Path, pattern: str = "**/*") -> str:
    """Hash the names and contents of the files of a contribution: 64 hexadecimal digits."""
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.glob(pattern) if path.is_file()):
        content = hashlib.sha256(read_regular(path)).hexdigest()
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


def read_marks(community: Path) -> Marks:
    """Read the marks of all contributions, which maintainers write."""
    path = community / MARKS
    content = parse_yaml(read_text(path), str(path)) if path.is_file() else {}
    return check_fields(Marks, content or {}, path)


def _read_contribution(folder: Path, marks: list[Mark]) -> Contribution:
    withdrawn = [mark for mark in marks if mark.mark == "withdrawn"]
    digest = digest_of(folder)
    fields = {
        "name": folder.name,
        "marks": {m.mark: m.date for m in marks if m.digest == digest and m not in withdrawn},
        "withdrawn": withdrawn[-1] if withdrawn else None,
    }
    return check_fields(Contribution, {**dict(read_submission(folder)), **fields}, folder)


def read_contributions(community: Path) -> tuple[Runs, list[str]]:
    """Read the runs of all contributions, each with its contribution; list the faults of files."""
    runs: Runs = []
    faults: list[str] = []
    marks: Marks = {}
    try:
        marks = read_marks(community)
    except (KnownError, OSError) as error:
        faults.append(str(error))
    for folder in sorted(path.parent for path in community.glob(f"*/{PACK}")):
        try:
            came_with = {"contribution": _read_contribution(folder, marks.get(folder.name, []))}
            contributed, more = read_runs(folder)
        except (KnownError, OSError) as error:
            more, contributed, came_with = [f"{folder}: left out: {error}"], [], {}
        runs += [(path, run.model_copy(update=came_with)) for path, run in contributed]
        faults += more
    return runs, faults
