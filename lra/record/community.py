"""The contributions to the open leaderboard: `results/community/NAME/`, which is never executed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

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
LARGEST_YAML = 2**16
"""Most bytes of submission.yaml."""

Schema = TypeVar("Schema", bound=BaseModel)
Marks = Mapping[str, list[Mark]]
"""The marks of contributions by name, in the order of their dates."""


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


def parse_checked(schema: type[Schema], content: Any, origin: Path | str) -> Schema:
    """Check a parsed YAML file against a schema; raises UserError naming the first wrong field."""
    try:
        return TypeAdapter(schema).validate_python(content)
    except ValidationError as error:
        raise UserError(f"{origin}: {fault_of(error)}") from None


def read_submission(folder: Path) -> Submission:
    """Read submission.yaml; raises UserError, DataError or OSError for a file that is wrong."""
    path = folder / SUBMISSION
    return parse_checked(
        Submission, parse_yaml(read_text(path, largest=LARGEST_YAML), str(path)), path
    )


def read_marks(community: Path) -> Marks:
    """Read the marks of all contributions, which maintainers write."""
    path = community / MARKS
    if not path.is_file():
        return {}
    content = parse_yaml(read_text(path), str(path)) or {}
    return {name: [parse_checked(Mark, m, path) for m in of] for name, of in content.items()}


def _describe(folder: Path, marks: list[Mark]) -> Contribution:
    submission, digest = read_submission(folder), digest_of(folder)
    return Contribution(
        name=folder.name,
        title=submission.title,
        source=submission.code,
        division=submission.division,
        marks={m.mark: m.date for m in marks if m.digest == digest and m.mark != "withdrawn"},
        withdrawn=next((mark for mark in reversed(marks) if mark.mark == "withdrawn"), None),
    )


def read_contributions(community: Path) -> tuple[Runs, list[str]]:
    """Read the runs of all contributions, each with its contribution; list the faults of files."""
    runs: Runs = []
    faults: list[str] = []
    try:
        marks = read_marks(community)
    except (KnownError, OSError) as error:
        marks, faults = {}, [str(error)]
    for folder in sorted(path.parent for path in community.glob(f"*/{PACK}")):
        try:
            contribution = _describe(folder, marks.get(folder.name, []))
        except (KnownError, OSError, ValidationError) as error:
            faults.append(f"{folder}: left out: {error}")
            continue
        contributed, more = read_runs(folder)
        runs += [
            (path, run.model_copy(update={"contribution": contribution}))
            for path, run in contributed
        ]
        faults += more
    return runs, faults
