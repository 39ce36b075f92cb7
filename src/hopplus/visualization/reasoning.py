"""Reasoning of planners in one state, as plain Python: beliefs about co-players, policy, and search results."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, compress
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from hopplus.games import Game
    from hopplus.players import Cast, Player
    from hopplus.players.planner import Decision, Planner
    from hopplus.rollouts import Trajectory

Probabilities = Mapping[str, float]
"""Probabilities by goal name or action name."""
FEW_GOALS, LEAST_SHARE, OTHERS = 8, 0.05, "others"
"""With more than `FEW_GOALS` goals, goals below a probability of `LEAST_SHARE` in all beliefs are shown as `OTHERS`."""


@dataclass(frozen=True)
class Belief:
    """Belief of a player about a co-player."""

    about: int
    """Seat of the co-player."""
    goals: Probabilities
    """Posterior over all goals, including unavailable ones."""
    actions: Probabilities
    """Prediction of the next action over all actions, including illegal ones."""


@dataclass(frozen=True)
class SearchSummary:
    """Result of a tree search over the legal actions."""

    values: Mapping[str, float]
    """Action values, in units of the game's reward."""
    visits: Mapping[str, int]
    """Visit counts; the value of an unvisited action is only an estimate."""
    policy: Probabilities
    """Policy of the search."""
    value: float
    """Expected return for the rest of the episode."""
    depth: float
    """Mean search depth over the trees, in steps."""


@dataclass(frozen=True)
class Reasoning:
    """Reasoning of a player before it acts."""

    policy: Probabilities
    """Probabilities of the legal actions by the policy, without search."""
    value: float
    """Value estimate for the rest of the episode, without search."""
    beliefs: tuple[Belief, ...]
    """Beliefs about the co-players still in the game, ego-first: the next seat first."""
    search: SearchSummary | None = None
    """None for a player without search."""

    @property
    def action_probabilities(self) -> Probabilities:
        """Probabilities of the legal actions, by the search if there is one."""
        return self.search.policy if self.search else self.policy

    @property
    def expected_return(self) -> float:
        """Expected return for the rest of the episode, by the search if there is one."""
        return self.search.value if self.search else self.value


@dataclass(frozen=True)
class FrameReasoning:
    """Reasoning of all planners in one state."""

    goals: tuple[str, ...]
    """All goals in the beliefs of this cast; the same for all steps of an episode."""
    actions: tuple[str, ...]
    """All actions of the game."""
    by_seat: Mapping[int, Reasoning | None]
    """Reasoning of every planner; None for one that has left, and after the end."""

    @property
    def reasonings(self) -> dict[int, Reasoning]:
        """Reasoning of the planners still in the game, by seat."""
        return {seat: reasoning for seat, reasoning in self.by_seat.items() if reasoning}

    @property
    def shown_goals(self) -> tuple[str, ...]:
        """Goals that are shown separately, with `others` if some are merged."""
        beliefs = [belief for reasoning in self.reasonings.values() for belief in reasoning.beliefs]
        if len(self.goals) <= FEW_GOALS:
            return self.goals
        likely = [any(belief.goals.get(name, 0) >= LEAST_SHARE for belief in beliefs) for name in self.goals]
        return (*compress(self.goals, likely), *([] if all(likely) else [OTHERS]))

    def shown(self, belief: Belief) -> dict[str, float]:
        """Returns the probabilities of the shown goals; empty for a single goal."""
        if len(belief.goals) < 2:
            return {}
        shown = {name: belief.goals[name] for name in self.shown_goals if name in belief.goals}
        rest = max(0.0, 1.0 - sum(shown.values()))
        return {**shown, OTHERS: rest} if OTHERS in self.shown_goals else shown

    def figures(self) -> list[dict[str, Any]]:
        """Returns plain values for JSON, one entry per planner still in the game.

        Returns:
            `seat`; `plans` and `probability` (likeliest action); `policy`, `value`; `beliefs`, a list with `about` (a
            seat), `goals`, `likeliest_goal`, `actions`, `likeliest_action`; `search`, null or `values`, `visits`,
            `policy`, `value`, `depth`. Values by goal or action are objects with names as keys; of the player's own
            actions, only the legal ones.
        """
        return [_figures(seat, reasoning) for seat, reasoning in self.reasonings.items()]


def _figures(seat: int, reasoning: Reasoning) -> dict[str, Any]:
    plans, probability = likeliest(reasoning.action_probabilities)
    beliefs = [
        {
            **asdict(belief),
            "likeliest_goal": likeliest(belief.goals)[0],
            "likeliest_action": likeliest(belief.actions)[0],
        }
        for belief in reasoning.beliefs
    ]
    return {"seat": seat, "plans": plans, "probability": probability, **asdict(reasoning), "beliefs": beliefs}


def likeliest(probabilities: Probabilities) -> tuple[str, float]:
    """Returns the name with the highest probability, the first in case of ties, and the probability."""
    return max(probabilities.items(), key=lambda entry: entry[1])


def portions(probabilities: Probabilities, whole: int) -> dict[str, int]:
    """Divides `whole` units in proportion to the probabilities (largest remainders); omits names without units."""
    exact = {name: whole * probability / sum(probabilities.values()) for name, probability in probabilities.items()}
    units = {name: int(share) for name, share in exact.items()}
    by_remainder = sorted(exact, key=lambda name: units[name] - exact[name])
    for name in by_remainder[: whole - sum(units.values())]:
        units[name] += 1
    return {name: count for name, count in units.items() if count}


# --------------------------------------------------------------------------------------------- from planners' decisions


def frame_reasoning(game: "Game[Any]", cast: "Cast", trajectory: "Trajectory", step: int) -> FrameReasoning | None:
    """Returns the reasoning before a step in the first environment of a trajectory.

    Args:
        game: Game of the trajectory.
        cast: Players of the trajectory.
        trajectory: One episode [T, E, ...].
        step: Step from 0 to T, where T is after the last step.

    Returns:
        None if no player is a planner.
    """
    from hopplus.players.cast import info_of

    if step >= len(trajectory.alive):
        return session_reasoning(game, cast.players, {}, None, ())
    alive = np.asarray(trajectory.alive[step, 0])
    decisions = {
        seat: _at(info_of(cast, trajectory.info, seat), step)
        for seat, player in enumerate(cast.players)
        if alive[seat] and planner_of(player)
    }
    return session_reasoning(game, cast.players, decisions, _at(trajectory.state, step), alive)


def session_reasoning(
    game: "Game[Any]",
    players: "Sequence[Player]",
    decisions: "Mapping[int, Decision]",
    state: Any,
    alive: Sequence[bool] | np.ndarray,
) -> FrameReasoning | None:
    """Returns the reasoning in a state, from the decisions of the planners.

    Args:
        game: Game of the state.
        players: Players by seat.
        decisions: Decisions by seat; planners without one have left, or the episode is over.
        state: State of one environment; not used without decisions.
        alive: Players still in the game [n]; not used without decisions.

    Returns:
        None if no player is a planner.
    """
    planners = {seat: planner for seat, player in enumerate(players) if (planner := planner_of(player))}
    if not planners:
        return None
    goals = {seat: goal_names(planner) for seat, planner in planners.items()}
    by_seat: dict[int, Reasoning | None] = dict.fromkeys(planners)
    legal = _legal(game, state) if decisions else None
    for seat, decision in decisions.items():
        assert legal is not None
        by_seat[seat] = player_reasoning(decision, seat, goals[seat], game.action_names, legal[seat], alive)
    return FrameReasoning(tuple(dict.fromkeys(chain(*goals.values()))), game.action_names, by_seat)


def planner_of(player: "Player") -> "Planner | None":
    """Returns the player if it is a planner, or the planner inside a `Noisy` player; else None."""
    from hopplus.players.planner import Planner
    from hopplus.players.scripted import Noisy

    if isinstance(player, Noisy):
        return planner_of(player.player)
    return player if isinstance(player, Planner) else None


def goal_names(planner: "Planner") -> tuple[str, ...]:
    """Returns the names of the goals in a planner's opponent model."""
    assert planner.belief_tracker is not None
    return planner.belief_tracker.opponent_model.goal_names


def player_reasoning(
    decision: "Decision",
    seat: int,
    goals: Sequence[str],
    actions: Sequence[str],
    legal: Iterable[bool],
    alive: Sequence[bool] | np.ndarray,
) -> Reasoning:
    """Converts the decision of a planner from arrays to names and seats.

    Args:
        decision: Decision of the planner in one state.
        seat: Seat of the planner.
        goals: Names of the goals [K].
        actions: Names of the actions [A].
        legal: Legal actions of the planner [A].
        alive: Players still in the game [n].
    """
    legal_actions = np.flatnonzero(np.asarray(legal)).tolist()
    players = len(alive)

    def by_action(values: Any) -> dict[str, float]:
        return {actions[number]: float(values[number]) for number in legal_actions}

    beliefs = tuple(
        Belief(about, _named(goals, decision.belief[index]), _named(actions, decision.action_probs[index]))
        for index, about in enumerate((seat + 1 + offset) % players for offset in range(players - 1))
        if alive[about]
    )
    plan, search = decision.plan, None
    if plan is not None:
        search = SearchSummary(
            values=by_action(plan.values),
            visits={name: round(number) for name, number in by_action(plan.visits).items()},
            policy=by_action(plan.policy),
            value=float(plan.value),
            depth=float(plan.depth),
        )
    return Reasoning(by_action(decision.policy), float(decision.value), beliefs, search)


def _named(names: Sequence[str], values: Any) -> dict[str, float]:
    return {name: float(value) for name, value in zip(names, values, strict=True)}


def _at(tree: Any, step: int) -> Any:
    """Returns one step of the first environment from arrays [T, E, ...]."""
    import jax

    return jax.tree.map(lambda leaf: np.asarray(leaf[step, 0]), tree)


def _legal(game: "Game[Any]", state: Any) -> np.ndarray:
    """Returns the action masks of all seats in a state [n, A]."""
    import jax

    return np.asarray(jax.jit(type(game).legal, static_argnums=0)(game, state))
