"""The documentation as a site: it builds without a warning, broken pages fail, and nothing is fetched from outside."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
OUTSIDE = re.compile(
    r"""<(?:script|img|iframe|source|link)\b[^>]*\b(?:src|href)\s*=\s*["'](?:https?:)?//[^"']*["'][^>]*>"""
    r"""|@import\s+(?:url\()?["']?(?:https?:)?//|url\(\s*["']?(?:https?:)?//""",
    flags=re.IGNORECASE,
)
"""What a browser would fetch by itself from elsewhere; links that a reader may follow are none."""

BROKEN = {
    "[nowhere](nowhere.md)": "nowhere.md",
    "[no such part](other.md#no-part)": "no-part",
    "[no such folder](nowhere/)": "nowhere/",
    "![no picture](nothing.png)": "nothing.png",
    "{py:class}`hopplus.games.Nothing`": "hopplus.games.Nothing",
    r"$\nosuchcommand{x}$": r"\nosuchcommand",
}
"""Text that must fail the build, and what the warning about it names."""


def build(pages: Path, out: Path) -> subprocess.CompletedProcess[str]:
    """Build pages as `make docs` does: the settings are those of the site."""
    pytest.importorskip("sphinx")
    words = ("-n", "-W", "--keep-going", "-q", "-c", str(ROOT / "docs"), "-d", str(out / "doctrees"))
    command = [sys.executable, "-m", "sphinx", *words, str(pages), str(out / "html")]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT)


def small_site(directory: Path, text: str) -> Path:
    """A site of two pages, the first with a text."""
    pages = directory / "pages"
    pages.mkdir()
    (pages / "index.md").write_text(f"# First\n\n{text}\n\n```{{toctree}}\nother\n```\n", encoding="utf-8")
    (pages / "other.md").write_text("# Other\n\n## A part\n", encoding="utf-8")
    return pages


@pytest.mark.slow
def test_the_site_builds_and_fetches_nothing(tmp_path: Path) -> None:
    answer = build(ROOT / "docs", tmp_path)
    assert answer.returncode == 0, answer.stderr
    html = tmp_path / "html"
    for page in ("index", "tutorial", "commands", "questions", "extend/game", "api/games", "results/contest"):
        assert (html / f"{page}.html").exists()
    assert "hopplus.games.game.Game" in (html / "api/games.html").read_text(encoding="utf-8")
    for path in [*html.rglob("*.html"), *html.rglob("*.css")]:
        assert not OUTSIDE.search(path.read_text(encoding="utf-8")), path
    shown = "".join(path.read_text(encoding="utf-8") for path in html.rglob("api/*.html"))
    assert "jaxlib" not in re.sub(r"<[^>]*>", "", shown), "arrays are shown by the name that users know"


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
def test_what_is_broken_fails_the_build(tmp_path: Path) -> None:
    text = "\n\n".join(BROKEN)
    answer = build(small_site(tmp_path, text), tmp_path / "out")
    assert answer.returncode != 0
    warnings = [line for line in answer.stderr.splitlines() if "WARNING" in line]
    assert all(any(said in line for line in warnings) for said in BROKEN.values()), answer.stderr
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
def test_what_is_fetched_from_elsewhere_is_noticed(page: str) -> None:
    assert OUTSIDE.search(page)


def test_a_link_for_readers_is_not_fetched() -> None:
    assert not OUTSIDE.search('<a href="https://elsewhere.example/">elsewhere</a> <script src="_static/x.js"></script>')
