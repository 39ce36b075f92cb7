"""Review of a session: the co-players' beliefs and plans, and the person's decisions beside those of an oracle."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import jax

from hopplus.evaluation.decisions import DecisionPoint, JudgedDecision, judge_decisions, summarize
from hopplus.human_play.session import Session
from hopplus.visualization import Frame
from hopplus.visualization.reasoning import Belief, Reasoning, likeliest, planner_of, session_reasoning
from hopplus.visualization.replay import for_viewer
from hopplus.visualization.text import describe_choice, describe_rationality

CONFIDENCE = 0.6
"""Minimum probability of a goal that a player attributes to another; a less likely goal changes nothing."""
JUDGING = 1
"""Purpose of the key with which decisions are judged, distinct from the keys of the episodes."""


@dataclass(frozen=True)
class BeliefChange:
    """Change of the goal that a player attributes to another player."""

    episode: int
    step: int
    """Steps played before the change. Episodes and steps count from 0."""
    by: int
    """Seat of the player whose belief changed."""
    about: int
    """Seat of the other player."""
    before: str | None
    """Previous goal; None at first."""
    after: str
    probability: float


@dataclass(frozen=True)
class PlanChange:
    """Change of the base plan that a player follows."""

    episode: int
    step: int
    """Steps played before the change. Episodes and steps count from 0."""
    by: int
    """Seat of the player."""
    before: str
    """Previous base plan."""
    after: str
    text: str
    """The new plan and the comparison that decided for it."""


def review_of(session: Session) -> dict[str, Any]:
    """Returns the review of a session for the page and for JSON.

    Returns:
        `setup`; `returns` by episode and seat; `episodes`, each as `for_viewer` returns it, with a `title`; `beliefs`
        (see `beliefs_of`), `changes` (see `changes_of`) and `plan_changes` (see `plan_changes_of`; null if no co-player
        chooses among base plans); `choices`, the person's decisions beside the oracle's best by episode and step; and
        `summary` of the choices.
    """
    episodes = [episode_frames(session, number) for number in range(len(session.lasts))]
    decisions = judged_decisions(session)
    chooses_plans = any(frame.reasoning and frame.reasoning.base_plans for frames in episodes for frame in frames)
    return {
        "setup": session.setup.as_dict(),
        "returns": session.returns,
        "episodes": [
            {"title": f"episode {number}", **for_viewer(frames)} for number, frames in enumerate(episodes, start=1)
        ],
        "beliefs": beliefs_of(episodes),
        "changes": [asdict(change) for change in changes_of(episodes)],
        "plan_changes": [asdict(change) for change in plan_changes_of(episodes)] if chooses_plans else None,
        "choices": [
            [{"step": step, **asdict(decision)} for step, decision in enumerate(by_step)] for by_step in decisions
        ],
        "summary": summarize([decision for by_step in decisions for decision in by_step]),
    }


def episode_frames(session: Session, episode: int) -> list[Frame]:
    """Returns the frames of an episode with the reasoning of the co-players before each step."""
    turns, players = session.episodes[episode], session.session_players.players
    frames = []
    for step in range(len(turns) + 1):
        decisions, state, alive = {}, None, ()
        if step < len(turns):
            turn = turns[step]
            state, alive = turn.before.state, turn.alive
            decisions = {
                seat: turn.infos[seat] for seat, player in enumerate(players) if alive[seat] and planner_of(player)
            }
        reasoning = session_reasoning(session.game, players, decisions, state, alive)
        frames.append(session.frame_at(episode, step, reasoning=reasoning))
    return frames


def beliefs_of(episodes: Sequence[Sequence[Frame]]) -> list[dict[str, Any]]:
    """Returns the beliefs of all players about each other over a session.

    Returns:
        Rows with `by` and `about` (seats), `points`, a list of `episode`, `step` and `goals`, the probability of each
        goal by name, and `rationality`, the likely rationality hypothesis at the end as text; empty if none is likely.
    """
    points_by_pair: dict[tuple[int, int], list[dict[str, Any]]] = {}
    last: dict[tuple[int, int], Belief] = {}
    for episode, step, by, belief in _beliefs(episodes):
        goals = {name: round(value, 3) for name, value in belief.goals.items()}
        points_by_pair.setdefault((by, belief.about), []).append({"episode": episode, "step": step, "goals": goals})
        last[by, belief.about] = belief
    return [
        {"by": by, "about": about, "points": points, "rationality": describe_rationality(last[by, about])}
        for (by, about), points in sorted(points_by_pair.items())
    ]


def changes_of(episodes: Sequence[Sequence[Frame]]) -> list[BeliefChange]:
    """Returns all changes of the goals that players attribute to each other, in order of time."""
    held: dict[tuple[int, int], str] = {}
    changes = []
    for episode, step, by, belief in _beliefs(episodes):
        goal, probability = likeliest(belief.goals)
        before = held.get((by, belief.about))
        if probability >= CONFIDENCE and goal != before:
            held[by, belief.about] = goal
            changes.append(BeliefChange(episode, step, by, belief.about, before, goal, round(probability, 3)))
    return changes


def plan_changes_of(episodes: Sequence[Sequence[Frame]]) -> list[PlanChange]:
    """Returns all changes of the base plans that players follow, in order of time."""
    choices = [
        (episode, step, by, reasoning.plan.choice)
        for episode, step, by, reasoning in _reasonings(episodes)
        if reasoning.plan and reasoning.plan.choice
    ]
    return [
        PlanChange(episode, step, by, choice.reference.plan, choice.plan, describe_choice(choice))
        for episode, step, by, choice in choices
        if choice.changes_plan
    ]


def _beliefs(episodes: Sequence[Sequence[Frame]]) -> Iterator[tuple[int, int, int, Belief]]:
    """Yields episode, step, the believing seat, and its beliefs over more than one goal."""
    for episode, step, by, reasoning in _reasonings(episodes):
        for belief in reasoning.beliefs:
            if len(belief.goals) > 1:
                yield episode, step, by, belief


def _reasonings(episodes: Sequence[Sequence[Frame]]) -> Iterator[tuple[int, int, int, Reasoning]]:
    """Yields episode, step, seat and the reasoning of the player in it."""
    for episode, frames in enumerate(episodes):
        for step, frame in enumerate(frames):
            for seat, reasoning in frame.reasoning.reasonings.items() if frame.reasoning else ():
                yield episode, step, seat, reasoning


def judged_decisions(session: Session) -> list[list[JudgedDecision]]:
    """Returns the person's decisions, judged by an oracle, by finished episode and step until the person left."""
    seat, players = session.setup.seat, session.session_players
    by_episode = [
        [
            DecisionPoint(turn.before.state, turn.before.memories, int(turn.actions[seat]))
            for turn in turns
            if turn.alive[seat]
        ]
        for turns in session.episodes[: len(session.lasts)]
    ]
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(session.setup.seed), session.setup.episodes), JUDGING)
    points = [point for episode in by_episode for point in episode]
    judged = judge_decisions(session.game, players.players, players.params, seat, points, key) if points else []
    remaining = iter(judged)
    return [[next(remaining) for _ in episode] for episode in by_episode]
