"""Packs that are damaged or hostile, links out of a folder, and two processes at once."""

import fnmatch
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from filelock import FileLock

import lra
from conftest import tiny_arguments
from lra.common.errors import DataError, UserError
from lra.record import packed
from lra.record.__main__ import main
from lra.record.merge import merge_results, write_pack
from lra.record.packed import PACK, file_on_disk, list_files, read_file
from lra.record.run import folder_of
from lra.report import __main__ as report
from lra.run_task import main as run_task
from lra.sweep.__main__ import main as sweep
from made_results import bench_record, record, save, save_all, save_evaluation, write_metrics

PLACE = "runs/listops/tnn/abc-s0"
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"


def table(*rows: Sequence[Any], **options: Any) -> Callable[[Path], None]:
    names = ("folder", "name", "content")
    columns = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
    return lambda path: pq.write_table(pa.table(columns), path, compression="zstd", **options)


def write(content: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content)


def understate(path: Path) -> None:
    """Write 48 MiB, of which the footer says one byte."""
    table(*[(PLACE, f"{i}", bytes(2**20)) for i in range(48)], use_dictionary=False)(path)
    number = 2 * pq.read_metadata(path).row_group(0).column(2).total_uncompressed_size
    # As Thrift has it, seven bits a byte.
    old = bytes((number >> shift & 127) | 128 * (shift < 21) for shift in range(0, 28, 7))
    content = path.read_bytes()
    assert content.count(old) == 1
    path.write_bytes(content.replace(old, b"\x82\x80\x80\0"))
    assert pq.read_metadata(path).row_group(0).column(2).total_uncompressed_size == 1


DAMAGED: dict[str, Callable[[Path], object]] = {
    "pointer": write(POINTER),
    "other columns": lambda path: pq.write_table(pa.table({"x": [1]}), path),
    "text": table((PLACE, "a", "text")),
    "null": table((PLACE, "a", None), (PLACE, "b", b"")),
    "no folder": table((None, "a", b"")),
    "nested": table((PLACE, "a", [b""])),
    "empty part": table(("runs//x/y", "a", b"")),
    "dot": table((".", "a", b"")),
    "parent": table(("runs/..", "a", b"")),
    "path as name": table((PLACE, "a/b", b"")),
    "twice": table((PLACE, "a", b""), (PLACE, "a", b"")),
    "large": table((PLACE, "a", bytes(40 * 2**20))),
    "shared": table(*[(PLACE, f"{i}", bytes(16 * 2**20)) for i in range(9)]),
    "understated": understate,
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_pack_is_named_and_left_out(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no pack is written over it."""
    if name == "large":  # which is refused before it is unpacked
        monkeypatch.setattr(pq.ParquetFile, "iter_batches", lambda *_, **__: iter(()))
    results = save_all(tmp_path / "results", [record()])
    DAMAGED[name](results / PACK)
    before, place = (results / PACK).read_bytes(), ["--results-dir", str(results)]
    own = ["--results-dir", str(save_all(tmp_path / "own", [record(mixer="s4")]))]
    commands = {
        "validate": place, "list": place, "ship": [*place, "--to", str(tmp_path / "to")],
        "merge": [str(tmp_path / "own"), *place], "export": place,
    }  # fmt: skip
    for command, arguments in commands.items():
        assert main([command, *arguments]) == 1, command
        assert capsys.readouterr().err.count(f"{results / PACK} ") == 1, command
    if name == "pointer":
        assert report.main([*place, "--format", "csv"]) == 1
    save(tmp_path / "own", record(mixer="x"))
    assert main(["ship", *own, "--to", str(results)]) == 2
    assert (results / PACK).read_bytes() == before
    with pytest.raises(DataError, match=PACK):
        lra.load(results / PLACE.replace("tnn", "y"))
    assert sorted(path.name for path in (results / "runs/listops").iterdir()) == ["s4", "tnn"]


def test_a_damaged_pack_leaves_a_run_its_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for place in (tmp_path / "results", tmp_path / "results/shipped"):
        place.mkdir()
        (place / PACK).write_bytes(POINTER)
    assert run_task(tiny_arguments(tmp_path, mixer="mean")) == 0
    shown = capsys.readouterr()
    assert "test accuracy" in shown.out
    assert shown.err.count(f"{PACK} is damaged") == 2
    flags = tiny_arguments(tmp_path, mixer="mean")
    flags = ["--tasks", "listops", "--mixers", "mean", *flags[flags.index("--preset") :]]
    assert sweep(flags) == 0
    assert f"{PACK} is damaged" in capsys.readouterr().err
    assert not [*tmp_path.rglob("failure.txt")]


def test_what_is_packed_can_be_read_up_to_a_bound(tmp_path: Path) -> None:
    files = {f"{PLACE}/{i}": bytes(2**20) for i in range(40)}
    write_pack(tmp_path, files)
    assert packed.read_pack(tmp_path) == files
    with pytest.raises(DataError, match="has 1,048,576 bytes, expected at most 99"):
        read_file(tmp_path / PLACE / "1", largest=99)


@pytest.mark.parametrize("command", ["merge", "ship"])
def test_what_a_link_has_elsewhere_is_not_copied(
    tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Files and folders of runs, measurements, evaluations and packs; the folder may be linked."""
    source, target, private = (tmp_path / name for name in ("source", "target", "private"))
    runs = [record(mixer=name) for name in ("a", "b", "c", "d")]
    save_all(source, runs)
    save_evaluation(source, runs[2], 4096, 2.0)
    bench_record().save(source / "bench")
    packed_place = folder_of(Path(), record(mixer="e")) / "result.json"
    content = save(private, record(mixer="e")).read_bytes()
    write_pack(private, {packed_place.as_posix(): content})
    (source / PACK).symlink_to(private / PACK)
    (private / "config").write_text("secret")
    for name in ("config.yaml", "metrics.jsonl"):
        (folder_of(source, runs[0]) / name).symlink_to(private / "config")
    (folder_of(source, runs[0]) / "internals.jsonl").symlink_to(folder_of(source, runs[3]) / "in")
    (folder_of(source, runs[3]) / "in").write_text("inside")
    folder_of(source, runs[1]).rename(private / "b")
    folder_of(source, runs[1]).symlink_to(private / "b")
    (evaluation,) = folder_of(source, runs[2]).glob("evaluation-*")
    (measurement,) = source.glob("bench/*/*")
    for path in (evaluation, measurement):
        path.symlink_to(path.rename(private / path.name))
    (tmp_path / "link").symlink_to(source)
    folders = [str(tmp_path / "link"), "--results-dir", str(target)]
    shipped = ["--results-dir", str(tmp_path / "link"), "--to", str(target)]
    assert main([command, *(shipped if command == "ship" else folders)]) == 1
    said = capsys.readouterr().err
    for name in ("a/abc-s0/config.yaml", "a/abc-s0/metrics.jsonl", "b/abc-s0/result.json"):
        assert f"listops/{name} is a link out of" in said
    for name in (evaluation.name, measurement.name):
        assert f"{name} is a link out of" in said
    assert f"{PACK} is a link out of" in said
    found = {path.name: path for path in list_files(target, "runs/*/*/*/*")}
    assert sorted(found) == ["internals.jsonl", "result.json"]
    assert read_file(found["internals.jsonl"]) == b"inside"
    assert not list_files(target, "bench/*/*")


@pytest.mark.parametrize("is_packed", [False, True])
def test_what_another_process_merged_meanwhile_is_a_conflict(
    tmp_path: Path, is_packed: bool
) -> None:
    content = save(tmp_path / "theirs", record()).read_bytes()
    mine, target = save_all(tmp_path / "mine", [record(test_accuracy=41.0)]), tmp_path / "target"
    target.mkdir()
    with ThreadPoolExecutor() as pool:
        with FileLock(target / ".merge.lock"):
            merged = pool.submit(merge_results, target, [mine], packed=is_packed)
            time.sleep(0.5)  # it waits, with what it found
            write_pack(target, {f"{PLACE}/result.json": content}) if is_packed else save(
                target, record()
            )
        with pytest.raises(UserError, match="same name and different records"):
            merged.result()
    assert read_file(target / PLACE / "result.json") == content


def test_a_run_that_is_being_tested_is_not_shipped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = save_all(tmp_path / "results", [record(status="stopped"), record(mixer="s4")])
    command = ["ship", "--results-dir", str(results), "--to", str(tmp_path / "to")]
    with FileLock(results / PLACE / "lock"):
        assert main(command) == 1
    shown = capsys.readouterr()
    assert "1 records copied" in shown.out
    assert f"{results / PLACE}: another process is at work on it" in shown.err
    assert main(command) == 0


@pytest.mark.parametrize("command", ["merge", "ship"])
def test_what_killed_commands_left_is_removed_and_nothing_is_packed_again(
    tmp_path: Path, command: str
) -> None:
    results, target = save_all(tmp_path / "results", [record()]), tmp_path / "target"
    write_metrics(results, record(), [1.0])
    left = target / {"merge": f"{PLACE}/.metrics.jsonl.1.tmp", "ship": f".{PACK}.1.tmp"}[command]
    left.parent.mkdir(parents=True)
    left.touch()
    folders = {
        "merge": [results, "--results-dir", target],
        "ship": ["--results-dir", results, "--to", target],
    }
    assert main([command, *map(str, folders[command])]) == 0
    assert not left.exists()
    file = file_on_disk(target / PLACE / "result.json")
    number = file.stat().st_ino
    assert main([command, *map(str, folders[command])]) == 0
    assert file.stat().st_ino == number


def test_the_work_grows_as_the_number_of_packed_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = 0

    def count(names: Sequence[str], pattern: str) -> list[str]:
        nonlocal compared
        compared += len(names)
        return fnmatch.filter(names, pattern)

    monkeypatch.setattr(packed, "fnmatch", type("counted", (), {"filter": staticmethod(count)}))
    folders = {f"{PLACE}-{i}": f"{PLACE}-{i}/evaluation-{i}.json" for i in range(100)}
    write_pack(tmp_path, {place: os.fsencode(place) for place in folders.values()})
    for folder, file in folders.items():
        assert packed.list_files(tmp_path / folder, "evaluation-*.json") == [tmp_path / file]
    assert len(packed.list_files(tmp_path, "runs/listops/*/*/evaluation-*.json")) == 100
    assert compared <= 300
