"""Diagrams of the documentation as SVG: `python docs/images/draw.py` writes algorithms/*.svg and architecture.svg.

Each diagram is a card with its own light background, readable on light and dark pages.
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
    """A diagram under construction: a title and the shapes below it."""

    def __init__(self, title: str, height: int, description: str) -> None:
        self.height, self.description = height, description
        self.parts = [
            f'<rect x="1" y="1" width="{WIDTH - 2}" height="{height - 2}" rx="14" fill="{CARD}" stroke="{LINE}"'
            ' stroke-width="2"/>'
        ]
        self.text(WIDTH / 2, 42, title, size=26, bold=True)

    def text(self, x: float, y: float, label: str, size: int = 22, bold: bool = False, anchor: str = "middle") -> None:
        weight = ' font-weight="bold"' if bold else ""
        self.parts.append(
            f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}" fill="{INK}"{weight}>'
            f"{escape(label)}</text>"
        )

    def rectangle(self, x: float, y: float, width: float, height: float, fill: str, round_by: int = 10) -> None:
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{round_by}" fill="{fill}"'
            f' stroke="{LINE}" stroke-width="1.5"/>'
        )

    def box(self, row: float, column: float, *lines: str, kind: str = "plain", size: int = 22) -> None:
        """Adds a box to the grid of three columns; its first line is bold."""
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
        """Adds an arrow from one box of the grid to a neighbour."""
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
        """Adds arrows from each box to the next, and from the last to the first."""
        for start, end in zip(boxes, [*boxes[1:], boxes[0]], strict=True):
            self.arrow(start, end)

    def svg(self) -> str:
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self.height}" role="img"'
            f' font-family="DejaVu Sans, Verdana, sans-serif"><title>{escape(self.description)}</title>\n'
            + "\n".join(self.parts)
            + "\n</svg>\n"
        )


def corner(row: float, column: float) -> tuple[float, float]:
    """Returns the top left corner of a box of the grid."""
    return MARGIN + column * (BOX_WIDTH + GAP), TOP + row * ROW


def rows_high(rows: float, more: int = 0) -> int:
    """Returns the height of a card with this number of rows."""
    return round(TOP + rows * ROW - 52 + 24 + more)


AROUND = ((0, 0), (0, 1), (0, 2), (1, 2), (1, 1), (1, 0))


def ppo() -> Card:
    card = Card(
        "PPO", rows_high(2), "PPO: rollouts of the network, advantages of the valid transitions, a clipped update"
    )
    card.box(0, 0, "network", "policy", "and value", kind="model")
    card.box(0, 1, "rollout", "ego-first", "observations", kind="play")
    card.box(0, 2, "transitions", "of each seat,", "alive only")
    card.box(1, 2, "GAE", "from the", "stored values")
    card.box(1, 1, "clipped loss", "ratio to stored", "probabilities", kind="learn")
    card.box(1, 0, "Adam", "shared, or one", "set per seat", kind="learn")
    card.loop(*AROUND)
    return card


def recurrent() -> Card:
    card = Card("Memory within a trial", rows_high(2, 40), "The recurrent state persists over the episodes of a trial")
    for column in range(3):
        card.box(0, column, f"episode {column + 1}", "with the same", "co-players", kind="play")
    card.arrow((0, 0), (0, 1))
    card.arrow((0, 1), (0, 2))
    card.text(WIDTH / 2, TOP + BOX_HEIGHT + 32, "the state persists until the trial ends", size=20)
    card.box(1, 0, "input", "board, and", "last actions")
    card.box(1, 1, "GRU", "hidden state", kind="belief")
    card.box(1, 2, "policy", "and value", kind="model")
    card.arrow((1, 0), (1, 1))
    card.arrow((1, 1), (1, 2))
    card.text(WIDTH / 2, TOP + ROW + BOX_HEIGHT + 36, "at every step", size=20)
    return card


def liam() -> Card:
    card = Card(
        "LIAM",
        rows_high(2, 40),
        "LIAM: the hidden state is trained to reconstruct co-players' observations and actions",
    )
    card.box(0, 0, "own history", "observations", "and actions")
    card.box(0, 1, "GRU", "hidden state", kind="belief")
    card.box(0, 2, "policy", "and value", kind="model")
    card.box(1, 1, "decoder", "in training", "only", kind="learn")
    card.box(1, 2, "co-players'", "observations,", "actions")
    card.arrow((0, 0), (0, 1))
    card.arrow((0, 1), (0, 2), dashed=True)
    card.arrow((0, 1), (1, 1))
    card.arrow((1, 1), (1, 2))
    card.text(WIDTH / 2, TOP + ROW + BOX_HEIGHT + 36, "dashed: gradient stopped", size=20)
    return card


def moa() -> Card:
    card = Card(
        "Model of other agents (MOA)", rows_high(2), "One pass gives a policy for each goal; the belief mixes them"
    )
    card.box(0, 0, "observation", "of co-player j,", "ego-first")
    card.box(0, 1, "one trunk", "for all goals", kind="model")
    card.box(0, 2, "K x A logits", "masked to", "legal actions", kind="model")
    card.box(1, 1, "belief", "over j's goals", kind="belief")
    card.box(1, 2, "mixture", "prediction of", "j's action", kind="play")
    card.arrow((0, 0), (0, 1))
    card.arrow((0, 1), (0, 2))
    card.arrow((0, 2), (1, 2))
    card.arrow((1, 1), (1, 2))
    card.box(1, 0, "j's past", "actions")
    card.arrow((1, 0), (1, 1))
    return card


def goals() -> Card:
    spaces = {
        "prey": ("the prey j takes next: stag, hare, nothing", "belief"),
        "codes": ("a latent agent type, rarely resampled", "belief"),
        "gaussian": ("a latent point that encodes a later state", "belief"),
        "zero": ("a goal input that is always 0 (ablation)", "plain"),
        "none": ("no goal: direct opponent modelling", "plain"),
    }
    card = Card("Five goal spaces", 70 + 84 * len(spaces) + 8, "Five goal spaces: prey, codes, gaussian, zero, none")
    for number, (name, (meaning, kind)) in enumerate(spaces.items()):
        y = 66 + 84 * number
        card.rectangle(MARGIN, y, WIDTH - 2 * MARGIN, 72, COLOURS[kind])
        card.text(MARGIN + 18, y + 30, name, bold=True, anchor="start")
        card.text(MARGIN + 18, y + 58, meaning, anchor="start")
    return card


def posterior(
    belief: list[float], prior: list[float], likelihood: list[float], goal_switch_probability: float
) -> list[float]:
    """Returns the normalised belief after one action, as `hopplus.beliefs.hmm.update`."""
    joint = [old * seen for old, seen in zip(belief, likelihood, strict=True)]
    moved = [
        (1 - goal_switch_probability) * weight + goal_switch_probability * start * sum(joint)
        for weight, start in zip(joint, prior, strict=True)
    ]
    return [weight / sum(moved) for weight in moved]


def beliefs() -> Card:
    """Posteriors under made-up likelihoods of five actions: towards the stag, two of them ambiguous."""
    card = Card("Belief over one co-player's goals", 442, "Bars: the belief changes within an episode and carries over")
    seen = [[0.5, 0.2, 0.2], [0.3, 0.3, 0.2], [0.6, 0.1, 0.2], [0.3, 0.2, 0.2], [0.9, 0.1, 0.1]]
    seen = [[0.98 * probability + 0.02 / 5 for probability in row] for row in seen]
    prior = [0.4, 0.4, 0.2]
    bars, x = [prior], MARGIN + 56
    for row in seen:
        bars.append(posterior(bars[-1], prior, row, 0.02))
    whole = [math.prod(row[goal] for row in seen) for goal in range(3)]
    first = posterior(prior, prior, [weight / max(whole) for weight in whole], 0.0)
    counts = [
        [decay * count + more for count, more in zip(prior, first, strict=True)] for decay in (0.5, 0.8, 0.95, 0.995)
    ]
    means = [[count / sum(row) for count in row] for row in counts]
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
    card.text(MARGIN + 270, 402, "observed actions, episode 1", size=20)
    card.text(WIDTH - 76, 402, "episode 2", size=20)
    card.text(MARGIN + 14, 128, "1", size=20)
    card.text(MARGIN + 14, 346, "0", size=20)
    card.text(WIDTH / 2, 430, "example with made-up likelihoods", size=18)
    return card


def world_model() -> Card:
    card = Card("Structured world model", rows_high(2), "Items, then players, then rewards, then action masks")
    card.box(0, 0, "observation", "and the joint", "action")
    card.box(0, 1, "items", "stay or", "disappear", kind="model")
    card.box(0, 2, "players", "step, stay,", "or leave", kind="model")
    card.box(1, 2, "rewards", "and the", "deadline", kind="model")
    card.box(1, 1, "masks", "legal actions,", "game over", kind="model")
    card.box(1, 0, "next", "observation,", "fed back", kind="play")
    card.loop(*AROUND)
    return card


def search() -> Card:
    card = Card(
        "Tree search for one decision", 548, "A tree: the ego's actions, and below each several co-player replies"
    )
    card.text(WIDTH / 2, 76, "co-players' goals are sampled first", size=20)
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
    card.text(root[0] + 44, root[1] - 2, "root", anchor="start", size=20)
    card.text(WIDTH / 2, 226, "PUCT selects", size=20)
    card.text(WIDTH / 2, 326, "co-player", size=20)
    card.text(WIDTH / 2, 350, "replies", size=20)
    card.rectangle(MARGIN, 432, WIDTH - 2 * MARGIN, 94, COLOURS["plain"])
    card.text(WIDTH / 2, 470, "Q(a): mean over co-player replies,")
    card.text(WIDTH / 2, 502, "and over one tree per belief sample")
    return card


def hop() -> Card:
    card = Card(
        "HOP",
        rows_high(2),
        "HOP: beliefs over prey, sampled goals, one search per sample; the search acts and is the target",
    )
    card.box(0, 0, "belief", "over each co-", "player's prey", kind="belief")
    card.box(0, 1, "goal samples", "from beliefs", kind="belief")
    card.box(0, 2, "search", "one tree", "per sample", kind="play")
    card.box(1, 2, "act", "by the search", "policy", kind="play")
    card.box(1, 1, "update", "policy towards", "the search", kind="learn")
    card.box(1, 0, "Bayes", "from observed", "actions", kind="belief")
    card.loop(*AROUND)
    return card


def hopplus() -> Card:
    card = Card(
        "One iteration of HOP+",
        rows_high(3, 12),
        "HOP+: rollout, models, beliefs, policy, update; and optional parts",
    )
    card.box(0, 0, "rollout", "with real", "co-players", kind="play")
    card.box(0, 1, "trajectory", "transitions,", "alive only")
    card.box(0, 2, "models", "MOA, and a", "world model", kind="model")
    card.box(1, 2, "beliefs", "within, across", "episodes", kind="belief")
    card.box(1, 1, "policy, value", "see beliefs and", "predictions", kind="model", size=21)
    card.box(1, 0, "PPO", "or expert", "iteration", kind="learn")
    card.loop(*AROUND)
    card.text(WIDTH / 2, TOP + 2 * ROW - 14, "optional:", size=20)
    card.box(2, 0, "preferences", "randomised", "rewards")
    card.box(2, 1, "partners", "optimistic,", "annealed")
    card.box(2, 2, "imagination", "rollouts in a", "world model")
    return card


def oracle() -> Card:
    card = Card("The oracle", rows_high(2), "The oracle: exact where the state space is small, else a lower bound")
    card.box(0, 0, "given", "rules, and true", "policies")
    card.box(0, 1, "tabular?", "no blocks,", "one stag")
    card.box(0, 2, "exact", "dynamic", "programming", kind="play")
    card.box(1, 0, "candidates", "scripts, PPO,", "lookahead", kind="model")
    card.box(1, 1, "selection", "in one set", "of episodes", kind="learn")
    card.box(1, 2, "lower bound", "measured in", "another set", kind="play")
    card.arrow((0, 0), (0, 1))
    card.arrow((0, 1), (0, 2))
    card.arrow((0, 1), (1, 1), label="no")
    card.arrow((1, 0), (1, 1))
    card.arrow((1, 1), (1, 2))
    return card


def architecture() -> Card:
    card = Card("hopplus", rows_high(4), "Data flow: games and players, rollouts, training and evaluation, report")
    card.box(0, 0, "networks", "flax modules", kind="model")
    card.box(0, 1, "beliefs", "goal spaces,", "HMM filter", kind="belief")
    card.box(0, 2, "planning", "simulator,", "tree search", kind="belief")
    card.box(1, 0, "games", "rules as pure", "functions", kind="play")
    card.box(1, 1, "rollouts", "a cast plays,", "compiled", kind="play")
    card.box(1, 2, "players", "script, policy,", "planner", kind="play")
    card.box(2, 0, "algorithms", "losses, models,", "updates", kind="learn")
    card.box(2, 1, "Trajectory", "arrays", "[T, E, n, ...]")
    card.box(2, 2, "evaluation", "trials, oracle,", "cross-play", kind="learn")
    card.box(3, 0, "training", "loop, logs,", "checkpoints", kind="learn")
    card.box(3, 1, "run directory", "config, metrics,", "checkpoints", size=20)
    card.box(3, 2, "visualization", "charts, report,", "replay")
    card.arrow((0, 0), (0, 1))
    card.arrow((0, 1), (0, 2))
    card.arrow((0, 2), (1, 2))
    card.arrow((1, 0), (1, 1))
    card.arrow((1, 2), (1, 1))
    card.arrow((1, 1), (2, 1))
    card.arrow((2, 1), (2, 0))
    card.arrow((2, 1), (2, 2))
    card.arrow((2, 0), (3, 0))
    card.arrow((3, 0), (3, 1))
    card.arrow((3, 1), (3, 2))
    card.arrow((2, 2), (3, 2))
    return card


def main() -> None:
    """Writes all diagrams."""
    FOLDER.mkdir(exist_ok=True)
    for draw in (ppo, recurrent, liam, moa, goals, beliefs, world_model, search, hop, hopplus, oracle):
        name = draw.__name__.replace("_", "-")
        (FOLDER / f"{name}.svg").write_text(draw().svg(), encoding="utf-8")
    (FOLDER.parent / "architecture.svg").write_text(architecture().svg(), encoding="utf-8")


if __name__ == "__main__":
    main()
