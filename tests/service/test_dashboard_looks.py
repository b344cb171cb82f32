"""The dashboard is legible: contrast, legend, a phone, rows first, words that explain themselves."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import pytest
from services import Serving, serving
from waiting import until

from dovetail.client.connection import open_connection

STATIC = files("dovetail.service.web") / "static"
CSS = (STATIC / "dashboard.css").read_text()
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")


# -- what the style sheet says ---------------------------------------------------------------------------


def palettes() -> dict[str, dict[str, str]]:
    """The colours of each mode by name; all of the dark one, which stands there twice, alike."""
    blocks = re.findall(r"(:root[^{]*)\{([^}]*--ink[^}]*)\}", CSS)
    found = [dict(re.findall(r"--(\w+): (#[0-9a-f]{6});", body)) for _, body in blocks]
    assert len(found) == 3
    assert found[1] == found[2], "dark by the system and dark by choice"
    assert found[0].keys() == found[1].keys()
    return {"light": found[0], "dark": found[1]}


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def contrast(one: str, other: str) -> float:
    """The ratio of WCAG 2.2, 1.4.3."""
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


TEXTS = [(ink, ground) for ink in ("ink", "muted", "accent", "failed") for ground in ("page", "raised")]
LABELS = [("label", bar) for bar in ("running", "done", "failed", "stopped")]
SHAPES = [(shape, "page") for shape in ("running", "done", "failed", "stopped", "waiting", "edge")]


def test_a_ratio_that_is_known() -> None:
    assert contrast("#ffffff", "#000000") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_texts_have_the_contrast_of_aa_and_shapes_too(mode: str) -> None:
    colours = palettes()[mode]
    for ink, ground in [*TEXTS, *LABELS]:
        assert contrast(colours[ink], colours[ground]) >= 4.5, (ink, ground)
    for shape, ground in SHAPES:
        assert contrast(colours[shape], colours[ground]) >= 3.0, (shape, ground)


def test_colours_stand_in_the_palettes_alone() -> None:
    rules = re.sub(r":root[^{]*\{[^}]*\}", "", CSS)
    assert re.findall(r"#[0-9a-f]{3,6}\b", re.sub(r"#(link|notice)", "", rules)) == []


def test_the_legend_has_every_colour_of_the_chart() -> None:
    known = re.findall(r'\["([a-zA-Z ]+)", "(?:bar|line)", "', (STATIC / "gantt.js").read_text())
    shown = {name.rpartition(" ")[2] for name in known}
    in_chart = set(re.findall(r"\.chart \.(ahead|forecast|over|now|area)\b", CSS))
    assert in_chart <= shown
    for kinds in re.findall(r"^((?:\.chart \.job\.\w+(?:, )?)+) \{", CSS, re.MULTILINE):
        assert set(re.findall(r"job\.(\w+)", kinds)) & shown, kinds


# -- in a browser ----------------------------------------------------------------------------------------

pytest.importorskip("selenium", reason="needs selenium")
from selenium import webdriver  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402

in_browser = [
    pytest.mark.live,
    pytest.mark.xdist_group("live"),
    pytest.mark.timeout(240),
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="needs Debian's chromium and chromium-driver"),
]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    root = tmp_path_factory.mktemp("looks")
    with serving(root, "--cluster", "1x2cpu") as found:
        with open_connection(found.folder.path) as api:
            jobs = [{"command": ["sleep", f"{600 + n}"], "cpus": 2, "walltime": 3600} for n in range(300)]
            api.post("/api/v1/jobs", {"jobs": jobs})
            until(lambda: api.get("/api/v1/info")["jobs"]["running"] == 1, "nothing runs")
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM or ""
    for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(word)
    found = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield found
    found.quit()


def opened(browser: Any, service: Serving) -> None:
    with open_connection(service.folder.path) as api:
        browser.get(api.post("/api/v1/dashboard", {})["url"])


def texts(browser: Any, selector: str) -> list[str]:
    """At one moment: elements are made anew at every change."""
    script = "return [...document.querySelectorAll(arguments[0])].map(e => e.innerText.trim())"
    found: list[str] = browser.execute_script(script, selector)
    return found


NEVER = """
const real = window.fetch;
const never = new Promise(() => {});
window.fetch = (path, ...more) => String(path).includes("/ended") ? never : real(path, ...more);
"""


class TestInABrowser:
    pytestmark = in_browser

    def test_three_hundred_rows_do_not_wait_for_what_has_ended(self, browser: Any, service: Serving) -> None:
        added = browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": NEVER})
        try:
            opened(browser, service)
            until(lambda: len(browser.find_elements(By.CSS_SELECTOR, "tr[data-id]")) == 100, "no rows")
            assert "300" in browser.find_element(By.ID, "list").text
        finally:
            browser.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", added)

    def test_a_page_says_that_it_waits_for_its_first_answer(self, browser: Any, service: Serving) -> None:
        silent = NEVER.replace('includes("/ended")', 'includes("api/")')
        added = browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": silent})
        try:
            opened(browser, service)
            until(lambda: "Loading…" in texts(browser, "#page > p"), "a blank page")
        finally:
            browser.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", added)
        opened(browser, service)
        until(lambda: browser.find_elements(By.CSS_SELECTOR, "tr[data-id]"), "no rows")
        assert "Loading…" not in texts(browser, "#page > p")

    def test_on_a_phone_nothing_is_clipped(self, browser: Any, service: Serving) -> None:
        phone = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
        try:
            for place in ("#/", "#/job/1", "#/ended", "#/apps"):
                opened(browser, service)
                browser.execute_script("location.hash = arguments[0]", place)
                awaited = "#charts text" if place == "#/" else "#page h2"
                until(lambda shown=awaited: browser.find_elements(By.CSS_SELECTOR, shown), place)
                script = (
                    "return [...document.querySelectorAll('td, dd, li, button, input, #charts text')]"
                    ".map(e => [e, e.getBoundingClientRect()])"
                    ".filter(([e, at]) => at.right > innerWidth + 1 || at.right > at.left && at.left < 0)"
                    ".map(([e]) => e.tagName + ' ' + e.textContent)"
                )
                assert browser.execute_script(script) == [], place
        finally:
            browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})

    def test_a_running_job_has_not_ended_and_words_explain_themselves(
        self, browser: Any, service: Serving
    ) -> None:
        opened(browser, service)
        until(lambda: browser.find_elements(By.CSS_SELECTOR, "tr[data-id='1']"), "no rows")
        assert texts(browser, "td.name")[:2] == ["sleep 600", "sleep 601"]
        told = dict(
            browser.execute_script(
                "return [...document.querySelectorAll('abbr')].map(e => [e.innerText, e.title])"
            )
        )
        for word in ("waiting", "held", "in use, mean", "Start", "Why it waits"):
            assert told[word], word
        items = texts(browser, ".legend li")
        assert items[:2] == ["runs", "completed"]
        assert len(items) == 10
        fills = browser.execute_script(
            "return [...document.querySelectorAll('.legend rect.job')].map(e => getComputedStyle(e).fill)"
        )
        assert len(set(fills)) == 4
        browser.execute_script("location.hash = '#/job/1'")
        until(lambda: browser.find_elements(By.CSS_SELECTOR, "dl.about dt"), "no job")
        terms = texts(browser, "dl.about dt")
        assert "Started" in terms
        assert "Ended" not in terms
        until(lambda: browser.find_elements(By.CSS_SELECTOR, "table[aria-label='Ways to run it'] th"), "ways")
        heads = texts(browser, "th")
        assert "90 % by" in heads
        assert "At most" not in heads

    def test_what_runs_longer_than_nine_in_ten_is_overdue(self, browser: Any, service: Serving) -> None:
        opened(browser, service)
        script = (
            "const [predicted, by, start, done] = arguments;"
            "const main = document.querySelector('script[type=module]').src;"
            "import(main.replace('main.js', 'tables.js'))"
            ".then(found => done(found.QUEUE.find(one => one[0] === 'End')[2]"
            "({start, end: null, predicted_end: predicted, predicted_end_by: by})))"
        )
        for predicted, by, start, shown in (
            (2, 3, 1, "overdue"),
            (2, 4e9, 1, "by ~ "),
            (2, None, 1, "unknown"),  # a guess
            (4e9, 4e9, 1, "~ "),
            (None, None, 1, ""),
            (2, None, None, "~ "),
        ):
            found = browser.execute_async_script(script, predicted, by, start)
            assert (found[: len(shown)] if shown.endswith("~ ") else found) == shown, predicted
