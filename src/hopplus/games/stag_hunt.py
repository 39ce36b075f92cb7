"""The Markov Stag Hunt: one player can catch a hare, a stag takes two; a player leaves with its catch."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from hopplus.core.bits import single, union
from hopplus.core.errors import InputError
from hopplus.core.keys import Key
from hopplus.games.board import Cell
from hopplus.games.game import NEUTRAL, NamedPreference
from hopplus.games.grid import GridGame, GridState, shares
from hopplus.games.layouts import state_from_layout

STAG, HARE = 5, 6
DYNAMIC_END_STEPS = 5
"""Steps from the first catch to the end of the game, with `dynamic_end`."""


@functools.cache
def best_assignment(
    worth: tuple[float, ...], strengths: tuple[int, ...], stags: int, hares: int, stag_reward: float, hare_reward: float
) -> float:
    """Maximum of sum(worth[i] * reward[i]) over all assignments of players to prey, at most one hunt per player."""
    n = len(worth)

    @functools.cache
    def value(party: int) -> float:
        """Weighted shares of a party (a bit set of players) in one prey of reward 1."""
        members = [player for player in range(n) if party >> player & 1]
        total = sum(strengths[player] for player in members)
        parts = [strengths[player] / total if total else 1 / len(members) for player in members]
        return sum(worth[player] * part for player, part in zip(members, parts, strict=True))

    @functools.cache
    def best(waiting: int, stags: int, hares: int) -> float:
        if not waiting:
            return 0.0
        first = waiting & -waiting
        others = waiting ^ first
        result = best(others, stags, hares)
        companions = others
        while True:
            party, rest = first | companions, others ^ companions
            if hares:
                result = max(result, hare_reward * value(party) + best(rest, stags, hares - 1))
            if stags and companions:
                result = max(result, stag_reward * value(party) + best(rest, stags - 1, hares))
            if not companions:
                return result
            companions = (companions - 1) & others

    return best((1 << n) - 1, stags, hares)


@dataclass(frozen=True)
class StagHunt(GridGame):
    """The Markov Stag Hunt. Settings are fields; `hopplus.games.make` overrides them by name."""

    name: str = "msh"
    stags: int = 1
    """Number of stags."""
    hares: int = 4
    """Number of hares."""
    stag_reward: float = 10.0
    """Reward for a stag, shared by the players who catch it."""
    hare_reward: float = 1.0
    """Reward for a hare, shared by the players who catch it."""
    stag_needs_company: bool = True
    """STAG is legal only while at least two players stand on the stag's cell."""
    dynamic_end: bool = False
    """End the episode five steps after the first catch."""
    prosocial: tuple[int, ...] = ()
    """Seats whose reward is the mean over all players instead of their own, until they leave."""
    strengths: tuple[int, ...] | None = None
    """Integer weights by seat for sharing a joint catch; None means equal shares."""

    version: ClassVar[str] = "1"
    action_names: ClassVar[tuple[str, ...]] = ("UP", "DOWN", "LEFT", "RIGHT", "STAY", "STAG", "HARE")
    item_names: ClassVar[tuple[str, ...]] = ("stag", "hare")

    def __post_init__(self) -> None:
        self._require_integer("stags", 0)
        self._require_integer("hares", 0)
        self._require_amount("stag_reward")
        self._require_amount("hare_reward")
        super().__post_init__()
        for field in ("prosocial", "strengths"):
            value = getattr(self, field)
            if isinstance(value, list | range):
                object.__setattr__(self, field, tuple(value))
            elif isinstance(value, int):
                object.__setattr__(self, field, (value,))
        if not all(seat in range(self.players) for seat in self.prosocial):
            raise InputError(f"prosocial must name seats from 0 to {self.players - 1}, not {self.prosocial}")
        weights = self.strengths
        if weights is not None and not (
            len(weights) == self.players and all(isinstance(weight, int) and weight >= 0 for weight in weights)
        ):
            raise InputError(f"strengths must be {self.players} whole numbers of at least 0, not {weights!r}")

    @property
    def rules(self) -> str:
        alone = "STAG is legal only in company" if self.stag_needs_company else "one player alone gets nothing"
        return (
            f"A hare gives {self.hare_reward:g}, shared by the players who press HARE on its cell in the same step. A"
            f" stag gives {self.stag_reward:g}, shared by the players who press STAG on its cell in the same step:"
            f" {alone}. A player leaves with its catch. Prey never moves. The episode ends when all players have left,"
            f" or after {self.T} steps."
        )

    @property
    def item_counts(self) -> tuple[int, ...]:
        return (self.stags, self.hares)

    @property
    def component_names(self) -> tuple[str, ...]:
        return self.item_names

    @property
    def preferences(self) -> tuple[NamedPreference, ...]:
        """The neutral preference, hunters of one prey only who are in a hurry, and a lover of stags."""
        return (
            NamedPreference(NEUTRAL, (1.0, 1.0)),
            NamedPreference("stags", (1.0, -1.0), step_cost=0.05),
            NamedPreference("hares", (-1.0, 1.0), step_cost=0.05),
            NamedPreference("loves stags", (2.0, 0.3)),
        )

    @property
    def _strengths(self) -> tuple[int, ...]:
        return self.strengths or (1,) * self.players

    @property
    def ceilings(self) -> Mapping[str, float]:
        """`mean`: the best assignment of players to prey.

        `player`: the maximum return of any player; `all_stag` and `all_hare`: the best mean return if only that prey
        is hunted.
        """
        n, pairs = self.players, min(self.stags, self.players // 2)
        earned = self._best_total((1.0,) * n) / n
        player_bests = [earned] if self.prosocial else []
        for seat in set(range(n)).difference(self.prosocial):
            player_bests.append(self._best_total(tuple(float(other == seat) for other in range(n))))
        # The reward of a prosocial seat is 1 / n of all that is earned; its own catch counts only in that.
        worth = tuple((seat not in self.prosocial) + len(self.prosocial) / n for seat in range(n))
        return {
            "mean": self._best_total(worth) / n,
            "player": max(player_bests),
            "all_stag": pairs * self.stag_reward / n,
            "all_hare": min(self.hares, n) * self.hare_reward / n,
        }

    def _best_total(self, worth: tuple[float, ...]) -> float:
        stags, hares = min(self.stags, self.players // 2), min(self.hares, self.players)
        return best_assignment(worth, self._strengths, stags, hares, self.stag_reward, self.hare_reward)

    def from_layout(
        self,
        players: Sequence[Cell | None],
        stags: Sequence[Cell] = (),
        hares: Sequence[Cell] = (),
        blocks: Sequence[Cell] = (),
        time: int = 0,
        deadline: int | None = None,
        last_actions: Sequence[int] | None = None,
    ) -> GridState:
        """Builds a state from cells as (row, column); None for a player who has left."""
        return state_from_layout(self, players, {"stag": stags, "hare": hares}, blocks, time, deadline, last_actions)

    def reseat(self, order: Sequence[int]) -> "StagHunt":
        strengths = None if self.strengths is None else tuple(self.strengths[seat] for seat in order)
        prosocial = tuple(seat for seat, player in enumerate(order) if player in self.prosocial)
        return replace(self, strengths=strengths, prosocial=prosocial)

    def legal(self, state: GridState) -> Bool[Array, "n A"]:
        legal = super().legal(state)
        if not self.stag_needs_company:
            return legal
        company = (state.cells[:, None] == state.cells).sum(-1) >= 2
        return legal & ((jnp.arange(self.num_actions) != STAG) | company[:, None])

    def over(self, state: GridState) -> Bool[Array, ""]:
        return self.left(state).all() | (state.time >= state.deadline)

    def transition(
        self, key: Key, state: GridState, actions: Int[Array, " n"]
    ) -> tuple[GridState, Float[Array, "n 2"], Int[Array, " n"], Int[Array, " n"]]:
        company = self.company(state, actions)
        hunts_stag = actions == STAG
        caught = (actions == HARE) | (hunts_stag & (company.sum(-1) >= 2))
        value = jnp.where(hunts_stag, jnp.float32(self.stag_reward), jnp.float32(self.hare_reward))
        reward = jnp.where(caught, shares(company, value, self.strengths), 0.0)
        components = jnp.stack([jnp.where(hunts_stag, reward, 0.0), jnp.where(hunts_stag, 0.0, reward)], -1)
        if self.prosocial:
            shares_mean = jnp.array([seat in self.prosocial for seat in range(self.players)]) & ~self.left(state)
            mean = self._mean_components(company, caught, hunts_stag)
            components = jnp.where(shares_mean[:, None], mean, components)

        prey_cells = jnp.where(caught, state.cells, -1)
        items = state.items & ~union(single(prey_cells, self.words))
        time = state.time + 1
        deadline = state.deadline
        if self.dynamic_end:
            hunted_before = self.left(state).any()
            first_hunt = caught.any() & ~hunted_before
            deadline = jnp.where(first_hunt, jnp.minimum(time + DYNAMIC_END_STEPS, deadline), deadline)
        after = GridState(
            cells=jnp.where(caught, -1, self.walk(state.cells, actions)),
            blocks=state.blocks,
            items=items,
            time=time,
            deadline=deadline,
            last_actions=jnp.where(self.left(state), state.last_actions, actions),
        )
        took = jnp.where(caught, jnp.where(hunts_stag, 1, 2), 0)
        return after, components, took, prey_cells

    def _mean_components(
        self, company: Bool[Array, "n n"], caught: Bool[Array, " n"], hunts_stag: Bool[Array, " n"]
    ) -> Float[Array, " 2"]:
        """Mean reward of all players for stags and for hares.

        It is computed from counts of prey, each at the first of its catchers, so that the order of the seats cannot
        change a bit of it. The larger part is rounded, and the smaller one is the rest of the mean reward: the
        difference is exact, so that both sum to the mean reward to the last bit.
        """
        first = caught & ~jnp.tril(company, k=-1).any(-1)
        stags, hares = (first & hunts_stag).sum(), (first & ~hunts_stag).sum()
        earned = jnp.stack([stags * self.stag_reward, hares * self.hare_reward])
        parts = earned / jnp.float32(self.players)
        mean = (stags * self.stag_reward + hares * self.hare_reward) / jnp.float32(self.players)
        return jnp.where(earned >= earned[::-1], parts, mean - parts[::-1])
