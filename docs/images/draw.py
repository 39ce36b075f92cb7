"""The pictures of the algorithms' pages, as SVG: `python docs/images/draw.py` writes docs/images/algorithms/*.svg.

Each is a card with a light background of its own, so that it can be read on a light page and on a dark one.
"""

import math
from pathlib import Path
from xml.sax.saxutils import escape

FOLDER = Path(__file__).parent / "algorithms"
WIDTH, MARGIN, GAP, BOX_WIDTH, BOX_HEIGHT = 640, 20, 30, 180, 104
TOP, ROW = 70, BOX_HEIGHT + 52
INK, CARD, LINE = "#1c2430", "#fdfcf7", "#5b6675"
COLOURS = {"plain": "#eef1f5", "model": "#d7e8fa", "belief": "#fbe6c2", "play": "#d9f0dc", "learn": "#f6d9e3"}
GOALS = {"stag": "#c4632d", "hare": "#3f7fbf", "nothing": "#a3a9b2"}


class Card:
    """A picture in the making: shapes, from a title downwards."""

    def __init__(self, title: str, height: int, words: str) -> None:
        self.height, self.words = height, words
        self.parts = [
            f'<rect x="1" y="1" width="{WIDTH - 2}" height="{height - 2}" rx="14" fill="{CARD}" stroke="{LINE}"'
            ' stroke-width="2"/>'
        ]
        self.text(WIDTH / 2, 42, title, size=26, bold=True)

    def text(self, x: float, y: float, words: str, size: int = 22, bold: bool = False, anchor: str = "middle") -> None:
        weight = ' font-weight="bold"' if bold else ""
        self.parts.append(
            f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}" fill="{INK}"{weight}>'
            f"{escape(words)}</text>"
        )

    def rectangle(self, x: float, y: float, width: float, height: float, fill: str, round_by: int = 10) -> None:
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{round_by}" fill="{fill}"'
            f' stroke="{LINE}" stroke-width="1.5"/>'
        )

    def box(self, row: float, column: float, *lines: str, kind: str = "plain", size: int = 22) -> None:
        """A box in the grid of three columns; its first line is bold."""
        x, y = corner(row, column)
        self.rectangle(x, y, BOX_WIDTH, BOX_HEIGHT, COLOURS[kind])
        first = y + BOX_HEIGHT / 2 + 8 - 14 * (len(lines) - 1)
        for number, line in enumerate(lines):
            self.text(x + BOX_WIDTH / 2, first + 28 * number, line, size=size, bold=number == 0)

    def line(self, x: float, y: float, to_x: float, to_y: float, dashed: bool = False, head: bool = True) -> None:
        dash = ' stroke-dasharray="7 6"' if dashed else ""
        angle = math.atan2(to_y - y, to_x - x)
        end = (to_x - 9 * math.cos(angle), to_y - 9 * math.sin(angle)) if head else (to_x, to_y)
        self.parts.append(
            f'<line x1="{x:g}" y1="{y:g}" x2="{end[0]:.1f}" y2="{end[1]:.1f}" stroke="{INK}" stroke-width="3"{dash}/>'
        )
        if head:
            sides = [(to_x - 14 * math.cos(angle + turn), to_y - 14 * math.sin(angle + turn)) for turn in (-0.45, 0.45)]
            points = " ".join(f"{px:.1f},{py:.1f}" for px, py in [(to_x, to_y), *sides])
            self.parts.append(f'<polygon points="{points}" fill="{INK}"/>')

    def arrow(self, start: tuple[int, int], end: tuple[int, int], dashed: bool = False, label: str = "") -> None:
        """From one box of the grid to its neighbour."""
        (x, y), (to_x, to_y) = corner(*start), corner(*end)
        middle = BOX_HEIGHT / 2
        if start[0] == end[0]:
            right = end[1] > start[1]
            points = (x + BOX_WIDTH, to_x) if right else (x, to_x + BOX_WIDTH)
            self.line(points[0], y + middle, points[1], y + middle, dashed)
        else:
            down = end[0] > start[0]
            points = (y + BOX_HEIGHT, to_y) if down else (y, to_y + BOX_HEIGHT)
            self.line(x + BOX_WIDTH / 2, points[0], x + BOX_WIDTH / 2, points[1], dashed)
            if label:
                self.text(x + BOX_WIDTH / 2 + 14, sum(points) / 2 + 7, label, size=20, anchor="start")

    def loop(self, *boxes: tuple[int, int]) -> None:
        """Arrows from each box to the next, and from the last to the first."""
        for start, end in zip(boxes, [*boxes[1:], boxes[0]], strict=True):
            self.arrow(start, end)

    def svg(self) -> str:
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self.height}" role="img"'
            f' font-family="DejaVu Sans, Verdana, sans-serif"><title>{escape(self.words)}</title>\n'
            + "\n".join(self.parts)
            + "\n</svg>\n"
        )


def corner(row: float, column: float) -> tuple[float, float]:
    """Where a box of the grid begins."""
    return MARGIN + column * (BOX_WIDTH + GAP), TOP + row * ROW


def rows_high(rows: float, more: int = 0) -> int:
    """The height of a card with so many rows of boxes."""
    return round(TOP + rows * ROW - 52 + 24 + more)


AROUND = ((0, 0), (0, 1), (0, 2), (1, 2), (1, 1), (1, 0))


def ppo() -> Card:
    card = Card("PPO", rows_high(2), "PPO: a network plays, its living rows become advantages and a clipped step")
    card.box(0, 0, "network", "policy", "and value", kind="model")
    card.box(0, 1, "play", "every seat", "sees ego-first", kind="play")
    card.box(0, 2, "rows", "of each seat,", "alive only")
    card.box(1, 2, "advantages", "once, from the", "values of play")
    card.box(1, 1, "clipped loss", "ratio to what", "was stored", kind="learn")
    card.box(1, 0, "Adam", "one set, or", "one a seat", kind="learn")
    card.loop(*AROUND)
    return card


def recurrent() -> Card:
    card = Card("A memory over episodes", rows_high(2, 40), "The memory goes from episode to episode until they part")
    for column in range(3):
        card.box(0, column, f"episode {column + 1}", "with the same", "others", kind="play")
    card.arrow((0, 0), (0, 1))
    card.arrow((0, 1), (0, 2))
    card.text(WIDTH / 2, TOP + BOX_HEIGHT + 32, "the memory is kept until they part", size=20)
    card.box(1, 0, "news", "the board, and", "last actions")
    card.box(1, 1, "memory", "gated unit", kind="belief")
    card.box(1, 2, "policy", "and value", kind="model")
    card.arrow((1, 0), (1, 1))
    card.arrow((1, 1), (1, 2))
    card.text(WIDTH / 2, TOP + ROW + BOX_HEIGHT + 36, "in every step", size=20)
    return card


def liam() -> Card:
    card = Card(
        "LIAM", rows_high(2, 40), "LIAM: the memory learns to tell what the others see and do; the policy reads it"
    )
    card.box(0, 0, "own history", "seen and done")
    card.box(0, 1, "memory", "gated unit", kind="belief")
    card.box(0, 2, "policy", "and value", kind="model")
    card.box(1, 1, "decoder", "while learning", "only", kind="learn")
    card.box(1, 2, "the others", "their boards,", "their actions")
    card.arrow((0, 0), (0, 1))
    card.arrow((0, 1), (0, 2), dashed=True)
    card.arrow((0, 1), (1, 1))
    card.arrow((1, 1), (1, 2))
    card.text(WIDTH / 2, TOP + ROW + BOX_HEIGHT + 36, "dashed: no gradient goes back", size=20)
    return card


def moa() -> Card:
    card = Card(
        "The model of another player", rows_high(2), "One pass gives a policy for each goal; the belief mixes them"
    )
    card.box(0, 0, "j's own view", "in j's frame", "(ego-first)")
    card.box(0, 1, "one trunk", "for all goals", kind="model")
    card.box(0, 2, "K x A logits", "legal ones", "only", kind="model")
    card.box(1, 1, "belief", "about j's goal", kind="belief")
    card.box(1, 2, "mixture", "what j will", "do next", kind="play")
    card.arrow((0, 0), (0, 1))
    card.arrow((0, 1), (0, 2))
    card.arrow((0, 2), (1, 2))
    card.arrow((1, 1), (1, 2))
    card.box(1, 0, "j's past", "actions")
    card.arrow((1, 0), (1, 1))
    return card


def goals() -> Card:
    kinds = {
        "prey": ("what j takes next: stag, hare, nothing", "belief"),
        "codes": ("a hidden kind of player, kept for long", "belief"),
        "gaussian": ("a point that stands for a later state", "belief"),
        "zero": ("an input for a goal that is always 0", "plain"),
        "none": ("no goal: what j sees is all", "plain"),
    }
    card = Card("Five kinds of goals", 70 + 84 * len(kinds) + 8, "Five goal spaces: prey, codes, gaussian, zero, none")
    for number, (name, (words, kind)) in enumerate(kinds.items()):
        y = 66 + 84 * number
        card.rectangle(MARGIN, y, WIDTH - 2 * MARGIN, 72, COLOURS[kind])
        card.text(MARGIN + 18, y + 30, name, bold=True, anchor="start")
        card.text(MARGIN + 18, y + 58, words, anchor="start")
    return card


def learnt(belief: list[float], prior: list[float], likelihood: list[float], switch: float) -> list[float]:
    """Bayes' rule with a goal that may be drawn anew, as `hopplus.planning.beliefs.learn`, then normalised."""
    joint = [own * seen for own, seen in zip(belief, likelihood, strict=True)]
    moved = [(1 - switch) * own + switch * first * sum(joint) for own, first in zip(joint, prior, strict=True)]
    return [own / sum(moved) for own in moved]


def beliefs() -> Card:
    """Made-up likelihoods of five actions (towards the stag, twice unclear), and what Bayes makes of them."""
    card = Card(
        "A belief about one co-player", 442, "Bars: the belief moves within an episode, and the next begins there"
    )
    seen = [[0.5, 0.2, 0.2], [0.3, 0.3, 0.2], [0.6, 0.1, 0.2], [0.3, 0.2, 0.2], [0.9, 0.1, 0.1]]
    seen = [[0.98 * one + 0.02 / 5 for one in row] for row in seen]
    prior = [0.4, 0.4, 0.2]
    bars, x = [prior], MARGIN + 56
    for row in seen:
        bars.append(learnt(bars[-1], prior, row, 0.02))
    whole = [math.prod(row[goal] for row in seen) for goal in range(3)]
    first = learnt(prior, prior, [one / max(whole) for one in whole], 0.0)
    counts = [[keep * one + more for one, more in zip(prior, first, strict=True)] for keep in (0.5, 0.8, 0.95, 0.995)]
    means = [[one / sum(row) for one in row] for row in counts]
    bars.append([sum(row[goal] for row in means) / 4 for goal in range(3)])  # the weights are still equal
    for number, (name, colour) in enumerate(GOALS.items()):
        card.rectangle(MARGIN + 40 + 190 * number, 66, 26, 26, colour, 4)
        card.text(MARGIN + 76 + 190 * number, 87, name, anchor="start")
    for number, bar in enumerate(bars):
        if number == len(bars) - 1:
            card.line(x + 8, 106, x + 8, 380, dashed=True, head=False)
            x += 36
        y = 340.0
        for part, colour in zip(bar, GOALS.values(), strict=True):
            card.rectangle(x, y - 220 * part, 52, 220 * part, colour, 0)
            y -= 220 * part
        card.text(x + 26, 368, ("0" if number == len(bars) - 1 else str(number)), size=20)
        x += 74
    card.text(MARGIN + 270, 402, "actions seen in episode 1", size=20)
    card.text(WIDTH - 76, 402, "episode 2", size=20)
    card.text(MARGIN + 14, 128, "1", size=20)
    card.text(MARGIN + 14, 346, "0", size=20)
    card.text(WIDTH / 2, 430, "an example: likelihoods made up", size=18)
    return card


def world_model() -> Card:
    card = Card("The structured world model", rows_high(2), "Things, then players, then rewards, then what is legal")
    card.box(0, 0, "observation", "and what all", "players do")
    card.box(0, 1, "things", "stay, or go", kind="model")
    card.box(0, 2, "players", "step, stay,", "or leave", kind="model")
    card.box(1, 2, "rewards", "and the", "deadline", kind="model")
    card.box(1, 1, "view", "legal actions,", "game over", kind="model")
    card.box(1, 0, "next", "observation,", "fed back", kind="play")
    card.loop(*AROUND)
    return card


def search() -> Card:
    card = Card(
        "One tree of a decision", 548, "A tree: the ego's actions, and below each several replies of the others"
    )
    card.text(WIDTH / 2, 76, "goals of the others are drawn first", size=20)
    root, actions = (WIDTH / 2, 124), [(150, 250), (490, 250)]
    for number, (x, y) in enumerate(actions):
        card.line(root[0], root[1] + 24, x, y - 24)
        for place, shift in enumerate((-90, -30, 30, 90)):
            card.line(x, y + 24, x + shift, y + 116)
            card.parts.append(
                f'<circle cx="{x + shift}" cy="{y + 134}" r="17" fill="{COLOURS["model"]}" stroke="{LINE}"/>'
            )
            card.text(x + shift, y + 141, str(place + 1), size=18)
        card.parts.append(f'<circle cx="{x}" cy="{y}" r="24" fill="{COLOURS["play"]}" stroke="{LINE}"/>')
        card.text(x, y + 8, "ab"[number], bold=True)
    card.parts.append(f'<circle cx="{root[0]}" cy="{root[1]}" r="26" fill="{COLOURS["belief"]}" stroke="{LINE}"/>')
    card.text(root[0] + 44, root[1] - 2, "now", anchor="start", size=20)
    card.text(WIDTH / 2, 226, "PUCT chooses", size=20)
    card.text(WIDTH / 2, 326, "replies", size=20)
    card.text(WIDTH / 2, 350, "take turns", size=20)
    card.rectangle(MARGIN, 432, WIDTH - 2 * MARGIN, 94, COLOURS["plain"])
    card.text(WIDTH / 2, 470, "Q of an action: the mean over replies,")
    card.text(WIDTH / 2, 502, "and over one tree for each draw of goals")
    return card


def hop() -> Card:
    card = Card(
        "HOP", rows_high(2), "HOP: beliefs about prey, goals drawn, a search for each, the search acts and teaches"
    )
    card.box(0, 0, "belief", "about each", "one's prey", kind="belief")
    card.box(0, 1, "draw goals", "several times", kind="belief")
    card.box(0, 2, "search", "a tree for", "each draw", kind="play")
    card.box(1, 2, "act", "by what the", "search found", kind="play")
    card.box(1, 1, "learn", "policy towards", "the search", kind="learn")
    card.box(1, 0, "Bayes", "from what all", "have done", kind="belief")
    card.loop(*AROUND)
    return card


def hopplus() -> Card:
    card = Card(
        "One iteration of HOP+",
        rows_high(3, 12),
        "HOP+: play, models, beliefs, policy, learning; and what may be added",
    )
    card.box(0, 0, "play", "with real", "co-players", kind="play")
    card.box(0, 1, "episodes", "just played,", "alive rows")
    card.box(0, 2, "models", "of the others,", "of the world", kind="model")
    card.box(1, 2, "beliefs", "within and", "between", kind="belief")
    card.box(1, 1, "policy, value", "see beliefs and", "predictions", kind="model", size=21)
    card.box(1, 0, "PPO", "or towards", "a search", kind="learn")
    card.loop(*AROUND)
    card.text(WIDTH / 2, TOP + 2 * ROW - 14, "may be added:", size=20)
    card.box(2, 0, "tastes", "learners who", "differ")
    card.box(2, 1, "guests", "optimistic,", "then none")
    card.box(2, 2, "imagination", "rows from a", "world model")
    return card


def oracle() -> Card:
    card = Card(
        "The oracle", rows_high(2), "The oracle: exact where a table fits, else the best of several, a lower bound"
    )
    card.box(0, 0, "given", "the rules, the", "others' laws")
    card.box(0, 1, "fits a table?", "no blocks,", "one stag")
    card.box(0, 2, "exact", "dynamic", "programming", kind="play")
    card.box(1, 0, "candidates", "scripts, PPO,", "looking ahead", kind="model")
    card.box(1, 1, "choose", "in some", "episodes", kind="learn")
    card.box(1, 2, "lower bound", "measured in", "others", kind="play")
    card.arrow((0, 0), (0, 1))
    card.arrow((0, 1), (0, 2))
    card.arrow((0, 1), (1, 1), label="no")
    card.arrow((1, 0), (1, 1))
    card.arrow((1, 1), (1, 2))
    return card


def main() -> None:
    """Write all of them."""
    FOLDER.mkdir(exist_ok=True)
    for draw in (ppo, recurrent, liam, moa, goals, beliefs, world_model, search, hop, hopplus, oracle):
        name = draw.__name__.replace("_", "-")
        (FOLDER / f"{name}.svg").write_text(draw().svg(), encoding="utf-8")


if __name__ == "__main__":
    main()
