"""Report in a browser: no errors, charts with points, a replay controlled by slider and keys, at two widths."""

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from hopplus.cli.main import main

BROWSER = next((path for name in ("chromium", "google-chrome", "chrome") if (path := shutil.which(name))), None)
pytestmark = [pytest.mark.slow, pytest.mark.skipif(BROWSER is None, reason="there is no Chromium on this machine")]
SWITCHES = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
    " --disable-component-update --disable-sync --enable-logging=stderr --virtual-time-budget=15000"
)
TINY = ("--steps", "300", "--num-envs", "4", "--num-steps", "16", "--hidden", "8", "--moa-hidden", "8")
SCRIPT = """
<pre id="result"></pre>
<script>
addEventListener("load", () => setTimeout(() => {
  const replay = document.querySelector(".replay"), slider = replay.querySelector("input[type=range]");
  const board = () => replay.querySelector(".board").innerHTML;
  const press = (key) => replay.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
  const steps = [["first", () => {}], ["right", () => press("ArrowRight")], ["left", () => press("ArrowLeft")],
    ["end", () => press("End")], ["home", () => press("Home")],
    ["slider", () => { slider.value = 2; slider.dispatchEvent(new Event("input")); }]];
  const shown = steps.map(([name, act]) => { act(); return [name, board(), Number(slider.value)]; });
  const result = {
    shown, max: Number(slider.max),
    points: document.querySelectorAll(".js-plotly-plot .scatterlayer .point").length,
    charts: document.querySelectorAll(".js-plotly-plot").length,
    bars: replay.querySelectorAll(".bar").length,
    wide: document.documentElement.scrollWidth, window: innerWidth,
    unnamed: [...document.querySelectorAll("button, select, input")].filter(
      (element) => !(element.getAttribute("aria-label") || element.textContent.trim())).length,
  };
  document.getElementById("result").textContent = JSON.stringify(result);
}, 3000));
</script>
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Writes the report of a small HOP+ run."""
    run = tmp_path_factory.mktemp("runs") / "small"
    argv = ["train", "hopplus", "--game", "msh-4x4-4h1s", *TINY, "--moa-batches", "2", "--out", str(run)]
    assert main(argv) == 0
    assert main(["report", str(run)]) == 0
    return run / "report.html"


@pytest.mark.parametrize("width", [1280, 390])
def test_the_report_works_in_a_browser(page: Path, tmp_path: Path, width: int) -> None:
    acting = tmp_path / "acting.html"
    acting.write_text(page.read_text(encoding="utf-8").replace("</body>", SCRIPT + "</body>"), encoding="utf-8")
    command = [
        BROWSER or "",
        *SWITCHES.split(),
        f"--user-data-dir={tmp_path / 'profile'}",
        f"--window-size={width},2000",
    ]
    process = subprocess.run([*command, "--dump-dom", acting.as_uri()], capture_output=True, text=True, timeout=180)
    errors = [line for line in process.stderr.splitlines() if "CONSOLE" in line and "acting.html" in line]
    assert not errors
    element = re.search(r'<pre id="result">(.*?)</pre>', process.stdout, re.DOTALL)
    assert element is not None
    result: dict[str, Any] = json.loads(unescape(element[1]))
    boards = {name: board for name, board, _ in result["shown"]}
    steps = {name: step for name, _, step in result["shown"]}
    assert steps == {"first": 0, "right": 1, "left": 0, "end": result["max"], "home": 0, "slider": 2}
    assert boards["first"] == boards["left"] == boards["home"] != boards["end"]
    assert result["charts"] >= 3
    assert result["points"] > result["charts"]
    assert result["bars"] == 3, "one for each co-player"
    assert result["unnamed"] == 0
    assert result["wide"] <= result["window"], "the page is wider than the screen"
