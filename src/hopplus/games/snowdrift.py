"""The Markov Snowdrift Game: removing a drift costs its removers and benefits all players."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from hopplus.core.bits import count, single, union
from hopplus.core.errors import InputError
from hopplus.core.keys import Key
from hopplus.games.board import Cell
from hopplus.games.game import NEUTRAL, NamedPreference
from hopplus.games.grid import GridGame, GridState, shares
from hopplus.games.layouts import state_from_layout

REMOVE = 5


@dataclass(frozen=True)
class Snowdrift(GridGame):
    """The Markov Snowdrift Game. Settings are fields; `hopplus.games.make` overrides them by name."""

    name: str = "msg"
    T: int = 15
    """Maximum number of steps of an episode."""
    drifts: int = 6
    """Number of drifts."""
    benefit: float = 6.0
    """Reward of every player for each removed drift."""
    cost: float = 4.0
    """Cost of removing a drift, shared by the players who remove it in the same step."""

    version: ClassVar[str] = "1"
    action_names: ClassVar[tuple[str, ...]] = ("UP", "DOWN", "LEFT", "RIGHT", "STAY", "REMOVE")
    item_names: ClassVar[tuple[str, ...]] = ("drift",)

    def __post_init__(self) -> None:
        self._require_integer("drifts", 1)
        self._require_amount("benefit")
        self._require_amount("cost")
        super().__post_init__()

    @property
    def rules(self) -> str:
        return (
            f"Every removed drift gives {self.benefit:g} to every player. The players who press REMOVE on its cell in"
            f" the same step share a cost of {self.cost:g}. The episode ends when no drift is left, or after {self.T}"
            " steps."
        )

    @property
    def item_counts(self) -> tuple[int, ...]:
        return (self.drifts,)

    @property
    def component_names(self) -> tuple[str, ...]:
        """The benefit of removed drifts, and the (negative) cost of removing them."""
        return ("benefit", "cost")

    @property
    def preferences(self) -> tuple[NamedPreference, ...]:
        """The neutral preference, an eager cleaner without costs, and a free rider."""
        return (
            NamedPreference(NEUTRAL, (1.0, 1.0)),
            NamedPreference("eager", (1.0, 0.0), step_cost=0.25),
            NamedPreference("free rider", (1.0, 3.0)),
        )

    @property
    def ceilings(self) -> Mapping[str, float]:
        """`mean`: all drifts are removed (or none, if that is better); `player`: a free rider."""
        return {
            "mean": max(0.0, self.drifts * (self.benefit - self.cost / self.players)),
            "player": self.drifts * self.benefit,
        }

    def from_layout(
        self,
        players: Sequence[Cell],
        drifts: Sequence[Cell] = (),
        blocks: Sequence[Cell] = (),
        time: int = 0,
        last_actions: Sequence[int] | None = None,
    ) -> GridState:
        """Builds a state from cells as (row, column)."""
        if any(cell is None for cell in players):
            raise InputError(f"no player can leave {self.name}: the layout must place every player")
        return state_from_layout(self, players, {"drift": drifts}, blocks, time, None, last_actions)

    def over(self, state: GridState) -> Bool[Array, ""]:
        return (state.items == 0).all() | (state.time >= state.deadline)

    def transition(
        self, key: Key, state: GridState, actions: Int[Array, " n"]
    ) -> tuple[GridState, Float[Array, "n 2"], Int[Array, " n"], Int[Array, " n"]]:
        removes = actions == REMOVE
        removed_cells = jnp.where(removes, state.cells, -1)
        removed = union(single(removed_cells, self.words))
        gain = self.benefit * count(removed).astype(jnp.float32)
        after = GridState(
            cells=self.walk(state.cells, actions),
            blocks=state.blocks,
            items=state.items & ~removed,
            time=state.time + 1,
            deadline=state.deadline,
            last_actions=actions,
        )
        cost = jnp.where(removes, shares(self.company(state, actions), self.cost), 0.0)
        components = jnp.stack([jnp.broadcast_to(gain, cost.shape), -cost], -1)
        return after, components, removes.astype(jnp.int32), removed_cells
