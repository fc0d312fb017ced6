"""Settings: precedence, provenance, and one line for every mistake."""

from __future__ import annotations

import inspect
import shutil
from importlib.util import module_from_spec
from itertools import product
from pathlib import Path

import pytest
import yaml

import lra.config.compose
from common import strict_yaml
from common.strict_yaml import parse_yaml
from lra.config.options import options_model
from lra.config.registry import MIXERS, TASKS, Registry
from lra.config.request import RunRequest, flag_changes
from lra.config.settings_files import ALL, CONFIGS, Entry, published_presets, read_file
from lra.record.changes import write_changes
from lra.record.table import read_runs
from lra.runtime.errors import UserError
from models.promises import BrokenPromise
from requested import NOT_CAUSAL, compose_task, resolve
from tasks.base import BENCHMARK


def tnn(*overrides: str, **options: str):
    return resolve("listops", "tnn", overrides=overrides, **options)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 1e-3), ("1.5E+3", 1500.0), (".5", 0.5), ("3", 3), ("-2", -2), ("1_000", 1000),
        ("true", True), ("no", "no"), ("on", "on"), ("null", None), ("~", None), ("", None),
        ("2020-01-01", "2020-01-01"), ("1:30", "1:30"), ("[1, 2]", [1, 2]),
    ],
)  # fmt: skip
def test_yaml_values_mean_what_they_look_like(text: str, value: object) -> None:
    parsed = parse_yaml(text, "test")
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.skipif(not yaml.__with_libyaml__, reason="PyYAML has no parser in C here")
def test_yaml_means_the_same_without_the_parser_in_c(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml, "__with_libyaml__", False)
    place = strict_yaml.__spec__
    assert place is not None and place.loader is not None
    slow = module_from_spec(place)
    place.loader.exec_module(slow)
    assert yaml.reader.Reader in slow._Loader.__mro__
    assert yaml.reader.Reader not in strict_yaml._Loader.__mro__
    for path in CONFIGS.rglob("*.yaml"):
        text = path.read_text(encoding="utf-8")
        assert repr(slow.parse_yaml(text, "test")) == repr(parse_yaml(text, "test"))
    for text in ("a: &x 1\nb: *x", "a: 1\na: 2", "[" * 30, "[1, 2", "a: 1\n\tb: 2", "\0", "\ud800"):
        for parse in (slow.parse_yaml, parse_yaml):
            with pytest.raises(UserError, match="test: not valid YAML"):
                parse(text, "test")


@pytest.mark.parametrize("text", ["a: 1\na: 2", "{", "a: b: c", "!!python/object:os.system x"])
def test_yaml_mistakes_are_users_mistakes(text: str) -> None:
    with pytest.raises(UserError, match="test: not valid YAML"):
        parse_yaml(text, "test")


def test_published_settings_of_tnn_on_listops() -> None:
    config = tnn()
    assert config.model.model_dump() | {"depth": 4, "dim": 128, "norm": "batch"} == (
        config.model.model_dump()
    )
    assert config.train.epochs == 40
    assert (config.train.batch_size, config.train.lr, config.train.weight_decay) == (128, 5e-4, 0.1)
    assert dict(config.mixer)["rpe_dim"] == 32
    assert "OpenNLPLab/Tnn" in config.settings_citation


def write(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_precedence(tmp_path: Path) -> None:
    write(
        tmp_path, "tasks/listops.yaml",
        "train: {steps: 1, lr: 0.1, beta1: 0.1, beta2: 0.1, epsilon: 0.1, warmup_steps: 1,"
        " batch_size: 1}\nprotocols: {s4: {train: {epsilon: 0.2, warmup_steps: 9}}}\n"
        "presets: {quick: {train: {warmup_steps: 3, batch_size: 3}}}\n",
    )  # fmt: skip
    write(
        tmp_path, "mixers/tnn.yaml",
        "sources: {code: someone/code@1a2b3c4}\n"
        "train: {lr: 0.2, beta1: 0.2, beta2: {all: 0.2, text listops: [0.3, 'code a:{1 2}']},"
        " epsilon: 0.5, warmup_steps: 2}\n"
        "presets: {quick: {train: {clip_norm: 5.0}, protocols: {s4: {train: {clip_norm: 6.0}}}}}\n",
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


def test_what_a_flag_replaced_is_shown() -> None:
    place = (
        "configs/mixers/tnn.yaml: OpenNLPLab/lra@dd871ef configs/experiment/tno-lra-listops.yaml"
    )
    shown = tnn("train.steps=7", "train.lr=0.5", "model.head_bias=false").show()
    assert f"# --set train.steps=7, in place of train.epochs 40.0 of {place}" in shown
    assert "# --set train.lr=0.5, in place of 0.0005 of configs/mixers/tnn.yaml: OpenN" in shown
    assert "# --set model.head_bias=false\n" in shown
    budget = tnn(preset="budget").show()
    assert "steps: 4500" in budget and "(presets.budget), in place of train.epochs 40" in budget


def test_minutes_replace_them_and_what_counts_in_steps() -> None:
    config = tnn("train.minutes=2")
    train = config.train
    assert (train.minutes, train.steps, train.epochs, train.schedule_steps) == (
        2.0,
        None,
        None,
        None,
    )
    assert write_changes(config.changes) == ("train.minutes=2.0",)
    assert tnn("train.warmup_share=0.1").train.warmup_steps == 0


def test_a_null_that_changes_the_run_is_among_its_changes() -> None:
    config = tnn("train.warmup_share=null", preset="budget")
    assert config.hash != tnn(preset="budget").hash
    assert write_changes(config.changes) == ("train.warmup_share=null",)


def test_a_default_that_replaces_a_setting_is_among_the_changes() -> None:
    config = tnn("train.warmup_steps=0", preset="budget")
    assert config.hash != tnn(preset="budget").hash
    assert write_changes(config.changes) == ("train.warmup_steps=0",)
    assert tnn(*write_changes(config.changes), preset="budget").hash == config.hash


def test_settings_of_shipped_runs_still_have_their_hashes() -> None:
    """A setting that is new must not make other runs of old ones."""
    runs, _ = read_runs(CONFIGS.parent / "results" / "shipped")
    records = [record for _, record in runs]
    assert len(records) > 30
    for record in records:
        config = resolve(
            record.task, record.mixer, preset=record.preset, protocol=record.protocol,
            overrides=record.overrides,
        )  # fmt: skip
        assert config.hash == record.config_hash, record.run_id


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (
            {"task": "listop"},
            ["--task", "'listop'", "did you mean listops?", "valid: groups, image"],
        ),
        ({"mixer": "tn"}, ["--mixer", "did you mean tnn?", "transformer"]),
        ({"mixer": "S4D"}, ["--mixer", "did you mean s4d?"]),
        ({"set": "lr=1e-3"}, ["expected section.key=value", "did you mean train.lr?"]),
        ({"set": "wieght_decay=0"}, ["expected section.key", "did you mean train.weight_decay?"]),
        ({"set": "train.LR=1"}, ["option of train", "did you mean lr?"]),
        ({"set": "train.step=1"}, ["option of train", "did you mean steps?"]),
        ({"set": "pretrain.step=1"}, ["option of pretrain", "did you mean steps?"]),
        ({"set": "train.dim=2"}, ["option of train", "did you mean model.dim?"]),
        ({"set": "model.rpe_dim=2"}, ["option of model", "did you mean mixer.rpe_dim?"]),
        ({"set": "task.max_depht=3"}, ["option of listops", "did you mean max_depth?"]),
        ({"set": "train.zzzqqq=3"}, ["unknown option of train 'zzzqqq' (valid: "]),
        ({"preset": "quik"}, ["--preset", "did you mean quick?", "paper, quick"]),
        ({"protocol": "s5"}, ["--protocol", "did you mean s4?", "lra, s4"]),
        ({"set": "mixer.rpe_layer=2"}, ["--set mixer.rpe_layer=2", "did you mean rpe_layers?"]),
        ({"set": "task.min_lenth=2"}, ["--set task.min_lenth=2", "did you mean min_length?"]),
        ({"set": "optimizer.lr=2"}, ["unknown section 'optimizer'", "did you mean train.lr?"]),
        ({"set": "trian.lr=2"}, ["unknown section 'trian'", "did you mean train.lr?"]),
        ({"set": "pretrian.steps=2"}, ["section 'pretrian'", "did you mean pretrain.steps?"]),
        ({"set": "train.lr=fast"}, ["--set train.lr=fast", "'fast'", "valid number"]),
        ({"set": "train.lr=-1"}, ["got -1", "greater than 0"]),
        ({"set": "train.steps=1.5"}, ["got 1.5", "valid integer"]),
        ({"set": "model.causal=yes"}, ["'yes'", "valid boolean"]),
        ({"set": "model.norm=bach"}, ["'bach'", "did you mean batch?", "batch, layer"]),
        ({"set": "mixer.decay=1.0"}, ["mixer.decay", "less than 1"]),
        ({"set": "train.lr"}, ["expected section.key=value"]),
        ({"set": "lr=1"}, ["expected section.key=value"]),
        ({"set": "mixer.num_heads=3"}, ["num_heads 3 does not divide", "128"]),
        (
            {"set": "task.max_length=3000"},
            ["sequence_length 2048 is too short", "task.max_length is from --set task.max"],
        ),
        (
            {"set": "train.schedule=constant"},
            ["no effect", "schedule_steps is from configs/mixers/tnn.yaml: OpenNLPLab/lra"],
        ),
        ({"set": "source.x=1"}, ["unknown section 'source'"]),
        ({"set": "train.lr=1e400"}, ["train.lr", "finite"]),
        ({"set": "mixer.expand_ratio=1e308"}, ["less than or equal to 1000"]),
        ({"set": "train.lr={[1]: 2}"}, ["not valid YAML"]),
        ({"set": "train.lr=!!timestamp 2020"}, ["not valid YAML"]),
        ({"set": "train.bucketing=!!bool x"}, ["not valid YAML"]),
        ({"set": 'train.lr=!!int ""'}, ["not valid YAML"]),
        ({"set": "model.dim=064"}, ["got '064'"]),
        ({"set": "model.dim=100000000000000000000"}, ["less than 2147483648"]),
        ({"set": "log.a(=1"}, ["unknown option of log 'a('"]),
        ({"set": "task.data_seed=10000000000000000000000"}, ["data_seed"]),
        ({"set": "train.micro_batch=500"}, ["exceeds batch_size 128"]),
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
        (
            "modle: {dim: 3}",
            "configs/mixers/tnn.yaml: unknown section 'modle'; did you mean model?",
        ),
        ("model: {dims: 3}", "configs/mixers/tnn.yaml: unknown option of model 'dims'"),
        ("model: 3", "configs/mixers/tnn.yaml: model: got 3, expected keys with values"),
        ("mixer: {rpe_layer: {listops: 1}}", "configs/mixers/tnn.yaml: unknown option of tnn"),
        ("task: {train: 5}", "task.train: the file of a mixer cannot change the data"),
        ("model: {dim: 3\n", "configs/mixers/tnn.yaml: not valid YAML"),
        ("starts: 3", "configs/mixers/tnn.yaml: starts: got 3, expected keys with values"),
        ("presets: [quick]", "configs/mixers/tnn.yaml: presets: got ['quick'], expected keys"),
        (
            "model: {dim: {all: 4, listopps: 3}}",
            "tnn.yaml: unknown task 'listopps'; did you mean listops?",
        ),
        ("model: {dim: {txet: 3}}", "tnn.yaml: unknown task 'txet'; did you mean text?"),
        ("model: {dim: {is: 4, form: a b}}", "model.dim: unknown key 'form'; did you mean from?"),
        ("presets: {quik: {}}", "unknown preset 'quik'; did you mean quick?"),
        ("protocols: {s5: {}}", "configs/mixers/tnn.yaml: unknown protocol 's5'"),
        ("presets: {quick: {protocols: {s5: {}}}}", "unknown protocol 's5'"),
        ("presets: {quick: {presets: {quick: {}}}}", "unknown section 'presets'"),
        ("protocols: {s4: {presets: {quick: {}}}}", "unknown section 'presets'"),
        ("train: {steps: 3, epochs: 2}", "set train.steps or train.epochs, not both"),
    ],
)
def test_mistakes_in_files_name_the_file(tmp_path: Path, text: str, part: str) -> None:
    write(tmp_path, "tasks/listops.yaml", (CONFIGS / "tasks/listops.yaml").read_text())
    write(tmp_path, "mixers/tnn.yaml", text)
    with pytest.raises(UserError) as caught:
        resolve("listops", "tnn", configs=tmp_path)
    assert part in str(caught.value)


def test_hash_covers_results_and_nothing_else() -> None:
    base = tnn().hash
    assert tnn("log.every_steps=7").hash == base
    assert tnn("train.lr=5e-4").hash == base
    assert tnn("train.lr=6e-4").hash != base
    assert tnn(protocol="lra").hash != base
    assert tnn(preset="quick").hash != base


def test_overrides_are_those_that_change_something() -> None:
    same = tnn("train.lr=5e-4", "log.every_steps=7", "mixer.num_heads=1", "train.clip_norm=null")
    assert write_changes(same.changes) == ()
    assert write_changes(tnn("train.lr=1.0e-3", "mixer.decay=0.9").changes) == (
        "train.lr=0.001",
        "mixer.decay=0.9",
    )
    plain = write_changes(tnn("model.causal=true", "mixer.window=null").changes)
    assert plain == ("model.causal=true", "mixer.window=null")
    assert write_changes(tnn(*plain).changes) == plain
    changes = flag_changes({"--precision": ("train", "precision", "bf16")})
    request = RunRequest(task="listops", mixer="tnn", changes=changes)
    flagged = lra.config.compose.compose(request)
    assert write_changes(flagged.changes) == ("train.precision=bf16",)


def test_show_reads_back_and_names_origins() -> None:
    config = tnn("train.lr=0.5")
    shown = config.show()
    assert parse_yaml(shown, "shown")["train"] == config.train.model_dump()
    assert "lr: 0.5                      # --set train.lr=0.5" in shown
    assert f"# hash: {config.hash}" in shown


OF_POSITIONS = {"lm", "periodic"}


@pytest.mark.parametrize("mixer", sorted(MIXERS.classes))
def test_every_shipped_combination_resolves(mixer: str) -> None:
    for task, preset, protocol in product(TASKS.classes, ("paper", "quick"), ("s4", "lra")):
        if task in OF_POSITIONS and mixer in NOT_CAUSAL:
            with pytest.raises(UserError, match="causal"):
                resolve(task, mixer, preset=preset, protocol=protocol)
        else:
            resolve(task, mixer, preset=preset, protocol=protocol)


def test_every_shipped_file_belongs_to_a_class() -> None:
    assert {p.stem for p in (CONFIGS / "mixers").glob("*.yaml")} == MIXERS.classes.keys()
    assert {p.stem for p in (CONFIGS / "tasks").glob("*.yaml")} == TASKS.classes.keys()


def test_contradictions_are_refused_before_any_data_is_made() -> None:
    with pytest.raises(UserError, match=r"CLS position .*model.causal is from --set model.causal"):
        tnn("model.causal=true", protocol="lra")


def test_origins_are_those_of_the_settings_named() -> None:
    with pytest.raises(UserError) as caught:
        tnn("train.steps=null", preset="quick")
    assert "train.steps is from --set train.steps=null" in str(caught.value)
    assert "task.train" not in str(caught.value)


def test_the_later_flag_wins() -> None:
    config = tnn("train.lr=1.0", "train.lr=2.0")
    assert config.train.lr == 2.0
    assert write_changes(config.changes) == ("train.lr=2.0",)
    assert "--set train.lr=2.0, in place of 0.0005 of configs/mixers/tnn.yaml" in config.show()


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("rows: {x: {}}", "only the file of a mixer can have rows"),
        ("presets: {slow: {modle: {}}}", "(presets.slow): unknown section 'modle'"),
        ("protocols: {s5: {trian: {}}}", "(protocols.s5): unknown section 'trian'"),
    ],
)
def test_every_part_of_a_task_file_is_read(tmp_path: Path, text: str, part: str) -> None:
    shipped = yaml.safe_load((CONFIGS / "tasks/listops.yaml").read_text())
    for key, value in yaml.safe_load(text).items():
        shipped.setdefault(key, {}).update(value)
    write(tmp_path, "tasks/listops.yaml", yaml.safe_dump(shipped))
    with pytest.raises(UserError) as caught:
        resolve("listops", "tnn", configs=tmp_path)
    assert part in str(caught.value)


def test_a_mixer_file_may_know_the_presets_of_every_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Other(TASKS.classes["listops"]):
        name = "other"

    monkeypatch.setitem(TASKS.classes, "other", Other)
    write(tmp_path, "tasks/listops.yaml", (CONFIGS / "tasks/listops.yaml").read_text())
    write(tmp_path, "tasks/other.yaml", "presets: {tiny: {}}\nprotocols: {s4: {}}\n")
    write(
        tmp_path, "mixers/tnn.yaml",
        "presets: {tiny: {model: {depth: {all: 3, other: 2}}}}\n",
    )  # fmt: skip
    assert resolve("listops", "tnn", configs=tmp_path).model.depth == 6
    changes = {"preset": "tiny", "overrides": ["train.steps=3"]}
    assert resolve("other", "tnn", configs=tmp_path, **changes).model.depth == 2  # pyright: ignore
    text = "presets: {tiny: {model: {depth: {listops: 3}}}}\n"
    write(tmp_path, "mixers/tnn.yaml", text)
    with pytest.raises(UserError, match="unknown preset 'tiny'"):
        resolve("listops", "tnn", configs=tmp_path)


def test_a_mixer_may_have_a_published_preset_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "tasks").mkdir()
    shutil.copy(CONFIGS / "tasks/listops.yaml", tmp_path / "tasks")
    text = (
        "protocols: {s4: {cited: {listops image: another}}}\n"
        "presets: {wide: {cited: {listops: a paper}, model: {dim: 64, pooling: {listops: last}}}}\n"
    )
    write(tmp_path, "mixers/tnn.yaml", text)
    config = resolve("listops", "tnn", preset="wide", configs=tmp_path)
    assert (config.model.dim, config.model.pooling) == (64, "last")
    assert config.settings_citation == "a paper"
    shutil.copy(CONFIGS / "tasks/image.yaml", tmp_path / "tasks")
    unpublished = resolve("image", "tnn", preset="wide", configs=tmp_path).settings_citation
    assert unpublished == "preset wide, of our choosing, over another"
    assert published_presets(tmp_path) == {"paper", "wide"}
    own = resolve("listops", "tnn", preset="wide", configs=tmp_path).build_task()
    assert compose_task("listops", preset="wide", configs=tmp_path).info == own.info
    with pytest.raises(UserError, match="s4 has no preset wide; another mixer has"):
        resolve("listops", "s4", preset="wide", configs=tmp_path)
    write(
        tmp_path, "mixers/tnn.yaml", text.replace("{wide: {cited: {listops: a paper},", "{wdie: {")
    )
    with pytest.raises(UserError, match="unknown preset 'wdie'"):
        resolve("listops", "tnn", configs=tmp_path)
    write(tmp_path, "mixers/tnn.yaml", "presets: {wide: {cited: {listops: [1]}}}\n")
    with pytest.raises(UserError, match=r"\(presets\.wide\): cited: got \[1\], expected a text"):
        resolve("listops", "tnn", configs=tmp_path)


def test_task_alone_takes_task_settings_only() -> None:
    assert compose_task("listops", preset="quick").info.max_length == 144
    with pytest.raises(UserError, match="has no effect on the data"):
        compose_task("listops", overrides=["train.lr=1"])


def test_options_must_be_named() -> None:
    class Swallowing:
        def __init__(self, **options: int) -> None: ...

    with pytest.raises(BrokenPromise, match=r"takes \*\*options, .*; name each option"):
        options_model(Swallowing)


@pytest.mark.parametrize("name", [*MIXERS.classes, *TASKS.classes])
def test_options_of_the_suite_are_keyword_only(name: str) -> None:
    owner = {**MIXERS.classes, **TASKS.classes}[name]
    parameters = inspect.signature(owner.__init__).parameters
    options = [parameters[key] for key in options_model(owner).model_fields]
    assert {option.kind for option in options} <= {inspect.Parameter.KEYWORD_ONLY}


def test_a_name_used_twice_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import types

    source = (
        "from models.base import Mixer\nclass A(Mixer):\n    name = 'same'\n    forward = None\n"
    )
    for module in ("twin_one", "twin_two"):
        write(tmp_path, f"twins/{module}.py", source)
    write(tmp_path, "twins/__init__.py", "")
    monkeypatch.syspath_prepend(str(tmp_path))
    import importlib

    package = importlib.import_module("twins")
    assert isinstance(package, types.ModuleType)
    from models.base import Mixer

    with pytest.raises(TypeError, match=r"'same' is in twins.twin_one and twins.twin_two"):
        _ = Registry("mixer", package, Mixer).classes


def tasks_of(mixer: str) -> set[str]:
    """List the tasks that a mixer has settings of its own for, beyond those of presets."""
    entries = read_file("mixers", mixer).entries
    return {entry.task for entry in entries if not (entry.preset or entry.protocol)} - {ALL}


def test_a_mixer_has_settings_for_all_tasks_of_the_benchmark_or_for_none() -> None:
    found = {mixer for mixer in MIXERS.classes if tasks_of(mixer) & {*BENCHMARK}}
    assert len(found) > 20
    assert all({*BENCHMARK} <= tasks_of(mixer) for mixer in found)


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
    for pooling in ("cls", "last"):
        with pytest.raises(UserError, match="mixer mean does not mix positions") as caught:
            resolve("listops", "mean", overrides=[f"model.pooling={pooling}"])
        assert f"model.pooling is from --set model.pooling={pooling}" in str(caught.value)


def test_a_mixer_that_looks_back_alone_has_no_cls_position() -> None:
    with pytest.raises(UserError, match="mixer dss sees no later positions"):
        resolve("listops", "dss", overrides=["model.pooling=cls"])
    assert dict(resolve("listops", "dss", protocol="lra").mixer)["bidirectional"]


@pytest.mark.parametrize("setting", ["model.channel_expand=3.0", "model.channel_activation=relu"])
def test_flags_for_a_missing_channel_mixer_are_refused(setting: str) -> None:
    with pytest.raises(UserError, match=r"has no effect: model\.channel_mixer is none"):
        resolve("listops", "s4", preset="quick", overrides=[setting])
    resolve("listops", "s4", preset="quick", overrides=[setting, "model.head=mlp"])
    resolve("listops", "s4", preset="quick", overrides=[setting, "model.channel_mixer=glu"])


def test_words_of_a_message_are_not_taken_for_settings() -> None:
    with pytest.raises(UserError) as caught:
        resolve("listops", "transformer", overrides=["mixer.rotary=true", "model.dim=24"])
    assert "model.head is" not in str(caught.value)
    assert "model.dim is from --set model.dim=24" in str(caught.value)
    assert "mixer.rotary is from --set" in str(caught.value)


@pytest.mark.parametrize(
    ("mixer", "setting"), [("tnn", "rpe_layers=1001"), ("s4", "state_size=8192")]
)
def test_sizes_that_would_never_end_are_refused(mixer: str, setting: str) -> None:
    with pytest.raises(UserError, match="less than or equal to"):
        resolve("listops", mixer, overrides=[f"mixer.{setting}"])


@pytest.mark.parametrize(
    ("task", "mixer", "overrides", "reason"),
    [
        ("retrieval", "s4", ["model.channel_expand=3.0"], "model.head_expand"),
        ("retrieval", "s4", ["model.channel_activation=relu"], "model.head_activation"),
        ("listops", "s4", ["model.channel_expand=3.0"], "model.channel_mixer is none"),
        ("listops", "tnn", ["model.head_expand=3.0"], "model.head is linear"),
        ("listops", "tnn", ["model.tied_dropout=true"], "model.inner_dropout are 0"),
        ("listops", "tnn", ["train.plateau_factor=0.5"], "train.schedule is cosine"),
    ],
)  # fmt: skip
def test_flags_that_act_on_nothing_are_refused(
    task: str, mixer: str, overrides: list[str], reason: str
) -> None:
    with pytest.raises(UserError, match=f"has no effect: .*{reason}"):
        resolve(task, mixer, overrides=overrides)


def test_flags_that_act_are_not_refused() -> None:
    both = ["model.channel_expand=3.0", "model.head_expand=null"]
    assert resolve("retrieval", "s4", overrides=both).model.head_hidden == 768
    tied = ["model.tied_dropout=true", "model.dropout=0.1"]
    assert resolve("listops", "tnn", overrides=tied).model.tied_dropout


def test_a_schedule_says_how_to_leave_another_ones_settings() -> None:
    with pytest.raises(UserError, match=r"--set train\.plateau_patience=null"):
        resolve("listops", "dss", overrides=["train.schedule=cosine"])
    with pytest.raises(UserError, match=r"--set train\.schedule_steps=null"):
        resolve("listops", "s4", overrides=["train.schedule=constant"])


def test_norms_of_the_encoder_are_all_named() -> None:
    with pytest.raises(UserError, match=r"did you mean last_layer\? \(valid: last_layer, layer"):
        resolve("listops", "tnn", overrides=["mixer.rpe_norm=lastlayer"])


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        (
            "tasks/listops",
            "starts: {a: zeros}",
            "only the file of a mixer can have starts",
        ),
        (
            "tasks/listops",
            "protocols: {s4: {cited: {text: a paper}}}",
            "only the file of a mixer can have cited",
        ),
        ("mixers/tnn", "protocols: {s4: {sources: {a: b}}}", "unknown section 'sources'"),
        ("mixers/tnn", "presets: {quick: {rows: {a: b}}}", "unknown section 'rows'"),
        ("mixers/tnn", "cited: {listops: a paper}", "unknown section 'cited'"),
        ("mixers/tnn", "sources: {a: [b]}", "sources: got \\['b'\\], expected a text"),
    ],
)
def test_what_would_be_ignored_in_a_file_is_refused(
    tmp_path: Path, file: str, text: str, message: str
) -> None:
    shutil.copytree(CONFIGS, tmp_path / "configs")
    path = tmp_path / "configs" / f"{file}.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match=message):
        resolve("listops", "tnn", configs=tmp_path / "configs")
