"""Making a contribution: the files that leave the submitter's machine."""

import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors.torch import save

from lra.board.files import UNLICENSED, check_files, divide, most_bytes, weights_name
from lra.common.errors import UserError
from lra.common.files import write_atomically
from lra.common.strict_yaml import parse_yaml, plain
from lra.common.untrusted import read_regular, read_text
from lra.config.registry import digest
from lra.record.community import RUN_FILES, SUBMISSION, check_fields
from lra.record.contribution import PROTOCOL_VERSION, Submission
from lra.record.known_data import Known
from lra.record.merge import write_pack
from lra.record.packed import has_file, read_file
from lra.record.run import RUNS, RunRecord, Runs, read_runs
from lra.record.run_files import LARGEST_METRICS
from lra.train.checkpoint import read_newest
from lra.train.run_folder import CODE_FILES

ASKED = {name: f for name, f in Submission.model_fields.items() if f.description is not None}
"""The fields of submission.yaml that the submitter has to say."""
_IMPORT = re.compile(r"(?m)^\s*(?:from|import)\s+(\w+)", re.ASCII)
"""The first name of a module that code imports."""
_PATH = re.compile(r"(?<![\w.:/])(?:~|[A-Za-z]:)?[/\\](?:[^/\\\s:;,'\"]+[/\\])+")
"""The folders of an absolute path, in any text of a record."""


def choose_runs(
    results_dir: Path, names: Sequence[str], known: Known, because: str | None = None
) -> tuple[Runs, dict[str, str]]:
    """Choose runs by TASK/MIXER/RUN or folder, or all on known data that have ended; return also
    why others with their settings are left out, by name.

    Raises: UserError for an unknown run, without any, and for others without a reason.
    """
    runs, _ = read_runs(results_dir, "--results-dir")
    by_name = {run.name: (path, run) for path, run in runs}
    asked = ["/".join(Path(name).parts[-3:]) for name in names] or [
        name
        for name, (_, run) in by_name.items()
        if (run.task, run.data.fingerprint) in known and run.status != "stopped"
    ]
    if missing := [name for name in asked if name not in by_name]:
        raise UserError(
            f"there is no run {results_dir / RUNS / missing[0]} (python -m lra.record list)"
        )
    if not asked:
        raise UserError(
            f"{results_dir} has no run that ended on the data of the leaderboard; train with "
            f"--preset budget, or name the runs"
        )
    chosen = {name: by_name.pop(name) for name in dict.fromkeys(asked)}
    settings = {(run.task, run.mixer, run.config_hash) for _, run in chosen.values()}
    rest = by_name.items()
    others = [n for n, (_, r) in rest if (r.task, r.mixer, r.config_hash) in settings]
    if others and because is None:
        raise UserError(
            f"{len(others)} runs have the settings of submitted ones and are not among them, "
            f"{others[0]} for example; submit them, too, or say why not (--left-out REASON)"
        )
    return [*chosen.values()], dict.fromkeys(others, str(because))


def contribute(
    folder: Path,
    runs: Runs,
    said: Mapping[str, Any],
    known: Known,
    left_out: Mapping[str, str] = {},
) -> list[str]:
    """Make a contribution and check it; it is written, in a folder that may have a submission.yaml
    to complete, if there are no findings.

    Args:
        said: what the submitter says, by the names of `ASKED`.
    Raises: UserError for a folder with other files, missing fields, and code that does not fit.
    """
    path = folder / SUBMISSION
    if more := sorted({*folder.glob("*")} - {path}):
        raise UserError(f"{more[0]} is there already; remove it, or choose another --name")
    content = parse_yaml(read_text(path), str(path)) if path.is_file() else {}
    content = {**check_fields(dict[str, Any], content or {}, path), **said}
    if missing := [name for name in ASKED if name not in content]:
        flags = "; ".join(f"--{n.replace('_', '-')} ({ASKED[n].description})" for n in missing)
        raise UserError(f"{path.name} lacks {', '.join(missing)}; give {flags}")
    content |= {
        "hardware": sorted({run.device for _, run in runs}),
        "protocol_version": PROTOCOL_VERSION,
        "left_out": {**left_out},
    }
    content["division"], content["differences"] = divide(content["chosen_on"], runs, known)
    fields = check_fields(Submission, content, path).model_dump(mode="json").items()
    files = {name: content for path, run in runs for name, content in _list_files(path, run)}
    packed = {name: files.pop(name) for name in [*files] if name.startswith(RUNS)}
    files[SUBMISSION] = "".join(f"{name}: {plain(value)}\n" for name, value in fields).encode()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        made = Path(scratch, folder.name)
        for name, content in files.items():
            (made / name).parent.mkdir(parents=True, exist_ok=True)
            write_atomically(made / name, content)
        write_pack(made, packed)
        findings = check_files(made, known)
        if not findings:
            shutil.rmtree(folder, ignore_errors=True)
            made.rename(folder)
    return findings


def _list_files(path: Path, run: RunRecord) -> Iterator[tuple[str, bytes]]:
    """List what leaves the machine of a run: its record, logs, plug-in and weights."""
    spec = run.mixer_from
    if run.mixer_code is not None and spec is not None:
        code = _list_code(path, run, Path(spec.rpartition(":")[0]))
        yield from code.items()
        spec = f"{next(iter(code))}:{run.mixer}"
    facts = _hide_folders(run.model_dump(mode="json", exclude={"settings"}))
    record = RunRecord.model_validate({**facts, "settings": run.settings, "mixer_from": spec})
    yield f"{RUNS}/{run.name}/{RUN_FILES[0]}", record.model_dump_json(indent=2).encode()
    for name in filter(lambda name: has_file(path / name), RUN_FILES[1:]):
        yield f"{RUNS}/{run.name}/{name}", read_file(path / name, largest=LARGEST_METRICS)
    yield from _list_weights(path, run)


def _list_weights(path: Path, run: RunRecord) -> Iterator[tuple[str, bytes]]:
    """List the file with the best weights of a finished run, if it may and can be given away."""
    state = read_newest(path / "checkpoints") if run.task not in UNLICENSED else None
    if state is not None and run.status == "done" and (best := state["trainer"]["best"]):
        content = save({name: tensor.clone() for name, tensor in best["model"].items()})
        if len(content) <= most_bytes(name := f"weights/{weights_name(run)}"):
            yield name, content


def ship_weights(shipped: Path, runs: Runs) -> list[str]:
    """Write the weights of runs into the shipped results, and return the names of the files.

    Raises: UserError for a run without weights.
    """
    files: dict[str, bytes] = {}
    for path, run in runs:
        if not (weights := dict(_list_weights(path, run))):
            raise UserError(f"{path}: expected a finished run with a checkpoint of up to 3 MiB")
        files |= weights
    for name, content in files.items():
        (shipped / name).parent.mkdir(parents=True, exist_ok=True)
        write_atomically(shipped / name, content)
    return [*files]


def _hide_folders(value: Any) -> Any:
    """Leave the folders of absolute paths out of all texts."""
    if isinstance(value, dict):
        return {name: _hide_folders(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_hide_folders(item) for item in value]
    return _PATH.sub("", value.replace(str(Path.home()), "~")) if isinstance(value, str) else value


def _list_code(path: Path, run: RunRecord, source: Path) -> dict[str, bytes]:
    """List the file of a plug-in as the run kept it, and those of its folder that it imports.

    Returns: contents by name in a contribution, the plug-in's file first.
    Raises: UserError for a plug-in that is not the file that the run hashed.
    """
    kept = path / CODE_FILES["mixer"]
    if not kept.is_file() or digest([str(kept)]) != run.mixer_code:
        raise UserError(
            f"{kept} is not the code of the run (hash {run.mixer_code}); a submitted mixer has its "
            f"class in the file that --mixer names"
        )
    name = f"code/{source.stem if source.suffix == '.py' else source.suffix[1:]}.py"
    files, waiting = {name: read_regular(kept)}, [name]
    while waiting:
        for module in _IMPORT.findall(files[waiting.pop()].decode(errors="replace")):
            helper, other = source.parent / f"{module}.py", f"code/{module}.py"
            if helper.is_file() and other not in files:
                files[other] = read_regular(helper)
                waiting.append(other)
    return files
