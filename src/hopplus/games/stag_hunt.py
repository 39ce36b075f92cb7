"""The Markov Stag Hunt: a hare can be caught alone, a stag only together; whoever catches something leaves with it."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from hopplus.bits import single, union
from hopplus.errors import InputError
from hopplus.games.grid import Cell, GridGame, GridState, shares
from hopplus.keys import Key

STAG, HARE = 5, 6
DYNAMIC_END_STEPS = 5
"""With `dynamic_end`, the game ends this many steps after the first hunt."""


@functools.cache
def best_assignment(
    worth: tuple[float, ...], strengths: tuple[int, ...], stags: int, hares: int, stag_reward: float, hare_reward: float
) -> float:
    """The greatest sum of worth[i] * earned[i] over all ways to send players to prey, at most one hunt each."""
    n = len(worth)

    @functools.cache
    def value(party: int) -> float:
        """What a party (a set of players as bits) makes of one prey of reward 1."""
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
        found = best(others, stags, hares)
        companions = others
        while True:
            party, rest = first | companions, others ^ companions
            if hares:
                found = max(found, hare_reward * value(party) + best(rest, stags, hares - 1))
            if stags and companions:
                found = max(found, stag_reward * value(party) + best(rest, stags - 1, hares))
            if not companions:
                return found
            companions = (companions - 1) & others

    return best((1 << n) - 1, stags, hares)


@dataclass(frozen=True)
class StagHunt(GridGame):
    """The Markov Stag Hunt. Every setting is a field; `hopplus.games.make` overrides them by name."""

    name: str = "msh"
    stags: int = 1
    """Number of stags."""
    hares: int = 4
    """Number of hares."""
    stag_reward: float = 10.0
    """What those who catch a stag share."""
    hare_reward: float = 1.0
    """What those who catch a hare share."""
    stag_needs_company: bool = True
    """STAG is legal only while at least two living players stand on the stag's cell."""
    dynamic_end: bool = False
    """End five steps after the first hunt of any prey."""
    prosocial: tuple[int, ...] = ()
    """Seats that receive the mean reward of all players instead of their own, as long as they are in the game."""
    strengths: tuple[int, ...] | None = None
    """Whole numbers by seat, in proportion to which a joint catch is shared; None: all equal."""

    version: ClassVar[str] = "1"
    action_names: ClassVar[tuple[str, ...]] = ("UP", "DOWN", "LEFT", "RIGHT", "STAY", "STAG", "HARE")
    item_names: ClassVar[tuple[str, ...]] = ("stag", "hare")

    def __post_init__(self) -> None:
        self._require_whole("stags", 0)
        self._require_whole("hares", 0)
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
        given = self.strengths
        if given is not None and not (
            len(given) == self.players and all(isinstance(strength, int) and strength >= 0 for strength in given)
        ):
            raise InputError(f"strengths must be {self.players} whole numbers of at least 0, not {given!r}")

    @property
    def rules(self) -> str:
        alone = "STAG can be pressed only in company" if self.stag_needs_company else "one alone gets nothing"
        return (
            f"A hare is worth {self.hare_reward:g} to whoever presses HARE on its cell. A stag is worth"
            f" {self.stag_reward:g}, shared by those who press STAG on its cell in the same step: {alone}. Whoever"
            " catches something leaves with it. Prey never moves. The episode ends when all have left, or after"
            f" {self.T} steps."
        )

    @property
    def item_counts(self) -> tuple[int, ...]:
        return (self.stags, self.hares)

    @property
    def _strengths(self) -> tuple[int, ...]:
        return self.strengths or (1,) * self.players

    @property
    def ceilings(self) -> Mapping[str, float]:
        """`mean`: the best assignment of players to prey; `player`: the most that one can get; `all_stag` and
        `all_hare`: the best mean of what is earned when nobody hunts the other prey."""
        n, pairs = self.players, min(self.stags, self.players // 2)
        earned = self._best_total((1.0,) * n) / n
        own = [earned] if self.prosocial else []
        for seat in set(range(n)).difference(self.prosocial):
            own.append(self._best_total(tuple(float(other == seat) for other in range(n))))
        # A prosocial seat is paid 1 / n of what everybody earns, its own catch counts only in that.
        paid = tuple((seat not in self.prosocial) + len(self.prosocial) / n for seat in range(n))
        return {
            "mean": self._best_total(paid) / n,
            "player": max(own),
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
        """A state by hand, cells as (row, column); None for a player who has left."""
        return self._layout(players, {"stag": stags, "hare": hares}, blocks, time, deadline, last_actions)

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
    ) -> tuple[GridState, Float[Array, " n"], Int[Array, " n"], Int[Array, " n"]]:
        company = self.company(state, actions)
        hunts_stag = actions == STAG
        caught = (actions == HARE) | (hunts_stag & (company.sum(-1) >= 2))
        value = jnp.where(hunts_stag, jnp.float32(self.stag_reward), jnp.float32(self.hare_reward))
        reward = jnp.where(caught, shares(company, value, self.strengths), 0.0)
        if self.prosocial:
            shares_mean = jnp.array([seat in self.prosocial for seat in range(self.players)]) & ~self.left(state)
            reward = jnp.where(shares_mean, self._mean_reward(company, caught, hunts_stag), reward)

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
        return after, reward, took, prey_cells

    def _mean_reward(
        self, company: Bool[Array, "n n"], caught: Bool[Array, " n"], hunts_stag: Bool[Array, " n"]
    ) -> Float[Array, ""]:
        """The mean reward of all players, from whole prey counted at the first of their catchers, so that the order
        of the seats cannot change a bit of it."""
        first = caught & ~jnp.tril(company, k=-1).any(-1)
        stags, hares = (first & hunts_stag).sum(), (first & ~hunts_stag).sum()
        return (stags * self.stag_reward + hares * self.hare_reward) / jnp.float32(self.players)
