"""The page of a report: one HTML file that needs no other file and no network."""

from __future__ import annotations

import base64
import itertools
import os
import re
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lra.record.benchmark import BenchRecord
from lra.record.run import RunRecord
from lra.report.boards.results import Results
from lra.report.boards.slugs import bench_anchor, run_anchor
from lra.report.boards.speeds import layers_in_words
from lra.report.chapters import Chapter, ReportData
from lra.report.figures.drawing import ReportFigure
from lra.report.page.commands import bench_command, command
from lra.report.tables.table import Table
from lra.runtime.console import MISSING

TEMPLATE = Path(__file__).with_name("page.html")
TITLE = "Long Range Arena"


@dataclass(frozen=True)
class Heading:
    """A heading of the page: one open chapter, or several folded ones."""

    slug: str
    title: str
    chapters: Sequence[Chapter]
    is_folded: bool


@dataclass(frozen=True)
class ListedRun:
    """A run as the page lists it."""

    anchor: str
    name: str
    facts: Mapping[str, str]
    record: str
    """Path of its result.json, relative to the page."""
    command: str


def summary(records: Sequence[RunRecord]) -> str:
    """Summarize records in a sentence."""
    done = sum(record.status == "done" for record in records)
    devices = sorted({record.device for record in records})
    on = f", on {'; '.join(devices)}" if devices else ""
    return f"{len(records):,} runs, {done:,} of them done{on}."


@dataclass(frozen=True)
class _Image:
    """A figure within the page; packed, it takes a fifth of its room."""

    width: int
    """In pixels of 1/96 inch."""
    height: int
    packed: str
    """The SVG compressed by zlib, in base64."""

    @classmethod
    def of(cls, svg: bytes) -> _Image:
        found = re.search(rb'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)
        assert found is not None
        width, height = (round(float(points) * 96 / 72) for points in found.groups())
        return cls(width, height, base64.b64encode(zlib.compress(svg, 9)).decode())


def headings(chapters: Sequence[Chapter]) -> list[Heading]:
    """Sort chapters under the headings of the page."""
    made: list[Heading] = []
    for _, group in itertools.groupby(chapters, key=lambda one: one.folded_under or one.slug):
        first, *others = group
        title = first.folded_under or first.title
        slug = f"folded-{first.slug}" if first.folded_under else first.slug
        made.append(Heading(slug, title, [first, *others], bool(first.folded_under)))
    return made


def files_of(one: Table | ReportFigure, files: Collection[str]) -> list[str]:
    """Return which of a report's files hold a table or a figure."""
    folder, endings = ("tables", ("csv", "tex")) if isinstance(one, Table) else (
        "figures", ("png", "svg"))  # fmt: skip
    names = [f"{folder}/{one.slug}.{ending}" for ending in endings]
    return [name for name in names if name in files]


def write_page(
    data: ReportData,
    chapters: Sequence[Chapter],
    images: Mapping[str, bytes],
    files: Collection[str],
    out: Path,
) -> str:
    """Return the HTML of the page.

    Args:
        data: the records that the report is on.
        chapters: all tables and figures.
        images: the SVG of every figure, by slug.
        files: names of the report's other files, which the page links.
        out: folder that the page will be in, for relative links.
    """
    import jinja2

    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    template = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
    packed = {slug: _Image.of(image) for slug, image in images.items()}
    results, names = data.results, data.names
    ordered = sorted(
        results.records, key=lambda r: (r.task, r.preset, r.protocol, names.of(r), r.run_id)
    )
    return template.render(
        title=TITLE,
        summary=summary(results.records),
        headings=headings(chapters),
        files_of=lambda one: files_of(one, files),
        images=packed,
        runs=[
            *(_listed(results, record, names.of(record), out) for record in ordered),
            *(_listed_bench(results, r, names.of_mixer(r), out) for r in results.bench),
        ],
    )


def _number(value: float | None, text: str) -> str:
    return MISSING if value is None else text.format(value)


def _link(path: Path, out: Path) -> str:
    return Path(os.path.relpath(path.resolve(), out.resolve())).as_posix()


def _code(git: Mapping[str, object]) -> str:
    return f"commit {git.get('commit')}" + ", changed" * bool(git.get("dirty"))


def _versions(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def _data(record: RunRecord) -> str:
    reason = f" ({record.data.unofficial_because})" if record.data.unofficial_because else ""
    return f"{record.data.source}{reason}, {record.data.fingerprint[:16]}"


def _listed(results: Results, record: RunRecord, name: str, out: Path) -> ListedRun:
    facts = {
        "test accuracy": _number(record.test_accuracy, "{:.2f} %"),
        "validation accuracy": _number(record.val_accuracy, "{:.2f} %")
        + ("" if record.best_step is None else f" at step {record.best_step:,}"),
        "steps": f"{record.steps:,} of {record.total_steps:,} ({record.epochs:.2f} epochs)",
        "speed": _number(record.steps_per_second, "{:.2f} steps/s"),
        "arithmetic": _number(record.flops_per_step, "{:.3g} FLOPs a step"),
        "peak memory": f"{record.peak_memory_mib:,.0f} MiB",
        "parameters": f"{record.params:,}",
        "time": f"{record.wall_seconds:,.0f} s",
        "device": f"{record.device}, {record.precision}",
        "data": _data(record),
        "code": _code(record.git),
        "versions": _versions(record.versions),
    }
    if record.positions is not None and record.status == "done":
        facts = {"test set": record.positions.text, **facts}
    if record.test_non_finite:
        count = f"{record.test_non_finite:,} of {record.test_total:,} test targets"
        facts = {"non-finite logits": count, **facts}
    if record.message:
        facts = {"message": record.message, **facts}
    return ListedRun(
        anchor=run_anchor(record),
        name=f"{record.task} / {name} / {record.preset} / {record.protocol} / "
        f"{record.run_id}: {record.status}, {record.test_text or MISSING}",
        facts=facts,
        record=_link(results.path(record) / "result.json", out),
        command=command(record),
    )


def _listed_bench(results: Results, record: BenchRecord, name: str, out: Path) -> ListedRun:
    speed = _number(record.steps_per_second, "{:.2f} a second")
    layers = "" if record.rpe_layers is None else layers_in_words(record.rpe_layers)
    named = ["benchmark", record.mode, record.part, record.objective, record.task, name, layers,
             record.preset, record.protocol, *record.overrides]  # fmt: skip
    ratio = [record.ratio_low_quartile, record.ratio_to_reference, record.ratio_high_quartile]
    quartiles = [_number(v, "{:.2f}") for v in (record.low_quartile, record.high_quartile)]
    return ListedRun(
        anchor=bench_anchor(record),
        name=" / ".join(map(str, filter(None, named)))
        + f" / {record.length:,} positions: {record.status}, {speed}",
        facts={
            "quartiles": f"{' to '.join(quartiles)} a second, of {record.repeats} rounds",
            "against the reference": ", ".join(_number(v, "{:.2f}") for v in ratio),
            "peak memory": _number(record.peak_memory_mib, "{:,.0f} MiB"),
            "arithmetic": _number(record.flops_per_step, "{:.3g} FLOPs a step"),
            "parameters": _number(record.params, "{:,}"),
            "device": f"{record.device}, {record.precision}",
            "measured with": ", ".join(record.measured_with),
            "code": _code(record.git),
            "versions": _versions(record.versions),
        },
        record=_link(results.bench_path(record), out),
        command=bench_command(record),
    )
