"""Files of a dataset: shards of arrays with checksums, and atomic replacement of a dataset directory."""

import hashlib
import io
import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from hopplus.core.errors import InputError
from hopplus.core.files import UNFINISHED, remove
from hopplus.core.struct import names_and_leaves
from hopplus.games import Game
from hopplus.rollouts.population import Recorded
from hopplus.rollouts.trajectory import Trajectory

Arrays = dict[str, np.ndarray]
"""Arrays of a shard by field."""


# ------------------------------------------------------------------------------------------------------------ shards


def write_shard(directory: Path, arrays: Arrays) -> dict[str, Any]:
    """Writes one .npy file per array and returns the shard's entry in the header."""
    directory.mkdir()
    checksums = {}
    for field, array in arrays.items():
        data = io.BytesIO()
        np.save(data, array, allow_pickle=False)
        (directory / f"{field}.npy").write_bytes(data.getvalue())
        checksums[field] = hashlib.sha256(data.getvalue()).hexdigest()
    episodes = len(arrays["agent_types"])
    steps, rows = int(arrays["starts"][-1]), len(arrays["row.step"])
    return {"name": directory.name, "episodes": episodes, "steps": steps, "rows": rows, "sha256": checksums}


def check_files(path: Path, header: Mapping[str, Any]) -> None:
    """Raises InputError if a file of a shard is missing or differs from its checksum."""
    for shard in header["shards"]:
        for field, digest in shard["sha256"].items():
            file = path / shard["name"] / f"{field}.npy"
            try:
                data = file.read_bytes()
            except OSError as error:
                raise InputError(f"{file} cannot be read: {error.strerror}") from None
            if hashlib.sha256(data).hexdigest() != digest:
                raise InputError(f"{file} is damaged: its contents do not match its checksum")


# ------------------------------------------------------------------------------------------------------------ arrays


def to_arrays(recorded: Recorded) -> Arrays:
    """Returns the arrays of a shard, without the steps that did not take place."""
    trajectory, played = recorded.trajectory, recorded.played
    lengths = played.sum(0)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    states = jax.tree.map(
        lambda steps, last: np.concatenate([steps, last[None]]), trajectory.state, trajectory.last_state
    )
    environment, time = np.nonzero(np.arange(len(played) + 1) <= lengths[:, None])
    arrays = {"starts": starts.astype(np.int64), "agent_types": recorded.agent_types.astype(np.uint8)}
    for name, leaf in names_and_leaves(states).items():
        arrays[f"state.{name.replace('/', '.')}"] = np.ascontiguousarray(leaf[time, environment])
    environment, time, seat = np.nonzero(np.moveaxis(np.asarray(trajectory.alive), 1, 0))
    index = (time, environment, seat)
    rows = {
        "step": starts[environment] + time,
        "seat": seat.astype(np.uint8),
        "action": trajectory.actions[index].astype(np.uint8),
        "reward": trajectory.reward[index].astype(np.float32),
        "components": trajectory.components[index].astype(np.float32),
        "left": trajectory.left[index],
        "took": trajectory.took[index].astype(np.uint8),
        "cell": trajectory.cell[index].astype(np.int16),
    }
    return {**arrays, **{f"row.{name}": np.ascontiguousarray(value) for name, value in rows.items()}}


def from_arrays(game: Game[Any], arrays: Mapping[str, np.ndarray]) -> Recorded:
    """Returns the episodes [T, E, ...] of a shard. Steps after an episode's end repeat its last state."""
    starts, agent_types = np.asarray(arrays["starts"]), np.asarray(arrays["agent_types"], np.int64)
    lengths, episodes, steps, n = np.diff(starts), len(agent_types), game.last_step, game.num_players
    template = jax.eval_shape(game.init, jax.random.key(0))
    index = starts[:-1] + np.arange(episodes) + np.minimum(np.arange(steps + 1)[:, None], lengths)
    leaves = [np.asarray(arrays[f"state.{name.replace('/', '.')}"])[index] for name in names_and_leaves(template)]
    states = jax.tree.unflatten(jax.tree.structure(template), leaves)

    step = np.asarray(arrays["row.step"])
    environment = np.searchsorted(starts, step, side="right") - 1
    rows = (step - starts[environment], environment, np.asarray(arrays["row.seat"], np.int64))

    def scatter(field: str, empty: Any, dtype: Any, *inner: int) -> np.ndarray:
        values = np.full((steps, episodes, n, *inner), empty, dtype)
        values[rows] = True if field == "alive" else arrays[f"row.{field}"]
        return values

    alive, reward = scatter("alive", False, bool), scatter("reward", 0.0, np.float32)
    fields: dict[str, Any] = {
        "state": jax.tree.map(lambda leaf: leaf[:-1], states),
        "actions": scatter("action", game.idle_action, np.int32),
        "alive": alive,
        "reward": reward,
        "components": scatter("components", 0.0, np.float32, len(game.component_names)),
        "left": np.maximum.accumulate(scatter("left", False, bool), axis=0),
        "over": np.arange(1, steps + 1)[:, None] >= lengths,
        "took": scatter("took", 0, np.int32),
        "cell": scatter("cell", -1, np.int32),
        "total_reward": np.cumsum(reward, 0),
        "total_steps": np.cumsum(alive, 0, dtype=np.int32),
        "info": (),
        "last_state": jax.tree.map(lambda leaf: leaf[-1], states),
    }
    return Recorded(Trajectory(**fields), agent_types)


def concatenate(parts: Sequence[Recorded]) -> Recorded:
    """Concatenates the episodes of several shards."""
    if len(parts) == 1:
        return parts[0]

    def joined(axis: int, *trees: Any) -> Any:
        return jax.tree.map(lambda *leaves: np.concatenate(leaves, axis), *trees)

    trajectories = [part.trajectory for part in parts]
    by_time = [
        {name: value for name, value in vars(trajectory).items() if name != "last_state"} for trajectory in trajectories
    ]
    last_state = joined(0, *(trajectory.last_state for trajectory in trajectories))
    agent_types = joined(0, *(part.agent_types for part in parts))
    return Recorded(Trajectory(**joined(1, *by_time), last_state=last_state), agent_types)


# ------------------------------------------------------------------------------------------------------- replacement


def unfinished_name(path: Path) -> Path:
    """Returns a unique hidden name beside a path, for a directory that is still being written."""
    return path.parent / f"{UNFINISHED}{secrets.token_hex(8)}"


def put_in_place(directory: Path, path: Path) -> None:
    """Renames a directory to a path.

    A previous directory of that name is removed afterwards, or restored if the rename fails.
    """
    before = _replaced_name(path)
    if path.exists():
        os.replace(path, before)
    try:
        os.replace(directory, path)
    except OSError:
        restore_replaced(path)
        raise
    remove(before)


def _replaced_name(path: Path) -> Path:
    """Name of a dataset while it is being replaced; not one that `remove_unfinished` removes."""
    return path.with_name(f".{path.name}-replaced")


def restore_replaced(path: Path) -> None:
    """Undoes an interrupted replacement: restores the replaced dataset, or removes it if the new one is in place.

    No other process may be writing the dataset.
    """
    before = _replaced_name(path)
    if path.exists():
        remove(before)
    elif before.exists():
        try:
            os.replace(before, path)
        except OSError as error:
            raise InputError(f"cannot rename {before} back to {path}: {error.strerror or error}") from error
