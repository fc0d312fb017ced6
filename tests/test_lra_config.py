"""Settings: precedence, provenance, and one line for every mistake."""

from __future__ import annotations

import inspect
import shutil
from itertools import product
from pathlib import Path

import pytest

import lra.config.compose
from common.errors import UserError
from common.strict_yaml import parse_yaml
from lra.config.components import options_model
from lra.config.registry import MIXERS, TASKS
from lra.config.request import RunRequest, parse_changes
from lra.config.settings_files import (
    CONFIGS,
    Entry,
    list_files,
    published_presets,
    read_file,
)
from lra.record.schema import write_changes
from requested import NOT_CAUSAL, compose_task, resolve
from tasks.base import BENCHMARK


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


def test_precedence(tmp_path: Path) -> None:
    write(
        tmp_path, "tasks/listops.yaml",
        "train: {steps: 1, lr: 0.1, beta1: 0.1, beta2: 0.1, epsilon: 0.1, warmup_steps: 1,"
        " batch_size: 1}\nprotocols: {s4: {train: {epsilon: 0.2, warmup_steps: 9}}}\n",
    )  # fmt: skip
    write(
        tmp_path, "presets/quick.yaml",
        "tasks: {listops: {train: {warmup_steps: 3, batch_size: 3}}}\nmixers: {tnn: {train: "
        "{clip_norm: 5.0}, protocols: {s4: {train: {clip_norm: 6.0}}}}}\n",
    )  # fmt: skip
    write(
        tmp_path, "mixers/tnn.yaml",
        "sources: {code: someone/code@1a2b3c4}\n"
        "train: {lr: 0.2, beta1: 0.2, beta2: {all: 0.2, text listops: [0.3, 'code a:{1 2}']},"
        " epsilon: 0.5, warmup_steps: 2}\n",
    )  # fmt: skip
    config = resolve(
        "listops", "tnn", preset="quick", overrides=["train.batch_size=4"], configs=tmp_path
    )
    train = config.train
    assert train.weight_decay == 0.0  # a default
    assert train.steps == 1  # the task
    assert (train.lr, train.beta1) == (0.2, 0.2)  # the mixer
    assert train.beta2 == 0.3  # what the mixer's file says for this task
    assert train.epsilon == 0.2  # the protocol
    assert train.warmup_steps == 3  # the preset, over the protocol
    assert train.clip_norm == 6.0  # the preset under this protocol
    assert train.batch_size == 4  # --set
    assert config.origins["train.beta2"] == "configs/mixers/tnn.yaml: someone/code@1a2b3c4 a:2"


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
        ({"task": "listop"}, ["--task", "'listop'", "did you mean listops?", "valid: groups, "]),
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
        ("modle: {dim: 3}", "tnn.yaml: unknown section 'modle'; did you mean model?"),
        ("model: {dims: 3}", "configs/mixers/tnn.yaml: unknown option of model 'dims'"),
        ("family: s4", "configs/mixers/tnn.yaml: unknown family 's4' (valid: attention, "),
        ("model: 3", "configs/mixers/tnn.yaml: model: got 3, expected keys with values"),
        ("model: {dim: 3\n", "configs/mixers/tnn.yaml: not valid YAML"),
        ("model: {dim: {is: 4, form: a b}}", "model.dim: unknown key 'form'; did you mean from?"),
        ("train: {steps: 3, epochs: 2}", "set train.steps or train.epochs, not both"),
    ],
)
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
        assert {one.task for one in file.entries} <= {"all", *TASKS.classes}, name
        assert {one.protocol for one in file.entries} <= {None, "s4", "lra"}, name
        assert "task" not in {one.section for one in file.entries}, f"{name} changes the data"


def test_a_preset_is_a_file(tmp_path: Path) -> None:
    """For each task and mixer it has what their own files would have under its name."""
    for name in ("tasks/listops.yaml", "mixers/tnn.yaml", "own_task.yaml"):
        write(tmp_path, name, (CONFIGS / name).read_text())
    write(
        tmp_path, "presets/smoke.yaml",
        "tasks:\n  listops: {task: {train: 9}, train: {steps: 3, epochs: null, lr: 0.5}}\n"
        "  other: {train: {steps: 4}}\n"
        "mixers:\n  tnn: {train: {lr: {all: 0.25, text: 0.1}}, mixer: {rpe_dim: [16, lra a:1]}}\n",
    )  # fmt: skip
    config = resolve("listops", "tnn", preset="smoke", configs=tmp_path)
    assert (config.train.steps, config.train.lr) == (3, 0.25)
    assert config.origins["train.steps"] == "configs/presets/smoke.yaml (listops)"
    cited = "configs/presets/smoke.yaml (tnn): OpenNLPLab/lra@"
    assert config.origins["mixer.rpe_dim"].startswith(cited)
    assert published_presets(tmp_path) == {"paper"}
    other = resolve("image", "tnn", preset="smoke", configs=tmp_path)
    assert other.train.steps == 4, "a task without a file"
    for text, part in {
        "task: {}": "smoke.yaml: unknown section 'task'; did you mean tasks?",
        "tasks: {listops: {trian: {lr: 1}}}": "smoke.yaml (listops): unknown section 'trian'",
        "tasks: 3": "smoke.yaml: tasks: got 3, expected keys with values",
    }.items():
        write(tmp_path, "presets/smoke.yaml", text)
        with pytest.raises(UserError) as caught:
            resolve("listops", "tnn", preset="smoke", configs=tmp_path)
        assert part in str(caught.value)
    write(tmp_path, "presets/smoke.yaml", "tasks: {image: {}}")
    with pytest.raises(UserError, match="unknown preset 'smoke'"):
        resolve("listops", "tnn", preset="smoke", configs=tmp_path)


def test_a_mixer_may_have_a_published_preset_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "tasks").mkdir()
    shutil.copy(CONFIGS / "tasks/listops.yaml", tmp_path / "tasks")
    text = "presets: {wide: {model: {dim: 64, pooling: {listops: last}}}}"
    write(tmp_path, "mixers/tnn.yaml", text)
    config = resolve("listops", "tnn", preset="wide", configs=tmp_path)
    assert (config.model.dim, config.model.pooling) == (64, "last")
    assert published_presets(tmp_path) == {"paper", "wide"}
    own = resolve("listops", "tnn", preset="wide", configs=tmp_path).build_task()
    assert compose_task("listops", preset="wide", configs=tmp_path).info == own.info
    with pytest.raises(UserError, match="s4 has no preset wide; another mixer has"):
        resolve("listops", "s4", preset="wide", configs=tmp_path)


def test_task_alone_takes_task_settings_only() -> None:
    assert compose_task("listops", preset="quick").info.max_length == 144
    with pytest.raises(UserError, match="unknown section 'train'"):
        compose_task("listops", overrides=["train.lr=1"])


def test_a_key_may_name_several_tasks_once_each(tmp_path: Path) -> None:
    def rates(text: str) -> dict[str, Entry]:
        write(tmp_path, "mixers/tnn.yaml", f"train: {{lr: {text}}}")
        return {entry.task: entry for entry in read_file("mixers", "tnn", tmp_path).entries}

    def values(text: str) -> dict[str, tuple[object, str]]:
        return {task: (entry.value, entry.source) for task, entry in rates(text).items()}

    assert values("{lm periodic: 0.1}") == {"lm": (0.1, ""), "periodic": (0.1, "")}
    assert values("0.1") == {"all": (0.1, "")}
    assert values("{benchmark: [0.1, 'a b']}") == dict.fromkeys(BENCHMARK, (0.1, "a b"))
    lines = values("{lm text: [0.1, 'a {b c}:{1 2}'], groups: [0.1, 'a {b c}']}")
    assert {task: source for task, (_, source) in lines.items()} == {
        "lm": "a b:1", "text": "a c:2", "groups": "a {b c}",
    }  # fmt: skip
    other = rates("{lm: {is: 0.1, theirs: null, from: a b, why: c}}")["lm"]
    assert (other.value, other.source, other.why) == (0.1, "a b", "c")
    assert other.has_other and other.theirs is None
    assert other.origin == "configs/mixers/tnn.yaml: a b, which states null"
    with pytest.raises(UserError, match="the task text occurs twice"):
        rates("{lm text: 0.1, text: 0.2}")


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
