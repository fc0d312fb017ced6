"""Positions as targets: no model sees ahead, and every number is what it says."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from conftest import tiny_settings
from lra import run_task
from lra.classifier.classifier import Classifier
from lra.common.errors import UserError
from lra.config.registry import MIXERS
from lra.config.schema import RunConfig
from lra.evaluate import main as evaluate_main
from lra.goals.next_token import NextTokenResult
from lra.record.evaluation import evaluations_of
from lra.record.run import load_record
from lra.tasks.base import Dataset
from lra.tasks.goals import NOT_SCORED
from lra.train.trainer import Trainer
from requested import NOT_CAUSAL, resolve

CPU = torch.device("cpu")
WORDS = ("the", "cat", "sat", "on", "a", "mat", "and", "saw", "that", "it", "was", "not", "his")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text of a few words at random."""
    path = tmp_path_factory.mktemp("corpus") / "text.txt"
    draws = np.random.default_rng(0).integers(0, len(WORDS), size=4000)
    path.write_text(" ".join(WORDS[k] for k in draws))
    return path


def settings(corpus: Path, *changes: str) -> list[str]:
    kept = [text for text in tiny_settings() if not text.startswith("task.")]
    return [*kept, f"task.corpus={corpus}", "task.sequence_length=32", *changes]


def config_of(corpus: Path, *changes: str, mixer: str = "tnn") -> RunConfig:
    return resolve("lm", mixer, preset="quick", overrides=settings(corpus, *changes))


@pytest.fixture(scope="module")
def dataset(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return config_of(corpus, "task.stride=20").build_task().prepare(tmp_path_factory.mktemp("data"))


def trainer_of(corpus: Path, dataset: Dataset, *changes: str, mixer: str = "tnn") -> Trainer:
    config = config_of(corpus, "task.stride=20", *changes, mixer=mixer)
    return Trainer(config, config.build_task().info, dataset, 0, CPU)


CAUSAL = sorted(MIXERS.classes.keys() - NOT_CAUSAL)


@pytest.mark.parametrize("mixer", CAUSAL)
def test_no_later_token_changes_an_earlier_logit(corpus: Path, mixer: str) -> None:
    """Through the whole model, in training too, for windows of several lengths at once."""
    config = config_of(corpus, "model.depth=3", mixer=mixer)
    model = Classifier(config, config.build_task().info).double()
    lengths = torch.tensor([[32], [9], [31]])
    tokens = torch.randint(0, 256, (72,))
    for training in (True, False):
        model.train(training)
        before = model(tokens, lengths)
        assert before.shape == (72, 256)
        for place in (0, 30, 32, 71):
            changed = tokens.clone()
            changed[place] = (changed[place] + 1) % 256
            window = int(np.searchsorted([32, 41, 72], place, side="right"))
            same = torch.ones(72, dtype=torch.bool)
            same[place : [32, 41, 72][window]] = False
            torch.testing.assert_close(model(changed, lengths)[same], before[same])
            assert not torch.allclose(model(changed, lengths)[place], before[place])


@pytest.mark.parametrize(
    ("mixer", "changes", "words"),
    [
        ("ski-tnn", ["model.norm=layer"], "causal"),
        ("tnn", ["model.causal=false"], "next token at each position, and model.causal is false"),
        ("tnn", ["model.norm=batch"], "model.norm is batch, which averages"),
        ("tnn", ["model.axes=alternate"], "lm has no grid, and model.axes is alternate"),
        ("tnn", ["model.pooling=last"], "model.pooling has no effect"),
    ],
)
def test_what_does_not_go_with_positions_is_refused(
    corpus: Path, mixer: str, changes: list[str], words: str
) -> None:
    with pytest.raises(UserError, match=words) as caught:
        config_of(corpus, *changes, mixer=mixer)
    assert "\n" not in str(caught.value)


def test_tied_embeddings_are_one_table(corpus: Path) -> None:
    """The logits are products with it, by hand; it is saved and counted once."""
    config = config_of(corpus, "model.tied_embeddings=true", "model.norm=simple_rms")
    model = Classifier(config, config.build_task().info).eval()
    table = model.embedding.table
    assert table is not None and model.output.weight is table.weight
    assert not [p for name, p in model.named_parameters() if name.startswith("output")]
    assert table.weight.detach().std() == pytest.approx(16**-0.5, rel=0.1)
    tokens, lengths = torch.randint(0, 256, (10,)), torch.tensor([[10]])
    assert torch.equal(model.embedding.encode(tokens), 4.0 * table.weight[tokens])
    caught: list[torch.Tensor] = []
    model.output.register_forward_pre_hook(lambda _, inputs: caught.append(inputs[0]))
    logits = model(tokens, lengths)
    torch.testing.assert_close(logits, caught[0] @ table.weight.T)
    torch.testing.assert_close(caught[0].square().mean(dim=1), torch.ones(10))


def test_the_published_size_is_met() -> None:
    """TNN of 48.68 and FD-TNN of 48.58 million parameters (Moreno et al., Table 1), with the
    tokens of GPT-2 in place of ours; the Transformer there has 44.65 million.
    """
    stated = {"tnn": 48.68, "fd-tnn": 48.58, "transformer": 44.65}
    for mixer, millions in stated.items():
        config = resolve("lm", mixer)
        model = Classifier(config, config.build_task().info)
        missing = (50_264 - 256) * config.model.dim
        found = sum(p.numel() for p in model.parameters()) + missing
        assert found / 1e6 == pytest.approx(millions, abs=0.02), mixer


def test_a_score_adds_up(corpus: Path, dataset: Dataset) -> None:
    """Total, accuracy, loss and losses by position, beside those of each window by hand."""
    trainer = trainer_of(corpus, dataset)
    score = trainer.score("test", lambda: None)
    split = dataset.splits["test"]
    losses, right = [], 0
    by_place: dict[int, list[float]] = {}
    trainer.model.eval()
    for window in range(len(split)):
        batch = split.batch(np.array([window]))
        shares = trainer.model(batch.inputs, batch.lengths).detach().log_softmax(dim=1)
        for place, label in enumerate(batch.labels.tolist()):
            if label != NOT_SCORED:
                losses.append(-float(shares[place, label]))
                right += int(shares[place].argmax()) == label
                by_place.setdefault(place, []).append(losses[-1])
    assert not score.predictions
    by_position = score.result["by_position"]
    assert (score.total, score.result["test_correct"]) == (len(losses), right)
    assert len(losses) == len(split.labels)
    assert score.loss == pytest.approx(np.mean(losses), rel=1e-5)
    assert [(one.first, one.last) for one in by_position] == [
        (0, 0), (1, 1), (2, 3), (4, 7), (8, 15), (16, 31)
    ]  # fmt: skip
    for one in by_position:
        group = [x for k in range(one.first, one.last + 1) for x in by_place.get(k, [])]
        assert one.targets == len(group)
        assert one.loss == pytest.approx(np.mean(group), rel=1e-5)


def arguments(folder: Path, corpus: Path, *more: str) -> list[str]:
    changes = [part for text in settings(corpus) for part in ("--set", text)]
    places = ["--data-dir", str(folder / "data"), "--results-dir", str(folder / "results")]
    start = ["--task", "lm", "--mixer", "tnn", "--preset", "quick", "--device", "cpu"]
    return [*start, *places, *changes, *more]


@pytest.fixture(scope="module")
def made(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny run, evaluated at other lengths."""
    folder = tmp_path_factory.mktemp("run")
    assert run_task.main(arguments(folder, corpus)) == 0
    (run,) = (folder / "results/runs/lm/tnn").glob("*")
    places = ["--run", str(run), "--data-dir", str(folder / "data"), "--device", "cpu"]
    assert evaluate_main([*places, "--lengths", "8,64"]) == 0
    return run


def test_a_record_holds_bits_and_perplexity(made: Path) -> None:
    record = load_record(made / "result.json")
    found = record.result
    assert isinstance(found, NextTokenResult)
    assert found.loss is not None and found.val_loss is not None
    assert found.test_total is not None and found.text_bytes == found.test_total
    assert found.perplexity == pytest.approx(math.exp(found.loss))
    assert found.bits_per_byte == found.bits == pytest.approx(found.loss / math.log(2))
    assert found.baseline_bits.keys() == {"order-0", "xz"}
    assert sum(one.targets for one in found.by_position) == found.test_total
    assert found.val_loss < math.log(256)
    assert not (made / "predictions.csv").exists()


def test_other_lengths_score_the_same_text(made: Path) -> None:
    record = load_record(made / "result.json")
    short, long = evaluations_of(made)[0]
    assert [short.length, long.length] == [8, 64]
    for one, last in ((short, 7), (long, 63)):
        assert isinstance(one.result, NextTokenResult)
        assert one.result.test_total == record.result.test_total
        assert one.result.perplexity == pytest.approx(math.exp(one.loss or math.nan))
        assert one.result.by_position[-1].last == last
