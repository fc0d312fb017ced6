"""What rows, files and links are called."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Protocol

from lra.config.request import can_change_a_result
from lra.record.changes import section_of, select_sections, write_changes
from lra.record.run import RunRecord
from lra.runtime.errors import UnknownName, UserError

SHOWN = 2
"""Changed settings that a name always shows."""
LONGEST_SLUG = 120
"""Most letters of a file's name, without its ending."""

Changes = frozenset[str]
"""Settings of the model and its training that a run changes of its preset, as `--set` takes them,
without those that cannot change a result."""


class Measurement(Protocol):
    """What names need of a record of `lra.bench`."""

    @property
    def mixer(self) -> str:
        """The mixer's name."""
        ...

    @property
    def mixer_code(self) -> str | None:
        """What tells a plug-in's code from other code; None for a mixer of the suite."""
        ...

    def path(self, root: Path, /) -> Path:
        """Return the record's file in a folder."""
        ...


def slugify(*parts: str) -> str:
    """Turn texts into one that can stand in a file's name and in a link."""
    return re.sub(r"[^a-z0-9.]+", "-", "-".join(parts).lower())[:LONGEST_SLUG].strip("-.") or "x"


def natural_order(name: str) -> list[tuple[int, str]]:
    """Return a sort key by which 64x4 comes before 64x16, and that before 128x8."""
    return [(len(part) if part.isdigit() else 0, part) for part in re.split(r"(\d+)", name)]


def run_anchor(run: RunRecord) -> str:
    """Return the name of a run in the page; one without a result may have the id of one with it."""
    end = "" if run.status == "done" else f":{run.status}"
    return f"run-{run.task}-{run.mixer}-{run.run_id}{end}"


def bench_anchor(record: Measurement) -> str:
    """Return the name of a measurement in the page."""
    path = record.path(Path())
    return slugify(f"bench-{path.parent.name}") + f"-{path.stem}"


def changes_of(run: RunRecord) -> Changes:
    """Return the settings that a run changes of its preset, without those of the task."""
    return frozenset(
        write_changes(
            {
                name: value
                for name, value in run.changes.items()
                if section_of(name) != "task" and can_change_a_result(name)
            }
        )
    )


def without_training(run: RunRecord) -> RunRecord:
    """Return a run as if it were trained by the settings of its preset, to name its row by."""
    changed = [*select_sections(run.changes, "mixer", "model", "pretrain")]
    return run.model_copy(update={"changed": changed, "config_hash": ""})


class RowNames:
    """The names of runs that are shown together: each has one, in all tables and figures.

    A run goes by its label or by the settings that it changes; of more than SHOWN, by those that
    not all rows of its mixer share. A label that several rows have is followed by the same. The
    code of a plug-in is named where its mixer has several.

    Args:
        runs: all runs that are shown.
        bench: measurements that are shown beside them.
    """

    def __init__(self, runs: Sequence[RunRecord], bench: Sequence[Measurement] = ()) -> None:
        self._codes: dict[str, set[str | None]] = {}
        for record in (*runs, *bench):
            self._codes.setdefault(record.mixer, set()).add(record.mixer_code)
        self._rows: dict[tuple[str | None, ...], set[tuple[str | None, Changes]]] = {}
        for run in runs:
            self._rows.setdefault(_group(run), set()).add((run.mixer_code, changes_of(run)))
        self._shared = {
            group: frozenset.intersection(*(changes for _, changes in rows if changes))
            for group, rows in self._rows.items()
            if any(changes for _, changes in rows)
        }
        self._hashes: dict[tuple[str, ...], set[str]] = {}
        for run in runs:
            self._hashes.setdefault(self._reads_as(run), set()).add(run.config_hash)

    def of(self, run: RunRecord) -> str:
        """Return the name of a run's row.

        Runs whose settings files changed in between read the same on the same data: their hashes
        tell them apart.
        """
        name, *_ = reads_as = self._reads_as(run)
        is_shared = len(self._hashes[reads_as]) > 1
        return f"{name} [settings {run.config_hash[:8]}]" if is_shared else name

    def of_mixer(self, record: RunRecord | Measurement) -> str:
        """Return the name of a mixer with settings of its own preset."""
        return _join(record.mixer, self._code(record))

    def _reads_as(self, run: RunRecord) -> tuple[str, ...]:
        data = run.data.source, run.data.fingerprint
        return self._name(run), run.preset, run.protocol, run.task, *data

    def _name(self, run: RunRecord) -> str:
        group, changes = _group(run), changes_of(run)
        start = run.mixer if run.label is None else f"{run.mixer}: {run.label}"
        if run.label is not None and len(self._rows[group]) == 1:
            return start
        shown = changes - self._shared.get(group, frozenset()) if len(changes) > SHOWN else changes
        shown = shown or changes
        more = len(changes) - len(shown)
        details = ", ".join(sorted(shown)) + (f" and {more} more" if more else "")
        return _join(start, self._code(run), details)

    def _code(self, record: RunRecord | Measurement) -> str:
        code = record.mixer_code
        return f"code {code[:8]}" if code and len(self._codes[record.mixer]) > 1 else ""


def _group(run: RunRecord) -> tuple[str | None, ...]:
    """Return what runs have in common that only their settings or code tell apart."""
    return run.mixer, run.label, run.preset, run.protocol


def _join(start: str, *details: str) -> str:
    text = ", ".join(filter(None, details))
    return f"{start} ({text})" if text else start


def mixer_of(row: str) -> str:
    """Return the mixer of a row, whose name is the first word of the row's."""
    return row.split(" ", 1)[0].removesuffix(":")


def matching_names(given: str, valid: Collection[str]) -> list[str]:
    """List the names that one may stand for: itself, or those that begin so, in any case."""
    if given in valid:
        return [given]
    start = given.casefold()
    exact = [name for name in valid if name.casefold() == start]
    return exact or [name for name in valid if start and name.casefold().startswith(start)]


def complete(given: str, valid: Collection[str], kind: str, flag: str) -> str:
    """Return the name that is given, or the only one that begins so, upper and lower case alike.

    Args:
        given: a name or its beginning.
        valid: all names.
        kind: what they are names of.
        flag: where it was given.
    Raises: UserError if there is none, or more than one.
    """
    found = matching_names(given, valid)
    if not found:
        raise UnknownName(kind, given, valid, flag)
    if len(found) > 1:
        raise UserError(
            f"{flag} {given}: {len(found)} names begin with it ({'; '.join(sorted(found))}); write "
            f"more of the name"
        )
    return found[0]
