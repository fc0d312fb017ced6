"""Settings and sizes against what others have published, and never against ours alone."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from lra.classifier.classifier import Classifier
from lra.classifier.match_params import count_parameters
from lra.config.registry import MIXERS
from lra.config.schema import RunConfig
from lra.config.settings_files import (
    CITED,
    CONFIGS,
    Entry,
    SettingsFile,
    list_files,
    list_layers,
    read_file,
)
from lra.report.published import published_runs, repeats
from lra.runtime.errors import UserError
from lra.train.optimizer import build_optimizer, set_rate_factor
from requested import LRA_ALONE, compose, resolve
from tasks.base import BENCHMARK

PUBLISHED_MIXERS = (
    "tnn", "ski-tnn", "fd-tnn", "transformer", "s4", "s4d", "dss", "s5", "lru", "mega",
    "long-conv", "linear", "hgrn", "linformer", "synthesizer", "reformer",
)  # fmt: skip
PROTOCOLS = ("s4", "lra")
READOUT = ("head", "head_activation", "head_expand", "pooling")
STARTS = {"starts", "head_bias"}
HASHES = Path(__file__).parent / "golden" / "published_hashes.json"


def every_entry() -> Iterator[tuple[SettingsFile, str, Entry]]:
    """List all that settings files say, each with where it stands."""
    for file in [*list_files("tasks").values(), *list_files("mixers").values()]:
        for entry in file.entries:
            if entry.section != CITED:
                yield file, f"{entry.origin}: {entry.section}.{entry.key} on {entry.task}", entry


def test_published_values_have_a_known_source_and_a_line() -> None:
    count = 0
    for file, where, entry in every_entry():
        word, _, place = entry.source.partition(" ")
        assert not entry.source or word in file.sources, where
        assert not entry.source or word == "paper" or ":" in place, where
        assert "{" not in place, where
        count += bool(entry.source)
    assert count > 3500


def test_a_value_that_differs_from_its_source_has_a_reason() -> None:
    for _, where, entry in every_entry():
        if entry.has_other:
            assert entry.why and entry.source, where
            assert entry.theirs != entry.value, where


def published_configs() -> dict[str, RunConfig]:
    """Resolve the runs that repeat published rows."""
    return {f"{one.row.method} on {one.task}": one.config for one in repeats()}


def test_a_changed_published_value_is_noticed(request: pytest.FixtureRequest) -> None:
    """By the hash of a run that repeats a row; `pytest --write-golden` after a change meant."""
    hashes = {name: config.hash for name, config in published_configs().items()}
    if request.config.getoption("--write-golden"):
        HASHES.write_text(json.dumps(hashes, indent=0) + "\n")
    assert hashes == json.loads(HASHES.read_text())


@pytest.mark.parametrize("preset", ["quick", "budget"])
@pytest.mark.parametrize("task", [task for task in BENCHMARK if task != "pathx"])
def test_presets_compare_all_mixers_with_the_tasks_own_readout(task: str, preset: str) -> None:
    def readout(mixer: str) -> list[object]:
        config = compose(task, mixer, preset=preset)
        return [getattr(config.model, key) for key in READOUT]

    assert all(readout(mixer) == readout("tnn") for mixer in MIXERS.classes)


@pytest.mark.parametrize("mixer", MIXERS.classes)
def test_presets_of_our_choosing_start_as_torch_does(mixer: str) -> None:
    cases = [*product(BENCHMARK[:-1], PROTOCOLS), ("lm", "s4")]
    for (task, protocol), preset in product(cases, ("quick", "budget")):
        config = compose(task, mixer, preset=preset, protocol=protocol)
        hashed = config.model.hashed()
        assert not hashed.keys() & STARTS, (task, protocol, preset)


def test_a_value_that_loses_is_not_said_to_hold() -> None:
    own, other = (resolve("pathfinder", "tnn", protocol=protocol) for protocol in PROTOCOLS)
    quick = resolve("pathfinder", "tnn", preset="quick")
    assert (own.model.pooling, other.model.pooling, quick.model.pooling) == ("last", "mean", "max")
    assert "last position" not in own.show()
    assert "published under protocol s4; the task's of lra come first" in other.settings_citation
    assert quick.settings_citation.startswith("preset quick, of our choosing, over OpenNLPLab/Tnn")
    lra = resolve("text", "transformer", protocol="lra").settings_citation
    assert lra == "Tay et al. 2021 over google-research/long-range-arena"


# By building the released modules (OpenNLPLab/lra; jonathanmei/lra-tnn with jonathanmei/ski-tnn;
# state-spaces/s4 V4; ag1988/dss; lindermanlab/S5; NicolasZucchet/minimal-LRU, which has neither
# Retrieval nor two directions) at these settings, with the vocabularies of S4's pipelines: 18 on
# ListOps, 135 on Text, 98 on Retrieval. Norms that they build and never apply are not counted.
# Likewise long-conv from HazyResearch/safari, whose pipelines are S4's, and hgrn from
# OpenNLPLab/lra with Doraemonzzz/hgru-pytorch, its Image in gray.
RELEASED_SIZES = {
    "tnn": (428_042, 639_618, 89_218, 3_094_538, 458_882, 458_882),
    "fd-tnn": (448_906, 660_482, 91_874, 3_204_746, 491_138, 491_138),
    "ski-tnn": (484_618, 696_194, 106_434, 3_473_162, 599_042, 599_042),
    "s4": (815_186, 843_594, 1_096_522, 3_564_682, 1_288_706, 1_288_706),
    "s4d": (815_162, 843_570, 1_096_498, 3_564_298, 1_190_402, 1_190_402),
    "dss": (205_578, 152_450, 888_322, 1_991_434, 601_346, 601_346),
    "long-conv": (4_728_330, 14_200_578, 14_158_594, 12_607_498, 7_875_074, 102_246_914),
    "s5": (188_490, 1_321_154, 772_098, 5_133_706, 1_113_602, 694_018),
    "lru": (995_466, 2_012_546, None, 7_892_746, None, None),
    "linear": (798_730, 176_258, 608_386, 12_623_882, 3_164_162, None),
    "hgrn": (66_250, 683_394, 132_290, 15_797_258, 999_170, 253_826),
}
OF_JAX = ("s5", "lru")
MORE_IN_JAX = {"listops": 3, "text": 1, "retrieval": 1}
"""Numbers a channel that S5's and LRU's maps of one-hot tokens have beyond our embeddings: a bias,
and 20 columns on ListOps. They lack the norm after the last block, two numbers a channel."""


@pytest.mark.parametrize("mixer", RELEASED_SIZES)
def test_models_are_as_large_as_released(mixer: str) -> None:
    for task, released in zip(BENCHMARK, RELEASED_SIZES[mixer], strict=True):
        config = resolve(task, mixer)
        more = 2 - MORE_IN_JAX.get(task, 0) if mixer in OF_JAX else 0
        if released is not None:
            assert count_parameters(config) == released + more * config.model.dim, task


# Likewise the modules of facebookresearch/mega, with these vocabularies for its own, which only its
# data have. Then the longest sequence there, and blocks.
MEGA = {
    "listops": (602_098, 2002, 6), "text": (974_484, 4002, 4),
    "retrieval": (1_464_350, 4002, 6), "image": (2_839_096, 1024, 8),
    "pathfinder": (1_386_874, 1024, 6), "pathx": (381_948, 16_384, 4),
}  # fmt: skip


@pytest.mark.parametrize("task", MEGA)
def test_mega_is_as_large_as_released(task: str) -> None:
    """But for biases of lags, and the features of two documents."""
    released, longest, depth = MEGA[task]
    config = resolve(task, "mega")
    biases = depth * 2 * (config.build_task().info.max_length - longest)
    features = 2 * config.model.dim * config.model.head_hidden if task == "retrieval" else 0
    assert count_parameters(config) == released + biases + features


# Rows of the embedding but for the one of <mask>, width, depth, width inside, classes (Amos et al.,
# protocol s4).
AMOS = {
    "listops": (18, 512, 6, 2048, 10), "text": (135, 512, 6, 2048, 2),
    "retrieval": (98, 128, 4, 512, 2), "image": (2, 64, 3, 128, 10),
    "pathfinder": (2, 128, 4, 128, 2), "pathx": (2, 128, 4, 128, 2),
}  # fmt: skip


@pytest.mark.parametrize("task", AMOS)
def test_the_transformer_of_amos_is_as_large_as_released(task: str) -> None:
    rows, dim, depth, inside, classes = AMOS[task]
    attention = 4 * (dim * dim + dim)
    feed_forward = 2 * dim * inside + inside + dim
    head = {
        "retrieval": 4 * dim * dim + dim, "text": dim * dim + dim, "image": dim * dim + dim
    }.get(task, 0)  # fmt: skip
    body = depth * (attention + feed_forward + 2 * 2 * dim) + 2 * dim
    expected = rows * dim + body + head + dim * classes + classes
    assert count_parameters(resolve(task, "transformer")) == expected


# Rows of the embedding, width, depth, channels of attention, width inside, classes, positions
# learned, CLS (Tay et al., protocol lra).
TAY = {
    "listops": (17, 512, 6, 512, 2048, 10, 0, 1), "text": (257, 512, 6, 512, 2048, 2, 0, 1),
    "retrieval": (257, 128, 4, 128, 512, 2, 0, 1), "image": (256, 128, 1, 64, 128, 10, 1025, 1),
    "pathfinder": (256, 32, 4, 16, 32, 2, 0, 0), "pathx": (256, 32, 1, 16, 32, 2, 16384, 0),
}  # fmt: skip


LINEAR_TAY = {**TAY, "pathfinder": (256, 128, 1, 64, 128, 2, 0, 0)}
"""The Linear Transformer, which has sizes of its own there on Pathfinder alone."""

LONGEST_TAY = {
    "listops": 2001, "text": 4001, "retrieval": 4001, "image": 1025, "pathfinder": 1024,
    "pathx": 16384,
}  # fmt: skip
"""Positions, with the CLS position."""
LINFORMER_TAY = {**TAY, "pathfinder": (256, 32, 1, 16, 32, 2, 0, 0)}
SYNTHESIZER_TAY = {**TAY, "pathfinder": (256, 64, 2, 32, 64, 2, 0, 0)}


def size_of_tay(sizes: tuple[int, ...], *, has_pairs: bool) -> int:
    rows, dim, depth, attended, inside, classes, positions, cls = sizes
    attention = 4 * dim * attended
    feed_forward = 2 * dim * inside + inside + dim
    features = 4 * dim if has_pairs else dim
    head = features * inside + inside + inside * classes + classes
    body = depth * (attention + feed_forward + 2 * 2 * dim) + 2 * dim
    return (rows + positions + cls) * dim + body + head


@pytest.mark.parametrize("task", TAY)
def test_the_transformer_of_tay_is_as_large_as_released(task: str) -> None:
    expected = size_of_tay(TAY[task], has_pairs=task == "retrieval")
    assert count_parameters(resolve(task, "transformer", protocol="lra")) == expected


@pytest.mark.parametrize("task", LINEAR_TAY)
def test_the_linear_transformer_of_tay_is_as_large_as_released(task: str) -> None:
    """But for biases of the four maps of attention, and their channels, as many as the model's."""
    released = size_of_tay(LINEAR_TAY[task], has_pairs=task == "retrieval")
    _, dim, depth, attended, *_ = LINEAR_TAY[task]
    more = depth * 4 * dim * (1 + dim - attended)
    assert count_parameters(resolve(task, "linear", protocol="lra")) == released + more


@pytest.mark.parametrize("task", LINFORMER_TAY)
def test_the_linformer_of_tay_is_as_large_as_released(task: str) -> None:
    """With one projection a block, and on Text the size that is stated."""
    attention = size_of_tay(LINFORMER_TAY[task], has_pairs=task == "retrieval")
    projections = LINFORMER_TAY[task][2] * LONGEST_TAY[task] * (32 if task == "text" else 16)
    assert count_parameters(resolve(task, "linformer", protocol="lra")) == attention + projections


@pytest.mark.parametrize("task", SYNTHESIZER_TAY)
def test_the_synthesizer_of_tay_is_as_large_as_released(task: str) -> None:
    """With a table of pairs for each head, of rank 32 on Text and here on Path-X."""
    config = resolve(task, "synthesizer", protocol="lra", overrides=["model.depth=1"])
    sizes, heads = SYNTHESIZER_TAY[task], dict(config.mixer)["num_heads"]
    one_block = (*sizes[:2], 1, *sizes[3:])
    size = size_of_tay(one_block, has_pairs=task == "retrieval")
    longest = LONGEST_TAY[task]
    table = heads * longest * (2 * 32 if task in ("text", "pathx") else longest)
    unused = 2 * sizes[1] * sizes[3] if task == "text" else 0  # no queries and keys
    assert count_parameters(config) == size + table - unused


REFORMER_TAY = {
    **TAY, "image": (256, 64, 4, 64, 64, 10, 1025, 1), "pathfinder": (256, 64, 2, 64, 64, 2, 0, 0),
    "pathx": (256, 32, 1, 32, 32, 2, 16384, 0),
}  # fmt: skip
"""Reformer, whose attention is as wide as the model there whatever the settings say."""


@pytest.mark.parametrize("task", REFORMER_TAY)
def test_reformer_of_tay_is_as_large_as_released(task: str) -> None:
    """But for the map after attention, which only ours has; both share queries and keys."""
    _, dim, depth, *_ = REFORMER_TAY[task]
    released = size_of_tay(REFORMER_TAY[task], has_pairs=task == "retrieval") - depth * 2 * dim**2
    found = count_parameters(resolve(task, "reformer", protocol="lra"))
    assert found == released + depth * dim**2


SPARSE_TAY = {
    "Longformer": {
        "image": (256, 128, 4, 64, 128, 10, 1024, 0), "pathfinder": (256, 32, 2, 16, 32, 2, 0, 0)
    },
    "BigBird": {
        "image": (256, 128, 1, 64, 128, 10, 1025, 1), "pathfinder": (256, 64, 4, 32, 64, 2, 0, 0)
    },
    "Sparse Transformer": {
        "image": (256, 128, 1, 64, 128, 10, 1025, 1), "pathfinder": (256, 32, 1, 16, 32, 2, 0, 0)
    },
    "Local Attention": {
        "image": (256, 128, 1, 64, 128, 10, 1024, 0), "pathfinder": (256, 64, 2, 32, 64, 2, 0, 0)
    },
}  # fmt: skip
"""Models with sizes of their own on these tasks; the others are those of the Transformer."""


@pytest.mark.parametrize("task", [task for task in TAY if task != "pathx"])
@pytest.mark.parametrize("method", SPARSE_TAY)
def test_the_sparse_models_of_tay_are_as_large_as_released(method: str, task: str) -> None:
    """But for maps of the Longformer for global positions, which it does not have there."""
    changes = published_runs()[method].changes_on(task)
    sizes = SPARSE_TAY[method].get(task, TAY[task])
    config = resolve(task, "sparse", protocol="lra", overrides=changes)
    assert count_parameters(config) == size_of_tay(sizes, has_pairs=task == "retrieval")


class Model(NamedTuple):
    """Published settings of a mixer."""

    mixer: str
    protocol: str = "s4"
    preset: str = "paper"


MODELS = [
    *(Model(mixer) for mixer in PUBLISHED_MIXERS if mixer not in LRA_ALONE),
    *(Model(mixer, "lra") for mixer in ("transformer", "linear", *LRA_ALONE)),
    Model("s4d", preset="frequency-tuned"),
]
"""Those whose code is released, and so the groups of its parameters."""
KNOWN = (*BENCHMARK, "lm")


def published_entry(model: Model, task: str, key: str) -> Entry | None:
    """Find what the settings file says of a published setting."""
    layers = list_layers([read_file("mixers", model.mixer)], task, model.preset, model.protocol)
    entries = [e for layer in layers for e in layer if f"{e.section}.{e.key}" == key]
    return entries[-1] if entries and entries[-1].source else None


def published_value(model: Model, task: str, key: str) -> Any:
    """Return a published value; ours where none is published, or where the file says why."""
    entry = published_entry(model, task, key)
    if entry is None or key == "train.lr":
        section, _, name = key.partition(".")
        return getattr(getattr(shallow(task, model), section), name, None)
    return entry.theirs if entry.has_other else entry.value


def shallow(task: str, model: Model) -> RunConfig:
    return resolve(
        task, model.mixer, preset=model.preset, protocol=model.protocol,
        overrides=["model.depth=1"],
    )  # fmt: skip


APART = {
    "s4": {
        "log_decay": "state_lr", "frequency": "state_lr", "low_rank": "state_lr",
        "input": "state_lr", "log_step": "step_lr",
    },
    "s4d": {
        "log_decay": "state_lr", "frequency": "state_lr", "input": "state_lr",
        "log_step": "step_lr",
    },
    "s4d-ft": {
        "log_decay": "state_lr", "frequency": "state_lr", "log_step": "step_lr",
        "exponent": "exponent_lr",
    },
    "long-conv": {"kernels": "kernel_lr"},
    "dss": {
        "decay": "state_lr", "frequency": "state_lr", "readout": "state_lr", "log_step": "step_lr",
    },
    "s5": {
        "real_part": "state_lr", "frequency": "state_lr", "input": "state_lr",
        "log_step": "state_lr",
    },
    "lru": dict.fromkeys(("log_decay", "log_phase", "log_gain", "input"), "state_lr"),
}  # fmt: skip
"""By mixer, the parameters of the convolution or of the states that never decay, and whose rate
they have; `s5_otherwise` for exceptions."""


RELEASED_WITHOUT = dict.fromkeys(("s4", "s4d"), re.compile(r"^(blocks\..*(bias$|norm\.)|norm\.)"))
"""Parameters without decay by train.py, configs/config.yaml and src/utils/optim_groups.py of
state-spaces/s4: biases and norms of its backbone."""


def s5_otherwise(parameter: str, value: Callable[[str], Any]) -> tuple[bool, bool]:
    """Say whether a parameter of S5 in `APART` has the run's rate, and whether it decays.

    By create_train_state in s5/train_helpers.py of lindermanlab/S5.
    """
    if parameter == "log_step":
        return (value("mixer.step_has_run_lr"),) * 2
    groups = value("mixer.rate_groups") if parameter == "input" else "standard"
    return groups == "input_fast", groups in ("input_fast", "input_and_readout_decay")


def published_rate_and_decay(model: Model, task: str, parameter: str) -> tuple[float, float]:
    """Say how released code would train a parameter, by the published values alone."""
    name = "s4d-ft" if model.preset == "frequency-tuned" else model.mixer

    def value(key: str) -> Any:
        return published_value(model, task, key)

    lr, decay = value("train.lr"), value("train.weight_decay")
    assert lr is not None
    assert decay is not None
    if name in RELEASED_WITHOUT and RELEASED_WITHOUT[name].search(parameter):
        return lr, 0.0
    _, convolution, short = parameter.replace("states.", "convolution.").rpartition("convolution.")
    apart = APART.get(name, {})
    if convolution and short in apart:
        own = value(f"mixer.{apart[short]}")
        has_run_lr, decays = s5_otherwise(short, value) if name == "s5" else (False, False)
        return (lr if own is None or has_run_lr else own), decay * decays
    if short == "readout" and (readout := value("mixer.readout_lr")) is not None:
        return readout, decay
    return lr, decay


def test_a_step_of_adamw_moves_parameters_as_the_released_groups_would() -> None:
    for model, task in product(MODELS, KNOWN):
        if published_entry(model, task, "train.lr") is not None:
            check_a_step(model, task)


def check_a_step(model: Model, task: str) -> None:
    config = shallow(task, model)
    classifier = Classifier(config, config.build_task().info)
    optimizer = build_optimizer(classifier, config.train)
    set_rate_factor(optimizer, 1.0)
    before = {n: p.detach().clone() for n, p in classifier.named_parameters()}
    for parameter in classifier.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    for name, parameter in classifier.named_parameters():
        lr, decay = published_rate_and_decay(model, task, name)
        # The first step of Adam is the rate itself, against the gradient's sign.
        expected = before[name] * (1 - lr * decay) - lr
        torch.testing.assert_close(
            parameter.detach(), expected, rtol=1e-6, atol=1e-3 * lr, msg=f"{model} {task} {name}"
        )


def written(folder: Path, text: str) -> Path:
    """Copy the configurations, with another text for TNN's."""
    shutil.copytree(CONFIGS, folder / "configs")
    (folder / "configs" / "mixers" / "tnn.yaml").write_text(text)
    return folder / "configs"


def test_a_preset_has_its_own_readout(tmp_path: Path) -> None:
    configs = written(
        tmp_path,
        "presets: {paper: {model: {head: mlp}, protocols: {s4: {model: {pooling: last}}}},"
        " budget: {model: {pooling: {listops: max}}}}",
    )

    def readout(preset: str) -> tuple[str, str]:
        model = resolve("listops", "tnn", preset=preset, configs=configs).model
        return model.head, model.pooling

    assert readout("paper") == ("mlp", "last")
    assert readout("quick") == ("linear", "mean")
    assert readout("budget") == ("linear", "max")


@pytest.mark.parametrize(
    "text",
    [
        "task: {train: 9}",
        "task: {train: {listops: 9}}",
        "protocols: {s4: {task: {train: 9}}}",
        "presets: {quick: {task: {train: 9}}}",
    ],
)
def test_a_mixer_may_not_set_the_data(tmp_path: Path, text: str) -> None:
    with pytest.raises(UserError, match="the file of a mixer cannot change the data"):
        resolve("listops", "tnn", preset="quick", configs=written(tmp_path, text))


def head_of(model: Classifier) -> tuple[int, int, str]:
    assert model.activation is not None
    return model.hidden.in_features, model.hidden.out_features, model.activation.__name__


@pytest.mark.parametrize("mixer", PUBLISHED_MIXERS)
def test_the_head_of_retrieval_is_the_published_one(mixer: str) -> None:
    """Linear(4 d, d), GELU, Linear(d, 2) in all of S4's descendants, whatever the channel mixer.

    Mega's is no descendant, and twice as wide.
    """
    config = resolve("retrieval", mixer)
    head = head_of(Classifier(config, config.build_task().info))
    hidden = config.model.dim * (2 if mixer == "mega" else 1)
    assert head == (4 * config.model.dim, hidden, "gelu")


def test_heads_have_settings_of_their_own() -> None:
    config = resolve("retrieval", "tnn", preset="quick")  # as wide as the channel mixer, its SiLU
    assert head_of(Classifier(config, config.build_task().info)) == (256, 128, "silu")
    config = resolve("text", "transformer")
    assert head_of(Classifier(config, config.build_task().info)) == (512, 512, "relu")
    config = resolve("text", "transformer", protocol="lra")
    assert head_of(Classifier(config, config.build_task().info)) == (512, 2048, "relu")
    with pytest.raises(UserError, match=r"model\.head_expand has no effect: model\.head is linear"):
        resolve("listops", "tnn", overrides=["model.head_expand=2.0"])
