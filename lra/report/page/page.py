"""The page of a report: one HTML file that needs no other file and no network."""

from __future__ import annotations

import base64
import os
import re
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lra.record.benchmark import BenchRecord
from lra.record.changes import write_changes
from lra.record.packed import file_on_disk
from lra.record.run import RunRecord
from lra.report.boards.results import Results
from lra.report.boards.row_names import mixer_of
from lra.report.boards.slugs import bench_anchor, run_anchor, slugify
from lra.report.boards.speeds import layers_in_words
from lra.report.chapters import Chapter, ReportData
from lra.report.figures.drawing import TAG, ReportFigure
from lra.report.figures.series import SERIES, drawn_rows
from lra.report.page.commands import bench_command, command
from lra.report.tables.table import Table
from lra.runtime.console import MISSING

TITLE = "Long Range Arena"
_SCRIPTS = ("tables.js", "figures.js", "page.js")


@dataclass(frozen=True)
class Tab:
    """A tab of the page: chapters, and which of them are folded."""

    slug: str
    title: str
    chapters: Sequence[Chapter]

    @property
    def figures(self) -> list[ReportFigure]:
        """The figures of its chapters, in their order on the page."""
        return [figure for chapter in self.chapters for figure in chapter.figures]


@dataclass(frozen=True)
class ListedRun:
    """A run as the page lists it."""

    anchor: str
    mixer: str
    name: str
    facts: Mapping[str, str]
    record: str
    """Path of its result.json, relative to the page."""
    command: str
    is_own: bool
    """Whether it is the user's own, rather than a shipped one."""


def summary(records: Sequence[RunRecord]) -> str:
    """Summarize records in a sentence."""
    done = sum(record.status == "done" for record in records)
    devices = sorted({record.device for record in records})
    on = f", on {'; '.join(devices)}" if devices else ""
    return f"{len(records):,} runs, {done:,} of them done{on}."


@dataclass(frozen=True)
class Image:
    """A figure within the page."""

    width: int
    """In pixels of 1/96 inch."""
    height: int
    svg: str
    rows: Sequence[str]
    """The rows of tables that it draws."""

    @property
    def mixers(self) -> list[str]:
        """The mixers of these rows."""
        return list(dict.fromkeys(map(mixer_of, self.rows)))


_VARIABLES = {b"#ffffff": b"var(--paper)", b"#000000": b"var(--ink)", b"#e4e4e4": b"var(--line)"}
"""Colours of figures that the page has in light and in dark."""
_NAMES = re.compile(rb'(\bid="|url\(#|href="#)')


def adapt_image(svg: bytes, prefix: str) -> Image:
    """Adapt an SVG to the page: its colours and names.

    Args:
        svg: a figure as `ReportFigure.files` writes it.
        prefix: start of the names in the SVG, which other SVGs of the page do not have.
    """
    found = re.search(rb'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)
    assert found is not None
    width, height = (round(float(points) * 96 / 72) for points in found.groups())

    def adapt(tag: re.Match[bytes]) -> bytes:
        if tag[0].startswith(SERIES):  # names there are text
            return tag[0]
        adapted = _NAMES.sub(rb"\1%s" % prefix.encode(), tag[0])
        for colour, variable in _VARIABLES.items():
            adapted = adapted.replace(colour, variable)
        return adapted

    inline = TAG.sub(adapt, svg[svg.index(b"<svg") :])
    return Image(width, height, inline.decode(), drawn_rows(svg))


def pack(text: str) -> str:
    """Compress what the page's script unpacks: by zlib, in base64.

    The figures of a tab are packed together, and all runs are, because they have much in common.
    """
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def make_tabs(chapters: Sequence[Chapter]) -> list[Tab]:
    """Sort chapters into tabs, in the order of each tab's first chapter."""
    found: dict[str, list[Chapter]] = {}
    for chapter in chapters:
        found.setdefault(chapter.tab, []).append(chapter)
    return [Tab(slugify("tab", title), title, group) for title, group in found.items()]


def mixer_colours(data: ReportData) -> dict[str, str]:
    """Return the colour that figures draw each mixer in, by mixer."""
    colours = {mixer_of(row): style["color"] for row, style in data.styles.items()}
    return dict(sorted(colours.items()))


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
    environment.filters["pack"] = pack
    template = environment.from_string(_read("page.html"))
    adapted = {
        slug: adapt_image(image, f"f{number}-")
        for number, (slug, image) in enumerate(images.items())
    }
    results, names = data.results, data.names
    ordered = sorted(
        results.records, key=lambda r: (r.task, r.preset, r.protocol, names.of(r), r.run_id)
    )
    return template.render(
        title=TITLE,
        summary=summary(results.records),
        style=_read("page.css"),
        script="\n".join(map(_read, _SCRIPTS)),
        mixers=mixer_colours(data),
        tabs=make_tabs(chapters),
        files_of=lambda one: files_of(one, files),
        images=adapted,
        runs=[
            *(_listed(results, record, names.of(record), out) for record in ordered),
            *(_listed_bench(results, r, names.of_mixer(r), out) for r in results.bench),
        ],
    )


def _read(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _number(value: float | None, text: str) -> str:
    return MISSING if value is None else text.format(value)


def _link(path: Path, out: Path) -> str:
    return Path(os.path.relpath(file_on_disk(path).resolve(), out.resolve())).as_posix()


def _code(git: Mapping[str, object]) -> str:
    return f"commit {str(git.get('commit'))[:12]}" + ", changed" * bool(git.get("dirty"))


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
        mixer=record.mixer,
        is_own=results.is_own(record),
    )


def _listed_bench(results: Results, record: BenchRecord, name: str, out: Path) -> ListedRun:
    speed = _number(record.steps_per_second, "{:.2f} a second")
    layers = "" if record.rpe_layers is None else layers_in_words(record.rpe_layers)
    named = ["benchmark", record.mode, record.part, record.objective, record.task, name, layers,
             record.preset, record.protocol, *write_changes(record.changes)]  # fmt: skip
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
            "mixers measured in turns": f"{len(record.measured_with)}",
            "code": _code(record.git),
            "versions": _versions(record.versions),
        },
        record=_link(results.bench_path(record), out),
        command=bench_command(record),
        mixer=record.mixer,
        is_own=results.is_own(record),
    )
