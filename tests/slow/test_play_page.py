"""Page of `hopplus serve` in a browser: keyboard control, two widths, two windows."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from browser import BROWSER, Visitor, browser, decide, key_of
from hopplus.benchmarks.play import server
from hopplus.cli.main import main

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page  # pyright: ignore[reportMissingImports]

pytestmark = [pytest.mark.slow, pytest.mark.skipif(BROWSER is None, reason="there is no Chromium on this machine")]
GAME = "msh-4x4-4h1s"
CAST = ("you", "hopplus:planner=rollouts", "nh", "nh")
SIZES = {"wide": (1280, 900), "narrow": (390, 800)}
TRAINING = (
    "--num-envs",
    "4",
    "--num-steps",
    "16",
    "--hidden",
    "8",
    "--iterations-per-call",
    "1",
    "--checkpoint-seconds",
    "5",
)


@pytest.fixture(scope="module")
def chromium() -> "Iterator[Browser]":
    pytest.importorskip("playwright")
    with browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("served")
    argv = ["train", "ppo", "--steps", "600", "--game", GAME, *TRAINING]
    for name in ("one", "two"):
        assert main([*argv, "--out", str(directory / name)]) == 0
    return directory


@pytest.fixture(scope="module")
def address(runs: Path) -> Iterator[str]:
    with server(runs) as url:
        yield url


@pytest.fixture(params=list(SIZES))
def visitor(chromium: "Browser", address: str, request: pytest.FixtureRequest) -> Iterator[Visitor]:
    width, height = SIZES[request.param]
    page = chromium.new_page(viewport={"width": width, "height": height})
    visitor = Visitor(page, address)
    yield visitor
    assert fits(page), "the page is wider than the screen"
    assert unnamed(page) == []
    page.close()
    assert visitor.errors == []


def fits(page: "Page") -> bool:
    return page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def unnamed(page: "Page") -> list[str]:
    """Returns the controls without a name for screen readers."""
    return page.evaluate(
        """() => [...document.querySelectorAll("button, select, input, a, [role=img]")].filter((element) => !(
          element.getAttribute("aria-label") || element.textContent.trim() || (element.labels && element.labels.length)
        )).map((element) => element.outerHTML.slice(0, 200))"""
    )


def test_a_whole_session_with_the_keyboard_and_its_review(visitor: Visitor) -> None:
    visitor.start_session(GAME, CAST, episodes=3)
    for number in range(3):
        visitor.press("Space")
        assert "you STAY" in visitor.status(), f"episode {number + 1}: space stays, wherever the focus is"
        visitor.play_episode("hare")
    review = visitor.review()
    page = visitor.page
    assert page.locator(".strip").count() >= 1
    assert "hare" in (
        page.locator("text=Beliefs about you").locator("xpath=following-sibling::div[1]").text_content() or ""
    )
    assert len(review["episodes"]) == 3
    assert page.get_by_role("heading", name="Plan changes").count() == 1
    assert (page.locator(".replay .plan p").first.text_content() or "").startswith("plan: ")
    replay = page.locator(".replay")
    replay.focus()
    before = page.locator(".replay .board svg").get_attribute("aria-label")
    page.keyboard.press("ArrowRight")
    assert page.locator(".replay .board svg").get_attribute("aria-label") != before
    assert re.search("You did (UP|DOWN|LEFT|RIGHT|STAY|HARE|STAG):", page.locator(".notice").last.text_content() or "")
    page.locator(".strip button.first").nth(1).click()
    assert page.locator(".replay select").first.input_value() == "1", "the second episode"


def test_the_page_works_with_tab_and_enter_alone(visitor: Visitor) -> None:
    page = visitor.page
    page.goto(f"{visitor.address}/play?game={GAME}&cast=you,nh,nh,nh&episodes=1")
    page.wait_for_selector("#co-player-0")
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == "Start session":
            break
    page.keyboard.press("Enter")
    page.wait_for_selector(".board svg")
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.dataset.action"):
            break
    before = visitor.status()
    page.keyboard.press("Enter")
    page.wait_for_function("before => document.querySelector('.game [role=status]').textContent !== before", arg=before)
    assert page.evaluate("document.activeElement.dataset.action"), "the focus is still on an action"


def test_the_table_of_runs_sorts_filters_and_compares(visitor: Visitor) -> None:
    page = visitor.page
    page.goto(visitor.address)
    page.wait_for_selector(".runs tbody tr")
    page.get_by_role("button", name="run", exact=True).click()
    names = page.locator(".runs tbody td:nth-child(2)").all_text_contents()
    assert names == sorted(names)
    assert page.locator("th[aria-sort=ascending]").count() == 1
    page.get_by_label("Filter").fill("two ppo")
    assert page.locator(".runs tbody tr").count() == 1
    page.get_by_label("Filter").fill("")
    for name in ("one", "two"):
        page.get_by_label(f"Compare {name}").check()
    with page.expect_popup() as popup:
        page.get_by_role("button", name="Compare 2").click()
    popup.value.wait_for_selector("text=Side by side", timeout=120_000)
    popup.value.close()


def test_an_illegal_key_a_double_click_and_a_reload_do_no_harm(visitor: Visitor) -> None:
    visitor.start_session(GAME, ("nh", "you", "nh", "nh"), episodes=1)
    page = visitor.page
    page.keyboard.press("s")
    page.wait_for_function("() => document.querySelector('.game [role=status]').textContent.includes('not possible')")
    page.locator(".actions [data-action=STAY]").dblclick()
    page.wait_for_function("() => /step [12] of/.test(document.querySelector('.game [role=status]').textContent)")
    page.wait_for_timeout(300)
    before = visitor.description()
    page.reload()
    page.wait_for_selector(".board svg")
    assert visitor.description() == before
    assert "step 1 of" in visitor.status() or "step 2 of" in visitor.status()


def test_a_window_that_is_behind_is_updated(visitor: Visitor, chromium: "Browser") -> None:
    visitor.start_session(GAME, ("you", "nh", "nh", "nh"), episodes=1)
    other = Visitor(chromium.new_page(), visitor.address)
    other.page.goto(visitor.page.url)
    other.page.wait_for_selector(".board svg")
    visitor.press("Space")
    action = decide(other.description(), other.legal(), "hare")
    other.page.keyboard.press(key_of(action if action != "STAY" else other.legal()[0]))
    other.page.wait_for_selector("#error-message:not([hidden])")
    assert "another window" in (other.page.locator("#error-message").text_content() or "")
    assert other.description() == visitor.description()
    other.page.close()


def test_a_curve_grows_while_a_run_trains(visitor: Visitor, runs: Path, request: pytest.FixtureRequest) -> None:
    name = f"live-{request.node.callspec.id}"
    argv = ["train", "ppo", "--steps", "100000000", "--game", "msh-4x4-2h1s", *TRAINING, "--out", str(runs / name)]
    training = subprocess.Popen([sys.executable, "-m", "hopplus.cli.main", *argv], stderr=subprocess.DEVNULL)
    points = "document.querySelector('.js-plotly-plot').data[0].x.slice(-1)[0]"
    try:
        until = time.monotonic() + 120
        while not (runs / name / "metrics.jsonl").exists() and time.monotonic() < until:
            time.sleep(0.5)
        page = visitor.page
        page.goto(f"{visitor.address}/run?run={name}")
        page.wait_for_function(f"() => document.querySelector('.js-plotly-plot') && {points} > 0")
        first = page.evaluate(points)
        page.wait_for_function(f"first => {points} > first", arg=first)
        assert "training" in (page.locator(".state").text_content() or "")
    finally:
        training.send_signal(signal.SIGKILL if os.name != "nt" else signal.SIGTERM)
        training.wait()


def test_a_recorded_game_resumes_after_a_restart_of_the_server(chromium: "Browser", tmp_path: Path) -> None:
    page = chromium.new_page()
    with server(tmp_path) as first:
        visitor = Visitor(page, first)
        name = visitor.start_session(GAME, ("you", "nh", "nh", "nh"), episodes=1, record=True)
        visitor.press("Space")
        before = visitor.description()
    page.keyboard.press("Space")
    page.wait_for_selector("#error-message:not([hidden])")
    assert "does not answer" in (page.locator("#error-message").text_content() or "")
    with server(tmp_path, int(first.rsplit(":", 1)[1])):
        visitor.press("Space")
        page.reload()
        page.wait_for_selector(".board svg")
        assert visitor.description() != before
        recorded = json.loads((tmp_path / "games" / name / "game.json").read_text(encoding="utf-8"))
        assert recorded["actions"] == ["STAY", "STAY"]
    page.close()
