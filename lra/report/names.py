"""What rows, files and links are called."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path, PurePath

from lra.config.request import can_change_a_result
from lra.record.benchmark import BenchRecord
from lra.record.changes import section_of, write_changes
from lra.record.run import RunRecord
from lra.runtime.errors import UnknownName, UserError

SHOWN = 2
"""Changed settings that a name shows; more only where rows differ in no fewer."""
LONGEST_SLUG = 120
"""Most letters of a file's name, without its ending."""

Changes = frozenset[tuple[str, str]]
"""Settings of the model and its training that a run changes of its preset, by name and as `--set`
takes them, without those that cannot change a result."""


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


def bench_anchor(record: BenchRecord) -> str:
    """Return the name of a measurement in the page."""
    path = record.path(Path())
    return slugify(f"bench-{path.parent.name}") + f"-{path.stem}"


def changes_of(run: RunRecord) -> Changes:
    """Return the settings that a run changes of its preset, without those of the task."""
    changes = {
        name: value
        for name, value in run.changes.items()
        if section_of(name) != "task" and can_change_a_result(name)
    }
    return frozenset(zip(changes, write_changes(changes), strict=True))


class RowNames:
    """The names of runs that are shown together: each has one, in all tables and figures.

    A run goes by its label, which other seeds of settings that were changed share, or by the
    settings changed; of more than SHOWN, by those in which the rows of its mixer differ. A label
    that several rows have is followed by the same. The code of a plug-in is named where there are
    several of its class.

    Args:
        runs: all runs that are shown.
        bench: measurements that are shown beside them.
    """

    def __init__(self, runs: Sequence[RunRecord], bench: Sequence[BenchRecord] = ()) -> None:
        self._codes = _names_of_codes([*runs, *bench])
        self._labels: dict[tuple[str, str], set[str]] = {}
        for run in runs:
            if run.label is not None:
                self._labels.setdefault((run.mixer, run.config_hash), set()).add(run.label)
        self._rows: dict[tuple[object, ...], set[tuple[str | None, Changes]]] = {}
        for run in runs:
            self._rows.setdefault(self._group(run), set()).add((run.mixer_code, changes_of(run)))
        self._settings = {
            group: _distinct_texts({changes for _, changes in rows})
            for group, rows in self._rows.items()
        }
        self._hashes: dict[tuple[object, ...], set[str]] = {}
        for run in runs:
            self._hashes.setdefault(self._reads_as(run), set()).add(run.config_hash)

    def of(self, run: RunRecord) -> str:
        """Return the name of a run's row.

        Runs whose settings files changed in between read the same on the same data: their hashes
        tell them apart.
        """
        is_shared = len(self._hashes[self._reads_as(run)]) > 1
        return self._name(run) + (f" [settings {run.config_hash[:8]}]" if is_shared else "")

    def of_mixer(self, record: RunRecord | BenchRecord) -> str:
        """Return the name of a mixer with settings of its own preset."""
        return _named(record.mixer, [self._codes[record.mixer, record.mixer_code]])

    def _name(self, run: RunRecord) -> str:
        group, label = self._group(run), self._label(run)
        details = [
            self._codes[run.mixer, run.mixer_code],
            self._settings[group][changes_of(run)],
        ]
        if label is None:
            return _named(run.mixer, details)
        return _named(f"{run.mixer}: {label}", details if len(self._rows[group]) > 1 else [])

    def _label(self, run: RunRecord) -> str | None:
        """Return the label of a run, or the only one that other seeds of its settings have.

        Settings of the preset have a name of their own, the mixer's, that no label takes from them.
        """
        if run.label is not None or not changes_of(run):
            return run.label
        labels = self._labels.get((run.mixer, run.config_hash), set())
        return next(iter(labels)) if len(labels) == 1 else None

    def _group(self, run: RunRecord) -> tuple[object, ...]:
        """Return what runs have in common that only their settings or code tell apart."""
        return run.mixer, self._label(run), run.preset, run.protocol

    def _reads_as(self, run: RunRecord) -> tuple[object, ...]:
        data = run.data.source, run.data.fingerprint
        return self._name(run), run.preset, run.protocol, run.task, *data


def _named(start: str, details: Sequence[str]) -> str:
    text = ", ".join(filter(None, details))
    return f"{start} ({text})" if text else start


def _names_of_codes(
    records: Sequence[RunRecord | BenchRecord],
) -> dict[tuple[str, str | None], str]:
    """Name the codes of mixers: by the file, if no other code of the class was in one so called."""
    files: dict[str, dict[str | None, set[str]]] = {}
    for record in records:
        found = files.setdefault(record.mixer, {}).setdefault(record.mixer_code, set())
        if isinstance(record, RunRecord) and record.mixer_from:
            found.add(PurePath(record.mixer_from.rpartition(":")[0]).name)
    return {
        (mixer, code): _name_of_code(code, by_code)
        for mixer, by_code in files.items()
        for code in by_code
    }


def _name_of_code(code: str | None, files: Mapping[str | None, set[str]]) -> str:
    if code is None or len(files) == 1:
        return ""
    others = {name for other, names in files.items() if other != code for name in names}
    own = files[code]
    return next(iter(own)) if len(own) == 1 and not own & others else f"code {code[:8]}"


def _distinct_texts(rows: Collection[Changes]) -> dict[Changes, str]:
    """Write the settings of each row so that no two read the same."""
    values: dict[str, set[Changes]] = {name: set() for row in rows for name, _ in row}
    for key, found in values.items():
        found |= {frozenset(one for one in row if one[0] == key) for row in rows}
    # The settings with most values tell most rows apart.
    differing = [key for key, found in values.items() if len(found) > 1]
    differing.sort(key=lambda key: (-len(values[key]), key))
    texts: dict[Changes, str] = {}
    for count in range(SHOWN, max(SHOWN, len(differing)) + 1):
        texts = {row: _text(row, differing[:count]) for row in rows}
        if len(set(texts.values())) == len(rows):
            break
    return texts


def _text(row: Changes, names: Collection[str]) -> str:
    """Write the settings of a row: all, or of more than SHOWN those of some names."""
    every = sorted(row)
    chosen = every if len(row) <= SHOWN else [one for one in every if one[0] in names]
    shown = chosen or every[:SHOWN]
    more = f" and {len(every) - len(shown)} more" if len(shown) < len(every) else ""
    return ", ".join(text for _, text in shown) + more


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
