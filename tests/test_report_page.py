"""The page of the shipped records in a browser: sorting, links, search, widths."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import ROOT
from lra.report.boards.results import Results
from lra.report.chapters import ReportData, ReportOptions
from lra.report.page.write import FORMATS, write_report

pytestmark = pytest.mark.slow
LARGEST = 1_500_000
"""Most bytes of the page of the shipped records."""
ERRORS = ("SEVERE", "WARNING")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("report")
    write_report(ReportData(Results(ROOT / "results" / "shipped"), ReportOptions()), FORMATS, out)
    return out / "index.html"


@pytest.fixture(scope="module")
def started() -> Iterator[Any]:
    """A browser without a window."""
    names = ("chromium", "chromium-browser", "google-chrome")
    browser = next((found for name in names if (found := shutil.which(name))), None)
    driver = shutil.which("chromedriver")
    if browser is None or driver is None:
        pytest.skip("needs chromium and chromedriver")
    from selenium.webdriver import Chrome, ChromeOptions
    from selenium.webdriver.chrome.service import Service

    options = ChromeOptions()
    options.binary_location = browser
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for flag in ("--headless=new", "--disable-dev-shm-usage"):
        options.add_argument(flag)
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")  # which root cannot have
    chrome = Chrome(options, Service(driver))
    yield chrome
    chrome.quit()


@pytest.fixture
def browser(started: Any, page: Path) -> Iterator[Any]:
    """The browser with the page open, which must leave no errors on its console."""
    started.get("about:blank")
    started.get(page.as_uri())
    yield started
    assert [line for line in started.get_log("browser") if line["level"] in ERRORS] == []


def column(browser: Any, table: str, name: str) -> list[str]:
    """Return the texts of a column of the table under a heading."""
    return browser.execute_script(
        """
        const table = document.getElementById(arguments[0]).parentElement.querySelector("table");
        const column = [...table.tHead.rows[0].cells].findIndex(
          (cell) => cell.textContent === arguments[1]);
        return [...table.tBodies[0].rows].filter((row) => row.checkVisibility())
          .map((row) => row.cells[column].textContent);
        """,
        table,
        name,
    )


def click_head(browser: Any, table: str, name: str) -> None:
    path = f"//h3[@id='{table}']/..//th/button[text()='{name}']"
    browser.execute_script("arguments[0].click()", browser.find_element("xpath", path))


def search(browser: Any, text: str) -> str:
    """Type into the search box; return what is said to be found."""
    box = browser.find_element("id", "search")
    box.clear()
    box.send_keys(text)
    return browser.find_element("id", "found").text


def shown(browser: Any, selector: str) -> int:
    """Count the elements that are to be seen."""
    return browser.execute_script(
        """
        const found = [...document.querySelectorAll(arguments[0])];
        return found.filter((element) => element.checkVisibility()).length;
        """,
        selector,
    )


def test_the_page_is_small(page: Path) -> None:
    assert page.stat().st_size < LARGEST


def test_every_figure_is_drawn(browser: Any) -> None:
    found = browser.execute_async_script(
        """
        const done = arguments[0];
        const images = [...document.images];
        drawn.then(() => Promise.allSettled(images.map((image) => image.decode()))).then((tried) =>
          done([images.length, tried.filter((one) => one.status === "rejected").length]));
        """
    )
    assert found[0] > 50
    assert found[1] == 0


def test_columns_are_sorted_by_numbers_with_baselines_last(browser: Any) -> None:
    table = "accuracy-budget-s4"
    before = column(browser, table, "mixer")
    trivial = [name for name in before if name.startswith("trivial baseline")]
    for down in (True, False):
        click_head(browser, table, "listops")
        texts = column(browser, table, "listops")[: len(before) - len(trivial)]
        numbers = [float(text.split()[0]) for text in texts]
        assert numbers == sorted(numbers, reverse=down)
        assert set(column(browser, table, "mixer")[-len(trivial) :]) == set(trivial)
    for first in ("fd-tnn", "transformer"):
        click_head(browser, table, "mixer")
        assert column(browser, table, "mixer")[0].startswith(first)


def test_a_number_leads_to_its_run(browser: Any) -> None:
    link = browser.find_element("css selector", "#accuracy-budget-s4 ~ .scroll tbody a")
    anchor = link.get_attribute("href").partition("#")[2]
    link.click()
    run = browser.find_element("id", anchor)
    assert run.get_attribute("open")
    assert 0 <= run.rect["y"] - browser.execute_script("return scrollY") < 300
    assert run.find_element("css selector", "pre").text.startswith("python run_task.py")


def test_links_lead_somewhere(browser: Any, page: Path) -> None:
    links = browser.execute_script(
        "return [...document.querySelectorAll('a')].map((a) => a.getAttribute('href'))"
    )
    ids = set(
        browser.execute_script("return [...document.querySelectorAll('[id]')].map((e) => e.id)")
    )
    assert {link[1:] for link in links if link.startswith("#")} <= ids
    files = {link for link in links if not link.startswith("#")}
    assert len(files) > 200
    assert [name for name in files if not (page.parent / name).is_file()] == []


def test_benchmarks_are_folded_and_open_when_linked(browser: Any) -> None:
    assert shown(browser, "details.fold") > 10
    assert shown(browser, "details.fold .item") == 0
    browser.execute_script("location.hash = 'against-reference'")
    browser.implicitly_wait(5)
    assert browser.find_element("css selector", "details.fold[open] #against-reference")
    assert shown(browser, "details.fold .item") == 1


def test_searching_shows_what_has_all_words(browser: Any) -> None:
    everything = shown(browser, ".item")
    rows = shown(browser, "tbody tr")
    found = search(browser, "Transformer BUDGET")
    names = column(browser, "accuracy-budget-s4", "mixer")
    assert names[0] == "transformer"
    assert all(name.startswith("transformer") for name in names)
    runs = [e for e in browser.find_elements("css selector", "details.run") if e.is_displayed()]
    assert found.endswith(f", {len(runs)} runs")
    assert all(re.search(r"/ transformer(: [^/]+)? / budget /", run.text) for run in runs)
    assert 0 < len(runs) < everything
    tables = int(search(browser, "bucketing interleaved").partition(" ")[0])
    assert shown(browser, "details.fold .item") == tables > 0, "folds open where they have it"
    assert search(browser, "nowhere to be found") == "0 tables, 0 figures, 0 runs"
    assert shown(browser, ".item") == 0
    browser.find_element("css selector", "nav a[href='#runs']").click()
    browser.implicitly_wait(5)
    assert browser.find_element("css selector", "details.run:not([hidden])")
    assert shown(browser, "details.run") > 60, "a link leads out of the search"
    search(browser, "x\b")
    assert (shown(browser, ".item"), shown(browser, "tbody tr")) == (everything, rows)
    assert shown(browser, "details.fold[open]") == 0


@pytest.mark.parametrize("width", [400, 1400])
@pytest.mark.parametrize("opened", [False, True])
def test_the_page_is_no_wider_than_the_window(browser: Any, width: int, opened: bool) -> None:
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    if opened:
        browser.execute_script("document.querySelectorAll('details').forEach((d) => d.open = true)")
    assert browser.execute_script("return innerWidth") == width
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    outside = browser.execute_script(
        """
        return [...document.querySelectorAll("body *")]
          .filter((e) => !e.closest(".scroll, nav ul"))
          .filter((e) => e.getBoundingClientRect().right > innerWidth + 1)
          .map((e) => e.outerHTML.slice(0, 80));
        """
    )
    assert outside == []
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
