"""Settings files: where they are, what they may hold, and the layers that they give a run.

Precedence, from the lowest: defaults; `configs/tasks/T.yaml` (task); `configs/mixers/M.yaml` and
its `per_task` section (mixer); their sections for protocol and preset; `--set` and other flags.

- Of the protocol that M was `published_under`: task < its protocol < mixer < its protocol < task's
  preset < mixer's preset, so that no published value is lost.
- Of another protocol: task < mixer < task's protocol < mixer's protocol < the presets as above.

A preset compares mixers with the task's own pooling and head: what `per_task` says of these
(`READOUT`) is left out then, and how parameters start in a release (`STARTS`).
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lra.config.request import DEFAULT_PROTOCOL, PAPER, SECTIONS, TaskRequest
from lra.config.settings_layers import SettingsLayer
from lra.config.strict_yaml import LARGEST, parse_yaml
from lra.runtime.errors import UserError, unknown
from tasks.base import BENCHMARK
from tasks.untrusted import read_text

CONFIGS = Path(__file__).resolve().parents[2] / "configs"

OWN_TASK = "own_task.yaml"
"""File of the settings of tasks that have none of their own."""

READOUT = frozenset(("model", key) for key in ("pooling", "head", "head_expand", "head_activation"))
"""How positions become classes: a preset compares all mixers with the task's own."""

STARTS = frozenset({("model", "starts"), ("model", "head_bias")})
"""What a release starts by, and which map it gives no bias: of no preset of our choosing."""

MIXER_KEYS = ("per_task", "published_presets", "published_under")
"""Keys that stand beside the sections of a mixer's file, and in no task's."""

AvailableNames = Mapping[str, Mapping[str, Collection[str]]]
"""Names of presets and protocols of each task, by "preset" and "protocol"."""


def mapping(body: Any, origin: str) -> dict[str, Any]:
    """Check that a parsed value is a mapping; nothing counts as an empty one.

    Raises: UserError naming the origin otherwise.
    """
    if body is None:
        return {}
    if not isinstance(body, dict):
        raise UserError(f"{origin}: got {body!r}, expected keys with values")
    return {str(key): value for key, value in body.items()}


def parse_layer(body: Any, origin: str, others: Collection[str] = ()) -> SettingsLayer:
    """Turn a parsed mapping {section: {key: value}} into a layer.

    Args:
        others: keys that may stand beside the sections, and are left alone.
    Raises: UserError for an unknown section or a value that is no mapping.
    """
    values: dict[tuple[str, str], Any] = {}
    for section, entries in mapping(body, origin).items():
        if section in others:
            continue
        if section not in SECTIONS:
            raise unknown("section", section, {*SECTIONS, *others}, origin)
        for key, value in mapping(entries, f"{origin}: {section}").items():
            values[section, key] = value
    return SettingsLayer(origin, values)


@dataclass(frozen=True)
class SettingsGroup:
    """Sections of a file, and the same again for single protocols and presets."""

    layer: SettingsLayer
    protocols: Mapping[str, SettingsLayer]
    presets: Mapping[str, SettingsLayer]
    citation: str | None = None
    """Where the settings were published."""
    protocol_citations: Mapping[str, str] = field(default_factory=dict[str, str])
    """Where those of single protocols were."""

    def layers(self, protocol: str, preset: str) -> list[list[SettingsLayer]]:
        """List the layers for a run: those of every run, of its protocol, and of its preset."""
        chosen = (self.protocols, protocol), (self.presets, preset)
        return [[self.layer], *([own[name]] if name in own else [] for own, name in chosen)]


def _parse_group(body: Any, origin: str, others: Collection[str]) -> SettingsGroup:
    """Read a group; `others` are further keys that it may have, "source" if it cites a paper."""
    body = mapping(body, origin)
    cited = {"source"} & {*others}
    citations: dict[str, str] = {}

    def nested(kind: str, others: Collection[str]) -> dict[str, SettingsLayer]:
        found: dict[str, SettingsLayer] = {}
        for name, inner in mapping(body.get(kind), f"{origin}: {kind}").items():
            found[name] = parse_layer(inner, f"{origin} ({kind}.{name})", others)
            if others and "source" in inner:
                citations[name] = _require_text(
                    inner["source"], f"{origin} ({kind}.{name}): source"
                )
        return found

    layer = parse_layer(body, origin, {"protocols", "presets", *others})
    citation = body.get("source")
    return SettingsGroup(
        layer,
        nested("protocols", cited),
        nested("presets", ()),
        None if citation is None else _require_text(citation, f"{origin}: source"),
        citations,
    )


def _require_text(value: Any, origin: str) -> str:
    if not isinstance(value, str):
        raise UserError(f"{origin}: got {value!r}, expected a text")
    return value


def _leave_out(
    keys: frozenset[tuple[str, str]], groups: list[list[SettingsLayer]]
) -> list[list[SettingsLayer]]:
    """Leave settings out of the layers of file and protocol, those of the preset being last."""
    *common, of_preset = groups
    return [*([layer.without(keys) for layer in group] for group in common), of_preset]


class SettingsFile:
    """A task's or mixer's YAML: sections, and the same again per protocol, preset and task.

    Every part of it is read, those included that a run has no use for.

    Attributes:
        whole: what holds for all tasks.
        per_task: what a mixer's file holds for each task; a key may name several, "lm, periodic".
        published_presets: where presets of published settings are from, which a mixer has beside
            `paper`.
        published_under: the protocol that the settings of a mixer's file are of.
    Raises: UserError for an unknown section, or a value of the wrong type.
    """

    def __init__(self, text: str, shown: str) -> None:
        self.shown = shown
        body = mapping(parse_yaml(text, shown), shown)
        self.mixer_keys = [key for key in MIXER_KEYS if key in body]
        self.whole = _parse_group(body, shown, MIXER_KEYS)
        self.published_presets = {
            name: _require_text(citation, f"{shown} (published_presets.{name})")
            for name, citation in mapping(
                body.get("published_presets"), f"{shown}: published_presets"
            ).items()
        }
        self.published_under = str(body.get("published_under", DEFAULT_PROTOCOL))
        self.per_task: dict[str, SettingsGroup] = {}
        for key, inner in mapping(body.get("per_task"), f"{shown}: per_task").items():
            for task in (name.strip() for name in key.split(",")):
                if task in self.per_task:
                    raise UserError(f"{shown} (per_task): {task} is named twice")
                self.per_task[task] = _parse_group(inner, f"{shown} (per_task.{task})", {"source"})

    @property
    def names(self) -> dict[str, set[str]]:
        """The presets and protocols that a task's file names."""
        protocols = {*self.whole.protocols} or {DEFAULT_PROTOCOL}
        return {"preset": {*self.whole.presets, PAPER}, "protocol": protocols}

    def layers(self, task: str, protocol: str, preset: str) -> list[list[SettingsLayer]]:
        """List the layers for a run: those of every run, of its protocol, and of its preset.

        With a preset that is not published `STARTS` is left out, and what `per_task` states of the
        readout, unless they are for that preset.
        """
        every = self.whole.layers(protocol, preset)
        is_published = preset in (PAPER, *self.published_presets)
        if not is_published:
            every = _leave_out(STARTS, every)
        if task in self.per_task:
            own = self.per_task[task].layers(protocol, preset)
            if not is_published:
                own = _leave_out(READOUT | STARTS, own)
            every = [[*first, *second] for first, second in zip(every, own, strict=True)]
        return every

    def check(self, names: AvailableNames) -> None:
        """Check the names of tasks, presets and protocols in the file.

        Raises: UserError for a name that does not exist.
        """
        names = {
            task: {**known, "preset": {*known["preset"], *self.published_presets}}
            for task, known in names.items()
        }
        every = {
            kind: {name for known in names.values() for name in known[kind]}
            for kind in ("preset", "protocol")
        }
        if self.published_under not in every["protocol"] and "published_under" in self.mixer_keys:
            raise unknown("protocol", self.published_under, every["protocol"], self.shown)
        parts: list[tuple[SettingsGroup, Mapping[str, Collection[str]]]] = [(self.whole, every)]
        for task, part in self.per_task.items():
            if task not in names:
                raise unknown("task", task, names, f"{self.shown} (per_task)")
            parts.append((part, names[task]))
        for part, known in parts:
            for kind, given in (("preset", part.presets), ("protocol", part.protocols)):
                for name in given:
                    if name not in known[kind]:
                        raise unknown(kind, name, known[kind], part.layer.origin)

    def citation(self, task: str, protocol: str, preset: str) -> str:
        """Say where the settings that a mixer's file holds for a task are from."""
        part = self.per_task.get(task)
        if part is None:
            return "the task's own, none published for this mixer"
        published = self.published_presets if preset in part.presets else {}
        under = protocol if protocol in part.protocol_citations else self.published_under
        own = part.protocol_citations.get(protocol, part.citation)
        citation = published.get(preset) or own
        if citation is None:
            return "the task's own, none published for this mixer"
        text = " ".join(citation.split()).rstrip(".")
        if under != protocol:
            text = f"{text} (published under protocol {under}; the task's of {protocol} come first)"
        if preset in (PAPER, *published):
            return text
        return f"preset {preset}, of our choosing, over {text}"


_parse = functools.lru_cache(maxsize=256)(SettingsFile)
"""A plan of many runs, or a report, asks for the same few files again and again."""


def read_settings_file(path: Path, shown: str) -> SettingsFile:
    """Read a settings file, which may be missing.

    Args:
        shown: what messages call it.
    Raises: UserError as `SettingsFile`.
    """
    return _parse(read_text(path, largest=LARGEST) if path.exists() else "", shown)


@functools.cache
def published_presets(configs: Path = CONFIGS) -> frozenset[str]:
    """Name the presets of published settings: `paper`, and what mixers have beside it."""
    files = [read_settings_file(path, path.name) for path in (configs / "mixers").glob("*.yaml")]
    return frozenset([PAPER, *(name for file in files for name in file.published_presets)])


def read_settings(
    task: str, mixer: str, request: TaskRequest, configs: Path
) -> tuple[list[SettingsLayer], str]:
    """Read the settings of a task and a mixer, and check both files.

    Args:
        request: names the preset and the protocol.
    Returns: layers, each over the one before it; and where the mixer's settings were published.
    Raises: UserError for an unknown preset or protocol, and for a mistake in a file.
    """
    preset, protocol = request.preset, request.protocol
    mixer_file = read_settings_file(
        configs / f"mixers/{mixer}.yaml", f"configs/mixers/{mixer}.yaml"
    )
    task_file = _open_task_file(task, configs)
    of_task = task_file.layers(task, protocol, preset)
    of_mixer = mixer_file.layers(task, protocol, preset)
    names = _names(configs)
    own_presets = mixer_file.published_presets
    common = names.get(task, {"preset": {PAPER}})["preset"]
    if preset not in {*common, *own_presets} and preset in published_presets(configs):
        raise UserError(f"--preset: {preset} is published for another mixer than {mixer}")
    _check_task_file(task_file, task, request, names, own_presets)
    mixer_file.check(names)
    for layer in (layer for group in of_mixer for layer in group):
        for section, key in layer.values:
            if section == "task":
                raise UserError(f"{layer.origin}: task.{key}: a mixer must not change the data")
    if mixer_file.published_under == protocol:
        first = [*of_task[0], *of_task[1], *of_mixer[0], *of_mixer[1]]
    else:
        first = [*of_task[0], *of_mixer[0], *of_task[1], *of_mixer[1]]
    return [*first, *of_task[2], *of_mixer[2]], mixer_file.citation(task, protocol, preset)


def read_task_settings(task: str, request: TaskRequest, configs: Path) -> list[SettingsLayer]:
    """Read the settings of a task alone, as layers, each over the one before it.

    Raises: UserError as `read_settings`.
    """
    file = _open_task_file(task, configs)
    groups = file.layers(task, request.protocol, request.preset)
    _check_task_file(file, task, request, _names(configs), published_presets(configs))
    return [layer for group in groups for layer in group]


def _check_task_file(
    file: SettingsFile,
    task: str,
    request: TaskRequest,
    names: AvailableNames,
    own_presets: Iterable[str],
) -> None:
    """Check a task's file, and that the preset and the protocol exist.

    Args:
        request: names the preset and the protocol.
        own_presets: presets that the mixer has beside the task's.
    """
    known = names.get(task) or file.names
    missing = f"configs/tasks/{task}.yaml"
    lacking = "" if file.shown == missing else f"; {missing}, which could have it, is not there"
    choices = {**known, "preset": {*known["preset"], *own_presets}}
    for kind, name in (("preset", request.preset), ("protocol", request.protocol)):
        if name not in choices[kind]:
            raise UserError(f"{unknown(kind, name, choices[kind], f'--{kind}')}{lacking}")
    for key in file.mixer_keys:
        raise UserError(f"{file.shown}: {key} belongs into a mixer's file")
    file.check({**names, task: known})


def _open_task_file(task: str, configs: Path) -> SettingsFile:
    """Open a task's file or, where it has none, that of tasks without one."""
    path = f"tasks/{task}.yaml"
    if not (configs / path).is_file():
        path = OWN_TASK
    return read_settings_file(configs / path, f"configs/{path}")


def _names(configs: Path) -> AvailableNames:
    """List the presets and protocols of every task.

    A mixer's file may hold settings for tasks of the benchmark that are not there yet.
    """
    from lra.config.registry import TASKS

    tasks = dict.fromkeys([*TASKS.classes, *BENCHMARK])
    return {task: _open_task_file(task, configs).names for task in tasks}
