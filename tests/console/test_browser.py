"""The console as people use it: a real browser, a real platform, real jobs."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select, WebDriverWait

from trainshed.client.results import Job

pytestmark = pytest.mark.slow

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1280,900",
    "--lang=en",
)
SCRIPT = """
import os, sys, time
print("\\x1b[32mINFO\\x1b[0m <script>document.title = 'owned'</script> 你好", flush=True)
for step in range(int(os.environ.get("STEPS", "40"))):
    print(f"step: {step} loss: {2 / (step + 1):.4f}", flush=True)
    # A first attempt that is to be killed lasts until then, on a busy machine as well.
    time.sleep(float(os.environ.get("PAUSE", "0")) if os.environ["TRAINSHED_ATTEMPT"] == "1" else 0)
for part in range(0, int(os.environ.get("BARS", "101")), 20):
    sys.stdout.write(f"\\rbar {part}%")
print("\\nthe end", flush=True)
"""


@pytest.fixture(scope="module")
def chrome(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    """A browser with an empty profile."""
    options = webdriver.ChromeOptions()
    for flag in FLAGS:
        options.add_argument(flag)
    options.add_argument(f"--user-data-dir={tmp_path_factory.mktemp('profile')}")
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), "")
    options.binary_location = program
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    # The driver is named: selenium must not look for one elsewhere.
    driver = webdriver.Chrome(
        options=options, service=Service(shutil.which("chromedriver") or "chromedriver")
    )
    driver.set_page_load_timeout(110)
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A code folder with one script that needs no package."""
    folder = tmp_path_factory.mktemp("code")
    (folder / "train.py").write_text(SCRIPT)
    return folder


@pytest.fixture(scope="module")
def signed_in(chrome: webdriver.Chrome, platform_up: Any) -> webdriver.Chrome:
    """The browser, signed in by a login link."""
    result = platform_up.cli("login-link")
    address = next(word for word in result.stdout.split() if "/login?code=" in word)
    chrome.get(address)
    chrome.find_element(By.ID, "sign-in").click()
    wait(chrome, lambda: chrome.current_url.endswith("/jobs"), "the list of jobs")
    return chrome


@pytest.fixture
def submit(platform_up: Any, code: Path) -> Iterator[Callable[..., Job]]:
    """Submits jobs; what still runs at the end of a test is stopped."""
    with platform_up.client() as client:
        made: list[str] = []

        def submit(name: str, restarts: int = 0, **environment: str) -> Job:
            job: Job = client.run(
                name=name, code=str(code), boot="train.py", environment=environment, restarts=restarts
            )
            made.append(job.id)
            return job

        yield submit
        for job_id in made:
            if not client.get(job_id).is_ended:
                client.stop(job_id)
                client.wait(job_id, timeout=120)


def wait(chrome: webdriver.Chrome, claim: Callable[[], Any], what: str, seconds: float = 80) -> Any:
    """Wait until the page is as claimed; an element that is replaced at this very moment is looked for again."""
    patient = WebDriverWait(chrome, seconds, 0.1, [StaleElementReferenceException, NoSuchElementException])
    return patient.until(lambda _: claim(), what)


def text_of(chrome: webdriver.Chrome, selector: str) -> str:
    """What an element says; read by script, since it may be replaced at any moment."""
    text = chrome.execute_script("return document.querySelector(arguments[0])?.textContent ?? ''", selector)
    return " ".join(text.split())


def log_lines(chrome: webdriver.Chrome) -> list[str]:
    """The lines of the live log."""
    lines: list[str] = chrome.execute_script(
        "return [...document.querySelectorAll('#log > div')].map((line) => line.textContent)"
    )
    return lines


def complaints(chrome: webdriver.Chrome) -> list[str]:
    """What the browser complained about: refused scripts and styles, failed requests."""
    return [entry["message"] for entry in chrome.get_log("browser") if entry["level"] == "SEVERE"]


def test_from_the_login_link_to_the_curve(
    signed_in: webdriver.Chrome, platform_up: Any, submit: Callable[..., Job]
) -> None:
    chrome = signed_in
    assert chrome.get_cookie("trainshed_session")["httpOnly"]
    complaints(chrome)
    job = submit("curve")
    # The list refreshes by itself.
    wait(chrome, lambda: "curve" in text_of(chrome, "table.jobs"), "the job in the list")
    wait(chrome, lambda: "Completed" in text_of(chrome, "table.jobs"), "the job's end in the list")
    # The list refreshes itself: the link may be replaced between the look and the click.
    wait(chrome, lambda: chrome.find_element(By.ID, f"job-{job.id}").click() or True, "the job's row")
    wait(chrome, lambda: "the end" in log_lines(chrome), "the log")
    lines = log_lines(chrome)
    assert lines[0] == "INFO <script>document.title = 'owned'</script> 你好"
    assert lines[-2:] == ["bar 100%", "the end"]
    assert text_of(chrome, "#log .ansi-2") == "INFO"
    wait(chrome, lambda: "job Completed" in text_of(chrome, "#log-end"), "why the log ended")
    wait(chrome, lambda: chrome.find_elements(By.CSS_SELECTOR, "#metrics .chart canvas"), "the curve")
    count_blue = """const canvas = document.querySelector("#metrics .chart canvas");
        const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
        let count = 0;
        for (let i = 0; i < pixels.length; i += 4) {
          if (pixels[i + 3] > 200 && pixels[i + 2] - pixels[i] > 80) count += 1;  // the blue line
        }
        return count;"""
    # The canvas is there a moment before what is drawn on it.
    wait(chrome, lambda: chrome.execute_script(count_blue) > 100, "the curve's line")
    assert text_of(chrome, "#metrics .chart-name") == "loss" and text_of(chrome, "#metrics output") == "0.05"
    assert chrome.title == "curve · Trainshed"
    # The other log, then the other language.
    Select(chrome.find_element(By.ID, "log-stream")).select_by_value("platform")
    wait(chrome, lambda: "completed" in text_of(chrome, "#log"), "the platform's log")
    chrome.find_element(By.CSS_SELECTOR, ".languages [lang=zh]").click()
    wait(chrome, lambda: "已完成" in text_of(chrome, "#live"), "the page in Chinese")
    chrome.find_element(By.CSS_SELECTOR, ".languages [lang=en]").click()
    wait(chrome, lambda: "Completed" in text_of(chrome, "#live"), "the page in English")
    assert not complaints(chrome)


def test_the_log_goes_on_when_the_api_dies(
    signed_in: webdriver.Chrome, platform_up: Any, submit: Callable[..., Job]
) -> None:
    chrome = signed_in
    job = submit("survivor", STEPS="60", PAUSE="0.15")
    chrome.get(f"{platform_up.url}/jobs/{job.id}")
    wait(chrome, lambda: len(log_lines(chrome)) > 5, "the first lines")
    os.kill(platform_up.pids()["api"], signal.SIGKILL)
    wait(chrome, lambda: "the end" in log_lines(chrome), "the last line")
    steps = [line.split()[1] for line in log_lines(chrome) if line.startswith("step:")]
    assert steps == [str(number) for number in range(60)]
    wait(chrome, lambda: "Completed" in text_of(chrome, "#live"), "the end of the job, without a reload")


def test_stop_from_the_page(
    signed_in: webdriver.Chrome, platform_up: Any, submit: Callable[..., Job]
) -> None:
    chrome = signed_in
    job = submit("endless", STEPS="3000", PAUSE="0.2")
    chrome.get(f"{platform_up.url}/jobs/{job.id}")
    # The page was opened before the job trained: it finds the log by itself.
    wait(chrome, lambda: len(log_lines(chrome)) > 3, "the first lines")
    chrome.execute_script("document.getElementById('stop').click()")
    wait(chrome, lambda: chrome.find_element(By.ID, "do-stop").is_displayed(), "the question")
    chrome.find_element(By.ID, "do-stop").click()
    wait(chrome, lambda: "Terminated" in text_of(chrome, "#live"), "the end of the job")
    assert "Stopped in the console by admin." in text_of(chrome, "#live")


def test_a_large_log_shows_its_end(
    signed_in: webdriver.Chrome, platform_up: Any, submit: Callable[..., Job]
) -> None:
    chrome = signed_in
    job = submit("large", STEPS="60000")
    with platform_up.client() as client:
        assert client.wait(job.id, timeout=180).succeeded
    chrome.get(f"{platform_up.url}/jobs/{job.id}")
    wait(chrome, lambda: "the end" in log_lines(chrome)[-1:], "the end of the log")
    lines = log_lines(chrome)
    assert lines[0] == "Earlier lines are in the download."
    assert 4000 < len(lines) <= 5001
    assert lines[-3] == f"step: 59999 loss: {2 / 60000:.4f}"


def test_a_bar_without_line_breaks_is_one_line(
    signed_in: webdriver.Chrome, platform_up: Any, submit: Callable[..., Job]
) -> None:
    chrome = signed_in
    job = submit("bars", BARS="1500000")
    with platform_up.client() as client:
        assert client.wait(job.id, timeout=180).succeeded
        assert client.log_streams(job.id)[0].size > 600_000
    chrome.get(f"{platform_up.url}/jobs/{job.id}")
    wait(chrome, lambda: "the end" in log_lines(chrome), "the end of the log")
    assert log_lines(chrome) == ["Earlier lines are in the download.", "bar 1499980%", "the end"]


def test_a_new_attempt_takes_over_the_page(
    signed_in: webdriver.Chrome, platform_up: Any, submit: Callable[..., Job]
) -> None:
    chrome = signed_in
    job = submit("restarted", restarts=1, STEPS="60", PAUSE="0.5")
    chrome.get(f"{platform_up.url}/jobs/{job.id}")
    wait(chrome, lambda: len(log_lines(chrome)) > 8, "lines of the first attempt")
    status = json.loads(platform_up.home.run_folder(job.id, 1, 0).status.read_bytes())
    os.kill(status["pid"], signal.SIGKILL)
    wait(chrome, lambda: chrome.find_element(By.ID, "live").get_attribute("data-attempt") == "2", "attempt 2")
    wait(chrome, lambda: "the end" in log_lines(chrome), "the end of the second attempt")
    steps = [line.split()[1] for line in log_lines(chrome) if line.startswith("step:")]
    assert steps == [str(number) for number in range(60)]


def test_text_of_logs_becomes_lines(signed_in: webdriver.Chrome) -> None:
    """Colours, bars and odd characters, without a server."""

    def paint(text: str) -> str:
        html: str = signed_in.execute_script(
            "const line = document.createElement('div'); new LogText.Painter('(cut)').paint(line, arguments[0]);"
            "return line.innerHTML",
            text,
        )
        return html

    assert paint("a <b>&") == "a &lt;b&gt;&amp;"
    assert paint("10%\r20%\r30%") == "30%"
    assert paint("done\r") == "done"
    assert paint("\x1b[1;31mred\x1b[0m plain") == '<span class="ansi-1 ansi-bold">red</span> plain'
    assert paint("\x1b[38;5;4mblue\x1b[39m \x1b[38;2;1;2;3mother") == '<span class="ansi-4">blue</span> other'
    assert paint("\x1b]0;title\x07text\x1b[2K\x1b[?25l!") == "text!"
    assert paint("nul\x00 bell\x07 tab\t.") == "nul␀ bell␇ tab\t."
    assert paint("\x1b[31") == "␛[31"
    assert paint("x" * 9000) == "x" * 8000 + '<span class="log-note">(cut)</span>'
