"""The documentation site: builds without warnings, fails on broken pages, and loads nothing from other hosts."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
OUTSIDE = re.compile(
    r"""<(?:script|img|iframe|source|link)\b[^>]*\b(?:src|href)\s*=\s*["'](?:https?:)?//[^"']*["'][^>]*>"""
    r"""|@import\s+(?:url\()?["']?(?:https?:)?//|url\(\s*["']?(?:https?:)?//""",
    flags=re.IGNORECASE,
)
"""Resources that a browser would load from other hosts; links for readers do not count."""

BROKEN = {
    "[nowhere](nowhere.md)": "nowhere.md",
    "[no such part](other.md#no-part)": "no-part",
    "[no such folder](nowhere/)": "nowhere/",
    "![no picture](nothing.png)": "nothing.png",
    "{py:class}`hopplus.games.Nothing`": "hopplus.games.Nothing",
    r"$\nosuchcommand{x}$": r"\nosuchcommand",
}
"""Text that must fail the build, and a fragment of the warning about it."""


def build(pages: Path, out: Path) -> subprocess.CompletedProcess[str]:
    """Build pages as `make docs` does, with the settings of the site."""
    pytest.importorskip("sphinx")
    options = ("-n", "-W", "--keep-going", "-q", "-c", str(ROOT / "docs"), "-d", str(out / "doctrees"))
    command = [sys.executable, "-m", "sphinx", *options, str(pages), str(out / "html")]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT)


def small_site(directory: Path, text: str) -> Path:
    """Pages of a small site: two pages, the first with a text."""
    pages = directory / "pages"
    pages.mkdir()
    (pages / "index.md").write_text(f"# First\n\n{text}\n\n```{{toctree}}\nother\n```\n", encoding="utf-8")
    (pages / "other.md").write_text("# Other\n\n## A part\n", encoding="utf-8")
    return pages


@pytest.mark.slow
def test_the_site_builds_and_loads_nothing_from_other_hosts(tmp_path: Path) -> None:
    answer = build(ROOT / "docs", tmp_path)
    assert answer.returncode == 0, answer.stderr
    html = tmp_path / "html"
    for page in ("index", "tutorial", "commands", "questions", "extend/game", "api/games", "results/benchmark"):
        assert (html / f"{page}.html").exists()
    assert "hopplus.games.game.Game" in (html / "api/games.html").read_text(encoding="utf-8")
    for path in [*html.rglob("*.html"), *html.rglob("*.css")]:
        assert not OUTSIDE.search(path.read_text(encoding="utf-8")), path
    shown = "".join(path.read_text(encoding="utf-8") for path in html.rglob("api/*.html"))
    assert "jaxlib" not in re.sub(r"<[^>]*>", "", shown), "arrays are shown by their public name"


@pytest.mark.slow
def test_a_small_site_builds_with_equations_as_mathml(tmp_path: Path) -> None:
    pages = small_site(tmp_path, "[Other](other.md#a-part), $b(g) \\propto p(a \\mid g)$ and\n\n$$\n\\sum_k x_k^2\n$$")
    answer = build(pages, tmp_path / "out")
    assert answer.returncode == 0, answer.stderr
    shown = (tmp_path / "out/html/index.html").read_text(encoding="utf-8")
    assert shown.count("<math") == 2
    assert "∝" in shown or "&#x0221D;" in shown
    assert not OUTSIDE.search(shown)


@pytest.mark.slow
def test_broken_text_fails_the_build(tmp_path: Path) -> None:
    text = "\n\n".join(BROKEN)
    answer = build(small_site(tmp_path, text), tmp_path / "out")
    assert answer.returncode != 0
    warnings = [line for line in answer.stderr.splitlines() if "WARNING" in line]
    assert all(any(fragment in line for line in warnings) for fragment in BROKEN.values()), answer.stderr
    assert len(warnings) == len(BROKEN), answer.stderr


@pytest.mark.parametrize(
    "page",
    [
        '<script src="https://elsewhere.example/x.js"></script>',
        '<link rel="stylesheet" href="//elsewhere.example/x.css">',
        "@font-face { src: url(https://elsewhere.example/x.woff2) }",
        "@import 'https://elsewhere.example/x.css';",
    ],
)
def test_resources_of_other_hosts_are_detected(page: str) -> None:
    assert OUTSIDE.search(page)


def test_a_link_for_readers_is_not_a_resource() -> None:
    assert not OUTSIDE.search('<a href="https://elsewhere.example/">elsewhere</a> <script src="_static/x.js"></script>')
