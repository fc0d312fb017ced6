"""How long runs will take, and what it takes to repeat published rows."""

import shlex
from pathlib import Path

import pytest
import yaml

from lra import run_task
from lra.record.run import RunRecord
from lra.report.data import Data
from lra.report.repeats import find_speed, repeats, reproduce_table, speeds_csv
from lra.tasks.base import BENCHMARK
from lra.train import training_time
from lra.train.stopping import StopRequest
from lra.train.training_time import estimate_time
from made_results import bench_record, record, save_all
from requested import compose

HERE = "CPU A, 2 threads"
CONFIG = compose("listops", "tnn")
BATCH = CONFIG.train.batch_size


def run(**changes: object) -> RunRecord:
    """A run of TNN's published setting on ListOps."""
    values: dict[str, object] = {
        "batch_size": BATCH, "length": 2048, "device": HERE, "steps_per_second": 2.0,
        "data": {"source": "official", "fingerprint": "f", "sizes": {"train": 96_000}},
    }  # fmt: skip
    return record(**(values | changes))


def test_what_is_nearest_to_a_run_is_taken() -> None:
    """From the best on: runs, the task's lengths, batch and length."""
    order = [
        (run(), 2.0),
        (bench_record(length=2048, batch_size=BATCH // 4, lengths="task", device=HERE), 0.5),
        (bench_record(length=2048, batch_size=BATCH, device=HERE), 2.0),
        (bench_record(length=1024, batch_size=BATCH, device=HERE), 1.0),
    ]
    for k in range(len(order)):
        records = [one for one, _ in order[k:]][::-1]
        assert find_speed(records, CONFIG, HERE) == order[k][1]


@pytest.mark.parametrize(
    "other",
    [
        {"device": "CPU B"}, {"task": "text"}, {"mixer": "s4"}, {"mixer_code": "0" * 16},
        {"overrides": ["model.dim=1024"]}, {"batch_size": 2, "length": 512},
    ],
)  # fmt: skip
def test_what_says_nothing_of_a_run_is_left_out(other: dict[str, object]) -> None:
    assert find_speed([run(**other)], CONFIG, HERE) is None


@pytest.fixture
def timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Estimate from a table of one speed."""
    save_all(tmp_path, [run()])
    (tmp_path / "speeds.csv").write_text(speeds_csv(Data(tmp_path)))
    monkeypatch.setattr(training_time, "SPEEDS", tmp_path / "speeds.csv")


@pytest.mark.usefixtures("timed")
def test_an_estimate_ends_where_the_run_does() -> None:
    free = StopRequest()
    text = "4.2 h of training (earlier runs made 2 steps/s)"
    assert estimate_time(CONFIG, HERE, free) == (15_000, text)
    assert estimate_time(CONFIG, HERE, free, 15_000)[1].startswith("2.1 h of training left (")
    assert estimate_time(CONFIG, HERE, free, 40_000)[0] == 0
    halved = compose("listops", "tnn", overrides=[f"train.batch_size={BATCH // 2}", "model.dim=16"])
    assert "with the preset's settings made 4 steps/s" in estimate_time(halved, HERE, free)[1]
    assert estimate_time(compose("listops", "s4"), HERE, free)[0] is None
    for text in ("model.depth=1000", "mixer.rpe_layers=9", "task.sequence_length=9000"):
        larger = estimate_time(compose("listops", "tnn", overrides=[text]), HERE, free)
        assert larger[0] is None and larger[1].startswith("not known, because no such step was")
    assert "earlier runs on CPU A, 2 threads made" in estimate_time(CONFIG, "CPU C", free)[1]
    assert estimate_time(CONFIG, HERE, StopRequest(max_steps=3000))[0] == 1500
    assert estimate_time(CONFIG, HERE, StopRequest(max_minutes=2))[0] == 120
    limited = compose("listops", "tnn", overrides=["train.minutes=10"])
    assert estimate_time(limited, HERE, free) == (600, "10 min of training")
    assert estimate_time(limited, HERE, free, 100, 480.0)[0] == 120


@pytest.mark.parametrize(
    ("task", "examples"),
    list(zip(BENCHMARK, (96_000, 22_500, 147_086, 45_000, 160_000, 160_000), strict=True)),
)
def test_examples_are_known_before_the_data(task: str, examples: int) -> None:
    assert compose(task, "mean").build_task().training_examples() == examples


@pytest.mark.usefixtures("timed")
def test_show_config_ends_with_the_estimate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["--task", "listops", "--mixer", "tnn", "--show-config", "--results-dir", str(tmp_path)]
    assert run_task.main([*line, "--device", "cpu"]) == 0
    shown = capsys.readouterr().out
    assert yaml.safe_load(shown)["train"]["epochs"] == 40
    last = shown.splitlines()[-1]
    assert last.startswith("# estimated time: 4.2 h of training (earlier runs on CPU A, 2 threads")
    assert run_task.main([*line, "--device", "cuda:77"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("# estimated time: not known: --device: no device 'cuda:77' here")


def test_commands_have_the_settings_of_their_rows() -> None:
    found = list(repeats())
    assert len({one.command() for one in found}) == len(found) == 191
    for one in found[::7]:
        options = run_task.parse_arguments(shlex.split(one.command())[2:])
        assert run_task.configure(options).hash == one.config.hash


def test_the_table_shows_what_is_known(tmp_path: Path) -> None:
    on_gpu = run(run_id="a-s1", seed=1, device="NVIDIA X", steps_per_second=20.0)
    # A device with more runs, of tasks that have no published row.
    probes = [
        run(task="recall", run_id=f"r-s{seed}", seed=seed, device="CPU B, 1 threads")
        for seed in range(3)
    ]
    # Attention to everything says nothing of attention in chunks.
    mega = run(mixer="mega", run_id="m-s0", batch_size=compose("listops", "mega").train.batch_size)
    save_all(tmp_path, [run(run_id="a-s0"), on_gpu, *probes, mega])
    table = reproduce_table(Data(tmp_path))
    rows = {row[0]: dict(zip(table.headings, row, strict=True)) for row in table.rows}
    assert rows["TNN"]["listops"] == "30,000, 4.2 h, 25 min (GPU)"
    assert rows["TNN"]["text"] == "22,528"
    assert (rows["Mega"]["listops"], rows["Mega-chunk"]["listops"]) == ("90,000, 12.5 h", "90,000")
    assert f"on {HERE} or NVIDIA X follows" in table.caption
    assert table.commands["TNN"] == "python run_task.py --task TASK --mixer tnn"
    lines = table.block().partition("```\n")[2].splitlines()
    assert max(map(len, lines)) <= 100
    assert {*table.commands.values()} <= {*"\n".join(lines).replace(" \\\n    ", " ").splitlines()}
    (tmp_path / "none").mkdir()
    assert "was timed yet" in reproduce_table(Data(tmp_path / "none")).caption
