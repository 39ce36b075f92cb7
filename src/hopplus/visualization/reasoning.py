"""Reasoning of planners in one state, as plain Python: beliefs about co-players, policy, and results of planning."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain, compress
from typing import TYPE_CHECKING, Any

import numpy as np

from hopplus.visualization.plan_summary import PlanSummary, base_plan_names, summarize_plan

if TYPE_CHECKING:
    from hopplus.games import Game
    from hopplus.players import Cast, Player
    from hopplus.players.planner import Decision, Planner
    from hopplus.rollouts import Trajectory

Probabilities = Mapping[str, float]
"""Probabilities by name of a goal, an action or a rationality hypothesis."""
FEW_GOALS, LEAST_SHARE, OTHERS = 8, 0.05, "others"
"""With more than `FEW_GOALS` goals, goals below a probability of `LEAST_SHARE` in all beliefs are shown as `OTHERS`."""
MAJORITY = 0.5
"""Least probability of a rationality hypothesis that is shown: it is likelier than all others together."""


@dataclass(frozen=True)
class Belief:
    """Belief of a player about a co-player."""

    about: int
    """Seat of the co-player."""
    goals: Probabilities
    """Posterior over all goals, including unavailable ones."""
    actions: Probabilities
    """Prediction of the next action over all actions, including illegal ones."""
    rationality: Probabilities = field(default_factory=dict[str, float])
    """Posterior over the rationality hypotheses, that over a preference in one sum; empty if unknown."""

    @property
    def likely_rationality(self) -> str | None:
        """The likeliest of several rationality hypotheses; None if it is less likely than the others together."""
        if len(self.rationality) < 2:
            return None
        name, probability = likeliest(self.rationality)
        return name if probability >= MAJORITY else None


@dataclass(frozen=True)
class Reasoning:
    """Reasoning of a player before it acts."""

    policy: Probabilities
    """Probabilities of the legal actions by the policy, without planning."""
    value: float
    """Value estimate for the rest of the episode, without planning."""
    beliefs: tuple[Belief, ...]
    """Beliefs about the co-players still in the game, ego-first: the next seat first."""
    plan: PlanSummary | None = None
    """None for a player that acts without planning."""

    @property
    def action_probabilities(self) -> Probabilities:
        """Probabilities of the legal actions, by the plan if there is one."""
        return self.plan.policy if self.plan else self.policy

    @property
    def expected_return(self) -> float:
        """Expected return for the rest of the episode, by the plan if there is one."""
        return self.plan.value if self.plan else self.value


@dataclass(frozen=True)
class FrameReasoning:
    """Reasoning of all planners in one state."""

    goals: tuple[str, ...]
    """All goals in the beliefs of this cast; the same for all steps of an episode."""
    actions: tuple[str, ...]
    """All actions of the game."""
    by_seat: Mapping[int, Reasoning | None]
    """Reasoning of every planner; None for one that has left, and after the end."""
    rationalities: tuple[str, ...] = ()
    """All rationality hypotheses of planners that have several; the same for all steps of an episode."""
    base_plans: Mapping[int, tuple[str, ...]] = field(default_factory=dict[int, tuple[str, ...]])
    """Base plans of the planners that choose among them, by seat; the same for all steps of an episode."""

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
            `seat`; `likeliest_action` and its `probability`; `policy`, `value`; `beliefs`, a list with `about` (a
            seat), `goals`, `likeliest_goal`, `actions`, `likeliest_action`, `rationality`, `likely_rationality` (null
            if none is likelier than all others together); `plan`, null or the fields of `PlanSummary`. Its `errors` are
            null if the planner has none, and its `choice` is null or the fields of `ChoiceSummary`. Values by goal,
            action, hypothesis or base plan are objects with names as keys; of the player's own actions, only the legal
            ones.
        """
        return [_figures(seat, reasoning) for seat, reasoning in self.reasonings.items()]


def _figures(seat: int, reasoning: Reasoning) -> dict[str, Any]:
    action, probability = likeliest(reasoning.action_probabilities)
    beliefs = [
        {
            **asdict(belief),
            "likeliest_goal": likeliest(belief.goals)[0],
            "likeliest_action": likeliest(belief.actions)[0],
            "likely_rationality": belief.likely_rationality,
        }
        for belief in reasoning.beliefs
    ]
    fields = {**asdict(reasoning), "beliefs": beliefs}
    return {"seat": seat, "likeliest_action": action, "probability": probability, **fields}


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
    names = {seat: names_of(game, planner) for seat, planner in planners.items()}
    by_seat: dict[int, Reasoning | None] = dict.fromkeys(planners)
    legal = _legal(game, state) if decisions else None
    for seat, decision in decisions.items():
        assert legal is not None
        by_seat[seat] = player_reasoning(decision, seat, names[seat], legal[seat], alive)
    return FrameReasoning(
        goals=_each_once(entry.goals for entry in names.values()),
        actions=game.action_names,
        by_seat=by_seat,
        rationalities=_each_once(entry.rationalities for entry in names.values() if len(entry.rationalities) > 1),
        base_plans={seat: tuple(entry.base_plans) for seat, entry in names.items() if entry.base_plans},
    )


def _each_once(names: Iterable[Iterable[str]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(chain.from_iterable(names)))


def planner_of(player: "Player") -> "Planner | None":
    """Returns the player if it is a planner, or the planner inside a `Noisy` player; else None."""
    from hopplus.players.planner import Planner
    from hopplus.players.scripted import Noisy

    if isinstance(player, Noisy):
        return planner_of(player.player)
    return player if isinstance(player, Planner) else None


@dataclass(frozen=True)
class DecisionNames:
    """Names of the entries in a planner's decisions."""

    goals: Sequence[str]
    """Goals [K]."""
    rationalities: Sequence[str]
    """Rationality hypotheses [B]; those with the same name are shown together."""
    actions: Sequence[str]
    """Actions [A]."""
    base_plans: Sequence[str]
    """Base plans [W]; none unless the planner plans by belief rollouts."""


def names_of(game: "Game[Any]", planner: "Planner") -> DecisionNames:
    """Returns the names of the entries in a planner's decisions."""
    tracker = planner.tracker
    return DecisionNames(
        tracker.opponent_model.goal_names,
        tracker.rationality.short_names,
        game.action_names,
        base_plan_names(planner),
    )


def player_reasoning(
    decision: "Decision",
    seat: int,
    names: DecisionNames,
    legal: Iterable[bool],
    alive: Sequence[bool] | np.ndarray,
) -> Reasoning:
    """Converts the decision of a planner from arrays to names and seats.

    Args:
        decision: Decision of the planner in one state.
        seat: Seat of the planner.
        names: Names of the entries.
        legal: Legal actions of the planner [A].
        alive: Players still in the game [n].
    """
    legal_actions = np.flatnonzero(np.asarray(legal)).tolist()
    players = len(alive)
    beliefs = tuple(
        Belief(
            about,
            _named(names.goals, decision.belief[index]),
            _named(names.actions, decision.action_probs[index]),
            _summed(names.rationalities, decision.rationality[index]),
        )
        for index, about in enumerate((seat + 1 + offset) % players for offset in range(players - 1))
        if alive[about]
    )
    policy = {names.actions[number]: float(decision.policy[number]) for number in legal_actions}
    plan = decision.plan
    summary = None if plan is None else summarize_plan(plan, names.actions, legal_actions, names.base_plans)
    return Reasoning(policy, float(decision.value), beliefs, summary)


def _named(names: Sequence[str], values: Any) -> dict[str, float]:
    return {name: float(value) for name, value in zip(names, values, strict=True)}


def _summed(names: Sequence[str], values: Any) -> dict[str, float]:
    """Sums of the values of each name."""
    numbers = np.asarray(values, float)
    return {name: float(numbers[[other == name for other in names]].sum()) for name in dict.fromkeys(names)}


def _at(tree: Any, step: int) -> Any:
    """Returns one step of the first environment from arrays [T, E, ...]."""
    import jax

    return jax.tree.map(lambda leaf: np.asarray(leaf[step, 0]), tree)


def _legal(game: "Game[Any]", state: Any) -> np.ndarray:
    """Returns the action masks of all seats in a state [n, A]."""
    import jax

    return np.asarray(jax.jit(type(game).legal, static_argnums=0)(game, state))
