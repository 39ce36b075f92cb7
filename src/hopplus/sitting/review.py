"""What a series looks like afterwards: what everybody believed, when they changed their minds, what they planned, and
how the person's choices compare with an oracle's."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import jax

from hopplus.evaluation.choices import Judged, Situation, judge_choices, summarise
from hopplus.report import Frame
from hopplus.report.replay import for_viewer
from hopplus.report.thoughts import likeliest, planner_of, thinking_at
from hopplus.sitting.table import Table

SURE = 0.6
"""A player has made up its mind about another once it believes so much in one goal; a smaller lead changes nothing."""
JUDGING = 1
"""The purpose of the key with which choices are judged; the episodes have others of their own."""


@dataclass(frozen=True)
class Change:
    """A player changes its mind about another."""

    episode: int
    step: int
    """Steps that had been played; both count from 0."""
    by: int
    about: int
    before: str | None
    """What it had held to be the other's goal; None at first."""
    after: str
    probability: float


def review_of(table: Table) -> dict[str, Any]:
    """A series for a page and for JSON. Keys: `setup`; `returns` by episode and seat; `episodes`, each as `for_viewer`
    has it, with a `title`; `beliefs` and `changes` as `beliefs_of` and `changes_of` give them; `choices`, what the
    person did beside the best that an oracle found, by episode and step, and `summary` of them."""
    series = [episode_frames(table, number) for number in range(len(table.lasts))]
    judged = judged_choices(table)
    return {
        "setup": table.setup.as_dict(),
        "returns": table.returns,
        "episodes": [
            {"title": f"episode {number}", **for_viewer(frames)} for number, frames in enumerate(series, start=1)
        ],
        "beliefs": beliefs_of(series),
        "changes": [asdict(change) for change in changes_of(series)],
        "choices": [[{"step": step, **asdict(one)} for step, one in enumerate(own)] for own in judged],
        "summary": summarise([one for own in judged for one in own]),
    }


def episode_frames(table: Table, episode: int) -> list[Frame]:
    """An episode with what everybody thought before each step."""
    turns, players = table.episodes[episode], table.company.players
    frames = []
    for step in range(len(turns) + 1):
        thoughts, state, there = {}, None, ()
        if step < len(turns):
            turn = turns[step]
            state, there = turn.before.state, turn.alive
            thoughts = {
                seat: turn.thoughts[seat] for seat, player in enumerate(players) if there[seat] and planner_of(player)
            }
        thinking = thinking_at(table.game, players, thoughts, state, there)
        frames.append(table.frame_at(episode, step, thinking=thinking))
    return frames


def beliefs_of(series: Sequence[Sequence[Frame]]) -> list[dict[str, Any]]:
    """What each player believed of each other, over the whole series. Keys: `by`, `about` (seats), and `points`, a list
    of `episode`, `step` and `goals`, the probability of each goal by its name."""
    found: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for episode, step, by, about, goals in _believed(series):
        point = {"episode": episode, "step": step, "goals": {name: round(value, 3) for name, value in goals.items()}}
        found.setdefault((by, about), []).append(point)
    return [{"by": by, "about": about, "points": points} for (by, about), points in sorted(found.items())]


def changes_of(series: Sequence[Sequence[Frame]]) -> list[Change]:
    """When players changed their minds about each other."""
    held: dict[tuple[int, int], str] = {}
    changes = []
    for episode, step, by, about, goals in _believed(series):
        goal, probability = likeliest(goals)
        before = held.get((by, about))
        if probability >= SURE and goal != before:
            held[by, about] = goal
            changes.append(Change(episode, step, by, about, before, goal, round(probability, 3)))
    return changes


def _believed(series: Sequence[Sequence[Frame]]) -> Iterator[tuple[int, int, int, int, dict[str, float]]]:
    """Episode, step, by whom, about whom, and the probabilities of goals, where there is more than one goal."""
    for episode, frames in enumerate(series):
        for step, frame in enumerate(frames):
            for by, own in frame.thinking.reasonings.items() if frame.thinking else ():
                for belief in own.beliefs:
                    if len(belief.goals) > 1:
                        yield episode, step, by, belief.about, dict(belief.goals)


def judged_choices(table: Table) -> list[list[Judged]]:
    """The person's choices as long as they had one, by episode that is over and step."""
    seat, company = table.setup.seat, table.company
    situations = [
        [
            Situation(turn.before.state, turn.before.memories, int(turn.actions[seat]))
            for turn in turns
            if turn.alive[seat]
        ]
        for turns in table.episodes[: len(table.lasts)]
    ]
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(table.setup.seed), table.setup.episodes), JUDGING)
    everything = [one for own in situations for one in own]
    judged = judge_choices(table.game, company.players, company.params, seat, everything, key) if everything else []
    rest = iter(judged)
    return [[next(rest) for _ in own] for own in situations]
