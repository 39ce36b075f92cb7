"""How long a person waits: `page` writes a part of docs/play.md from what `hopplus bench play` has measured.

python docs/results/turns.py page    # from benchmarks/play.json alone
"""

import json
import sys
from pathlib import Path

from pages import Page, head, with_part

from hopplus.files import write_text

DOCS = Path(__file__).parent.parent
PAGE, MEASURED = DOCS / "play.md", DOCS.parent / "benchmarks" / "play.json"
BEGINS = "<!-- from here on written by docs/results/turns.py -->"
WORDS = ("median", "95% below", "longest")
KEYS = ("median_ms", "p95_ms", "most_ms")


def page() -> None:
    """Write what was measured into the page about playing."""
    if not MEASURED.exists():
        sys.exit("nothing is measured yet: hopplus bench play --json benchmarks/play.json")
    figures, text = json.loads(MEASURED.read_text(encoding="utf-8")), Page()
    text.add(
        f"By `hopplus bench play`, {figures['turns']} turns of one game at a time through `hopplus serve` on the same"
        f" machine ([figures](../benchmarks/play.json); {figures['machine']}). Milliseconds from a key to the answer."
        " The first time that somebody of a kind sits down, their programs are compiled, or loaded if they were"
        " compiled on this machine before:"
    )
    lines = [
        f"| {row['game']} | `{row['guest']}` | {row['first_seconds']:.1f} | {row['again_seconds']:.2f} |"
        f" {' | '.join(f'{row[key]:.0f}' for key in KEYS)} |"
        for row in figures["rows"]
    ]
    columns = ("game", "all three others", "sitting down, s", "again, s", *(f"turn, ms: {word}" for word in WORDS))
    text.add(head(*columns) + "\n" + "\n".join(lines))
    many = figures["together"]
    said = ", ".join(f"{word} {many[key]:,.0f} ms" for word, key in zip(WORDS, KEYS, strict=True))
    text.add(
        f"{many['games']} games at once, each with three `{many['guest']}` on `{many['game']}`, every turn taken as"
        f" soon as the one before was answered: {said}; {many['turns_per_second']:.0f} turns a second in all. No answer"
        " was of another game."
    )
    write_text(PAGE, with_part(PAGE.read_text(encoding="utf-8"), text.text(), BEGINS))


if __name__ == "__main__":
    if sys.argv[1:] != ["page"]:
        sys.exit(__doc__)
    page()
