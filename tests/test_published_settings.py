"""Settings and sizes against what others have published, and never against ours alone."""

import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from lra.config.registry import MIXERS
from lra.config.schema import RunConfig
from lra.config.settings_files import Entry, SettingsFile, list_files
from lra.report.repeats import repeats
from lra.resolve import count_parameters
from lra.tasks.base import BENCHMARK
from requested import compose, resolve

PROTOCOLS = ("s4", "lra")
READOUT = ("head", "head_activation", "head_expand", "pooling")
STARTS = {"starts", "head_bias"}
HASHES = Path(__file__).parent / "golden" / "published_hashes.json"


def every_entry() -> Iterator[tuple[SettingsFile, str, Entry]]:
    """List all that settings files say, each with where it stands."""
    for file in [*list_files("tasks").values(), *list_files("mixers").values()]:
        for entry in file.entries:
            yield file, f"{entry.origin}: {entry.name} on {entry.task}", entry


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


def test_presets_of_our_choosing_differ_in_the_mixer_alone() -> None:
    """They have the task's own readout and start as torch does."""
    for task, preset in product([*BENCHMARK[:-1], "lm"], ("quick", "budget")):
        readouts = set()
        for mixer in MIXERS.classes:
            model = compose(task, mixer, preset=preset).model
            readouts.add(tuple(getattr(model, key) for key in READOUT))
            assert not model.hashed().keys() & STARTS, (task, preset, mixer)
        assert len(readouts) == 1, (task, preset)


# By building the released modules (OpenNLPLab/lra; jonathanmei/lra-tnn with jonathanmei/ski-tnn;
# state-spaces/s4 V4; ag1988/dss; lindermanlab/S5; NicolasZucchet/minimal-LRU, which has neither
# Retrieval nor two directions) at these settings, with the vocabularies of S4's pipelines: 18 on
# ListOps, 135 on Text, 98 on Retrieval. Norms that they build and never apply are not counted.
# Likewise long-conv from HazyResearch/safari and rtf from ruke1ire/RTF, whose pipelines are S4's,
# hgrn from OpenNLPLab/lra with Doraemonzzz/hgru-pytorch, its Image in gray, and hgrn2 with
# OpenNLPLab/hgru2-pytorch.
RELEASED_SIZES = {
    "tnn": (428_042, 639_618, 89_218, 3_094_538, 458_882, 458_882),
    "fd-tnn": (448_906, 660_482, 91_874, 3_204_746, 491_138, 491_138),
    "ski-tnn": (484_618, 696_194, 106_434, 3_473_162, 599_042, 599_042),
    "s4": (815_186, 843_594, 1_096_522, 3_564_682, 1_288_706, 1_288_706),
    "s4d": (815_162, 843_570, 1_096_498, 3_564_298, 1_190_402, 1_190_402),
    "dss": (205_578, 152_450, 888_322, 1_991_434, 601_346, 601_346),
    "long-conv": (4_728_330, 14_200_578, 14_158_594, 12_607_498, 7_875_074, 102_246_914),
    "rtf": (815_162, 843_570, 1_096_498, 3_564_298, 1_190_402, 13_380_098),
    "s5": (188_490, 1_321_154, 772_098, 5_133_706, 1_113_602, 694_018),
    "lru": (995_466, 2_012_546, None, 7_892_746, None, None),
    "linear": (798_730, 176_258, 608_386, 12_623_882, 3_164_162, None),
    "hgrn": (66_250, 683_394, 132_290, 15_797_258, 999_170, 253_826),
    "hgrn2": (149_770, 483_714, 1_607_426, 11_060_234, 699_650, 45_890),
}
OF_JAX = ("s5", "lru")
MORE_IN_JAX = {"listops": 3, "text": 1, "retrieval": 1}
"""Numbers a channel that S5's and LRU's maps of one-hot tokens have beyond our embeddings: a bias,
and 20 columns on ListOps. They lack the norm after the last block, two numbers a channel."""


@pytest.mark.thorough
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


@pytest.mark.thorough
@pytest.mark.parametrize("task", MEGA)
def test_mega_is_as_large_as_released(task: str) -> None:
    """But for biases of lags, and the features of two documents."""
    released, longest, depth = MEGA[task]
    config = resolve(task, "mega")
    biases = depth * 2 * (config.build_task().info.max_length - longest)
    features = 2 * config.model.dim * config.model.head_hidden if task == "retrieval" else 0
    assert count_parameters(config) == released + biases + features


# google-research/long-range-arena, by the shapes of its modules.
SIZES_OF_TAY = (19_983_370, 20_089_858, 1_088_002, 248_458, 26_530, 537_954)


@pytest.mark.thorough
def test_the_transformer_of_tay_is_as_large_as_released() -> None:
    for task, released in zip(BENCHMARK, SIZES_OF_TAY, strict=True):
        assert count_parameters(resolve(task, "transformer", protocol="lra")) == released, task
