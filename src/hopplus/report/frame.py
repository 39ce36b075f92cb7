"""One moment of a game as plain Python: all that is ever shown."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hopplus.errors import InputError
from hopplus.report.thoughts import Thinking

if TYPE_CHECKING:
    from hopplus.games import Game

Cell = tuple[int, int]
"""Row and column."""


@dataclass(frozen=True)
class Frame:
    """One moment of one game. Every tuple about players has one entry a seat, in the order of the seats."""

    height: int
    width: int
    players: tuple[Cell | None, ...]
    """Where each stands; None for one who has left."""
    things: Mapping[str, tuple[Cell, ...]]
    """What lies on the board, by the name of its channel, also kinds of which nothing is left."""
    last_actions: tuple[str, ...] | None
    """The names of the actions executed in the last step; None before the first."""
    rewards: tuple[float, ...] | None
    """What each collected in the last step; None where it is not known."""
    totals: tuple[float, ...] | None
    """What each has collected so far; None where it is not known."""
    time: int
    deadline: int
    player_names: tuple[str, ...]
    title: str = ""
    idle_action: str = "STAY"
    """The action that is not worth a mark on the board."""
    thinking: Thinking | None = None
    """What players think before their next action; None where nobody does."""

    def __post_init__(self) -> None:
        for field in ("last_actions", "rewards", "totals", "player_names"):
            values = getattr(self, field)
            if values is not None and len(values) != len(self.players):
                raise InputError(f"{field} must have one entry for each of {len(self.players)} players, not {values}")
        for kind, cells in {"player": self.players, **self.things}.items():
            for cell in cells:
                if cell is not None and not (0 <= cell[0] < self.height and 0 <= cell[1] < self.width):
                    raise InputError(f"the {kind} at {cell} is off the {self.height}x{self.width} board")

    def figures(self) -> dict[str, Any]:
        """Plain values for JSON: `time`, `players` and `things` (rows and columns), `last_actions`, `rewards`,
        `totals`, as the fields are; `thoughts`, with the keys of `Thinking.figures`, a list that is empty where nobody
        thinks."""
        shown = ("time", "players", "things", "last_actions", "rewards", "totals")
        fields = {name: getattr(self, name) for name in shown}
        return {**fields, "thoughts": self.thinking.figures() if self.thinking else []}


def frame_of(
    game: "Game[Any]",
    state: Any,
    *,
    rewards: Iterable[float] | None = None,
    totals: Iterable[float] | None = None,
    player_names: Sequence[str] | None = None,
    title: str = "",
    thinking: Thinking | None = None,
) -> Frame:
    """What one state of any game looks like, from what its seat 0 sees: ego-first, that is the order of the seats."""
    import jax  # not above: pictures are drawn without it, and its import takes long

    observe = jax.jit(type(game).observe, static_argnums=0)
    seen = jax.tree.map(lambda values: np.asarray(values)[0], observe(game, state))
    n, time = game.num_players, int(seen.time)
    height, width, _ = seen.grid.shape
    planes = np.moveaxis(seen.grid, -1, 0)
    channels = [tuple((row, column) for row, column in np.argwhere(plane).tolist()) for plane in planes]
    return Frame(
        height=height,
        width=width,
        players=tuple(cells[0] if cells else None for cells in channels[:n]),
        things=dict(zip(game.channel_names[n:], channels[n:], strict=True)),
        last_actions=tuple(game.action_names[action] for action in seen.last_actions) if time > 0 else None,
        rewards=None if rewards is None else tuple(float(reward) for reward in rewards),
        totals=None if totals is None else tuple(float(total) for total in totals),
        time=time,
        deadline=int(seen.deadline),
        player_names=tuple(f"player {seat}" for seat in range(n)) if player_names is None else tuple(player_names),
        title=title,
        idle_action=game.action_names[game.idle_action],
        thinking=thinking,
    )
