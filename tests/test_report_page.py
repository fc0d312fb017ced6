"""The page of a report: its data, hostile names, and what a browser shows."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import ROOT
from lra.record.merge import write_pack
from lra.report import compare
from lra.report.data import Data
from lra.report.page.page import make_data, write_page
from lra.report.page.sheets import make_views
from lra.report.published import published_rows
from made_results import record, save_all, write_metrics, write_predictions

LARGEST = 3_300_000
"""Most bytes of the page of all shipped runs."""
HOSTILE = "</script><img src=x onerror=document.title=1>&lt; %%DATA%%"


def opened(folder: Path) -> tuple[Data, Any]:
    """Open a results folder, and make the views of its page."""
    data = Data(folder)
    return data, make_views(data, published_rows())


def write(folder: Path, page: Path) -> Path:
    page.write_text(write_page(*opened(folder), page.parent))
    return page


def data_of(folder: Path) -> dict[str, Any]:
    return make_data(*opened(folder), folder / "report")


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
    main, _ = sorted(sheets_of(page, "results"), key=lambda one: "unofficial" in one["title"])
    cell = row_of(main, "tnn")["listops"]
    assert (cell["text"], cell["value"], len(cell["runs"])) == ("60.50", 60.5, 2)
    assert (cell["classes"], cell["small"]) == ("best own", "±\N{NO-BREAK SPACE}0.71")
    assert [page["runs"][name]["title"] for name in cell["runs"]] == [
        "tnn on listops, seed 0: done", "tnn on listops, seed 1: done"
    ]  # fmt: skip
    assert page["runs"][cell["runs"][0]]["curve"]["val"]["score"] == [30.0, 40.0]
    chance = row_of(main, "mean")["listops"]
    assert (chance["classes"], chance["small"]) == ("own chance", "chance")
    assert row_of(main, "trivial baseline: majority class")["listops"]["value"] == 17.0


def test_facts_are_in_words_and_links_lead_to_files_that_can_be_shown(tmp_path: Path) -> None:
    data = record().data.model_copy(update={"unofficial_because": "it is small"})
    own = record(test_non_finite=2, data=data, git={"commit": "a", "all_commits": ["a", "b"]})
    shipped = record(mixer="s4")
    results = save_all(tmp_path / "a b#c%d", [own])
    (results / "shipped").mkdir()
    write_pack(results / "shipped", {
        "runs/listops/s4/abc-s0/result.json": shipped.model_dump_json().encode()
    })  # fmt: skip
    page = make_data(*opened(results), tmp_path / "out")
    links = {run["row"]: run["record"] for run in page["runs"].values()}
    assert links == {"tnn": "../a%20b%23c%25d/runs/listops/tnn/abc-s0/result.json", "s4": ""}
    assert {"test listops: 40.00 %", "test outputs that are not finite: 2"} <= {*page["texts"]}
    assert "code: commit a, all commits a, b" in page["texts"]
    assert not any("_" in text for text in page["texts"])


def save_compared(folder: Path, *rights: tuple[str, int, int]) -> None:
    """Save runs of mixers and seeds that are right on the first of 100 examples."""
    for mixer, seed, right in rights:
        run = record(mixer=mixer, run_id=f"a-s{seed}", seed=seed, test_accuracy=float(right),
                     test_total=100)  # fmt: skip
        save_all(folder, [run])
        write_predictions(folder, run, [(1, int(i < right), 7) for i in range(100)])
        write_metrics(folder, run, [30.0, 40.0])


def test_every_two_rows_are_compared_as_the_command_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_compared(tmp_path, ("s4", 0, 60), ("tnn", 0, 40), ("tnn", 1, 45))
    save_all(tmp_path, [record(mixer="lru", test_total=100)])
    ((sheet,), data) = sheets_of(data_of(tmp_path), "results"), Data(tmp_path)
    no_answers = "have no seed in common that is finished and has predictions.csv"
    assert sheet["pairs"]["lru"] == {name: {"listops": no_answers} for name in ("s4", "tnn")}
    found = sheet["pairs"]["s4"]["tnn"]["listops"]
    assert (found[0], found[3], found[5]) == (20.0, 1, 0)
    printed = compare.describe_comparisons(data, ["s4", "tnn"])
    assert all(text in printed for text in ("+20.00", f"{found[1]:+.2f} to {found[2]:+.2f}"))
    assert f" {found[4]} " in printed
    monkeypatch.setattr(compare, "MOST_ROWS", 2)
    save_all(tmp_path / "shipped", [record(mixer="conv")])
    data = Data(tmp_path)
    assert [*compare.compare_pairs(data, data.boards[0])] == ["lru", "s4"], "not the shipped conv"


def test_sources_of_published_rows_are_links(tmp_path: Path) -> None:
    save_all(tmp_path, [record()])
    *_, sheet = sheets_of(data_of(tmp_path), "published")
    assert row_of(sheet, "TNN")["source"]["link"] == "https://arxiv.org/abs/2305.04749"


def hostile_results(folder: Path) -> Path:
    run = record(label=HOSTILE, device=HOSTILE, run_id="h-s0", message=HOSTILE)
    save_all(folder, [run, record(mixer="s4", device="CPU")])
    write_metrics(folder, run, [30.0, 40.0])
    return folder


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    page = write(hostile_results(tmp_path), tmp_path / "index.html").read_text()
    text = page.partition('type="application/json">')[2].partition("</script>")[0]
    assert "<" not in text
    assert page.count("onerror=document") == text.count("onerror=document") > 0
    rows = json.loads(text)["views"][0]["sheets"][0]["rows"]
    assert f"tnn: {HOSTILE}" in {row["name"] for row in rows}


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


DRAWN = """return document.querySelector('#table tr') !== null
    && [...document.querySelectorAll('#charts figure')].every(
        (one) => one.querySelector('svg.marks'))"""
NAMED = "return document.querySelectorAll('#charts .mark-text:not(.role-axis-label) text').length"
FITS = """return document.documentElement.scrollWidth <= innerWidth
    && [...document.querySelectorAll('svg.marks')].every(
        (one) => one.getBoundingClientRect().right <= innerWidth)"""


def wait_for(browser: Any, script: str) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(browser, 10).until(lambda _: browser.execute_script(script))


def check(browser: Any) -> None:
    """Wait for the charts, and see that nothing is cut and nothing has failed."""
    wait_for(browser, DRAWN)
    assert browser.execute_script(FITS)
    assert [line for line in browser.get_log("browser") if line["level"] == "SEVERE"] == []


def show(browser: Any, page: Path, address: str = "", width: int = 1400) -> None:
    """Open a page as a new one."""
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get("about:blank")
    browser.get(page.as_uri() + address)
    check(browser)


def rows(browser: Any) -> list[str]:
    names = "return [...document.querySelectorAll('#table tbody th')].map((one) => one.textContent)"
    return [text.split(" ", 2)[-1] for text in browser.execute_script(names)]


def press(browser: Any, name: str, keys: str) -> None:
    """Send keys to the element of an id."""
    element = browser.find_element("id", name)
    browser.execute_script("arguments[0].focus()", element)
    element.send_keys(keys)


@pytest.mark.thorough
def test_a_page_of_all_shipped_runs_in_a_browser(browser: Any, tmp_path: Path) -> None:
    page = write(ROOT / "results" / "shipped", tmp_path / "index.html")
    assert page.stat().st_size < LARGEST
    show(browser, page)
    assert rows(browser)[:3] == ["s5", "s4d", "s4"], "sorted by the mean of five tasks"
    press(browser, "sort-text", "\n")
    assert rows(browser)[:3] == ["lstm", "delta", "mamba2"]
    press(browser, "pick-delta", " ")
    before = rows(browser), browser.find_element("id", "table").text
    address = "#" + browser.current_url.partition("#")[2]
    assert {"sort=text", "pick=delta"} <= {*address[1:].split("&")}
    dark = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", dark)
    show(browser, page, address)
    assert (rows(browser), browser.find_element("id", "table").text) == before
    background = "return getComputedStyle(document.body).backgroundColor"
    assert browser.execute_script(background) == "rgb(22, 27, 34)"
    press(browser, "cell-delta-text", "\n")
    assert "run_task.py --task text --mixer delta" in browser.find_element("id", "runs").text
    wait_for(browser, "return document.querySelector('#runs svg.marks')?.clientWidth > 200")
    press(browser, "runs", "\ue00c")
    press(browser, "search", "s4d")
    assert {name.split(" ")[0] for name in rows(browser)} == {"s4d"}
    show(browser, page, width=400)
    assert browser.execute_script(NAMED) > 5, "names beside circles"
    for view in ("length", "probes", "speed", "published", "runs"):
        press(browser, f"view-{view}", "\n")
        check(browser)


def test_ones_own_rows_stand_first(browser: Any, tmp_path: Path) -> None:
    save_all(tmp_path / "shipped", [record(mixer=n, test_accuracy=90.0) for n in ("lru", "s4")])
    own = record(mixer="toString", test_accuracy=50.0)
    save_all(tmp_path, [record(), own])
    write_metrics(tmp_path, own, [30.0, 40.0])
    show(browser, write(tmp_path, tmp_path / "index.html"))
    assert rows(browser)[:4] == ["toString", "tnn", "lru", "s4"]
    legend = browser.find_element("css selector", "#charts .legend").text
    assert all(text in legend for text in ("toString", "long convolution", "state space"))


def test_two_selected_rows_are_compared(browser: Any, tmp_path: Path) -> None:
    save_compared(tmp_path, *((mixer, n, right) for n in (0, 1) for mixer, right in
                              (("s4", 60 + n), ("tnn", 40), ("lru", 61 - n))))  # fmt: skip
    show(browser, write(tmp_path, tmp_path / "index.html"), width=400)

    def pair() -> str:
        return browser.find_element("id", "pair").text

    assert pair() == "Select two rows to test whether their difference is more than chance."
    for name in ("tnn", "s4"):
        press(browser, f"pick-{name}", " ")
    title, _, line, *_ = pair().split("\n")
    assert title == "s4 less tnn, percentage points of test accuracy"
    assert line.startswith("listops s4 is better +20.50 +")
    assert line.split(" ")[-2] == "2", "seeds"
    assert browser.execute_script(FITS)
    press(browser, "pick-tnn", " ")
    press(browser, "search", "lru")
    press(browser, "pick-lru", " ")
    assert "lru less s4" in pair() and "listops within noise +0.00 " in pair()
    check(browser)
    show(browser, tmp_path / "index.html", "#pick=nobody%0As4")
    assert pair().startswith("Select two rows")


def test_hostile_names_in_a_browser(browser: Any, tmp_path: Path) -> None:
    show(browser, write(hostile_results(tmp_path), tmp_path / "index.html"))
    assert browser.title == "Long Range Arena"
    assert HOSTILE in browser.find_element("id", "table").text


def test_an_own_task_shows_its_row_alone_and_names_it(browser: Any, tmp_path: Path) -> None:
    save_all(tmp_path / "shipped", [record(mixer="lru"), record(mixer="s4")])
    name = "tnn (model.dim=64, train.lr=0.001)"
    own = record(task="Words", overrides=["model.dim=64", "train.lr=0.001"])
    save_all(tmp_path, [own])
    write_metrics(tmp_path, own, [30.0, 40.0])
    show(browser, write(tmp_path, tmp_path / "index.html"), width=400)
    assert rows(browser) == [name, "majority class"]
    assert "2 rows without a number" in browser.find_element("id", "note").text
    names = """return [...document.querySelectorAll('.bubbles svg text')].filter(
        (one) => one.getAttribute('opacity') !== '0').map((one) => one.textContent)"""
    assert name in browser.execute_script(names)
