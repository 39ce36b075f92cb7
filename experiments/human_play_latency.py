"""Response times of human play: `page` writes a part of docs/play.md from the figures of `hopplus bench play`.

python experiments/human_play_latency.py page    # reads benchmarks/play.json only
"""

import json
import sys

from hopplus.core.files import write_text
from pages import DOCS, ROOT, Page, head, with_part

PAGE, MEASURED = DOCS / "play.md", ROOT / "benchmarks" / "play.json"
BEGINS = "<!-- from here on written by experiments/human_play_latency.py -->"
LABELS = ("median", "95% below", "max")
KEYS = ("median_ms", "p95_ms", "most_ms")


def page() -> None:
    """Write the measured response times into docs/play.md."""
    if not MEASURED.exists():
        sys.exit("there are no measurements yet: hopplus bench play --json benchmarks/play.json")
    figures, text = json.loads(MEASURED.read_text(encoding="utf-8")), Page()
    text.add(
        f"Measured by `hopplus bench play`: {figures['turns']} turns of one game at a time through `hopplus serve` on"
        f" the same machine ([figures](../benchmarks/play.json); {figures['machine']}). Milliseconds from a key press"
        " to the response. The first session with an agent compiles its programs, or loads them from the compilation"
        " cache:"
    )
    lines = [
        f"| {row['game']} | `{row['guest']}` | {row['first_seconds']:.1f} | {row['again_seconds']:.2f} |"
        f" {' | '.join(f'{row[key]:.0f}' for key in KEYS)} |"
        for row in figures["rows"]
    ]
    columns = ("game", "three co-players", "first start, s", "next start, s", *(f"turn, ms: {name}" for name in LABELS))
    text.add(head(*columns) + "\n" + "\n".join(lines))
    many = figures["together"]
    times = ", ".join(f"{name} {many[key]:,.0f} ms" for name, key in zip(LABELS, KEYS, strict=True))
    text.add(
        f"{many['games']} concurrent games, each with three `{many['guest']}` on `{many['game']}`, every turn sent as"
        f" soon as the previous one was answered: {times}; {many['turns_per_second']:.0f} turns per second in total. No"
        " response belonged to another game."
    )
    write_text(PAGE, with_part(PAGE.read_text(encoding="utf-8"), text.text(), BEGINS))


if __name__ == "__main__":
    if sys.argv[1:] != ["page"]:
        sys.exit(__doc__)
    page()
