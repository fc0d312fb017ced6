"""Settings: precedence, provenance, and one line for every mistake."""

import inspect
import itertools
import json
import shutil
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import lra.config.compose
from lra.common.errors import UserError
from lra.common.strict_yaml import parse_yaml
from lra.config.components import options_model
from lra.config.compose import EXCLUSIVE
from lra.config.layers import published_presets, read_layers
from lra.config.registry import MIXERS, TASKS
from lra.config.request import RunRequest, parse_changes
from lra.config.schema import RUN_SECTIONS, RunConfig, TrainConfig
from lra.config.settings_files import (
    CONFIGS,
    Entry,
    list_files,
    read_file,
    read_presets,
)
from lra.record.schema import write_changes
from lra.train.run_record import describe_settings
from requested import NOT_CAUSAL, compose_task, resolve


def tnn(*overrides: str, **options: str):
    return resolve("listops", "tnn", overrides=overrides, **options)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 1e-3), ("1_000", 1000), ("true", True), ("no", "no"), ("", None),
        ("2020-01-01", "2020-01-01"), ("1:30", "1:30"), ("[1, 2]", [1, 2]),
    ],
)  # fmt: skip
def test_yaml_values_mean_what_they_look_like(text: str, value: object) -> None:
    parsed = parse_yaml(text, "test")
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize("text", ["a: 1\na: 2", "{", "!!python/object:os.system x"])
def test_yaml_mistakes_are_users_mistakes(text: str) -> None:
    with pytest.raises(UserError, match="test: not valid YAML"):
        parse_yaml(text, "test")


def write(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


IN_ORDER = (
    ("tasks/listops.yaml", ("base",)),
    ("mixers/tnn.yaml", ("all", "base")),
    ("mixers/tnn.yaml", ("listops", "base")),
    ("tasks/listops.yaml", ("paper",)),
    ("mixers/tnn.yaml", ("all", "paper")),
    ("mixers/tnn.yaml", ("text listops", "paper")),
    ("tasks/listops.yaml", ("base, protocol s4",)),
    ("mixers/tnn.yaml", ("text listops", "base, protocol s4")),
    ("tasks/listops.yaml", ("paper, protocol s4",)),
    ("mixers/tnn.yaml", ("listops", "paper, protocol s4")),
)
"""Places in files, each of which replaces what those before it say of a setting."""


@pytest.mark.parametrize("last", range(1, 1 + len(IN_ORDER)))
def test_precedence(tmp_path: Path, last: int) -> None:
    files: dict[str, dict[str, object]] = {"tasks/listops.yaml": {"base, protocol s4": {}}}
    for number, (name, place) in enumerate(IN_ORDER[:last]):
        block: Any = files.setdefault(name, {})
        for key in place:
            block = block.setdefault(key, {})
        block["train.beta1"] = number / 100
    for name, body in files.items():
        write(tmp_path, name, json.dumps(body))
    said = "tasks: {listops: {train.steps: 1}}\nmixers: {tnn: {all: {train.beta2: 0.5}}}"
    write(tmp_path, "presets/quick.yaml", said)
    assert resolve_steps(tmp_path).beta1 == (last - 1) / 100
    of_bases = [n for n, (_, place) in enumerate(IN_ORDER[:last]) if place[-1].startswith("base")]
    assert resolve_steps(tmp_path, preset="quick").beta1 == of_bases[-1] / 100
    write(tmp_path, "presets/quick.yaml", said.replace("steps: 1", "steps: 1, train.beta1: 0.9"))
    assert resolve_steps(tmp_path, preset="quick").beta1 == 0.9
    write(tmp_path, "presets/quick.yaml", said.replace("beta2: 0.5", "beta1: 0.8"))
    assert resolve_steps(tmp_path, preset="quick").beta1 == 0.8
    assert resolve_steps(tmp_path, "train.beta1=0.7").beta1 == 0.7


def resolve_steps(configs: Path, *overrides: str, preset: str = "paper") -> TrainConfig:
    steps = [] if preset == "quick" else ["train.steps=1"]
    overrides = (*steps, *overrides)
    return resolve("listops", "tnn", preset=preset, overrides=overrides, configs=configs).train


def test_steps_and_epochs_replace_each_other() -> None:
    assert tnn("train.steps=7").train.epochs is None
    both = r"--set train.*=.* and --set train.*: set train.* or train.*, not both"
    for more in ("train.epochs=2", "train.minutes=2"):
        with pytest.raises(UserError, match=both):
            tnn("train.steps=7", more)
    with pytest.raises(UserError, match=both):
        tnn("train.minutes=2", "train.schedule_steps=9")
    assert tnn("train.epochs=null", "train.steps=7").train.steps == 7


def test_the_origin_of_each_value_is_shown() -> None:
    place = (
        "configs/mixers/tnn.yaml: OpenNLPLab/lra@dd871ef configs/experiment/tno-lra-listops.yaml"
    )
    config = tnn("train.steps=7", "train.lr=0.5", "model.head_bias=false")
    shown = config.show()
    assert parse_yaml(shown, "shown")["train"] == config.train.model_dump()
    assert f"# hash: {config.hash}\n" in shown
    assert "# --set train.steps=7\n" in shown and "train.epochs" not in config.origins
    assert f"# {place}" in shown


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ({"task": "listop"}, ["--task", "'listop'", "did you mean listops?", "valid: flip-flop, "]),
        ({"preset": "quik"}, ["--preset", "did you mean quick?", "paper, quick"]),
        ({"set": "lr=1e-3"}, ["expected section.key=value", "did you mean train.lr?"]),
        ({"set": "train.step=1"}, ["--set train.step=1", "option of train", "did you mean steps?"]),
        ({"set": "model.rpe_dim=2"}, ["option of model", "did you mean mixer.rpe_dim?"]),
        ({"set": "trian.lr=2"}, ["unknown section 'trian'", "did you mean train.lr?"]),
        ({"set": "train.lr=fast"}, ["--set train.lr=fast", "'fast'", "valid number"]),
        ({"set": "train.lr=1e400"}, ["train.lr", "finite"]),
        ({"set": "model.norm=bach"}, ["'bach'", "did you mean batch?", "batch, layer"]),
        ({"set": "mixer.num_heads=3"}, ["num_heads 3 does not divide", "128"]),
        ({"mixer": "ski-tnn", "set": "mixer.num_inducing_points=9999"},
         ["exceeds the number of positions; use --set mixer.num_inducing_points=2048"]),
        ({"set": "task.max_length=3000"}, ["is too short", "task.max_length is from --set task"]),
        (
            {"set": "train.schedule=constant"},
            ["--set train.schedule_steps=null", "schedule_steps is from configs/mixers/tnn.yaml: "],
        ),
        ({"set": "train.epochs=null"}, ["none of train.steps, train.epochs and train.minutes"]),
    ],
)  # fmt: skip
def test_mistakes_name_value_origin_and_valid_names(
    options: dict[str, str], parts: list[str]
) -> None:
    arguments = {"task": "listops", "mixer": "tnn", **options}
    overrides = [arguments.pop("set")] if "set" in arguments else []
    with pytest.raises(UserError) as caught:
        resolve(**arguments, overrides=overrides)  # pyright: ignore[reportArgumentType]
    message = str(caught.value)
    assert "\n" not in message
    for part in parts:
        assert part in message


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("all: {base: {dim: 3}}", "dim: expected section.key, such as train.lr, with a section "),
        ("all: {base: {modle.dim: 3}}", "tnn.yaml: modle.dim: expected section.key"),
        ("all: {base: {model: {dim: 3}}}", "configs/mixers/tnn.yaml: model: expected section.key"),
        ("all: {base: {model.dims: 3}}", "configs/mixers/tnn.yaml: unknown option of model 'dims'"),
        ("family: s4", "configs/mixers/tnn.yaml: unknown family 's4' (valid: attention, "),
        ("all: {base: 3}", "configs/mixers/tnn.yaml: got 3, expected keys with values"),
        ("all: {base\n", "configs/mixers/tnn.yaml: not valid YAML"),
        ("all: {base: {model.dim: {is: 4, form: a b}}}", "unknown key 'form'; did you mean from?"),
        ("all: {base: {train.steps: 3, train.epochs: 2}}", "set train.steps or train.epochs"),
        ("listops: {base: {train.lr: 3}}\nlistops text: {base: {train.lr: 2}}",
         "configs/mixers/tnn.yaml: listops: train.lr is there twice"),
    ],
)  # fmt: skip
def test_mistakes_in_files_name_the_file(tmp_path: Path, text: str, part: str) -> None:
    write(tmp_path, "tasks/listops.yaml", (CONFIGS / "tasks/listops.yaml").read_text())
    write(tmp_path, "mixers/tnn.yaml", text)
    with pytest.raises(UserError) as caught:
        resolve("listops", "tnn", configs=tmp_path)
    assert part in str(caught.value)


def test_overrides_are_those_that_change_something() -> None:
    same = tnn("train.lr=5e-4", "log.every_steps=7", "mixer.num_heads=1", "train.clip_norm=null")
    assert write_changes(same.changes) == ()
    plain = write_changes(tnn("model.causal=true", "mixer.window=null").changes)
    assert plain == ("model.causal=true", "mixer.window=null")
    assert write_changes(tnn(*plain).changes) == plain
    changes = parse_changes(["train.precision=bf16"], "--precision")
    request = RunRequest(task="listops", mixer="tnn", changes=changes)
    flagged = lra.config.compose.compose(request)
    assert write_changes(flagged.changes) == ("train.precision=bf16",)


def test_every_shipped_file_belongs_to_a_class_whose_options_are_named() -> None:
    assert {p.stem for p in (CONFIGS / "mixers").glob("*.yaml")} == MIXERS.classes.keys()
    assert {p.stem for p in (CONFIGS / "tasks").glob("*.yaml")} == TASKS.classes.keys()
    for owner in {**MIXERS.classes, **TASKS.classes}.values():
        parameters = inspect.signature(owner.__init__).parameters
        kinds = {parameters[key].kind for key in options_model(owner).model_fields}
        assert kinds <= {inspect.Parameter.KEYWORD_ONLY}
    assert published_presets() == {
        "paper", "block-biased", "frequency-tuned", "nystromformer"
    }  # fmt: skip
    for name, file in list_files("mixers").items():
        assert {one.task for one in file.entries} <= {"all", "other", *TASKS.classes}, name
        assert {one.protocol for one in file.entries} <= {None, "s4", "lra"}, name
        assert "task" not in {one.section for one in file.entries}, f"{name} changes the data"


def test_a_preset_is_a_file(tmp_path: Path) -> None:
    """It has settings for tasks, and for mixers on all tasks or some."""
    for name in ("tasks/listops.yaml", "mixers/tnn.yaml", "own_task.yaml"):
        write(tmp_path, name, (CONFIGS / name).read_text())
    write(
        tmp_path, "presets/smoke.yaml",
        "tasks:\n  listops: {task.train: 9, train.steps: 3, train.epochs: null, train.lr: 0.5}\n"
        "  other: {train.steps: 4}\n"
        "mixers:\n  tnn: {all: {train.lr: 0.25, mixer.rpe_dim: 16}, text: {train.lr: 0.1}}\n",
    )  # fmt: skip
    config = resolve("listops", "tnn", preset="smoke", configs=tmp_path)
    assert (config.train.steps, config.train.lr) == (3, 0.25)
    assert config.origins["train.steps"] == "configs/presets/smoke.yaml (listops)"
    assert config.origins["mixer.rpe_dim"] == "configs/presets/smoke.yaml (tnn)"
    assert published_presets(tmp_path) == {"paper"}
    other = resolve("image", "tnn", preset="smoke", configs=tmp_path)
    assert other.train.steps == 4, "a task without a file"
    for text, part in {
        "task: {}": "smoke.yaml: unknown section 'task'; did you mean tasks?",
        "tasks: {listops: {trian.lr: 1}}": "smoke.yaml (listops): trian.lr: expected section.key",
        "tasks: 3": "smoke.yaml: tasks: got 3, expected keys with values",
    }.items():
        write(tmp_path, "presets/smoke.yaml", text)
        with pytest.raises(UserError) as caught:
            resolve("listops", "tnn", preset="smoke", configs=tmp_path)
        assert part in str(caught.value)
    write(tmp_path, "presets/smoke.yaml", "tasks: {image: {}}")
    with pytest.raises(UserError, match="unknown preset 'smoke'"):
        resolve("listops", "tnn", preset="smoke", configs=tmp_path)


def test_a_users_own_preset_is_known_by_its_text(tmp_path: Path) -> None:
    def compose(text: str, name: str = "small.yaml", task: str = "listops") -> RunConfig:
        write(tmp_path, name, text)
        return resolve(task, "tnn", preset=str(tmp_path / name))

    text = "tasks: {listops: {train.steps: 3}}\nmixers: {tnn: {all: {train.lr: 0.25}}}"
    config = compose(text)
    assert (config.preset, config.train.steps, config.train.lr) == ("small", 3, 0.25)
    assert config.origins["train.steps"] == f"{tmp_path / 'small.yaml'} (listops)"
    assert compose(text).hash == config.hash != compose(f"{text}  # edited").hash
    recorded = describe_settings(config)
    assert recorded["preset_from"] == str(tmp_path / "small.yaml")
    assert recorded["preset_code"] == config.preset_code
    for name, task, part in (
        ("quick.yaml", "listops", "the suite has a preset quick; rename the file"),
        ("Paper.yaml", "listops", "the suite has a preset Paper; rename the file"),
        ("a b.yaml", "listops", "expected a name of letters, digits, dots, - and _"),
        ("small.yaml", "image", "it has no settings for image, only listops"),
    ):
        with pytest.raises(UserError) as caught:
            compose(text, name, task)
        assert str(caught.value) == f"--preset {tmp_path / name}: {part}"
    with pytest.raises(UserError, match=r"--preset gone\.yaml: there is no such file"):
        resolve("listops", "tnn", preset="gone.yaml")


@pytest.mark.parametrize("preset", sorted(read_presets()))
def test_no_value_of_a_preset_takes_another_one_back(preset: str) -> None:
    """It differs from what at least half of the models that it is for would have without it."""
    found = read_presets()[preset]
    every = [task for task in TASKS.classes if found.lists(task)]
    for (kind, owner), entries in found.entries.items():
        for entry in entries:
            named = [owner] if kind == "tasks" else every
            tasks = [task for task in named if task in every and entry.task in ("all", task)]
            mixers = [owner] if kind == "mixers" else list(MIXERS.classes)
            differs = [
                is_changed_by(entry, RunRequest(task=t, mixer=m, preset=preset, protocol=p))
                for t, m, p in product(tasks, mixers, ("s4", "lra"))
            ]
            known = [one for one in differs if one is not None]
            assert 2 * sum(known) >= len(known), (owner, entry.task, entry.name)


def is_changed_by(entry: Entry, request: RunRequest) -> bool | None:
    """Whether an entry of a preset changes a setting; None if a later one replaces it."""
    task, mixer = request.task, request.mixer
    owner = {"task": TASKS.classes[task], "mixer": MIXERS.classes[mixer]}.get(entry.section)
    section = options_model(owner) if owner else RUN_SECTIONS[entry.section]
    default = section.model_fields[entry.key].default
    last, before = None, default
    for one in itertools.chain(*read_layers(request, task, mixer, CONFIGS)):
        if one.name == entry.name:
            last = one
            before = before if one == entry else one.value
        elif entry.name in EXCLUSIVE.get(one.name, ()) and one.value is not None:
            last, before = one, default
    return before != entry.value if last == entry else None


def test_a_mixer_may_have_a_published_preset_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "tasks").mkdir()
    shutil.copy(CONFIGS / "tasks/listops.yaml", tmp_path / "tasks")
    text = "listops: {'wide, protocol s4': {model.dim: 64, model.pooling: last}}"
    write(tmp_path, "mixers/tnn.yaml", text)
    config = resolve("listops", "tnn", preset="wide", configs=tmp_path)
    assert (config.model.dim, config.model.pooling) == (64, "last")
    assert published_presets(tmp_path) == {"paper", "wide"}
    own = resolve("listops", "tnn", preset="wide", configs=tmp_path).build_task()
    assert compose_task("listops", preset="wide", configs=tmp_path).info == own.info
    with pytest.raises(UserError, match="s4 has no preset wide; another mixer has"):
        resolve("listops", "s4", preset="wide", configs=tmp_path)
    for task, protocol in (("listops", "lra"), ("image", "s4")):
        with pytest.raises(UserError, match="--preset wide of tnn has no settings for --"):
            resolve(task, "tnn", preset="wide", protocol=protocol, configs=tmp_path)


def test_task_alone_takes_task_settings_only() -> None:
    assert compose_task("listops", preset="quick").info.max_length == 144
    with pytest.raises(UserError, match="unknown section 'train'"):
        compose_task("listops", overrides=["train.lr=1"])


def test_values_have_sources_and_reasons(tmp_path: Path) -> None:
    def read(text: str) -> dict[str, Entry]:
        write(tmp_path, "mixers/tnn.yaml", f"sources: {{a: someone/code@1a2}}\n{text}")
        return {entry.task: entry for entry in read_file("mixers", "tnn", tmp_path).entries}

    assert {t: e.value for t, e in read("lm periodic: {base: {train.lr: 0.1}}").items()} == {
        "lm": 0.1, "periodic": 0.1,
    }  # fmt: skip
    published = read("listops lm: {'paper, protocol lra': {train.lr: [0.1, 'a b:7']}}")
    assert published.keys() == {"listops", "lm"}
    assert {(e.value, e.source, e.preset, e.protocol) for e in published.values()} == {
        (0.1, "a b:7", "paper", "lra")
    }
    other = read("lm: {wide: {train.lr: {is: 0.1, theirs: null, from: a b, why: c}}}")["lm"]
    assert (other.value, other.source, other.why) == (0.1, "a b", "c")
    assert other.has_other and other.theirs is None
    place = "configs/mixers/tnn.yaml (wide): someone/code@1a2 b, which states null"
    assert other.origin == place


def test_a_mixer_that_joins_nothing_is_pooled_over_all() -> None:
    assert resolve("listops", "mean", protocol="lra").model.pooling == "mean"
    with pytest.raises(UserError, match=r"does not mix positions.*pooling is from --set model"):
        resolve("listops", "mean", overrides=["model.pooling=last"])


@pytest.mark.thorough
@pytest.mark.parametrize("mixer", sorted(MIXERS.classes))
def test_every_shipped_combination_resolves(mixer: str) -> None:
    for task, preset, protocol in product(TASKS.classes, ("paper", "quick"), ("s4", "lra")):
        if task in {"lm", "periodic"} and mixer in NOT_CAUSAL:
            with pytest.raises(UserError, match="causal"):
                resolve(task, mixer, preset=preset, protocol=protocol)
        else:
            resolve(task, mixer, preset=preset, protocol=protocol)
