"""What the players of one moment think, as plain Python: what they believe of each other, and what they plan."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, compress
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from hopplus.games import Game
    from hopplus.play import Episode
    from hopplus.players import Cast, Player
    from hopplus.players.planner import Planner, Thought

Probabilities = Mapping[str, float]
"""By the name of a goal or of an action."""
FEW_GOALS, LEAST_SHARE, OTHERS = 8, 0.05, "others"
"""Where there are more goals than so many, those are told apart that somebody believes in so much."""


@dataclass(frozen=True)
class Belief:
    """What a player makes of a co-player."""

    about: int
    """The co-player's seat."""
    goals: Probabilities
    """What it may be after: all goals there are, also impossible ones."""
    actions: Probabilities
    """What it will do in the next step: all actions, also illegal ones."""


@dataclass(frozen=True)
class Searched:
    """What a search found about the legal actions."""

    values: Mapping[str, float]
    """What each is worth, in the game's reward."""
    visits: Mapping[str, int]
    """How often each was tried; the value of one that never was is a guess."""
    policy: Probabilities
    """How likely it makes each."""
    value: float
    """What the player can expect of the rest of the episode, by the search."""
    depth: float
    """How many steps it looked ahead, on average over its trees."""


@dataclass(frozen=True)
class Reasoning:
    """What a player thinks before it acts."""

    policy: Probabilities
    """How likely its policy makes every legal action, without a search."""
    value: float
    """What it expects of the rest of the episode, without a search."""
    beliefs: tuple[Belief, ...]
    """About the co-players that are still in the game, in its own order: the next seat first."""
    search: Searched | None = None
    """None for a player that acts by its policy."""

    @property
    def chances(self) -> Probabilities:
        """How likely it makes every legal action, by the search if there is one."""
        return self.search.policy if self.search else self.policy

    @property
    def expects(self) -> float:
        """Of the rest of the episode, by the search if there is one."""
        return self.search.value if self.search else self.value


@dataclass(frozen=True)
class Thinking:
    """What the players of one moment think."""

    goals: tuple[str, ...]
    """All that anybody in this cast may be taken to be after; the same for all moments of an episode."""
    actions: tuple[str, ...]
    """All actions of the game."""
    by_seat: Mapping[int, Reasoning | None]
    """Of every player that thinks; None for one that has left, and after the end."""

    @property
    def reasonings(self) -> dict[int, Reasoning]:
        """Of those that think now, by seat."""
        return {seat: own for seat, own in self.by_seat.items() if own}

    @property
    def shown_goals(self) -> tuple[str, ...]:
        """Those that are told apart, `others` among them where there are any."""
        beliefs = [belief for own in self.reasonings.values() for belief in own.beliefs]
        if len(self.goals) <= FEW_GOALS:
            return self.goals
        likely = [any(belief.goals.get(name, 0) >= LEAST_SHARE for belief in beliefs) for name in self.goals]
        return (*compress(self.goals, likely), *([] if all(likely) else [OTHERS]))

    def shown(self, belief: Belief) -> dict[str, float]:
        """The probabilities of the goals that are shown; nothing where there is but one goal."""
        if len(belief.goals) < 2:
            return {}
        apart = {name: belief.goals[name] for name in self.shown_goals if name in belief.goals}
        rest = max(0.0, 1.0 - sum(apart.values()))
        return {**apart, OTHERS: rest} if OTHERS in self.shown_goals else apart

    def figures(self) -> list[dict[str, Any]]:
        """Plain values for JSON, an entry for each player that thinks now. Keys: `seat`; `plans` and `probability`, the
        action that it likes best and how much; `policy`, `value`; `beliefs`, a list with `about` (a seat), `goals`,
        `likeliest_goal`, `actions`, `likeliest_action`; `search`, null or `values`, `visits`, `policy`, `value`,
        `depth`. What is by goal or action is an object with their names as keys; of its own actions, the legal ones."""
        return [_figures(seat, own) for seat, own in self.reasonings.items()]


def _figures(seat: int, own: Reasoning) -> dict[str, Any]:
    plans, probability = likeliest(own.chances)
    beliefs = [
        {
            **asdict(belief),
            "likeliest_goal": likeliest(belief.goals)[0],
            "likeliest_action": likeliest(belief.actions)[0],
        }
        for belief in own.beliefs
    ]
    return {"seat": seat, "plans": plans, "probability": probability, **asdict(own), "beliefs": beliefs}


def likeliest(probabilities: Probabilities) -> tuple[str, float]:
    """The name with the highest probability, the first of several, and how high it is."""
    return max(probabilities.items(), key=lambda entry: entry[1])


def portions(probabilities: Probabilities, whole: int) -> dict[str, int]:
    """So many whole parts shared out in proportion to the probabilities; those that get none are not in it."""
    exact = {name: whole * probability / sum(probabilities.values()) for name, probability in probabilities.items()}
    parts = {name: int(share) for name, share in exact.items()}
    by_remainder = sorted(exact, key=lambda name: parts[name] - exact[name])
    for name in by_remainder[: whole - sum(parts.values())]:
        parts[name] += 1
    return {name: part for name, part in parts.items() if part}


# --------------------------------------------------------------------------------------------- from players' words


def thinking_of(game: "Game[Any]", cast: "Cast", episode: "Episode", step: int) -> Thinking | None:
    """What everybody in the first environment of an episode thinks before a step, the number of steps being after the
    last; None where nobody in the cast thinks."""
    from hopplus.players.cast import info_of

    if step >= len(episode.alive):
        return thinking_at(game, cast.players, {}, None, ())
    there = np.asarray(episode.alive[step, 0])
    thoughts = {
        seat: _at(info_of(cast, episode.info, seat), step)
        for seat, player in enumerate(cast.players)
        if there[seat] and planner_of(player)
    }
    return thinking_at(game, cast.players, thoughts, _at(episode.state, step), there)


def thinking_at(
    game: "Game[Any]",
    players: "Sequence[Player]",
    thoughts: "Mapping[int, Thought]",
    state: Any,
    there: Sequence[bool] | np.ndarray,
) -> Thinking | None:
    """What everybody thinks in a state, from what players said, by seat, and who [n] is still there; None where nobody
    among them ever thinks. Those who said nothing have left, or it is after the end."""
    planners = {seat: planner for seat, player in enumerate(players) if (planner := planner_of(player))}
    if not planners:
        return None
    goals = {seat: goal_names(planner) for seat, planner in planners.items()}
    by_seat: dict[int, Reasoning | None] = dict.fromkeys(planners)
    legal = _legal(game, state) if thoughts else None
    for seat, thought in thoughts.items():
        assert legal is not None
        by_seat[seat] = reasoning_of(thought, seat, goals[seat], game.action_names, legal[seat], there)
    return Thinking(tuple(dict.fromkeys(chain(*goals.values()))), game.action_names, by_seat)


def planner_of(player: "Player") -> "Planner | None":
    """Whose thoughts a player says: its own, or those of the planner whose hand slips; None where it says none."""
    from hopplus.players.planner import Planner
    from hopplus.players.scripted import Noisy

    if isinstance(player, Noisy):
        return planner_of(player.player)
    return player if isinstance(player, Planner) else None


def goal_names(planner: "Planner") -> tuple[str, ...]:
    """What the goals are called that a planner takes others to have."""
    assert planner.acquainting is not None
    return planner.acquainting.others.names


def reasoning_of(
    thought: "Thought",
    seat: int,
    goals: Sequence[str],
    actions: Sequence[str],
    legal: Iterable[bool],
    there: Sequence[bool] | np.ndarray,
) -> Reasoning:
    """A planner's thought in one situation, from its arrays: which of the actions [A] are legal for it, and which
    players [n] are still there."""
    allowed = np.flatnonzero(np.asarray(legal)).tolist()
    players = len(there)

    def by_action(values: Any) -> dict[str, float]:
        return {actions[number]: float(values[number]) for number in allowed}

    beliefs = tuple(
        Belief(about, _named(goals, thought.belief[place]), _named(actions, thought.expected[place]))
        for place, about in enumerate((seat + 1 + place) % players for place in range(players - 1))
        if there[about]
    )
    search = None
    if not isinstance(thought.plan, tuple):
        plan = thought.plan
        visits = {name: round(number) for name, number in by_action(plan.visits).items()}
        search = Searched(by_action(plan.values), visits, by_action(plan.policy), float(plan.value), float(plan.depth))
    return Reasoning(by_action(thought.policy), float(thought.value), beliefs, search)


def _named(names: Sequence[str], values: Any) -> dict[str, float]:
    return {name: float(value) for name, value in zip(names, values, strict=True)}


def _at(tree: Any, step: int) -> Any:
    """Of arrays [T, E, ...] what is about one step of the first environment."""
    import jax

    return jax.tree.map(lambda leaf: np.asarray(leaf[step, 0]), tree)


def _legal(game: "Game[Any]", state: Any) -> np.ndarray:
    """Which actions are legal in a state [n, A]."""
    import jax

    return np.asarray(jax.jit(type(game).legal, static_argnums=0)(game, state))
