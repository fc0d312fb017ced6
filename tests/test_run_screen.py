"""The last screen of a run: its own result first, and then what that compares with."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from lra.record.run import RunRecord, folder_of
from lra.report.published import describe_published
from lra.report.run_screen import write_screen
from lra.runtime.console import absolute_path
from made_results import next_token_run, record, save, save_all, scores

QUICK = {"preset": "quick", "run_id": "a-s0", "test_accuracy": 60.1, "test_correct": 1202,
         "val_accuracy": 61.2, "best_step": 1500, "wall_seconds": 384.0,
         "steps_per_second": 4.38, "peak_memory_mib": 526.0,
         "baselines": {"majority class": 17.0, "root operator": 34.25}}  # fmt: skip
"""Fields of a run of the main job."""


def quick(**changes: object) -> RunRecord:
    return record(**{**QUICK, **changes})


def screen(results: Path, run: RunRecord, width: int = 80, flags: Sequence[str] = ()) -> list[str]:
    """Write the screen of a run that is saved in a results folder, line by line."""
    if not folder_of(results, run).exists():
        save(results, run)
    start, *lines = write_screen(results, run, width, None, flags).splitlines()
    assert start == "", "an empty line sets the screen apart from messages"
    for line in lines:
        is_path = len(line.split()) == 1 or line.startswith("    --results-dir")
        assert len(line) <= width or is_path, (len(line), line)
    return lines


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a results folder with five shipped mixers, which is the one that commands expect."""
    monkeypatch.chdir(tmp_path)
    folder = absolute_path("results")
    shipped = {"s4": 60.25, "mega": 61.3, "ski-tnn": 59.75, "s4d": 59.65, "mean": 29.0}
    save_all(folder / "shipped", [
        quick(mixer=name, run_id="b-s0", test_accuracy=accuracy, test_correct=round(20 * accuracy))
        for name, accuracy in shipped.items()
    ])  # fmt: skip
    return folder


def test_the_result_comes_first_and_one_command_last(results: Path) -> None:
    for seed, value in ((1, 59.35), (2, 61.1)):
        seeds = quick(run_id=f"a-s{seed}", seed=seed, test_accuracy=value, test_correct=20 * value)
        save(results / "shipped", seeds)
    assert screen(results, quick(), width=100) == [
        "listops / tnn / quick, seed 0: test accuracy 60.10 % "
        "(1,202 of 2,000; 95 % interval 57.9 to 62.2)",
        "  validation 61.20 % at step 1,500 · 6.4 min · 4.38 steps/s · 526 MiB",
        "  with 2 shipped seeds: 60.18 ± 0.88 % (mean ± standard deviation)",
        "  rank 3 of 6 mixers and variants at this preset: mega 61.30, s4 60.25, > tnn 60.18 <,",
        "    ski-tnn 59.75, s4d 59.65",
        "  best trivial baseline 34.25 % (root operator)",
        "  published, full size: 61.04 % (Qin et al., 2023)",
        "  record: results/runs/listops/tnn/a-s0",
        "  next: python report.py --preset quick",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("accuracy", "verdict", "rank"),
    [
        (60.25, "", "rank 2 of 6 mixers and variants at this preset: mega 61.30, s4 60.25, > tnn"),
        (16.9, ", at chance and below a trivial baseline",
         "not ranked (at chance); best of 5 mixers and variants at this preset: mega 61.30, s4"),
    ],
)  # fmt: skip
def test_a_result_has_a_rank_unless_it_is_no_better_than_a_constant_answer(
    results: Path, accuracy: float, verdict: str, rank: str
) -> None:
    run = quick(test_accuracy=accuracy, test_correct=round(20 * accuracy))
    text = " ".join(" ".join(screen(results, run, 200)).split())
    assert f"test accuracy {accuracy:.2f} %{verdict} (" in text
    assert rank in text


def test_changed_settings_and_logits_that_are_not_finite_are_named(results: Path) -> None:
    wide = quick(overrides=["model.dim=512"], config_hash="w", run_id="w-s0", test_non_finite=50)
    lines = screen(results, wide, 120)
    assert "  the logits of 50 of 2,000 test examples are not finite; they count as wrong" in lines
    assert lines[0].startswith("listops / tnn (model.dim=512) / quick, seed 0: ")
    assert any("> tnn (model.dim=512) 60.10 <" in line for line in lines)
    assert "  published, full size, other settings: 61.04 % (Qin et al., 2023)" in lines


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "published: 61.04 % (Qin et al., 2023)"),
        ({"task": "retrieval", "data": {"source": "unofficial", "fingerprint": "u", "sizes": {}}},
         "published, official data: 90.97 % (Qin et al., 2023)"),
        # Not B2S6's, whose preset is another.
        ({"mixer": "mamba2", "preset": "quick"},
         "published, full size: 41.45 % (Yu and Erichson, 2025)"),
        ({"mixer": "mega", "overrides": ["mixer.chunk=128"]},
         "published: Mega-chunk 58.76 % (Ma et al., 2023)"),
    ],
)  # fmt: skip
def test_a_run_compares_with_the_closest_published_number(
    changes: dict[str, object], text: str
) -> None:
    assert describe_published(record(**changes)) == text


def test_a_stopped_run_says_how_far_it_is_and_how_to_resume(results: Path) -> None:
    run = quick(
        status="stopped", message="stopped by --max-steps", steps=30, total_steps=1500,
        val_accuracy=None, best_step=None, selected_on=None, wall_seconds=8.0,
    )  # fmt: skip
    assert screen(results, run, flags=["--device", "cpu"]) == [
        "listops / tnn / quick, seed 0: stopped by --max-steps at step 30 of 1,500",
        "  not validated yet · 8 s · 4.38 steps/s · 526 MiB",
        "  no test accuracy yet: the test set is measured at the end of the run",
        "  about 5.6 min of training left",
        "  not ranked (no result); best of 5 mixers and variants at this preset:",
        "    mega 61.30, s4 60.25, ski-tnn 59.75, s4d 59.65, mean 29.00",
        "  best trivial baseline 34.25 % (root operator)",
        "  published, full size: 61.04 % (Qin et al., 2023)",
        "  record: results/runs/listops/tnn/a-s0",
        "  resume: python run_task.py --task listops --mixer tnn --preset quick \\",
        "    --device cpu",
    ]


def test_a_failed_run_says_why_and_proposes_what_may_help(results: Path) -> None:
    message = "the loss of step 2 is not finite (task listops, mixer tnn, learning rate 1e+30)"
    run = quick(status="diverged", message=message, steps=1, overrides=["train.lr=1.0"], seed=7)
    first, *lines = screen(results, run, 200)
    assert first == "listops / tnn (train.lr=1.0) / quick, seed 7: diverged at step 1 of 20"
    assert f"  {message}" in lines
    assert lines[-1].startswith("  next, with a lower learning rate: python run_task.py --task ")
    assert lines[-1].endswith(" --seed 7 --set train.lr=0.25")
    run = quick(status="oom", message="out of memory on cpu at 32 examples", steps=0)
    first, *lines = screen(results, run, 200)
    assert first.endswith("out of memory at step 0 of 20")
    assert lines[-1].endswith("--mixer tnn --preset quick --set train.micro_batch=16")


def test_bits_of_a_text_or_of_a_known_law(tmp_path: Path) -> None:
    save(tmp_path, next_token_run(1.9, mixer="s4", run_id="x-s0"))
    lines = screen(tmp_path, next_token_run(2.0), 120)
    assert lines[:2] == [
        "lm / tnn / budget, seed 0: 2.000 bits per byte on the test set",
        "  perplexity 4 per token · next token right: 50.00 % (500 of 1,000)",
    ]
    assert lines[2].startswith("  validation 2.144 bits per token at step 10 · ")
    assert "  rank 2 of 2 mixers and variants at this preset: s4 1.900, > tnn 2.000 <" in lines
    assert "  best trivial baseline 1.860 bits per byte (xz)" in lines
    assert not any("published" in line or "interval" in line for line in lines)
    law = scores(1.4, text_bytes=None, bits_per_byte=None, baseline_bits={"uniform": 4.0},
                 lowest_bits={"entropy rate": 0.86, "ideal predictor": 1.103})  # fmt: skip
    lines = screen(tmp_path, next_token_run(1.4, task="periodic", preset="quick", positions=law))
    assert lines[0] == "periodic / tnn / quick, seed 0: 1.400 bits per token on the test set"
    assert "  best trivial baseline 4.000 bits per token (uniform)" in lines
    assert "  best possible 1.103 bits per token (ideal predictor)" in lines
