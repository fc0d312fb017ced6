"""The last screen of a run: its own result first, and then what that compares with."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import run_task
from conftest import tiny_arguments
from lra.record import schema
from lra.record.run import RunRecord, folder_of
from lra.report.published.closest import cite, closest_result
from lra.report.published.rows import published_rows
from lra.report.run_screen import Screen
from lra.report.tables.task_table import task_table
from lra.runtime.console import make_absolute
from lra.runtime.terminal import fit_rows, terminal_width, wrap_command, wrap_parts
from made_results import next_token_run, record, save, save_all, scores
from own_tasks import PARITY
from requested import compose
from run_checks import next_command

QUICK = {"preset": "quick", "run_id": "a-s0", "test_accuracy": 60.1, "test_correct": 1202,
         "val_accuracy": 61.2, "best_step": 1500, "wall_seconds": 384.0,
         "steps_per_second": 4.38, "peak_memory_mib": 526.0,
         "baselines": {"majority class": 17.0, "root operator": 34.25}}  # fmt: skip
"""Fields of a run of the main job."""


def quick(**changes: object) -> RunRecord:
    return record(**{**QUICK, **changes})


def others(accuracies: Sequence[float], **changes: object) -> list[RunRecord]:
    """Make finished runs of as many mixers as there are accuracies, the shipped ones of a test."""
    names = ("s4", "mega", "ski-tnn", "s4d", "mean", "conv")
    return [
        quick(mixer=name, run_id="b-s0", test_accuracy=accuracy, test_correct=round(20 * accuracy),
              **changes)
        for name, accuracy in zip(names, accuracies, strict=False)
    ]  # fmt: skip


def screen(
    results: Path, run: RunRecord, width: int = 80, flags: Sequence[str] = (), **names: Any
) -> list[str]:
    """Write the screen of a run that is saved in a results folder, line by line."""
    if not folder_of(results, run).exists():
        save(results, run)
    config = compose(
        names.get("task", run.task), names.get("mixer", run.mixer), preset=run.preset,
        overrides=run.overrides,
    )  # fmt: skip
    text = str(Screen(results_dir=results, record=run, config=config, flags=flags, width=width))
    start, *lines = text.splitlines()
    assert start == "", "an empty line sets the screen apart from messages"
    for line in lines:
        is_path = len(line.split()) == 1 or line.startswith("    --results-dir")
        assert len(line) <= width or is_path, (len(line), line)
    return lines


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a results folder with five shipped mixers, which is the one that commands expect."""
    monkeypatch.chdir(tmp_path)
    folder = make_absolute("results")
    save_all(folder / "shipped", others([60.25, 61.3, 59.75, 59.65, 29.0]))
    return folder


def test_the_result_comes_first_and_one_command_last(results: Path) -> None:
    seeds = [
        quick(run_id=f"a-s{seed}", seed=seed, test_accuracy=accuracy, test_correct=20 * accuracy)
        for seed, accuracy in ((1, 59.35), (2, 61.1))
    ]
    save_all(results / "shipped", seeds)
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


@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("status", ["done", "stopped", "diverged", "oom"])
def test_every_screen_fits_the_terminal(results: Path, width: int, status: str) -> None:
    run = quick(
        status=status, message=None if status == "done" else "stopped by --max-steps", seed=3,
        overrides=["model.dim=32", "mixer.rpe_dim=16", "train.lr=0.003"], steps=5,
    )  # fmt: skip
    narrow = screen(results, run, width, ["--data-dir", "my data"])
    assert " ".join(" ".join(narrow).replace("\\", "").split()).count("record: results/runs/") == 1


def test_a_path_is_never_cut(tmp_path: Path) -> None:
    folder = tmp_path / ("long-" * 12)
    shown = screen(folder, quick(), 40)
    assert f"    {folder_of(folder, quick())}" in shown


def test_seeds_are_said_to_be_shipped_or_ones_own(results: Path) -> None:
    def seeds_line(run: RunRecord) -> str:
        (line,) = [line for line in screen(results, run, 120) if "seed" in line and " ± " in line]
        return line.strip()

    save(results, quick(seed=1, run_id="a-s1", test_accuracy=62.0, test_correct=1240))
    assert seeds_line(quick()).startswith("with 1 other seed: 61.05 ± 1.34 %")
    save(results / "shipped", quick(seed=2, run_id="a-s2"))
    assert seeds_line(quick()).startswith("with 1 other seed and 1 shipped seed: 60.73")
    save(results, quick(seed=4, run_id="a-s4", status="diverged"))
    assert seeds_line(quick()).endswith(" % (mean ± standard deviation), diverged")
    assert any(
        line.startswith("  not ranked (a seed diverged or ran out of memory); best of 5 ")
        for line in screen(results, quick(), 120)
    )
    stopped = quick(seed=5, run_id="a-s5", status="stopped", message="stopped by SIGINT")
    assert seeds_line(stopped).startswith("2 other seeds and 1 shipped seed of these settings:")
    alone = quick(mixer="hgrn")
    assert not any("±" in line for line in screen(results, alone))


def test_ones_own_run_replaces_the_shipped_one_of_its_seed(results: Path) -> None:
    save(results / "shipped", quick(test_accuracy=50.0, test_correct=1000))
    assert not any("seeds" in line for line in screen(results, quick()))


@pytest.mark.parametrize(
    ("accuracies", "accuracy", "shown"),
    [
        ([60.25, 61.3, 59.75, 59.65, 29.0], 62.0,
         "rank 1 of 6 mixers and variants at this preset: > tnn 62.00 <, mega 61.30, s4 60.25"),
        ([60.25, 61.3, 59.75, 59.65, 29.0], 25.0,
         "rank 6 of 6 mixers and variants at this preset: s4d 59.65, mean 29.00, > tnn 25.00 <"),
        ([60.25, 61.3, 59.75], 60.25,
         "shares rank 2 of 4 mixers and variants at this preset: mega 61.30, s4 60.25, "
         "> tnn 60.25 <, ski-tnn 59.75"),
        ([60.25], 59.0, "rank 2 of 2 mixers and variants at this preset: s4 60.25, > tnn 59.00 <"),
        ([], 59.0, "no rank yet: no other mixer or variant has a result at this preset"),
    ],
)  # fmt: skip
def test_the_rank_has_two_neighbours_up_and_down(
    tmp_path: Path, accuracies: list[float], accuracy: float, shown: str
) -> None:
    save_all(tmp_path / "shipped", others(accuracies))
    run = quick(test_accuracy=accuracy, test_correct=round(20 * accuracy))
    assert f"  {shown}" in screen(tmp_path, run, 120)


def test_only_rows_on_the_same_data_and_protocol_are_ranked(results: Path) -> None:
    data = {"source": "generated", "fingerprint": "e" * 64, "sizes": {"train": 1}}
    run = quick(data=data, overrides=["task.train=1000"])
    first, *rest = screen(results, run, 120)
    assert first.startswith("listops / tnn / quick, seed 0:")
    assert (
        "  no rank yet: no other mixer or variant has a result at this preset with the same data"
        in rest
    )
    lra = quick(protocol="lra", run_id="l-s0")
    first, *rest = screen(results, lra, 120)
    assert first.startswith("listops / tnn / quick, protocol lra, seed 0: ")
    assert any(line.endswith(" has a result at this preset and protocol lra") for line in rest)
    assert "  published, full size, protocol s4: 61.04 % (Qin et al., 2023)" in rest


def test_a_run_ranks_among_shipped_ones_wherever_it_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "SHIPPED_RESULTS", tmp_path / "suite" / "shipped")
    save_all(schema.SHIPPED_RESULTS, others([61.3, 59.75]))
    lines = screen(tmp_path / "elsewhere", quick(), 120)
    assert any(line.endswith("s4 61.30, > tnn 60.10 <, mega 59.75") for line in lines)
    assert "mega" in task_table(tmp_path / "elsewhere", quick(), 120)


def test_a_result_at_chance_is_called_so(results: Path) -> None:
    lines = screen(results, quick(test_accuracy=17.5, test_correct=350), 120)
    assert lines[0].startswith(
        "listops / tnn / quick, seed 0: test accuracy 17.50 %, at chance and "
    )
    assert (
        "not ranked (at chance); best of 5 mixers and variants at this preset: mega 61.30, "
        "s4 60.25, ski-tnn 59.75, s4d 59.65, mean 29.00" in " ".join(" ".join(lines).split())
    )
    pathfinder = quick(task="pathfinder", test_accuracy=17.5, test_correct=350)
    assert "  not ranked (at chance)" in screen(results, pathfinder)


def test_a_result_below_a_trivial_baseline_is_called_so(results: Path) -> None:
    below = screen(results, quick(test_accuracy=34.2, test_correct=684), 120)
    assert below[0].endswith("test accuracy 34.20 %, below a trivial baseline")
    assert "baseline" not in screen(results, quick(), 120)[0]
    worst = quick(test_accuracy=16.9, test_correct=338, baselines={"majority class": 17.0})
    assert "16.90 %, at chance (338" in screen(results, worst, 120)[0]


def test_a_model_that_knows_its_training_data_alone_is_pointed_to_a_mixture(results: Path) -> None:
    run = quick(task="recall", test_accuracy=0.9, test_correct=18)
    save(results, run)
    metrics = folder_of(results, run) / "metrics.jsonl"
    for accuracy, is_advised in ((99.5, True), (80.0, False)):
        metrics.write_text(f'{{"step": 1, "seconds": 1, "accuracy": {accuracy}}}\n')
        text = " ".join(" ".join(screen(results, run)).split())
        assert ("right on 99.5 % of the last training labels, but not on the test" in text) == (
            is_advised
        )
        assert ("(docs/probes.md): --set task.mixture=true" in text) == is_advised
    right = quick(task="recall", test_accuracy=99.0, test_correct=1980, run_id="r-s0")
    assert "mixture" not in " ".join(screen(results, right))


def test_changed_settings_are_named_by_their_row(results: Path) -> None:
    wide = quick(overrides=["model.dim=512"], config_hash="w", run_id="w-s0")
    lines = screen(results, wide, 120)
    assert lines[0].startswith("listops / tnn (model.dim=512) / quick, seed 0: ")
    assert "  published, full size, other settings: 61.04 % (Qin et al., 2023)" in lines
    named = quick(overrides=["model.dim=8"], config_hash="n", run_id="n-s0", label="narrow")
    lines = screen(results, named, 120)
    assert lines[0].startswith("listops / tnn: narrow / quick, seed 0: ")
    assert any("> tnn: narrow 60.10 <" in line for line in lines)


def test_a_published_preset_is_not_of_another_size(tmp_path: Path) -> None:
    def published(**changes: object) -> str | None:
        lines = [x for x in screen(tmp_path, record(**changes), 120) if x.startswith("  published")]
        return lines[0].strip() if lines else None

    assert published() == "published: 61.04 % (Qin et al., 2023)"
    assert published(mixer="s4") == "published: S4-LegS 59.60 % (Gu et al., 2023)"
    tuned = published(mixer="s4d", preset="frequency-tuned")
    assert tuned == "published: S4D-FT 62.75 % (Yu et al., 2025)"
    data = {"source": "unofficial", "fingerprint": "u", "sizes": {"test": 4}}
    unofficial = published(task="retrieval", data=data)
    assert unofficial == "published, official data: 90.97 % (Qin et al., 2023)"
    assert published(mixer="mean") is None


def test_variants_of_a_mixer_have_their_own_published_number() -> None:
    def text(**changes: object) -> str:
        found = closest_result(record(**changes))
        assert found is not None
        return found.text

    chunk = text(mixer="mega", overrides=["mixer.chunk=128"])
    assert chunk == "Mega-chunk 58.76 % (Ma et al., 2023)"
    assert text(mixer="linear").startswith("cosFormer ")
    assert text(mixer="linear", protocol="lra").startswith("Linear Transformer ")
    assert text(mixer="mamba2", preset="quick").startswith("41.45 %"), "not B2S6's"
    assert text(mixer="mamba2", preset="block-biased").startswith("B2S6 63.85 %")


def test_published_numbers_are_cited_by_their_authors() -> None:
    cited = {cite(row.source) for row in published_rows() if row.mixer}
    assert all(re.fullmatch(r"[\w -]+( et al\.| and \w+)?, \d{4}", text) for text in cited - {
        "li2026fractal"
    })  # fmt: skip
    assert cite("unheard2020of") == "unheard2020of"


def test_a_stopped_run_says_how_far_it_is_and_how_to_resume(results: Path) -> None:
    run = quick(
        status="stopped", message="stopped by --max-steps", steps=30, total_steps=1500,
        val_accuracy=None, best_step=None, selected_on=None, wall_seconds=8.0,
    )  # fmt: skip
    lines = screen(results, run, flags=["--device", "cpu"])
    assert lines == [
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
    save(results / "shipped", quick())
    lines = screen(results, run)
    assert "  1 shipped seed of these settings: 60.10 %" in lines
    assert any(
        line.startswith("  its other seeds have rank 3 of 6 mixers and variants at this preset")
        for line in lines
    )


def test_a_diverged_run_proposes_a_lower_rate(results: Path) -> None:
    message = "the loss of step 2 is not finite (task listops, mixer tnn, learning rate 1e+30)"
    run = quick(status="diverged", message=message, steps=1, overrides=["train.lr=1.0"], seed=7)
    lines = screen(results, run, 120)
    assert lines[0] == "listops / tnn (train.lr=1.0) / quick, seed 7: diverged at step 1 of 20"
    assert f"  {message}" in lines
    assert lines[-2].startswith("  next, with a lower learning rate: python run_task.py --task ")
    assert lines[-2].endswith(" --seed 7 \\")
    assert lines[-1] == "    --set train.lr=0.25"


def test_a_run_without_memory_proposes_smaller_passes(results: Path) -> None:
    run = quick(status="oom", message="out of memory on cpu at 32 examples", steps=0)
    text = "\n".join(screen(results, run, 150))
    assert "out of memory at step 0 of 20" in text
    assert "--mixer tnn --preset quick --set train.micro_batch=16" in text


def test_targets_that_are_not_finite_are_mentioned(results: Path) -> None:
    lines = screen(results, quick(test_non_finite=50), 120)
    assert "  the logits of 50 of 2,000 test examples are not finite; they count as wrong" in lines


def test_bits_of_a_text(tmp_path: Path) -> None:
    save(tmp_path, next_token_run(1.9, mixer="s4", run_id="x-s0"))
    lines = screen(tmp_path, next_token_run(2.0), 120)
    assert lines[:2] == [
        "lm / tnn / budget, seed 0: 2.000 bits per byte on the test set",
        "  perplexity 4 per byte · next byte right: 50.00 % (500 of 1,000)",
    ]
    assert lines[2].startswith("  validation 2.144 bits per byte at step 10 · ")
    assert "  rank 2 of 2 mixers and variants at this preset: s4 1.900, > tnn 2.000 <" in lines
    assert "  best trivial baseline 1.860 bits per byte (xz)" in lines
    assert not any("published" in line or "interval" in line for line in lines)
    words = next_token_run(2.0, positions=scores(2.0, text_bytes=5000), run_id="w-s0")
    assert screen(tmp_path, words, 120)[1].startswith("  perplexity 4 per word · next word right: ")
    lost = next_token_run(2.0, run_id="n-s0", positions=scores(2.0, loss=None, bits_per_byte=None,
                                                               perplexity=None))  # fmt: skip
    assert screen(tmp_path, lost)[0].endswith("seed 0: the test loss is not finite")


def test_bits_of_a_known_law_have_a_best_possible_number(tmp_path: Path) -> None:
    positions = scores(
        1.4, text_bytes=None, bits_per_byte=None, baseline_bits={"uniform": 4.0},
        lowest_bits={"entropy rate": 0.86, "ideal predictor": 1.103},
    )  # fmt: skip
    run = next_token_run(1.4, task="periodic", preset="quick", positions=positions)
    lines = screen(tmp_path, run)
    assert lines[0] == "periodic / tnn / quick, seed 0: 1.400 bits per token on the test set"
    assert "  best trivial baseline 4.000 bits per token (uniform)" in lines
    assert "  best possible 1.103 bits per token (ideal predictor)" in lines


def test_a_run_of_ones_own_task_and_mixer(tmp_path: Path) -> None:
    task, mixer = tmp_path / "own_task.py", tmp_path / "own.py"
    task.write_text(PARITY)
    mixer.write_text(
        "from torch import nn\n\n\nclass Own(nn.Module):\n    def __init__(self, context): ...\n"
    )
    names = {"task": f"{task}:Parity", "mixer": f"{mixer}:Own"}
    own = quick(task="Parity", mixer="Own", task_code="0" * 16, mixer_code="1" * 16,
                status="stopped", message="stopped by SIGINT")  # fmt: skip
    lines = screen(tmp_path / "r", own, 400, **names)
    assert lines[0] == "Parity / Own / quick, seed 0: stopped by SIGINT at step 20 of 20"
    command = shlex.split(lines[-1].partition("resume: ")[2])
    assert command[2:6] == ["--task", names["task"], "--mixer", names["mixer"]]
    assert not any("published" in line for line in lines)
    tnn_of_ones_own = quick(mixer_code="1" * 16)
    assert closest_result(tnn_of_ones_own) is None


def test_the_command_repeats_the_run(results: Path) -> None:
    run = quick(status="stopped", message="stopped by SIGINT", seed=3, label="a b",
                overrides=["model.dim=32", "train.lr=0.003"])  # fmt: skip
    lines = screen(results, run, 60, ["--data-dir", "my data"])
    start = next(k for k, line in enumerate(lines) if "resume:" in line)
    assert all(line.endswith(" \\") for line in lines[start:-1])
    text = " ".join(line.rstrip("\\") for line in lines[start:]).partition("resume: ")[2]
    words = shlex.split(text)
    options = run_task.parse_arguments(words[2:])
    config = run_task.configure(options)
    assert config.changes == {"model.dim": 32, "train.lr": 0.003}
    assert (options.seed, options.label, options.preset) == (3, "a b", "quick")
    assert options.data_dir.name == "my data"


def test_words_break_at_separators() -> None:
    assert wrap_parts(["a b", "", "c d", "e f"], 12) == ["  a b · c d", "    e f"]
    assert wrap_parts(["aa", "bb", "cc"], 8, separator=", ") == ["  aa,", "    bb,", "    cc"]
    # The comma has room on the line, too.
    assert wrap_parts(["aa", "> b <", "c"], 11, separator=", ") == ["  aa,", "    > b <,", "    c"]
    assert wrap_parts(["aa bb cc dd"], 9) == ["  aa bb", "    cc dd"]
    assert wrap_command("next:", ["ls", "x", "--a", "1", "--b", "2"], 18) == [
        "next: ls x --a 1 \\", "    --b 2"
    ]  # fmt: skip
    words = ["python", "report.py", "--results-dir", "/a folder/it's", "--rows", "a b"]
    assert next_command("\n".join(wrap_command("next:", words, 30))) == words


@pytest.mark.parametrize(("columns", "width"), [("132", 132), ("0", 80), ("", 80), ("3", 20)])
def test_the_width_is_that_of_the_terminal(
    monkeypatch: pytest.MonkeyPatch, columns: str, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert terminal_width() == width


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_the_table_fits_the_terminal(results: Path, width: int) -> None:
    run = quick(overrides=["mixer.rpe_dim=16", "train.lr=0.003"], config_hash="c")
    save(results, run)
    text = task_table(results, run, width)
    assert max(map(len, text.splitlines())) <= width
    assert "published, %" in text or width < 60
    is_whole = "parameters |" in text
    assert is_whole != ("so left out: parameters" in " ".join(text.split()))
    assert is_whole == (width == 200)


def test_cells_are_wrapped_where_columns_are_not_enough() -> None:
    rows = [{"a": "one two three four five", "b": "x"}, {"a": "six", "b": "y"}]
    assert fit_rows(rows, 100, ["b"]) == (rows, [])
    fitted, dropped = fit_rows(rows, 23, [])
    assert dropped == []
    assert [row["a"] for row in fitted] == ["one two three", "four five", "six"]
    assert [row["b"] for row in fitted] == ["x", "", "y"]


@pytest.mark.slow
def test_the_command_prints_the_screen_and_repeats_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run_task.main(tiny_arguments(tmp_path, "--max-steps", "12")) == 3
    stopped = capsys.readouterr().out
    assert "stopped by --max-steps at step 12 of 20" in stopped
    assert "  validation " in stopped and "test accuracy 1" not in stopped
    assert run_task.main(tiny_arguments(tmp_path)) == 0
    done = capsys.readouterr().out
    assert re.search(r"test accuracy \d+\.\d\d %(, [a-z ]+)?\n? +\(\d+ of 50; 95 % int", done)
    assert "|" not in done
    assert max(map(len, done.splitlines())) <= 80 or str(tmp_path) in done
    assert run_task.main(tiny_arguments(tmp_path)) == 0
    assert capsys.readouterr().out == done
    assert run_task.main(tiny_arguments(tmp_path, "--table")) == 0
    table, _, after = capsys.readouterr().out.rpartition("\n\n")
    assert f"\n{after}" == done
    assert table.startswith("\nlistops, accuracy on the test set\n")
    assert "| trivial baseline: root" in table
