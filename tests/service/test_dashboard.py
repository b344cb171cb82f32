"""The dashboard in a real browser (Debian's Chromium, without a window)."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from services import Serving, serving
from waiting import until

from dovetail.client.connection import Connection, open_connection

selenium = pytest.importorskip("selenium", reason="needs selenium")
from selenium import webdriver  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")

pytestmark = [
    pytest.mark.live,
    pytest.mark.xdist_group("live"),
    pytest.mark.timeout(240),
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="needs Debian's chromium and chromium-driver"),
]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("dashboard")) as found:
        yield found


@pytest.fixture(scope="module")
def api(service: Serving) -> Iterator[Connection]:
    with open_connection(service.folder.path) as found:
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM or ""
    for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(word)
    options.add_argument("--window-size=1280,900")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    found = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield found
    found.quit()


@pytest.fixture
def page(browser: Any, api: Connection) -> Any:
    """The dashboard, let in by a one-time address."""
    browser.get(api.post("/api/v1/dashboard", {})["url"])
    until(lambda: browser.find_elements(By.CSS_SELECTOR, ".figures li"))
    return browser


def submit(service: Serving, *arguments: str) -> str:
    done = service.dovetail("submit", "--json", *arguments)
    assert done.returncode == 0, done.stderr
    return str(json.loads(done.stdout)["id"])


def selected(page: Any) -> Any:
    return page.execute_script("return document.querySelector('tr[aria-selected=true]')?.dataset.id")


def text(page: Any, job: str) -> str:
    """What stands in a job's row; rows are made anew at every change."""
    script = "return document.querySelector(`tr[data-id='${arguments[0]}']`)?.innerText ?? ''"
    return str(page.execute_script(script, job))


def within(page: Any, selector: str) -> str:
    """The text of an element that is made anew at every change."""
    return str(page.execute_script("return document.querySelector(arguments[0])?.innerText ?? ''", selector))


def end(service: Serving, *jobs: str) -> None:
    service.dovetail("cancel", *jobs)
    service.dovetail("wait", *jobs)


def test_an_address_lets_in_once(browser: Any, api: Connection) -> None:
    browser.delete_all_cookies()
    url = api.post("/api/v1/dashboard", {})["url"]
    browser.get(url)
    until(lambda: browser.find_elements(By.CSS_SELECTOR, ".figures li"))
    (cookie,) = browser.get_cookies()
    assert cookie["httpOnly"]
    assert cookie["sameSite"] == "Strict"
    browser.delete_all_cookies()
    browser.get(url)
    assert browser.find_elements(By.ID, "token"), "the page that asks for a token"
    browser.get(url.partition("/login")[0] + "/")
    assert browser.find_elements(By.ID, "token")


def test_pages_that_were_left_keep_no_connection(browser: Any, api: Connection) -> None:
    for _ in range(7):  # a browser opens six to a host
        browser.get(api.post("/api/v1/dashboard", {})["url"])
        until(lambda: browser.find_elements(By.CSS_SELECTOR, ".figures li"))


def test_changes_are_pushed_and_markup_is_text(page: Any, service: Serving) -> None:
    job = submit(service, "-J", "<img src=x onerror=alert(1)>", "--", "sleep", "30")
    try:
        until(lambda: "RUNNING" in text(page, job))
        assert "<img src=x" in text(page, job)
        assert not page.find_elements(By.CSS_SELECTOR, "main img")
        bar = until(lambda: page.find_elements(By.CSS_SELECTOR, f'rect.job[data-job="{job}"]'))
        assert "RUNNING" in bar[0].get_attribute("class")
    finally:
        end(service, job)
    until(lambda: not text(page, job))


def test_the_keyboard_cancels_holds_and_releases(page: Any, service: Serving) -> None:
    cores = len(
        page.execute_script("return [...document.querySelectorAll('.figures b')].map(b => b.innerText)")
    )
    assert cores
    running = [submit(service, "-c", "all", "--", "sleep", "60")]
    waiting = submit(service, "-J", "waits", "--", "true")
    try:
        until(lambda: "PENDING" in text(page, waiting))
        body = page.find_element(By.TAG_NAME, "body")
        body.send_keys("j")
        until(lambda: selected(page) == running[0])
        body.send_keys("j")
        until(lambda: selected(page) == waiting)
        body.send_keys("h")
        until(lambda: "HELD" in text(page, waiting))
        body.send_keys("h")
        until(lambda: "PENDING" in text(page, waiting))
        body.send_keys("c")
        until(lambda: page.find_element(By.ID, "ask").get_attribute("open"))
        page.find_element(By.ID, "ask-yes").send_keys(Keys.ENTER)
        until(lambda: not text(page, waiting))
        assert "CANCELLED" in service.dovetail("queue", "--json", waiting).stdout
    finally:
        end(service, *running)


def test_a_jobs_page_follows_its_log(page: Any, service: Serving) -> None:
    script = (
        "import time\nfor i in range(4):\n  print('line', i, flush=True)\n  time.sleep(0.4)\n"
        "raise SystemExit(3)"
    )
    job = submit(service, "-J", "talks", "--", "python3", "-c", script)
    page.get(page.current_url.partition("#")[0] + f"#/job/{job}")
    until(lambda: "line 3" in within(page, "#log"))
    until(lambda: "FAILED" in within(page, "dl.about"))
    assert page.find_elements(By.CSS_SELECTOR, 'table[aria-label="Ways to run it"] tbody tr')
    page.find_element(By.TAG_NAME, "body").send_keys(Keys.ESCAPE)
    until(lambda: page.current_url.endswith("#/"))


def test_ended_jobs_and_apps(page: Any, service: Serving) -> None:
    job = submit(service, "-J", "short", "--", "sleep", "0.1")
    service.dovetail("wait", job)
    body = page.find_element(By.TAG_NAME, "body")
    body.send_keys("g", "e")
    until(lambda: "COMPLETED" in text(page, job))
    page.find_element(By.ID, "filter").send_keys("no such name")
    until(lambda: not text(page, job))
    page.find_element(By.ID, "filter").send_keys(Keys.ESCAPE)
    body.send_keys("g", "a")
    until(lambda: "sleep" in within(page, "#page"))


CHART = """
const [done] = [arguments[arguments.length - 1]];
import(new URL("gantt.js", document.querySelector("script[type=module]").src)).then(({ gantt }) => {
  const job = (id, state, start, end) => ({ id: String(id), name: `train-resnet_seed${id}`, state, start, end,
    cores: { n0: [0] }, devices: [] });
  const jobs = Array.from({ length: 4000 }, (_, i) => job(i + 10, "COMPLETED", i / 4, (i + 1) / 4));
  jobs.splice(2000, 0, job(5, "FAILED", 500, 500.1));
  jobs.push(job(7, "COMPLETED", 1000, 1200));
  const waiting = [3, 4].map((id) => ({ ...job(id, "PENDING", null, null), predicted_start: 1200 + 100 * id,
    predicted_end: 1300 + 100 * id }));
  const nodes = [{ name: "n0", cpus: 1, cores: [0], devices: [], state: "up" }];
  const chart = gantt({ nodes, jobs, waiting, from: 0, to: 1800, now: 1200, width: 1000, open: () => {} });
  const rects = [...chart.querySelectorAll("rect.job")]
    .map((one) => [one.dataset.job, Number(one.getAttribute("width"))]);
  const texts = (kind) => [...chart.querySelectorAll(kind)].map((one) => one.textContent);
  done([rects.at(-1), rects.length, texts("text.label"), texts("text.coming")]);
});
"""


def test_of_thousands_of_bars_the_failed_one_is_above_and_labels_tell_jobs_apart(page: Any) -> None:
    (last, width), bars, labels, coming = page.execute_async_script(CHART)
    assert (last, bars) == ("5", 3001)
    assert width >= 4
    assert coming == ["seed3", "seed4"]
    assert labels == []  # of three thousand none is wide enough


def test_a_failed_job_among_thousands_and_forecasts_are_seen(page: Any, service: Serving) -> None:
    bad = submit(service, "-J", "broken-one", "--", "false")
    service.dovetail("wait", bad)
    many = [f"run-of-the-mill_{i}" for i in range(2)]
    ended = submit(service, "-J", many[0], "--", "sleep", "0.1")
    service.dovetail("wait", ended)
    page.get(page.current_url.partition("#")[0] + "#/")
    holds = submit(service, "-c", "all", "-J", many[0], "--", "sleep", "60")
    waits = submit(service, "-c", "all", "-J", many[1], "--", "sleep", "60")
    try:
        until(lambda: page.find_elements(By.CSS_SELECTOR, f'rect.forecast[data-forecast="{waits}"]'))
        until(lambda: "did not complete" in within(page, ".figures .wrong"))
        bars = page.execute_script(
            "return [...document.querySelectorAll('rect.job[data-job]')]"
            ".map(r => [r.dataset.job, r.width.baseVal.value])"
        )
        above = dict(bars[-2:])  # another test has cancelled one
        assert above[bad] >= 4  # above all others
        page.set_window_size(500, 900)
        narrow = {"width": 420, "height": 740, "deviceScaleFactor": 1, "mobile": True}
        page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", narrow)
        row = f"return document.querySelector(`tr[data-id='{holds}']`)?.getBoundingClientRect().bottom ?? 1e9"
        assert page.execute_script(row) < 740, "the queue is on the first screen"
        assert page.execute_script("return document.documentElement.scrollWidth") <= 421
    finally:
        page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        page.set_window_size(1280, 900)
        end(service, holds, waits)
    page.execute_script("document.querySelector('.figures .wrong a').click()")  # made anew at every change
    until(lambda: "FAILED" in text(page, bad))
    assert not text(page, ended)  # only those that did not complete


def test_light_dark_narrow_and_quiet(page: Any, tmp_path: Path) -> None:
    page.get(page.current_url.partition("#")[0] + "#/")

    def ground(scheme: str) -> str:
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        return str(page.execute_script("return getComputedStyle(document.body).backgroundColor"))

    assert ground("light") == "rgb(255, 255, 255)"
    assert ground("dark") == "rgb(22, 23, 26)"
    try:
        page.set_window_size(500, 900)  # Chromium's least
        page.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": True},
        )
        wide = page.execute_script("return document.documentElement.scrollWidth")
        assert wide <= 361, "only tables and charts scroll sideways"
    finally:
        page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        page.set_window_size(1280, 900)
    script = "return performance.getEntriesByType('resource').map(e => e.name)"
    until(lambda: not page.execute_script("return document.readyState !== 'complete'"))
    time.sleep(1.5)
    before = page.execute_script(script)
    time.sleep(3.0)
    assert page.execute_script(script) == before, "nothing is asked while nothing changes"
    origin = page.execute_script("return location.origin")
    assert all(name.startswith(origin) for name in before)
    wrong = [line for line in page.get_log("browser") if line["level"] == "SEVERE"]
    assert [line for line in wrong if "401" not in line["message"] and "403" not in line["message"]] == []


def test_a_page_elsewhere_and_another_name_are_refused(page: Any, api: Connection) -> None:
    origin = page.execute_script("return location.origin")
    (cookie,) = page.get_cookies()
    for headers in ({"Origin": "http://evil.example"}, {"Host": "evil.example"}):
        request = Request(
            f"{origin}/api/v1/info", headers={"Cookie": f"dovetail={cookie['value']}", **headers}
        )
        with pytest.raises(OSError, match="403"):
            urlopen(request, timeout=10)
