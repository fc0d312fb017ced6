"""What a rebuilding of the suite must leave equal, as digests that can be made at any commit.

    python tests/golden/equal.py           compare this tree with equal.json
    python tests/golden/equal.py --write   write equal.json, where a change is meant
    python tests/golden/equal.py --only configs --values /tmp/before   also write what is digested

Comparing the folders that --values fills at two commits shows what has changed. Training steps are
equal bit for bit on processors of one kind alone: on another kind, write their digests first at the
commit to compare with.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT), str(HERE.parent)]

DIGESTS = HERE / "equal.json"
STEPS = 20
PRESETS = ("paper", "quick", "budget")
PROTOCOLS = ("s4", "lra")
NAME_LENGTH = 16
"""Hexadecimal digits of a digest that are kept."""

Values = Iterator[tuple[str, str]]
"""Names of things, with the text whose digest is compared."""


def describe_config(
    task: str, mixer: str, preset: str, protocol: str, changes: Sequence[str] = ()
) -> str:
    """Write the settings and the hash of a run as JSON, or the message that refuses it."""
    from common.errors import UserError
    from lra.classifier.resolve import resolve
    from lra.config.request import RunRequest, parse_changes

    request = RunRequest(
        task=task, mixer=mixer, preset=preset, protocol=protocol, changes=parse_changes(changes)
    )
    try:
        config = resolve(request)
    except UserError as error:
        return f"refused: {error}"
    found: dict[str, Any] = {**config.values(), "hash": config.hash}
    return json.dumps(found, sort_keys=True)


def list_pairs() -> list[tuple[str, str]]:
    """List all tasks with all mixers of the suite."""
    import lra

    return [(task, mixer) for task in sorted(lra.tasks()) for mixer in sorted(lra.mixers())]


def list_presets() -> list[str]:
    """List the presets of the suite and those of single mixers."""
    from lra.config.settings_files import published_presets

    return sorted({*PRESETS, *published_presets()})


def configs() -> Values:
    """Resolve each mixer on each task at each preset and protocol."""
    presets = list_presets()
    for task, mixer in list_pairs():
        lines = [
            f"{preset} {protocol}: {describe_config(task, mixer, preset, protocol)}"
            for preset in presets
            for protocol in PROTOCOLS
        ]
        yield f"{task} {mixer}", "\n".join(lines)


def hashes() -> Values:
    """Resolve the request of each shipped run again, beside the hash that its record has."""
    from lra.record.run import read_runs

    of_pairs: dict[str, list[str]] = {}
    for _, record in read_runs(ROOT / "results", shipped=True)[0]:
        if record.mixer_code is None and record.task_code is None:
            config = describe_config(
                record.task, record.mixer, record.preset, record.protocol, record.overrides
            )
            line = f"{record.run_id} {record.config_hash} {config}"
            of_pairs.setdefault(f"{record.task} {record.mixer}", []).append(line)
    for name, lines in sorted(of_pairs.items()):
        yield name, "\n".join(sorted(lines))


def tables() -> Values:
    """Write the tables of README files and of the page: their unrounded numbers or, without any,
    their text. Beside them are the runs of the leaderboard.
    """
    import pandas as pd

    from lra.report.boards import choose_from_grids
    from lra.report.data import Data
    from lra.report.readme import BLOCKS
    from lra.report.repeats import differences_csv
    from lra.report.tables.evaluations import evaluation_tables
    from lra.report.tables.probes import probe_table, probes
    from lra.report.tables.results import accuracy_table
    from lra.report.tables.table import Table

    data = Data(ROOT / "results" / "shipped")
    boards = [board for board in data.boards if board.is_main and not board.of_positions]
    items = [item for make in BLOCKS.values() for item in make(data)]
    made = [item.without_empty_columns() for item in items if isinstance(item, Table)]
    others = [accuracy_table(choose_from_grids(board)) for board in boards]
    others += [table for board in boards for table in evaluation_tables(data, board)]
    others += map(probe_table, probes(data))
    for table in [*made, *(table.without_empty_columns() for table in others)]:
        yield f"tables/{table.slug}.csv", pd.DataFrame(table.facts).to_csv(index=False)
    yield "tables/settings.csv", differences_csv()
    yield "results/leaderboard.csv", (ROOT / "results" / "leaderboard.csv").read_text()


def train(pair: tuple[str, str]) -> str:
    """Train a mixer on a little of a task for a few steps: what each step logs, as JSON lines."""
    import torch
    import yaml

    import lra
    from made_data import SMALLER, place_made_data

    task, mixer = pair
    torch.set_num_threads(1)
    settings: dict[str, dict[str, Any]] = {"log": {"every_steps": 1}, "task": {}, "train": {}}
    for text in SMALLER[task]:
        name, _, value = text.partition("=")
        section, _, key = name.partition(".")
        settings[section][key] = yaml.safe_load(value)
    settings["train"]["batch_size"] = 8
    with tempfile.TemporaryDirectory() as folder:
        place_made_data(task, Path(folder) / "data")
        try:
            options: dict[str, Any] = {
                "preset": "quick", "max_steps": STEPS, "device": "cpu", "quiet": True,
                "results_dir": Path(folder) / "results", "data_dir": Path(folder) / "data",
                **settings,
            }  # fmt: skip
            run = lra.run(task, mixer, **options)
        except lra.UserError as error:
            return f"refused: {error}"
        lines = (run.folder / "metrics.jsonl").read_text().splitlines()
    kept = ("step", "loss", "accuracy", "lr", "grad_norm", "val_accuracy", "val_loss")
    rows = [json.loads(line) for line in lines]
    return "\n".join(json.dumps({key: row[key] for key in kept if key in row}) for row in rows)


def steps() -> Values:
    """Train each mixer on each task for a few steps at preset quick."""
    from tqdm import tqdm

    pairs = list_pairs()
    with ProcessPoolExecutor(max_workers=2) as pool:
        found = pool.map(train, pairs)
        for pair, text in zip(pairs, tqdm(found, total=len(pairs), unit="pair"), strict=True):
            yield " ".join(pair), text


KINDS: dict[str, Callable[[], Values]] = {
    "configs": configs,
    "hashes": hashes,
    "tables": tables,
    "steps": steps,
}


def main() -> int:
    """Compare or write the digests; return 1 if something differs."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--only", choices=KINDS, action="append", help="kinds of digests to make")
    parser.add_argument("--write", action="store_true", help="write the digests")
    parser.add_argument("--values", type=Path, help="folder for the texts that are digested")
    options = parser.parse_args()
    known = json.loads(DIGESTS.read_text()) if DIGESTS.exists() else {}
    differ = 0
    for kind in options.only or KINDS:
        made = {}
        for name, text in KINDS[kind]():
            made[name] = hashlib.sha256(text.encode()).hexdigest()[:NAME_LENGTH]
            if options.values:
                path = options.values / kind / f"{name.replace('/', '_')}.txt"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text + "\n")
        before = known.get(kind, {})
        changed = sorted(n for n in {*made, *before} if made.get(n) != before.get(n))
        print(f"{kind}: {len(made)} made, {len(changed)} differ", *changed[:20], sep="\n  ")  # noqa: T201
        differ += len(changed)
        known[kind] = made
    if options.write:
        DIGESTS.write_text(json.dumps(known, indent=0, sort_keys=True) + "\n")
    return int(differ > 0 and not options.write)


if __name__ == "__main__":
    sys.exit(main())
