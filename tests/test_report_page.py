"""The page of a report: its data, hostile names, and what a browser shows."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from conftest import ROOT
from lra.report.boards.results import Results
from lra.report.data import ReportData, ReportOptions
from lra.report.page.page import make_data, write_page
from lra.report.page.sheets import OWN_TASKS, TRIALS
from made_results import bench_record, next_token_run, record, save, save_all, write_metrics

SHIPPED = ROOT / "results" / "shipped"
LARGEST = 3_000_000
"""Most bytes of the page of all shipped runs."""
HOSTILE = "</script><img src=x onerror=document.title=1>&lt; %%DATA%%"


def data_of(folder: Path) -> dict[str, Any]:
    return make_data(ReportData(Results(folder), ReportOptions()), folder / "report")


def sheets_of(page: dict[str, Any], view: str) -> list[dict[str, Any]]:
    return next((one["sheets"] for one in page["views"] if one["id"] == view), [])


def row_of(sheet: dict[str, Any], name: str) -> dict[str, dict[str, Any]]:
    """Return the cells of a row, by column."""
    (row,) = (row for row in sheet["rows"] if row["name"] == name)
    return {c["name"]: cell for c, cell in zip(sheet["columns"], row["cells"], strict=True)}


def test_cells_have_numbers_marks_and_their_runs(tmp_path: Path) -> None:
    seeds = [record(run_id=f"a-s{n}", seed=n, test_accuracy=60.0 + n) for n in (0, 1)]
    at_chance = record(mixer="mean", run_id="b-s0", test_accuracy=17.0)
    other_data = {"source": "unofficial", "fingerprint": "u" * 64, "sizes": {"train": 1}}
    other = record(run_id="u-s2", seed=2, data=other_data)
    save_all(tmp_path, [*seeds, record(mixer="s4"), at_chance, other])
    write_metrics(tmp_path, seeds[0], [30.0, 40.0])
    page = data_of(tmp_path)
    main, apart = sheets_of(page, "results")
    assert "unofficial" in apart["title"]
    cell = row_of(main, "tnn")["listops"]
    assert (cell["text"], cell["value"], cell["seeds"]) == ("60.50", 60.5, 2)
    assert (cell["classes"], cell["small"]) == ("best own", "±\N{NO-BREAK SPACE}0.71")
    assert [page["runs"][name]["title"] for name in cell["runs"]] == [
        "tnn on listops, seed 0: done", "tnn on listops, seed 1: done"
    ]  # fmt: skip
    assert page["runs"][cell["runs"][0]]["curve"]["val"] == [30.0, 40.0]
    chance = row_of(main, "mean")["listops"]
    assert (chance["classes"], chance["small"]) == ("own chance", "chance")
    assert "ranked" not in chance
    assert row_of(main, "trivial baseline: majority class")["listops"]["value"] == 17.0


def test_a_missing_number_is_missing(tmp_path: Path) -> None:
    save_all(tmp_path, [record(steps_per_second=None), record(mixer="s4", test_accuracy=0.0)])
    page = data_of(tmp_path)
    (sheet,) = sheets_of(page, "results")
    assert row_of(sheet, "s4")["listops"]["value"] == 0.0
    points = {point["row"]: point for point in sheet["charts"][0]["points"]}
    assert points["s4"]["speed0"] == 2.5
    assert "speed0" not in points["tnn"]
    assert points["s4"]["score"] == 0.0


def test_trials_and_own_tasks_have_tables_of_their_own(tmp_path: Path) -> None:
    save_all(tmp_path / "shipped", [record(mixer="s4"), record(mixer="conv")])
    trial = record(run_id="t-s0", overrides=["train.steps=20"])
    stopped = record(run_id="p-s0", mixer="mean", status="stopped", steps=2, total_steps=4000)
    own = record(run_id="o-s0", task="mine", mixer="s4", total_steps=4000)
    save_all(tmp_path, [trial, stopped, own])
    for place, run in enumerate([own, trial, stopped]):
        path = tmp_path / "runs" / run.task / run.mixer / run.run_id / "result.json"
        os.utime(path, (1000 + place, 1000 + place))
    page = data_of(tmp_path)
    main, own_task, trials = sheets_of(page, "results")
    assert {row["name"] for row in main["rows"] if row["mixer"]} == {"s4", "conv", "mean"}
    assert OWN_TASKS in own_task["title"]
    assert [row["name"] for row in own_task["rows"] if row["own"]] == ["s4"]
    assert TRIALS in trials["title"]
    assert [row["name"] for row in trials["rows"] if row["own"]] == ["tnn (train.steps=20)"]
    assert page["start"]["sheet"] == own_task["id"], "of the newest run that is finished"


def test_next_tokens_speeds_and_published_results_are_there(tmp_path: Path) -> None:
    save(tmp_path, next_token_run(2.0))
    for length in (512, 1024):
        bench_record(length=length).save(tmp_path / "bench")
    page = data_of(tmp_path)
    (bits,) = sheets_of(page, "results")
    assert row_of(bits, "tnn")["bits per byte"]["value"] == 2.0
    measured, _ = sheets_of(page, "speed")
    assert [chart["kind"] for chart in measured["charts"]] == ["lines", "dots"]
    assert len(sheets_of(page, "published")[0]["rows"]) > 50
    name = row_of(measured, "tnn")["listops 512 (batch 8)"]["runs"][0]
    assert page["runs"][name]["command"].startswith("python -m lra.bench step")


class _Scripts(HTMLParser):
    """The scripts of a page, and all other elements."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        assert not any(name.startswith("on") or name in ("src", "srcset") for name, _ in attrs)

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1] == "script":
            self.texts.append(data)


def hostile_results(folder: Path) -> Path:
    run = record(label=HOSTILE, device=HOSTILE, run_id="h-s0", message=HOSTILE)
    save_all(folder, [run, record(mixer="s4", device="CPU")])
    write_metrics(folder, run, [30.0, 40.0])
    return folder


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    results = Results(hostile_results(tmp_path))
    page = write_page(ReportData(results, ReportOptions()), tmp_path)
    read = _Scripts()
    read.feed(page)
    assert "img" not in read.tags
    assert read.tags.count("script") == 3
    data = json.loads(read.texts[0])
    assert f"tnn: {HOSTILE}" in {row["name"] for row in data["views"][0]["sheets"][0]["rows"]}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A browser without a window."""
    names = ("chromium", "chromium-browser", "google-chrome")
    program = next((found for name in names if (found := shutil.which(name))), None)
    driver = shutil.which("chromedriver")
    if program is None or driver is None:
        pytest.skip("needs chromium and chromedriver")
    from selenium.webdriver import Chrome, ChromeOptions
    from selenium.webdriver.chrome.service import Service

    options = ChromeOptions()
    options.binary_location = program
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for flag in ("--headless=new", "--disable-dev-shm-usage"):
        options.add_argument(flag)
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")  # which root cannot have
    chrome = Chrome(options, Service(driver))
    yield chrome
    chrome.quit()


def wait_for(browser: Any, script: str) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(browser, 10).until(lambda _: browser.execute_script(script))


def show(browser: Any, page: Path, address: str = "", width: int = 1400) -> None:
    """Open a page as a new one, wait for its charts, and see that nothing is cut."""
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get("about:blank")
    browser.get(page.as_uri() + address)
    drawn = (
        "return [...document.querySelectorAll('#charts figure')].every((one) => "
        "one.querySelector('svg.marks')) && document.querySelector('#table tr') !== null"
    )
    wait_for(browser, drawn)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    assert browser.execute_script(
        "return [...document.querySelectorAll('svg.marks')].every((one) => "
        "one.getBoundingClientRect().right <= innerWidth)"
    )
    assert [line for line in browser.get_log("browser") if line["level"] == "SEVERE"] == []


def rows(browser: Any) -> list[str]:
    names = "return [...document.querySelectorAll('#table tbody th')].map((one) => one.textContent)"
    return [text.split(" ", 2)[-1] for text in browser.execute_script(names)]


def press(browser: Any, name: str, keys: str) -> None:
    """Send keys to the element of an id."""
    element = browser.find_element("id", name)
    browser.execute_script("arguments[0].focus()", element)
    element.send_keys(keys)


@pytest.mark.slow
def test_a_page_of_all_shipped_runs_in_a_browser(browser: Any, tmp_path: Path) -> None:
    page = tmp_path / "index.html"
    page.write_text(write_page(ReportData(Results(SHIPPED), ReportOptions()), tmp_path))
    assert page.stat().st_size < LARGEST
    show(browser, page)
    assert rows(browser)[:3] == ["s5", "s4d", "s4"], "sorted by the mean of five tasks"
    press(browser, "sort-text", "\n")
    assert rows(browser)[:2] == ["mamba2", "delta"]
    press(browser, "pick-delta", " ")
    browser.find_element("css selector", "#mixers-menu summary").click()
    press(browser, "mixer-mamba2", " ")
    assert rows(browser)[0] == "delta"
    press(browser, "from", "lru")
    cell = browser.find_element("id", "cell-delta-text")
    assert cell.text == "+0.77"
    assert "noise" in cell.find_element("xpath", "..").get_attribute("class")
    press(browser, "theme", "dark")
    before = rows(browser), browser.find_element("id", "table").text
    address = "#" + browser.current_url.partition("#")[2]
    assert {"sort=text", "pick=delta", "hide=mamba2", "from=lru", "theme=dark"} <= {
        *address[1:].split("&")
    }
    show(browser, page, address, width=400)
    assert rows(browser) == before[0]
    background = "return getComputedStyle(document.body).backgroundColor"
    assert browser.execute_script(background) == "rgb(22, 27, 34)"
    press(browser, "cell-delta-text", "\n")
    dialog = browser.find_element("id", "runs")
    assert "run_task.py --task text --mixer delta" in dialog.text
    wait_for(browser, "return document.querySelector('#runs svg.marks')?.clientWidth > 200")
    press(browser, "runs", "\ue00c")
    press(browser, "search", "s4d")
    assert {name.split(" ")[0] for name in rows(browser)} == {"s4d"}
    for view in ("length", "positions", "probes", "speed", "published", "runs"):
        show(browser, page, f"#view={view}", width=400)


@pytest.mark.slow
def test_hostile_names_in_a_browser(browser: Any, tmp_path: Path) -> None:
    results = Results(hostile_results(tmp_path))
    page = tmp_path / "index.html"
    page.write_text(write_page(ReportData(results, ReportOptions()), tmp_path))
    show(browser, page)
    assert browser.title == "Long Range Arena"
    assert HOSTILE in browser.find_element("id", "table").text
