"""The report in a browser: no errors, charts with points, a replay that follows slider and keys, at two widths."""

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from hopplus.cli.main import main

BROWSER = next((found for name in ("chromium", "google-chrome", "chrome") if (found := shutil.which(name))), None)
pytestmark = [pytest.mark.slow, pytest.mark.skipif(BROWSER is None, reason="there is no Chromium on this machine")]
SWITCHES = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
    " --disable-component-update --disable-sync --enable-logging=stderr --virtual-time-budget=15000"
)
TINY = ("--steps", "300", "--environments", "4", "--rollout-steps", "16", "--hidden", "8", "--moa-hidden", "8")
ACTS = """
<pre id="found"></pre>
<script>
addEventListener("load", () => setTimeout(() => {
  const replay = document.querySelector(".replay"), slider = replay.querySelector("input[type=range]");
  const board = () => replay.querySelector(".board").innerHTML;
  const press = (key) => replay.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
  const steps = [["first", () => {}], ["right", () => press("ArrowRight")], ["left", () => press("ArrowLeft")],
    ["end", () => press("End")], ["home", () => press("Home")],
    ["slider", () => { slider.value = 2; slider.dispatchEvent(new Event("input")); }]];
  const shown = steps.map(([name, act]) => { act(); return [name, board(), Number(slider.value)]; });
  const found = {
    shown, max: Number(slider.max),
    points: document.querySelectorAll(".js-plotly-plot .scatterlayer .point").length,
    charts: document.querySelectorAll(".js-plotly-plot").length,
    bars: replay.querySelectorAll(".bar").length,
    wide: document.documentElement.scrollWidth, window: innerWidth,
    unnamed: [...document.querySelectorAll("button, select, input")].filter(
      (one) => !(one.getAttribute("aria-label") || one.textContent.trim())).length,
  };
  document.getElementById("found").textContent = JSON.stringify(found);
}, 3000));
</script>
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a small HOP+."""
    run = tmp_path_factory.mktemp("runs") / "small"
    words = ["train", "hopplus", "--game", "msh-4x4-4h1s", *TINY, "--moa-batches", "2", "--out", str(run)]
    assert main(words) == 0
    assert main(["report", str(run)]) == 0
    return run / "report.html"


@pytest.mark.parametrize("width", [1280, 390])
def test_the_report_works_in_a_browser(page: Path, tmp_path: Path, width: int) -> None:
    acting = tmp_path / "acting.html"
    acting.write_text(page.read_text(encoding="utf-8").replace("</body>", ACTS + "</body>"), encoding="utf-8")
    command = [
        BROWSER or "",
        *SWITCHES.split(),
        f"--user-data-dir={tmp_path / 'profile'}",
        f"--window-size={width},2000",
    ]
    done = subprocess.run([*command, "--dump-dom", acting.as_uri()], capture_output=True, text=True, timeout=180)
    errors = [line for line in done.stderr.splitlines() if "CONSOLE" in line and "acting.html" in line]
    assert not errors
    written = re.search(r'<pre id="found">(.*?)</pre>', done.stdout, re.DOTALL)
    assert written is not None
    found: dict[str, Any] = json.loads(unescape(written[1]))
    boards = {name: board for name, board, _ in found["shown"]}
    places = {name: place for name, _, place in found["shown"]}
    assert places == {"first": 0, "right": 1, "left": 0, "end": found["max"], "home": 0, "slider": 2}
    assert boards["first"] == boards["left"] == boards["home"] != boards["end"]
    assert found["charts"] >= 3
    assert found["points"] > found["charts"]
    assert found["bars"] == 3, "one for each co-player"
    assert found["unnamed"] == 0
    assert found["wide"] <= found["window"], "the page is wider than the screen"
