"""Latency of beliefs about a human player: fixed strategies play through the web page with HOP+ and with PPO.

python experiments/belief_latency.py measure    # needs Chromium; writes belief-latency.json
python experiments/belief_latency.py picture    # needs Chromium; writes docs/images/review.png
python experiments/belief_latency.py page       # reads belief-latency.json only
"""

import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from hopplus.benchmarks.machine import machine
from hopplus.benchmarks.play import server
from hopplus.core.files import write_text
from hopplus.human_play.review import CONFIDENCE
from hopplus.visualization.figures import COLOURS, new_figure, save_figure
from pages import DOCS, RESULTS, ROOT, Page, head

MEASURED = RESULTS / "belief-latency.json"
GAME, EPISODES, SERIES = "msh-4x4-4h1s", 6, 3
STRATEGIES = {"hare": "always takes the nearest hare", "stag": "always goes to the stag and waits there"}
PLANNING = "hopplus:planner=rollouts"
AGENTS = (PLANNING, "hopplus", "ppo")
"""Agents to measure."""
NAMES = {PLANNING: "HOP+, belief rollouts", "hopplus:planner=tree": "HOP+, planning", "hopplus": "HOP+", "ppo": "PPO"}
"""Names of all agents, including those of earlier measurements."""
BEST = {"hare": 1.0, "stag": 5.0}
"""Largest return of an agent with each strategy."""
AGENT, YOU = 1, 0
"""Seats; two hare hunters (`nh`) take the others, so that only the human player and the agent can hunt a stag."""


@contextmanager
def visiting(width: int) -> Iterator[Any]:
    """Context with a browser at the page of a new server, in a window of this width: the `Visitor` of the tests."""
    sys.path.insert(0, str(ROOT / "tests"))
    from browser import Visitor, browser

    with tempfile.TemporaryDirectory() as directory, server(Path(directory)) as address, browser() as opened:
        yield Visitor(opened.new_page(viewport={"width": width, "height": 900}), address)


def measure() -> None:
    """Play SERIES sessions of every strategy with every agent and save the figures."""
    rows = []
    with visiting(1280) as visitor:
        for strategy in STRATEGIES:
            for agent in AGENTS:
                for _ in range(SERIES):
                    visitor.start_session(GAME, ("you", agent, "nh", "nh"), EPISODES)
                    for _ in range(EPISODES):
                        visitor.play_episode(strategy)
                    rows.append({"strategy": strategy, "agent": agent, **figures_of(visitor.review(), strategy)})
                    print(rows[-1], file=sys.stderr)
        assert not visitor.errors, visitor.errors
    settings = {"game": GAME, "episodes": EPISODES, "series": SERIES, "cast": ["you", "AGENT", "nh", "nh"]}
    write_text(MEASURED, json.dumps({**settings, "machine": machine(), "rows": rows}, indent=1) + "\n")


def picture() -> None:
    """Save a screenshot of the review after a session with HOP+, for docs/play.md."""
    with visiting(1100) as visitor:
        visitor.start_session(GAME, ("you", PLANNING, "hopplus", "nh"), 3)
        for _ in range(3):
            visitor.play_episode("hare")
        visitor.review()
        size = {"x": 0, "y": 60, "width": 1100, "height": 1090}
        visitor.page.screenshot(path=DOCS / "images" / "review.png", full_page=True, clip=size)


def figures_of(review: dict[str, Any], strategy: str) -> dict[str, Any]:
    """Figures of one session.

    Returns:
        Dictionary with `seed`; `returns` of the human player and of the agent by episode; `belief`, the agent's
        probability of the human player's true goal before the first step of each episode; and `noticed`, the episode
        (from 1) and step (from 0) from which the agent stays sure of it, or None. `belief` is None for an agent
        without beliefs.
    """
    returns = np.array(review["returns"])
    beliefs = [belief for belief in review["beliefs"] if (belief["by"], belief["about"]) == (AGENT, YOU)]
    points = beliefs[0]["points"] if beliefs else []
    firsts = {point["episode"]: point["goals"][strategy] for point in reversed(points)}
    unsure = [number for number, point in enumerate(points) if point["goals"][strategy] < CONFIDENCE]
    since = unsure[-1] + 1 if unsure else 0
    noticed = [points[since]["episode"] + 1, points[since]["step"]] if since < len(points) else None
    return {
        "seed": review["setup"]["seed"],
        "returns": returns[:, [YOU, AGENT]].tolist(),
        "belief": [firsts[episode] for episode in sorted(firsts)] or None,
        "noticed": noticed,
    }


def sessions(rows: list[dict[str, Any]], strategy: str, agent: str) -> list[dict[str, Any]]:
    """Rows of a strategy and an agent."""
    return [row for row in rows if (row["strategy"], row["agent"]) == (strategy, agent)]


def agents_of(rows: list[dict[str, Any]]) -> list[str]:
    """Agents in the order in which they were measured."""
    return list(dict.fromkeys(row["agent"] for row in rows))


def page() -> None:
    """Write belief-latency.md and its figure."""
    figures = json.loads(MEASURED.read_text(encoding="utf-8"))
    draw(RESULTS / "belief-latency.png", figures["rows"])
    text = Page()
    text.add("# Latency of beliefs about a human player")
    text.add(
        "Generated by `python experiments/belief_latency.py page` from [the measurements](belief-latency.json). To"
        " reproduce them: `python experiments/belief_latency.py measure`. A script in a browser, which reads the page"
        " as a screen reader does and presses keys, plays a fixed strategy through the page of `hopplus serve`. It"
        f" plays {figures['episodes']} consecutive episodes on `{figures['game']}`, {figures['series']} times with each"
        " of the [pretrained policies](pretrained.md). Two hare hunters (`nh`) take the other seats, so that only the"
        " human player and the agent can hunt the stag. An agent is sure when its belief stays at"
        f" {CONFIDENCE:.0%} or more."
        f" Seeds are drawn by the server, and saved. Machine: {figures['machine']}."
    )
    text.add(table(figures["rows"]))
    text.add("![The agent's belief about the human player, and its reward, by episode](belief-latency.png)")
    text.add("PPO has no beliefs, and plays with all co-players as it learned to play with itself.")
    write_text(RESULTS / "belief-latency.md", text.text())


def table(rows: list[dict[str, Any]]) -> str:
    """Table with a row for every strategy and agent."""
    columns = ("human player", "agent", "sure of the human player's goal from", "reward, episode 1", "from episode 2")
    lines = [head(*columns)]
    for strategy, description in STRATEGIES.items():
        for agent in agents_of(rows):
            chosen = sessions(rows, strategy, agent)
            rewards = np.array([row["returns"] for row in chosen])[:, :, 1]
            cells = f"{rewards[:, 0].mean():.2f} | {rewards[:, 1:].mean():.2f}"
            lines.append(f"| {description} | {NAMES[agent]} | {_since(chosen)} | {cells} |")
    return "\n".join(lines)


def _since(rows: list[dict[str, Any]]) -> str:
    """Episode and step from which the agent of each session was sure, as text."""
    if rows[0]["belief"] is None:
        return "has no beliefs"
    texts = ("never" if row["noticed"] is None else "episode {}, step {}".format(*row["noticed"]) for row in rows)
    return "; ".join(texts)


def draw(path: Path, rows: list[dict[str, Any]]) -> None:
    """Draw the agents' beliefs and rewards by episode."""
    figure, axes = new_figure(2, 2)
    for column, strategy in enumerate(STRATEGIES):
        for number, agent in enumerate(agents_of(rows)):
            chosen = sessions(rows, strategy, agent)
            style = {"color": COLOURS[number], "label": NAMES[agent], "markersize": 11 - 3 * number}
            episodes = np.arange(1, EPISODES + 1)
            if chosen[0]["belief"] is not None:
                beliefs = np.mean([row["belief"] for row in chosen], 0)
                axes[0, column].plot(episodes, beliefs, "o-", **style)
            rewards = np.mean([row["returns"] for row in chosen], 0)[:, 1]
            axes[1, column].plot(episodes, rewards, "o-", **style)
        axes[0, column].set_title(f"human player hunts {strategy}s", fontsize=9)
        axes[0, column].set_ylabel(f"belief in {strategy} at the start", fontsize=8)
        axes[0, column].set_ylim(0, 1.05)
        axes[1, column].set_ylim(-0.1 * BEST[strategy], 1.1 * BEST[strategy])
        axes[1, column].set_ylabel("agent's reward", fontsize=8)
        axes[1, column].set_xlabel("episode", fontsize=8)
        for axis in axes[:, column]:
            axis.legend(fontsize=7)
    save_figure(path, figure)


if __name__ == "__main__":
    commands = {"measure": measure, "picture": picture, "page": page}
    if len(sys.argv) != 2 or sys.argv[1] not in commands:
        sys.exit(__doc__)
    commands[sys.argv[1]]()
