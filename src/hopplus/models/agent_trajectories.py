"""Per-agent trajectories: the steps of one player in one episode, as observed by that player.

Their lengths vary widely, so they are grouped by length: little of a group's arrays is padding.
"""

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, UInt8

from hopplus.beliefs.goal_space import LabelledGoals, PlayedSteps
from hopplus.core.errors import InputError
from hopplus.core.keys import Key
from hopplus.core.struct import struct
from hopplus.games import Game, GridGame, Observation, one_seat
from hopplus.networks.encoders import apply_symmetry, encode
from hopplus.rollouts import Trajectory
from hopplus.rollouts.population import Recorded

SHORTEST = 4
"""Length of the shortest group."""
TIMES = 3
"""Ratio of the lengths of successive groups: few groups compile fast, and two thirds of their rows are valid."""
CHUNK = 8192
"""Rows encoded at once."""
FEW = 8
"""A group of fewer trajectories than this is merged with the next."""


@struct
class AgentTrajectories:
    """Trajectories [N] of single agents, padded to L steps; `alive` is the mask of valid rows."""

    features: UInt8[Array, "N L F"]
    """Encoded observations of the agent (`networks.encoders`)."""
    board: UInt8[Array, "N L H W C"]
    """Observed grid; of size 0 unless requested."""
    action: Int[Array, "N L"]
    alive: Bool[Array, "N L"]
    is_first: Bool[Array, "N L"]
    """A further trajectory begins at this step of the row; never in recorded episodes."""
    value: Float[Array, "N L"]
    """Reward from this step on."""
    goal: Int[Array, "N L"]
    """Label of the goal in hindsight; 0 if goals have no labels."""
    available: Bool[Array, "N L G"]
    """Mask of the available goals; G = 0 if goals have no labels."""
    episode: Int[Array, " N"]
    seat: Int[Array, " N"]
    agent_type: Int[Array, " N"]
    preference: Int[Array, "N L"] | None = None
    """Preference of a learner, an index into the game's; -1 for other players. None if no preferences are known."""


def split_by_agent(
    game: Game[Any],
    recorded: Recorded,
    boards: bool = False,
    goals: LabelledGoals | None = None,
    grouped: bool = True,
) -> tuple[AgentTrajectories, ...]:
    """Splits recorded episodes into per-agent trajectories.

    Args:
        boards: Fill `board`.
        goals: Labelled goals that fill `goal` and `available`.
        grouped: Group the trajectories by length; otherwise there is one group.
    """
    trajectory = recorded.trajectory
    alive = np.moveaxis(np.asarray(trajectory.alive), 0, -1)  # [E, n, T]
    environment, seat, time = np.nonzero(alive)
    lengths = alive.sum(-1)
    if not lengths.size or (alive != (np.arange(alive.shape[-1]) < lengths[..., None])).any():
        raise InputError("a player's steps must be without gaps: a player who has left does not come back")
    states = jax.tree.map(lambda leaf: leaf[time, environment], trajectory.state)
    features, board = _encode_rows(game, states, seat, boards)
    goal, available = hindsight_goals(goals, game, recorded) if goals else (np.zeros_like(trajectory.actions), None)
    index = (time, environment, seat)
    rows = {
        "features": features,
        "board": board,
        "action": np.asarray(trajectory.actions)[index].astype(np.int32),
        "value": _returns_to_go(np.asarray(trajectory.reward))[index],
        "goal": goal[index].astype(np.int32),
        "available": np.ones((len(time), 0), bool) if available is None else available[time, environment],
    }
    first = np.concatenate([[0], np.cumsum(lengths.reshape(-1))[:-1]]).reshape(lengths.shape)
    longest = alive.shape[-1]
    groups = []
    for length, chosen in _group_by_length(lengths, longest) if grouped else [(longest, lengths > 0)]:
        agents = np.argwhere(chosen)
        steps = np.arange(length)
        valid = steps < lengths[chosen][:, None]
        row = first[chosen][:, None] + np.where(valid, steps, 0)
        labels = {"episode": agents[:, 0], "seat": agents[:, 1], "agent_type": recorded.agent_types[chosen]}
        padded = {name: values[row] for name, values in rows.items()}
        labels = {name: value.astype(np.int32) for name, value in labels.items()}
        groups.append(AgentTrajectories(**padded, alive=valid, is_first=np.zeros_like(valid), **labels))
    return tuple(groups)


def random_symmetry(key: Key, trajectories: AgentTrajectories, game: Game[Any]) -> AgentTrajectories:
    """Applies a random symmetry of the board to each trajectory ([N] or [N, n]).

    The rules are invariant under the symmetries, and so is the behaviour of players that have no preferred direction.
    """
    if not isinstance(game, GridGame):
        return trajectories
    which = jax.random.randint(key, trajectories.seat.shape, 0, len(game.symmetries))
    actions = np.stack([symmetry.actions(game.num_actions) for symmetry in game.symmetries])
    features = np.stack([apply_symmetry(symmetry, game) for symmetry in game.symmetries])
    cells = np.arange(game.num_cells).reshape(game.height, game.width)
    places = np.stack([symmetry.board(cells).reshape(-1) for symmetry in game.symmetries])
    board = trajectories.board
    if board.size:
        flat = board.reshape(*board.shape[:-3], game.num_cells, -1)
        board = jnp.take_along_axis(flat, jnp.asarray(places)[which][..., None, :, None], -2).reshape(board.shape)
    return replace(
        trajectories,
        features=jnp.take_along_axis(trajectories.features, jnp.asarray(features)[which][..., None, :], -1),
        action=jnp.take_along_axis(jnp.asarray(actions)[which], trajectories.action, -1),
        board=board,
    )


def num_transitions(groups: tuple[AgentTrajectories, ...]) -> int:
    """Returns the number of valid rows in all groups."""
    return int(sum(np.asarray(group.alive).sum() for group in groups))


def by_seat(groups: tuple[AgentTrajectories, ...], seats: int) -> tuple[AgentTrajectories, ...]:
    """Returns trajectories [N, n, ...], equally many per seat; the surplus of a seat is dropped."""
    seated = []
    for group in groups:
        seat = np.asarray(group.seat)
        least = min(int((seat == number).sum()) for number in range(seats))
        index = np.stack([np.flatnonzero(seat == number)[:least] for number in range(seats)], axis=1)
        seated.append(jax.tree.map(lambda leaf, index=index: leaf[index], group))
    return tuple(seated)


def num_agents(group: AgentTrajectories) -> int:
    """Returns the number of trajectories."""
    return group.action.shape[0]


def with_reward(group: AgentTrajectories) -> AgentTrajectories:
    """Returns the trajectories with a positive return."""
    rewarded = np.asarray(group.value[:, 0]) > 0
    return jax.tree.map(lambda leaf: leaf[rewarded], group)


def _group_by_length(lengths: Int[np.ndarray, "E n"], longest: int) -> list[tuple[int, Bool[np.ndarray, "E n"]]]:
    """Lengths of the groups, with masks of their trajectories.

    A small group is merged with the next, the last with the one before.
    """
    groups, lower, shortest = [], 0, 1
    while lower < longest:
        upper = min(max(SHORTEST, TIMES * lower), longest)
        chosen = (lengths >= shortest) & (lengths <= upper)
        if chosen.sum() >= FEW:
            groups.append((upper, chosen))
            shortest = upper + 1
        lower = upper
    rest = lengths >= shortest
    if rest.any():
        before = groups.pop()[1] if groups else np.zeros_like(rest)
        groups.append((longest, rest | before))
    return groups


def _encode_rows(
    game: Game[Any], states: Any, seat: Int[np.ndarray, " R"], boards: bool
) -> tuple[UInt8[np.ndarray, "R F"], UInt8[np.ndarray, "R H W C"]]:
    num_rows, all_features, all_boards = len(seat), [], []
    for start in range(0, num_rows, CHUNK):
        index = np.minimum(np.arange(start, start + CHUNK), num_rows - 1)  # one shape compiles one program
        part = jax.tree.map(lambda leaf, index=index: leaf[index], states)
        features, board = _encode_chunk(part, jnp.asarray(seat[index]), game, boards)
        all_features.append(np.asarray(features)[: num_rows - start])
        all_boards.append(np.asarray(board)[: num_rows - start])
    return np.concatenate(all_features), np.concatenate(all_boards)


@partial(jax.jit, static_argnames=("game", "boards"))
def _encode_chunk(states: Any, seats: Int[Array, " R"], game: Game[Any], boards: bool) -> tuple[Array, Array]:
    def observe(state: Any, seat: Array) -> Observation:
        return jax.tree.map(lambda values: values[seat], game.observe(state))

    observation = jax.vmap(observe)(states, seats)
    board = observation.board.astype(jnp.uint8)
    return encode(observation, game.last_step), board if boards else board[:, :0, :0]


def _returns_to_go(reward: Float[np.ndarray, "T E n"]) -> Float[np.ndarray, "T E n"]:
    return np.cumsum(reward[::-1], 0)[::-1].astype(np.float32)


# ------------------------------------------------------------------------------------------------------------ goals


def hindsight_goals(
    goals: LabelledGoals, game: Game[Any], recorded: Recorded
) -> tuple[Int[np.ndarray, "T E n"], Bool[np.ndarray, "T E G"]]:
    """Returns the goal of each player at each step of recorded episodes, and the mask of available goals."""
    label, available = _labels(played_steps(recorded.trajectory), goals, game)
    return np.asarray(label), np.asarray(available)


def played_steps(trajectory: Trajectory) -> PlayedSteps:
    """Returns the part of a trajectory that goals are labelled by."""
    fields = ("state", "actions", "alive", "left", "over", "took", "cell")
    return PlayedSteps(**{name: getattr(trajectory, name) for name in fields})


@partial(jax.jit, static_argnames=("goals", "game"))
def _labels(steps: PlayedSteps, goals: LabelledGoals, game: Game[Any]) -> tuple[Array, Array]:
    observation = jax.vmap(jax.vmap(game.observe))(steps.state)
    return goals.labels(game, steps), _available(goals, game, observation)


def _available(goals: LabelledGoals, game: Game[Any], observations: Observation) -> Bool[Array, "T E K"]:
    """Mask of the available goals, from observations [T, E, n, ...]."""
    return jax.vmap(jax.vmap(lambda seen: goals.available(game, one_seat(seen, 0))))(observations)


# ---------------------------------------------------------------------------------------------------------- rollouts


def from_rollout(
    game: Game[Any],
    trajectory: Trajectory,
    boards: bool = False,
    goals: LabelledGoals | None = None,
    preference: Int[Array, "T E n"] | None = None,
) -> AgentTrajectories:
    """Splits a rollout [T, E] by agent: [E n, T], several trajectories in a row; for use inside compiled training.

    Trajectories cut by the rollout's ends are partial. With `goals` or `boards`, which depend on how an episode ends,
    the rows of unfinished trajectories are masked.
    """
    steps, environments, players = trajectory.actions.shape
    observation = jax.vmap(jax.vmap(game.observe))(trajectory.state)
    features = encode(observation, game.last_step)
    empty = (steps, environments, players, 0, 0, 0)
    board = observation.board.astype(jnp.uint8) if boards else jnp.zeros(empty, jnp.uint8)
    over = trajectory.over[..., None]
    value, known = _scan_back(trajectory)
    goal, available = jnp.zeros_like(trajectory.actions), jnp.ones((*trajectory.actions.shape, 0), bool)
    if goals:
        goal = goals.labels(game, played_steps(trajectory))
        available = jnp.repeat(_available(goals, game, observation)[:, :, None], players, 2)
    is_first = jnp.concatenate([jnp.zeros_like(over[:1]), over[:-1]])

    def by_agent(values: Array) -> Array:
        return jnp.moveaxis(values, 0, 2).reshape(environments * players, steps, *values.shape[3:])

    numbers = jnp.arange(environments * players)
    return AgentTrajectories(
        features=by_agent(features),
        board=by_agent(board),
        action=by_agent(trajectory.actions),
        alive=by_agent(trajectory.alive & known if goals or boards else trajectory.alive),
        is_first=by_agent(jnp.broadcast_to(is_first, trajectory.actions.shape)),
        value=by_agent(value),
        goal=by_agent(goal),
        available=by_agent(available),
        episode=numbers // players,
        seat=numbers % players,
        agent_type=jnp.zeros_like(numbers),
        preference=None if preference is None else by_agent(preference),
    )


def _scan_back(trajectory: Trajectory) -> tuple[Float[Array, "T E n"], Bool[Array, "T E n"]]:
    """Reward to go, and whether the rollout holds the end of the player's episode, at each step."""

    def step(carry: tuple[Array, Array], row: tuple[Array, ...]) -> tuple[Any, Any]:
        value, known = carry
        reward, over, left = row
        value, known = reward + jnp.where(over, 0.0, value), known | over | left
        return (value, known), (value, known)

    shape = trajectory.actions.shape
    last = (jnp.zeros(shape[1:]), jnp.zeros(shape[1:], bool))
    over = jnp.broadcast_to(trajectory.over[..., None], shape)
    return jax.lax.scan(step, last, (trajectory.reward, over, trajectory.left), reverse=True)[1]
