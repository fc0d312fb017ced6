"""Tasks of a user's own file: through every command, and one line for every mistake."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from conftest import python_example
from lra import prepare, run_task
from lra.common.errors import KnownError, UserError
from lra.evaluate import main as evaluate
from lra.record.evaluation import evaluations_of
from lra.record.run import load_record
from lra.report import __main__ as report
from lra.report.boards import boards
from lra.sweep.__main__ import main as sweep
from lra.tasks.base import Dataset
from lra.tasks.returned import is_same, pack_examples
from own_tasks import OWN_TASKS, PARITY
from requested import compose_task, resolve

pytestmark = pytest.mark.usefixtures("own_folder")

MODEL = ["model.dim=8", "model.depth=1", "train.steps=4", "train.batch_size=16"]


def arguments(task: str, *more: str, mixer: str = "mean") -> list[str]:
    changes = [part for text in MODEL for part in ("--set", text)]
    start = ["--task", task, "--mixer", mixer, "--preset", "quick", "--device", "cpu"]
    return [*start, *changes, *more]


@pytest.mark.parametrize("name", OWN_TASKS)
def test_every_kind_of_task_runs(name: str) -> None:
    Path("own.py").write_text(OWN_TASKS[name])
    axes = ["--set", "model.axes=alternate"] if name == "Images" else []
    assert run_task.main(arguments(f"own.py:{name}", *axes, mixer="conv")) == 0
    (path,) = Path("results/runs").glob(f"{name}/conv/*/result.json")
    record = load_record(path)
    assert (record.task, record.task_from) == (name, f"own.py:{name}")
    assert (path.parent / "task.py").read_text() == OWN_TASKS[name]
    header = (path.parent / "predictions.csv").read_text().splitlines()[0]
    outcomes = {
        "Last": "targets,correct,first_wrong",
        "Levels": "label_0,label_1,prediction_0,prediction_1",
        "Tags": "label_0,label_1,label_2,prediction_0,prediction_1,prediction_2",
    }
    outcome = outcomes.get(name, "label,prediction")
    assert header == f"{outcome},length" + (",first,sum" if name == "Same" else "")
    if name == "Same":
        assert report.main([]) == 0


@pytest.mark.thorough
def test_through_the_other_commands(capsys: pytest.CaptureFixture[str]) -> None:
    Path("own.py").write_text(PARITY)
    Path("gated_mean.py").write_text(python_example("docs/your_mixer.md"))
    settings = [part for text in MODEL for part in ("--set", text)]
    command = ["--tasks", "own.py:Parity", "--mixers", "mean,gated_mean.py:GatedMean",
               "--seeds", "0", "--preset", "quick", "--device", "cpu", *settings]  # fmt: skip
    assert sweep([*command, "--dry-run"]) == 0
    assert sweep(command) == 0
    runs = sorted(Path("results/runs/Parity").glob("*/*"))
    assert len(runs) == 2
    asked = ["--run", str(runs[0]), "--device", "cpu"]
    assert evaluate([*asked, "--lengths", "40", "--vary", "task.test=30"]) == 0
    (found,) = evaluations_of(runs[0])[0]
    assert (found.label, found.result.test_total) == ("40 positions, test=30", 30)
    measured = ["--lengths", "40", "--vary", "task.test=30"]
    assert evaluate([*asked, *measured, "--examples", "9"]) == 2, "measured on other examples"
    assert evaluate([*asked, "--lengths", "40", "--examples", "9"]) == 2
    assert "Parity draws no new examples" in capsys.readouterr().err
    assert report.main(["--compare", "GatedMean", "mean"]) == 0
    assert "Parity" in capsys.readouterr().out
    assert report.main([]) == 0
    assert "Parity" in Path("results/report/index.html").read_text()
    assert prepare.main(["--task", "own.py:Parity", "--verify"]) == 0
    assert "verified: 290 examples were drawn again and are the same" in capsys.readouterr().err


def test_code_and_options_tell_runs_and_data_apart() -> None:
    Path("own.py").write_text(PARITY)
    first = resolve("own.py:Parity", "mean", preset="quick")
    assert resolve("own.py:Parity", "mean", preset="quick").hash == first.hash
    other = resolve("own.py:Parity", "mean", preset="quick", overrides=["task.length=30"])
    Path("own.py").write_text(PARITY + "# more\n")
    edited = resolve("own.py:Parity", "mean", preset="quick")
    assert len({first.hash, other.hash, edited.hash}) == 3
    assert "# task from: own.py:Parity\n" in first.show()
    folders = {one.build_task().prepare(Path("data")).folder for one in (first, other, edited)}
    assert len(folders) == 3


def test_runs_on_edited_tasks_stand_in_tables_of_their_own() -> None:
    for text in (PARITY, PARITY.replace("% 2", "% 3 // 2")):
        Path("own.py").write_text(text)
        assert run_task.main(arguments("own.py:Parity")) == 0
    found = boards([load_record(p) for p in Path("results").glob("runs/*/*/*/result.json")])
    assert [len(board.records) for board in found] == [1, 1]


def test_the_seed_of_the_data_is_an_option() -> None:
    Path("own.py").write_text(PARITY)
    labels = [
        compose_task("own.py:Parity", overrides=[f"task.data_seed={seed}"])
        .prepare(Path("data"))
        .splits["test"]
        .labels
        for seed in (0, 0, 1)
    ]
    assert np.array_equal(labels[0], labels[1])
    assert not np.array_equal(labels[0], labels[2])


def test_what_is_stated_need_not_be_drawn() -> None:
    stated = PARITY.replace(
        "    def __init__", "    num_classes, max_length, vocab_size = 2, 64, 5\n\n    def __init__"
    )
    Path("own.py").write_text(
        stated.replace("        lengths", "        assert False\n        lengths")
    )
    info = resolve("own.py:Parity", "mean").build_task().info
    assert (info.goal.outputs, info.max_length, info.vocab_size) == (2, 64, 5)
    with pytest.raises(UserError, match=r"examples\('train', rng\): AssertionError"):
        compose_task("own.py:Parity").prepare(Path("data"))


def own(body: str, head: str = "") -> str:
    """Write a task whose examples are what a body returns."""
    return f"{head}\nclass Own:\n    def examples(self, split, rng):\n        {body}\n"


DRAW = "s = rng.integers(0, 2, (30, 5)); "


GIVEN = DRAW + "return s, s[:, 0]"
RETURNED = {
    "return 3": "returned a int, expected (sequences, labels)",
    "return [[1, 2], []], [0, 1]": "example 1 is empty, expected at least one",
    "return [[1, -2], [1]], [0, 1]": "tokens of example 0 reach from -2 to 1",
    "return [[1, 2], [.5]], [0, 1]": "example 1 has positions of shape (1,), and example 0 of ()",
    "return [[.1, .2], [.1, float('nan')]], [0, 1]": "example 1 has nan at position 1, expe",
    "return numpy.asmatrix(rng.random((9, 5))), [0] * 9": "its sequences has a numpy matrix",
    "return rng.integers(0, 2, (9, 4, 3)), [0] * 9": "if the class states its channels",
    "return [rng.random((2, 7)), rng.random((2, 9))], [0, 1]": "transpose arrays of shape",
    "return [([1], [2], [3])] * 2, [0, 1]": "are tuples of two sequences, and some are not",
    "return [[1], [2]], [0., 1.]": "whole numbers of a real type, such as 0.0; give whole numbers",
    "return [[1], [2]], [0., float('nan')]": "the label of example 1 is nan, expected finite",
    "return [[1], [2]], [[.1, 2], [.2, float('inf')]]": "the label of example 1 is [0.2, inf]",
    "return [[1, 2]] * 2, [[.1, 1], [.2]]": "example 1 is [0.2], expected finite numbers, as many",
    "return [[1], [2]], [.5, 'a']": "the label of example 1 is 'a'",
    "return [[1, 2]] * 2, [[0, 1], [0, -2]]": "labels of example 1 include -2, expect",
    DRAW + "return s, s[:, 0] * 0 + .5": "Own: label is 0.5 in all training examples, so",
    DRAW + "return s, s[:, 0] / (1 + (split == 'train')) ": "whole numbers of a real type",
    DRAW + "return s, s[:, 0] / 2 if split == 'train' else s[:, 0]": "'goal': 'ExampleClass'} and",
    DRAW + "return s, s.sum(1) * 0": "all labels are 0",
    "return [[1, 2], [2, 1]], [[0], [1]]": "or labels of shape (examples,) for one each",
    DRAW + "return s, s[:, 0], {'a': [1]}": "its metadata 'a' is int64 (1,)",
    DRAW + "return s, s[:, 0], {'label': s[:, 1]}": "cannot be called 'label'",
    DRAW + "return s, s[:, 0], ({'a': s[:, 1]} if split == 'test' else {})": "metadata ['a'], e",
    "return [[0, 1], [1, 1]], [0, 1]": "its val split is its training split",
    "s = numpy.random.rand(9, 3); return s, s[:, 0] > .5": "its train split differs if drawn again",
    "return 1 / 0": "examples('train', rng): ZeroDivisionError",
}
STATED = {
    "towers = 2": "'towers': 1, 'goal': 'ExampleClass'} and",
    "data_files = '.'": "its attribute data_files is '.': Path does not point to a file",
    "num_classes = 1": "its attribute num_classes is 1",
    "goal = 'labels'": "its attribute goal is 'labels': Input should be an instance of Exa",
    "from lra.tasks import goals; goal = goals.ExampleLabels(2)": "(30, 1), expected (30, 2)",
    "from lra.tasks import goals; goal = goals.NextToken(2)": "its attribute goal is NextToken(",
    "grid = (2, 2)": "a grid of 2 by 2 has other than 5 positions",
    "num_classes, max_length, vocab_size = 2, 5, 1": "as its class states: token 1 is outside",
    "def __init__(self, *, data_seed=0): ...": "already has an option data_seed",
}
WRONG = {
    **{own(body, "import numpy"): part for body, part in RETURNED.items()},
    **{
        own(GIVEN).replace("class Own:", f"class Own:\n    {line}"): part
        for line, part in STATED.items()
    },
    "class Own: ...": "Own is another class, expected one with a method examples",
}


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
@pytest.mark.parametrize("case", range(len(WRONG)))
def test_mistakes_are_one_line(case: int) -> None:
    source, part = list(WRONG.items())[case]
    Path("own.py").write_text(source)
    with pytest.raises(KnownError) as caught:
        resolve("own.py:Own", "mean", preset="quick").build_task().prepare(Path("data"))
    assert part in str(caught.value) and "\n" not in str(caught.value)


def test_arrays_of_any_library_and_type_are_what_they_hold() -> None:
    tokens, labels, words = np.arange(12).reshape(4, 3), [0, 1, 1, 0], ["a", "b", "b", "a"]
    kept = pack_examples((tokens, labels, {"word": words}))
    assert kept.sequences.tokens.dtype == np.int32
    assert kept.sequences.tokens.tolist() == list(range(12))
    of_positions = pack_examples((tokens, tokens % 2))
    for whole, one in ((torch.tensor, torch.tensor), (pd.DataFrame, pd.Series)):
        for sequences in (whole(tokens), tuple(map(one, tokens))):
            given = (sequences, one(labels), {"word": pd.Series(words)})
            assert is_same(pack_examples(given), kept)
        rows = list(map(one, tokens)), [one(row % 2) for row in tokens]
        assert is_same(pack_examples(rows), of_positions)
    whole = pack_examples((np.ones((4, 2, 3), int), np.array(labels, "u8")), reals=True)
    assert whole.sequences.tokens.dtype == np.float32
    assert whole.sequences.tokens.shape == (8, 3)


READ = """
import json
from pathlib import Path

class Own:
    STATED
    def examples(self, split, rng):
        with Path("log").open("a") as log:
            log.write(split)
        labels = json.loads(Path("labels.json").read_text())
        return rng.integers(0, 2, (len(labels), 9)), labels
"""


@pytest.mark.parametrize(
    "stated",
    ["", "num_classes, max_length, vocab_size, data_files = 2, 9, 2, 'labels.json'"],
)
def test_a_file_that_has_changed_gives_new_examples(stated: str) -> None:
    Path("own.py").write_text(READ.replace("STATED", stated or "pass"))

    def prepare(labels: list[int]) -> Dataset:
        Path("labels.json").write_text(str(labels))
        return compose_task("own.py:Own").prepare(Path("data"))

    first, other = [0, 1, 1] * 10, [1, 0, 0] * 9
    before = prepare(first)
    count = len(Path("log").read_text())
    again = prepare(first)
    assert (again.folder, again.fingerprint) == (before.folder, before.fingerprint)
    assert (len(Path("log").read_text()) == count) == bool(stated)
    after = prepare(other)
    assert after.splits["test"].labels.tolist() == other
    assert after.fingerprint != before.fingerprint
    assert prepare(first).folder == before.folder
    assert prepare(other).folder == after.folder


def test_another_machine_may_round_in_another_way() -> None:
    numbers = np.linspace(0.1, 1, 30, dtype=np.float32).reshape(5, 6)
    labels = [0, 1, 0, 1, 1]
    drawn, rounded, other = (
        pack_examples((values, labels))
        for values in (numbers, np.nextafter(numbers, np.float32(2)), numbers + 0.001)
    )
    assert is_same(rounded, drawn) and not is_same(other, drawn)
    assert not is_same(pack_examples((numbers, [0, 1, 0, 1, 0])), drawn)
    small = np.array([0.1, 0.2, 0.3, 0.4, 0.5]) * 1e-9
    values, almost, others = (
        pack_examples((numbers, some)) for some in (small, small * (1 + 1e-7), 2 * small)
    )
    assert is_same(almost, values) and not is_same(others, values), "in any unit"


HELD_OUT = """
import numpy as np

class Own:
    def examples(self, split, rng):
        drawn = np.random.default_rng(split == "train").integers(0, 9, (40, 9))
        if split == "val":
            drawn = rng.permutation(drawn)[:COUNT]
        return drawn, drawn[:, 0] % 2
"""


def test_validation_on_test_examples_is_selection_on_test(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("own.py").write_text(HELD_OUT.replace("COUNT", "10"))
    assert run_task.main(arguments("own.py:Own")) == 0
    (path,) = Path("results/runs").glob("Own/mean/*/result.json")
    record = load_record(path)
    assert record.selected_on == "test"
    assert "selected on test" in boards([record])[0].conditions["Own"]
    shown = capsys.readouterr()
    assert "val examples that are in the test split, too: 10" in shown.err
    assert "selected on the test set" in shown.err and "selected on the test set" in shown.out
    half = "np.concatenate([drawn[:15], rng.integers(0, 9, (5, 9))])"
    Path("own.py").write_text(HELD_OUT.replace("rng.permutation(drawn)[:COUNT]", half))
    found = compose_task("own.py:Own").prepare(Path("data"))
    assert found.notes == {"val examples that are in the test split, too": 15}
    assert found.selected_on == "val"


@pytest.mark.parametrize(
    ("more", "part"),
    [
        (["--set", "task.lenght=3"], "unknown option of Parity 'lenght'; did you mean length?"),
        (["--task", "own.py"], "write a task of your own as path/to/file.py:ClassName"),
        (["--task", "nowhere.py:A"], "there is no file nowhere.py"),
        (["--task", "Parity"], "unknown task 'Parity'; did you mean pathx? (valid: flip-flop, "
         "groups, image, languages, listops, lm, pathfinder, pathx, periodic, recall, retrieval, "
         "text); write a task of your own as"),
    ],
)  # fmt: skip
def test_mistakes_of_the_command_line(
    more: list[str], part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("own.py").write_text(PARITY)
    assert run_task.main(arguments("own.py:Parity", *more)) == 2
    shown = capsys.readouterr().err
    assert part in shown and shown.count("\n") == 1


def test_a_task_without_a_file_has_every_preset() -> None:
    Path("own.py").write_text(PARITY)
    config = resolve("own.py:Parity", "tnn", preset="budget", protocol="lra")
    assert re.search(r"dim: \d+ +# configs/presets/budget.yaml \(other\)", config.show())
