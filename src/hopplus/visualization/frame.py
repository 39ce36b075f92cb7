"""Frame: one state of a game as plain Python, with all data that is ever displayed."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hopplus.core.errors import InputError
from hopplus.visualization.reasoning import FrameReasoning

if TYPE_CHECKING:
    from hopplus.games import Game, Observation

Cell = tuple[int, int]
"""Row and column."""


@dataclass(frozen=True)
class Frame:
    """One state of a game. Every tuple about players has one entry per seat, in seat order."""

    height: int
    width: int
    players: tuple[Cell | None, ...]
    """Cells of the players; None for a player that has left."""
    things: Mapping[str, tuple[Cell, ...]]
    """Cells of the items by channel name, including channels that are empty."""
    last_actions: tuple[str, ...] | None
    """Names of the actions executed in the last step; None before the first."""
    rewards: tuple[float, ...] | None
    """Rewards of the last step; None if unknown."""
    totals: tuple[float, ...] | None
    """Rewards collected so far in the episode; None if unknown."""
    time: int
    deadline: int
    player_names: tuple[str, ...]
    title: str = ""
    idle_action: str = "STAY"
    """Action that is not marked on the board."""
    reasoning: FrameReasoning | None = None
    """Reasoning of the planners before their next action; None if no player is a planner."""

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
        """Returns plain values for JSON.

        Returns:
            `time`, `players` and `things` (rows and columns), `last_actions`, `rewards` and `totals` as the fields are;
            `reasoning`, a list with the keys of `FrameReasoning.figures`, empty if no planner is in the game.
        """
        names = ("time", "players", "things", "last_actions", "rewards", "totals")
        fields = {name: getattr(self, name) for name in names}
        return {**fields, "reasoning": self.reasoning.figures() if self.reasoning else []}


def frame_of(
    game: "Game[Any]",
    state: Any,
    *,
    rewards: Iterable[float] | None = None,
    totals: Iterable[float] | None = None,
    player_names: Sequence[str] | None = None,
    title: str = "",
    reasoning: FrameReasoning | None = None,
) -> Frame:
    """Returns the frame of a state of any game.

    The frame is read from the observation of seat 0, whose ego-first order is the seat order.

    Args:
        game: Game of the state.
        state: State of one environment, without batch axis.
        rewards: Rewards of the last step, by seat.
        totals: Rewards collected so far, by seat.
        player_names: Names by seat; by default `player 0`, `player 1`, ...
        title: Title of the picture.
        reasoning: Reasoning of the planners before their next action.
    """
    import jax  # local: pictures are drawn without JAX, whose import is slow

    observe = jax.jit(type(game).observe, static_argnums=0)
    observation = jax.tree.map(lambda values: np.asarray(values)[0], observe(game, state))
    n, time = game.num_players, int(observation.time)
    height, width, players, things = _placed(game, observation)
    return Frame(
        height=height,
        width=width,
        players=players,
        things=things,
        last_actions=tuple(game.action_names[action] for action in observation.last_actions) if time > 0 else None,
        rewards=None if rewards is None else tuple(float(reward) for reward in rewards),
        totals=None if totals is None else tuple(float(total) for total in totals),
        time=time,
        deadline=int(observation.deadline),
        player_names=tuple(f"player {seat}" for seat in range(n)) if player_names is None else tuple(player_names),
        title=title,
        idle_action=game.action_names[game.idle_action],
        reasoning=reasoning,
    )


def _placed(
    game: "Game[Any]", observation: "Observation"
) -> tuple[int, int, tuple[tuple[int, int] | None, ...], dict[str, tuple[tuple[int, int], ...]]]:
    """Height and width of a board, cells of the players, and cells of everything else by name.

    In a game without a board the players stand in a row.
    """
    from hopplus.games import GridGame, GridObservation

    n = game.num_players
    if not isinstance(game, GridGame) or not isinstance(observation, GridObservation):
        present = np.asarray(observation.present)
        return 1, n, tuple((0, seat) if present[seat] else None for seat in range(n)), {}
    planes = np.moveaxis(np.asarray(observation.grid), -1, 0)
    cells = [tuple((row, column) for row, column in np.argwhere(plane).tolist()) for plane in planes]
    players = tuple(standing[0] if standing else None for standing in cells[:n])
    return *planes.shape[1:], players, dict(zip(game.channel_names[n:], cells[n:], strict=True))
