"""What rows, files and links are called."""

import hashlib
import re
from collections.abc import Collection, Sequence
from pathlib import Path

from lra.common.errors import UnknownName, UserError
from lra.record.benchmark import BenchRecord
from lra.record.run import RunRecord
from lra.record.schema import select_sections

LONGEST_SLUG = 120
"""Most letters of a file's name, without its ending."""


def slugify(*parts: str) -> str:
    """Turn texts into one that can stand in a file's name and in a link; a hash ends a long one."""
    text = "-".join(parts).lower()
    slug = re.sub(r"[^a-z0-9.]+", "-", text).strip("-.")
    if len(slug) > LONGEST_SLUG:
        digest = hashlib.sha256(text.encode()).hexdigest()[:8]
        slug = f"{slug[: LONGEST_SLUG - 9].strip('-.')}-{digest}"
    return slug or "x"


def natural_order(name: str) -> list[tuple[int, str]]:
    """Return a sort key by which 64x4 comes before 64x16, and that before 128x8."""
    return [(len(part) if part.isdigit() else 0, part) for part in re.split(r"(\d+)", name)]


def run_anchor(run: RunRecord) -> str:
    """Return the name of a run in the page.

    A finished run and an unfinished one may have the same id, so the name of the latter has its
    status, too.
    """
    end = "" if run.status == "done" else f":{run.status}"
    end += f":{run.contribution.name}" if run.contribution else ""
    return f"run-{run.task}-{run.mixer}-{run.run_id}{end}"


def bench_anchor(record: BenchRecord) -> str:
    """Return the name of a measurement in the page."""
    path = record.path(Path())
    return slugify(f"bench-{path.parent.name}") + f"-{path.stem}"


def without_training(run: RunRecord) -> RunRecord:
    """Return a run as if it were trained by the settings of its preset, to name its row by."""
    changed = [*select_sections(run.changes, "mixer", "model", "pretrain")]
    return run.model_copy(update={"changed": changed, "config_hash": ""})


class RowNames:
    """The names of runs that are shown together: each has one, in all tables and figures.

    A run goes by its mixer and its label or, without one, the settings that it changes. The code of
    a plug-in is named where its mixer has several.
    """

    def __init__(self, runs: Sequence[RunRecord], bench: Sequence[BenchRecord] = ()) -> None:
        self._codes: dict[str, set[str | None]] = {}
        self._presets: dict[str, set[str | None]] = {}
        for record in (*runs, *bench):
            self._codes.setdefault(record.mixer, set()).add(record.mixer_code)
            self._presets.setdefault(str(record.preset), set()).add(record.preset_code)
        self._hashes: dict[tuple[str, ...], set[str]] = {}
        for run in runs:
            self._hashes.setdefault(self._reads_as(run), set()).add(run.config_hash)

    def of(self, run: RunRecord) -> str:
        """Return the name of a run's row.

        Hashes tell apart what reads the same on the same data: runs whose settings files changed in
        between, or other settings of one label.
        """
        name, *_ = reads_as = self._reads_as(run)
        is_shared = len(self._hashes[reads_as]) > 1 and run.contribution is None
        return f"{name} [settings {run.config_hash[:8]}]" if is_shared else name

    def of_mixer(self, record: RunRecord | BenchRecord) -> str:
        """Return the name of a mixer with settings of its own preset."""
        return self._add_code(record.mixer, record)

    def of_preset(self, run: RunRecord) -> str:
        """Return the name of a run's preset, with its code where files of one name differ."""
        code, has_several = run.preset_code, len(self._presets[run.preset]) > 1
        return f"{run.preset} [file {code[:8]}]" if code and has_several else run.preset

    def _reads_as(self, run: RunRecord) -> tuple[str, ...]:
        data = run.data.source, run.data.fingerprint
        preset = self.of_preset(run)
        return self._add_code(run.method, run), preset, run.protocol, run.task, *data

    def _add_code(self, name: str, record: RunRecord | BenchRecord) -> str:
        code = record.mixer_code
        has_several = len(self._codes[record.mixer]) > 1
        return f"{name} [code {code[:8]}]" if code and has_several else name


def mixer_of(row: str) -> str:
    """Return the mixer of a row, whose name is the first word of the row's."""
    return row.split(" ", 1)[0].removesuffix(":")


def complete(text: str, valid: Collection[str], kind: str, flag: str) -> str:
    """Return the valid name that a text is, or the only one that begins so, in upper or lower case.

    Raises: UserError if there is none, or more than one; it has the kind of names, and the flag.
    """
    if text in valid:
        return text
    start = text.casefold()
    matches = [name for name in valid if name.casefold() == start]
    matches = matches or [name for name in valid if start and name.casefold().startswith(start)]
    if not matches:
        raise UnknownName(kind, text, valid, flag)
    if len(matches) > 1:
        raise UserError(
            f"{flag} {text}: {len(matches)} names begin with it "
            f"({'; '.join(sorted(matches))}); write more of the name"
        )
    return matches[0]
