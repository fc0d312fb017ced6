"""The page of a report in a browser: tabs, tables, figures, choices, their address, and widths."""

from __future__ import annotations

import itertools
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from conftest import ROOT
from lra.report.boards.results import Results
from lra.report.data import ReportData, ReportOptions, make_chapters
from lra.report.contents import CHAPTERS
from lra.report.page.page import write_page
from lra.report.page.write import CONTENTS, FORMATS, write_report
from made_results import record, save, save_all
from tasks.base import BENCHMARK
from written_page import read_page

pytestmark = pytest.mark.slow
SHIPPED = ROOT / "results" / "shipped"
LARGEST = 1_500_000
"""Most bytes of the page of a thousand runs."""
ERRORS = ("SEVERE", "WARNING")
TABLE = "accuracy-quick-s4"
CURVES = "learning-listops-over-steps-quick-s4"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of the shipped runs, written once for all processes that run tests."""
    base = tmp_path_factory.getbasetemp()
    out = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "report"
    with FileLock(f"{out}.lock"):
        if not (out / CONTENTS).exists():
            write_report(ReportData(Results(SHIPPED), ReportOptions()), FORMATS, out)
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
    open_page(started, page)
    yield started
    started.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert [line for line in started.get_log("browser") if line["level"] in ERRORS] == []


def open_page(browser: Any, page: Path, address: str = "") -> None:
    """Open a page as a new one, and wait until its runs and the figures of its tab are there."""
    browser.get("about:blank")
    browser.get(page.as_uri() + address)
    wait_for_figures(browser)


def wait_for_figures(browser: Any) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    packed = """
        const plots = [...document.querySelectorAll("[role=tabpanel]:not([hidden]) .plot")];
        return document.querySelector("[role=tab][aria-selected=true]")
          && plots.every((plot) => plot.querySelector("svg"));
        """
    WebDriverWait(browser, 30).until(lambda _: browser.execute_script(packed))


def click(browser: Any, selector: str) -> None:
    browser.execute_script("document.querySelector(arguments[0]).click()", selector)


def open_tab(browser: Any, tab: str) -> None:
    click(browser, f"#tab-{tab}")
    wait_for_figures(browser)


def open_all_tabs(browser: Any) -> Iterator[None]:
    """Open one tab after the other, with its figures."""
    for tab in browser.find_elements("css selector", "[role=tab]"):
        tab.click()
        wait_for_figures(browser)
        yield


def choose(browser: Any, select: str, value: str) -> None:
    """Choose an option of a list."""
    browser.execute_script(
        "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('change'))",
        browser.find_element("id", select),
        value,
    )


def address(browser: Any) -> str:
    return "#" + browser.current_url.partition("#")[2]


def set_width(browser: Any, width: int) -> None:
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    assert browser.execute_script("return innerWidth") == width


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
        // checkVisibility alone is true for parts of an SVG that are not displayed.
        return found.filter((element) => element.checkVisibility()
          && getComputedStyle(element).display !== "none").length;
        """,
        selector,
    )


def test_the_page_of_a_thousand_runs_is_small(page: Path, tmp_path: Path) -> None:
    """Its runs are copies of shipped ones under other seeds, which need no other figures."""
    folder = tmp_path / "shipped"
    shutil.copytree(SHIPPED, folder)
    shipped = Results(SHIPPED)
    for number in range(1000 - len(shipped.records)):
        group, place = divmod(number, len(shipped.records))
        run = shipped.records[place]
        copy = run.model_copy(
            update={"run_id": f"{run.run_id}{group}", "seed": 10 * (group + 1) + run.seed}
        )
        save(folder, copy)
    data = ReportData(Results(folder), ReportOptions())
    figures = {path.stem: path.read_bytes() for path in page.parent.glob("figures/*.svg")}
    files = (page.parent / CONTENTS).read_text().split()
    made = make_chapters(CHAPTERS, data)
    assert data.results.faults == []
    large = tmp_path / "index.html"
    large.write_text(write_page(data, made, figures, files, page.parent))
    assert large.stat().st_size < LARGEST
    listed = read_page(large).count('class="run item"')
    assert listed == 1000 + len(shipped.bench)


def test_every_figure_is_drawn_when_its_tab_is_opened(browser: Any) -> None:
    everything = len(browser.find_elements("css selector", "figure"))
    drawn = len(browser.find_elements("css selector", "figure svg"))
    assert 20 < drawn < everything
    for _ in open_all_tabs(browser):
        pass
    assert len(browser.find_elements("css selector", "figure svg")) == everything
    names = browser.execute_script(
        """
        return [...document.querySelectorAll("svg [id]")]
          .map((part) => [part.id, part.closest("figure").id]);
        """
    )
    figures = dict(names)
    assert all(figures[name] == figure for name, figure in names), "of one figure alone"
    unlike = browser.execute_script(
        """
        return [...document.querySelectorAll("svg .series[data-points]")]
          .filter((series) => series.dataset.points.split("\\n").length
            !== new Set([...series.querySelectorAll("use")].map((use) =>
              `${use.getAttribute("x")} ${use.getAttribute("y")}`)).size)
          .filter((series) => series.querySelector("use")
            || series.querySelectorAll("path").length !== 1)
          .map((series) => series.closest("figure").id);
        """
    )
    assert unlike == [], "every marker of a row is explained"


def test_each_preset_has_a_tab(browser: Any) -> None:
    tabs = [tab.text for tab in browser.find_elements("css selector", "[role=tab]")]
    assert tabs == ["Preset budget", "Preset quick", "Probes", "Speed and memory", "Benchmarks",
                    "Published", "Runs"]  # fmt: skip
    assert shown(browser, "[role=tabpanel]") == 1
    assert shown(browser, "#accuracy-budget-s4") == 1
    first = browser.find_element("css selector", "[role=tab][aria-selected=true]")
    first.send_keys("\ue014")  # arrow to the right
    assert browser.switch_to.active_element.text == "Preset quick"
    assert (shown(browser, "#accuracy-budget-s4"), shown(browser, f"#{TABLE}")) == (0, 1)
    listed = browser.find_elements("css selector", "#contents li a")
    assert len(listed) == shown(browser, ".item")


def test_a_hidden_mixer_is_in_no_table_figure_or_list(browser: Any) -> None:
    open_tab(browser, "preset-quick")
    everything = "svg .series[data-mixer=mamba2], tr[data-mixer=mamba2], .run[data-mixer=mamba2]"
    others = "svg .series:not([data-mixer=mamba2])"
    before, before_others = shown(browser, everything), shown(browser, others)
    assert before > 20
    assert any(name.startswith("mamba2") for name in column(browser, TABLE, "mixer"))
    browser.find_element("css selector", "#mixers summary").click()
    browser.find_element("css selector", "#mixers input[value=mamba2]").click()
    assert (shown(browser, everything), shown(browser, others)) == (0, before_others)
    assert not any(name.startswith("mamba2") for name in column(browser, TABLE, "mixer"))
    open_tab(browser, "runs")
    assert (shown(browser, everything), shown(browser, ".run")) == (0, shown(browser, ".run"))
    count = len(browser.find_elements("css selector", "#mixers input"))
    summary = browser.find_element("css selector", "#mixers summary").text
    assert summary == f"Mixers {count - 1} of {count}"
    open_tab(browser, "preset-quick")
    click(browser, "#mixers input[value=mamba2]")
    assert shown(browser, everything) == before


def test_a_figure_of_hidden_mixers_alone_is_hidden(browser: Any) -> None:
    open_tab(browser, "preset-quick")
    kernels = "#kernels-image-ski-tnn-quick-s4"
    assert shown(browser, kernels) == 1
    click(browser, "#mixers input[value=ski-tnn]")
    assert (shown(browser, kernels), shown(browser, "#kernels-image-tnn-quick-s4")) == (0, 1)
    click(browser, "[data-shown=none]")
    assert shown(browser, "figure") == 0
    click(browser, "[data-shown=all]")
    assert shown(browser, kernels) == 1


def test_what_was_chosen_is_in_the_address_and_comes_back(browser: Any, page: Path) -> None:
    assert address(browser) == "#"
    open_tab(browser, "preset-quick")
    click(browser, "#mixers input[value=mamba2]")
    click(browser, "#mixers input[value=mean]")
    choose(browser, "reference", "tnn")
    choose(browser, "theme", "dark")
    search(browser, "listops")

    def seen() -> dict[str, Any]:
        return {
            "address": address(browser),
            "items": shown(browser, ".item"),
            "rows": column(browser, TABLE, "mixer"),
            "values": column(browser, TABLE, "listops"),
            "paper": browser.execute_script("return getComputedStyle(document.body).background"),
            "found": browser.find_element("id", "found").text,
        }

    before = seen()
    assert before["address"].count("&") == 4
    assert "rgb(22, 27, 34)" in before["paper"]
    open_page(browser, page, before["address"])
    assert seen() == before
    open_page(browser, page)
    assert address(browser) == "#"
    assert "rgb(255, 255, 255)" in seen()["paper"]


def test_a_link_goes_to_its_tab_and_keeps_what_was_chosen(browser: Any, page: Path) -> None:
    open_page(browser, page, "#hide=mean&at=confusions-listops-quick-s4")
    figure = browser.find_element("id", "confusions-listops-quick-s4")
    assert figure.is_displayed()
    assert 0 <= figure.rect["y"] - browser.execute_script("return scrollY") < 300
    browser.execute_script("location.hash = 'accuracy-budget-s4'")
    browser.implicitly_wait(5)
    assert browser.find_element("css selector", "#tab-preset-budget[aria-selected=true]")
    assert shown(browser, "#accuracy-budget-s4") == 1
    assert address(browser) == "#hide=mean&at=accuracy-budget-s4"


def test_rows_are_differences_from_a_chosen_row(browser: Any) -> None:
    open_tab(browser, "preset-quick")
    names, before = column(browser, TABLE, "mixer"), column(browser, TABLE, "listops")
    choose(browser, "reference", "tnn")
    after = column(browser, TABLE, "listops")
    numbers = {
        name: float(text.split()[0])
        for name, text in zip(names, before, strict=True)
        if text[0].isdigit()
    }
    for name, old, new in zip(names, before, after, strict=True):
        if name == "tnn" or name not in numbers:
            assert new == old
        else:
            assert new[0] in "+-"
            assert float(new) == pytest.approx(numbers[name] - numbers["tnn"], abs=0.006)
    click_head(browser, TABLE, "listops")
    order = column(browser, TABLE, "mixer")
    assert sorted(order) == sorted(names)
    assert order[0] == max(numbers, key=numbers.__getitem__), "sorted by the numbers themselves"
    choose(browser, "reference", "")
    assert sorted(column(browser, TABLE, "listops")) == sorted(before)


def test_pointing_at_a_marker_says_what_it_stands_for(browser: Any) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    set_width(browser, 1400)
    open_tab(browser, "preset-quick")
    marker = f"#{CURVES} .series[data-row='tnn'][data-points] use"
    browser.execute_script(f"document.getElementById('{CURVES}').scrollIntoView()")
    tip = browser.find_element("id", "tip")
    assert not tip.is_displayed()
    ActionChains(browser).move_to_element(
        browser.find_elements("css selector", marker)[-1]
    ).perform()
    name, _, text = tip.text.partition("\n")
    assert name == "tnn"
    assert re.fullmatch(
        r"optimizer steps 1,500: validation accuracy \d\d\.\d\d % \(.* to .*\), 3 seeds", text
    )
    assert shown(browser, f"#{CURVES} .series.current") > 1
    plot = browser.find_element("css selector", f"#{CURVES} .plot")
    plot.send_keys("\ue014")
    first = tip.text
    plot.send_keys("\ue014")
    assert first.partition("\n")[0] == tip.text.partition("\n")[0]
    assert first != tip.text
    plot.send_keys("\ue00c")
    assert not tip.is_displayed()


def test_a_mean_opens_the_runs_of_all_its_seeds(browser: Any) -> None:
    open_tab(browser, "preset-quick")
    click(browser, f"#{TABLE} ~ .scroll tr[data-mixer='tnn'] a[data-runs]")
    dialog = browser.find_element("css selector", "dialog[open]")
    assert dialog.find_element("tag name", "h3").text.startswith("tnn, listops: ")
    commands = [part.text for part in dialog.find_elements("tag name", "pre")]
    assert [command.partition("--seed ")[2] for command in commands] == ["0", "1", "2"]
    assert len(dialog.find_elements("css selector", "a[href$='runs.parquet']")) == 3
    dialog.find_element("tag name", "button").click()
    assert browser.find_elements("css selector", "dialog[open]") == []


def test_a_search_finds_the_figures_that_draw_a_mixer(browser: Any) -> None:
    open_tab(browser, "preset-quick")
    search(browser, "hgrn")
    found = browser.execute_script(
        """
        return [...document.querySelectorAll("figure")].filter((one) => one.checkVisibility())
          .map((one) => one.querySelectorAll("[data-mixer=hgrn]").length);
        """
    )
    assert len(found) > 3
    assert min(found) > 0
    assert (
        0
        < len(found)
        < shown(browser, "figure") + len(browser.find_elements("css selector", "figure[hidden]"))
    )


def test_columns_without_results_are_hidden(browser: Any) -> None:
    heads = browser.find_elements("css selector", "#accuracy-budget-s4 ~ .scroll th")
    names = [head.text for head in heads]
    note = browser.find_element("css selector", "#accuracy-budget-s4 ~ p").text
    hidden = note.partition("There are no results yet for ")[2].rstrip(".").split(", ")
    assert "listops" in names
    assert "pathx" in hidden
    assert sorted(names + hidden) == sorted(["mixer", *BENCHMARK, "mean of 5", "mean of 6"])
    assert shown(browser, ".yours") == 0, "shipped results are not your own"


def test_your_own_runs_are_marked(started: Any, tmp_path: Path) -> None:
    runs = [
        record(),
        record(run_id="abc-s1", seed=1, test_accuracy=42.0),
        record(mixer="Mine"),
        record(mixer="Mine", task="my-task"),
    ]
    save_all(tmp_path / "shipped", runs[:2])
    save_all(tmp_path, runs[2:])
    write_report(ReportData(Results(tmp_path), ReportOptions()), ["html"], tmp_path / "report")
    open_page(started, tmp_path / "report" / "index.html")
    names = column(started, "accuracy-paper-s4", "mixer")
    assert names[:2] == ["Mineyours", "tnn"]
    heads = started.find_elements("css selector", "#accuracy-paper-s4 ~ .scroll th")
    assert [head.text for head in heads] == ["mixer", "listops", "my-task"]
    assert "marked yours" in " ".join(started.find_element("tag name", "header").text.split())
    own = started.find_elements("css selector", "#mixers input[value=Mine]")
    assert len(own) == 1
    click(started, "#mixers input[value=Mine]")
    assert column(started, "accuracy-paper-s4", "mixer")[0] == "tnn"
    click(started, "#mixers input[value=Mine]")
    choose(started, "reference", "tnn")
    assert column(started, "accuracy-paper-s4", "listops")[0] == "-1.00"
    open_tab(started, "runs")
    assert shown(started, ".run .yours") == 2
    assert [line for line in started.get_log("browser") if line["level"] in ERRORS] == []


def test_columns_are_sorted_by_numbers_with_baselines_last(browser: Any) -> None:
    table = "accuracy-budget-s4"
    before = column(browser, table, "mixer")
    trivial = [name for name in before if name.startswith("trivial baseline")]
    mixers = sorted(name for name in before if name not in trivial)
    for down in (True, False):
        click_head(browser, table, "listops")
        texts = column(browser, table, "listops")[: len(before) - len(trivial)]
        numbers = [float(text.split()[0]) for text in texts if text != "-"]
        assert numbers == sorted(numbers, reverse=down)
        assert texts[len(numbers) :] == ["-"] * (len(texts) - len(numbers))
        assert set(column(browser, table, "mixer")[-len(trivial) :]) == set(trivial)
    for first in (mixers[0], mixers[-1]):
        click_head(browser, table, "mixer")
        assert column(browser, table, "mixer")[0] == first


def test_a_number_leads_to_its_run(browser: Any) -> None:
    link = browser.find_element("css selector", "#accuracy-budget-s4 ~ .scroll tbody a")
    anchor = link.get_attribute("href").partition("#")[2]
    link.click()
    command = browser.find_element("css selector", "dialog[open] pre").text
    assert command.startswith("python run_task.py")
    browser.execute_script(f"location.hash = '{anchor}'")
    browser.implicitly_wait(5)
    run = browser.find_element("css selector", f"#{anchor}[open]")
    assert 0 <= run.rect["y"] - browser.execute_script("return scrollY") < 300
    assert run.find_element("css selector", "pre").text == command


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
    open_tab(browser, "benchmarks")
    assert shown(browser, "details.fold") > 10
    assert shown(browser, "details.fold .item") == 0
    browser.execute_script("location.hash = 'against-reference'")
    browser.implicitly_wait(5)
    assert browser.find_element("css selector", "details.fold[open] #against-reference")
    assert shown(browser, "details.fold .item") == 1


def test_searching_shows_what_has_all_words(browser: Any) -> None:
    open_tab(browser, "benchmarks")
    tables = int(search(browser, "bucketing interleaved").partition(" ")[0])
    assert shown(browser, "details.fold .item") == tables > 0, "folds open where they have it"
    badge = browser.find_element("id", "tab-benchmarks").get_attribute("data-found")
    assert int(badge) == tables
    search(browser, "x\b")
    assert shown(browser, "details.fold[open]") == 0
    open_tab(browser, "preset-budget")
    everything, rows = shown(browser, ".item"), shown(browser, "tbody tr")
    found = search(browser, "Transformer BUDGET")
    names = column(browser, "accuracy-budget-s4", "mixer")
    assert names[0] == "transformer"
    assert all(name.startswith("transformer") for name in names)
    open_tab(browser, "runs")
    runs = browser.execute_script(
        """
        return [...document.querySelectorAll("details.run summary")]
          .filter((run) => run.checkVisibility()).map((run) => run.textContent);
        """
    )
    assert re.search(rf", {len(runs)} runs?$", found)
    assert all(re.search(r"/ transformer(: [^/]+)? / budget /", run) for run in runs)
    assert len(runs) > 0
    assert search(browser, "nowhere to be found") == "0 tables, 0 figures, 0 runs"
    assert shown(browser, ".item") == 0
    browser.execute_script("location.hash = 'confusions-image-quick-s4'")
    browser.implicitly_wait(5)
    assert browser.find_element("css selector", "#confusions-image-quick-s4:not([hidden])")
    assert browser.find_element("id", "search").get_attribute("value") == "", "out of the search"
    open_tab(browser, "preset-budget")
    assert (shown(browser, ".item"), shown(browser, "tbody tr")) == (everything, rows)


def test_the_page_is_no_wider_than_the_window(browser: Any) -> None:
    for _ in open_all_tabs(browser):
        for opened, width in itertools.product((False, True), (400, 1400)):
            browser.execute_script(
                "for (const one of document.querySelectorAll('details')) one.open = arguments[0]",
                opened,
            )
            set_width(browser, width)
            assert browser.execute_script("return document.documentElement.scrollWidth") <= width
            outside = browser.execute_script(
                """
                const shown = "body :not([hidden], [hidden] *, .scroll *, .plot *)";
                return [...document.querySelectorAll(shown)]
                  .filter((e) => e.getBoundingClientRect().right > innerWidth + 1)
                  .map((e) => e.outerHTML.slice(0, 80));
                """
            )
            assert outside == []


def test_the_list_of_runs_behind_a_number_fits_a_phone(browser: Any) -> None:
    set_width(browser, 400)
    click(browser, "#accuracy-budget-s4 ~ .scroll tbody a")
    box = browser.find_element("css selector", "dialog[open]").rect
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 400
