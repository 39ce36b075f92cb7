"""Datasets: whole episodes of a game on disk, in files that any tool can map into memory.

A dataset is a directory: `header.json` (game and version, casts, seed, counts, checksums), and shards `00000/`,
`00001/`, ... with one .npy file per field. In a shard of N episodes with S steps and R rows:

- `starts` [N + 1]: the steps of episode e are starts[e] to starts[e + 1];
- `agent_types` [N, n]: the agent type in each seat, an index into the header's `agent_types`;
- `state.*` [S + N, ...]: the game's state before each step, and the state after each episode's last step: step s of
  episode e starts in state s + e and leads to state s + e + 1;
- `row.*` [R]: one row for each step of each player still in the game, by episode, step and seat: `step` (its number in
  the shard), `seat`, `action`, `reward`, `left` (the player left in this step), `took` and `cell` (the item taken and
  its cell).

There are no rows of players who have left.
"""

import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Bool

from hopplus.core.errors import InputError
from hopplus.core.files import read_json
from hopplus.games import Game, make
from hopplus.rollouts.cast_distribution import CastDistribution, parse_casts
from hopplus.rollouts.dataset_files import (
    Arrays,
    check_files,
    concatenate,
    from_arrays,
    put_in_place,
    restore_replaced,
    to_arrays,
    unfinished_name,
    write_shard,
)
from hopplus.rollouts.population import Population, Recorded, play_casts

HEADER = "header.json"
FORMAT = 3
BATCH = 1024
"""Episodes played at once; at most one shard."""


# -------------------------------------------------------------------------------------------------------------- read


@dataclass(frozen=True, eq=False)
class Dataset:
    """A dataset on disk."""

    path: Path
    header: Mapping[str, Any]

    @cached_property
    def game(self) -> Game[Any]:
        """The game that was played."""
        return make(self.header["game"])

    @property
    def agent_types(self) -> tuple[str, ...]:
        """Names of the agent types."""
        return tuple(self.header["agent_types"])

    @property
    def shares(self) -> tuple[float, ...]:
        """Probability of each entry of the header's `casts`; equal if the header has no weights."""
        weights = self.header.get("weights", [1.0] * len(self.header["casts"]))
        return tuple(weight / sum(weights) for weight in weights)

    @cached_property
    def cast_distribution(self) -> CastDistribution:
        """Distribution from which the casts were drawn."""
        return parse_casts(self.header["casts"], self.game.num_players, self.shares)

    def shards(self) -> list[Arrays]:
        """Returns the arrays of every shard, mapped into memory."""
        return [
            {
                field: np.load(self.path / shard["name"] / f"{field}.npy", mmap_mode="r", allow_pickle=False)
                for field in shard["sha256"]
            }
            for shard in self.header["shards"]
        ]

    def load(self) -> Recorded:
        """Returns all episodes; raises InputError if a stored action is illegal."""
        recorded = concatenate([from_arrays(self.game, arrays) for arrays in self.shards()])
        legal = _legal(recorded.trajectory.state, self.game)
        chosen = np.take_along_axis(np.asarray(legal), np.asarray(recorded.trajectory.actions)[..., None], -1)[..., 0]
        illegal = np.argwhere(np.asarray(recorded.trajectory.alive) & ~chosen)
        if len(illegal):
            time, episode, seat = illegal[0]
            raise InputError(
                f"{self.path} holds {len(illegal)} illegal actions, the first by seat {seat} in step {time} of episode"
                f" {episode}: it was not written by this version of {self.game.name}"
            )
        return recorded


@partial(jax.jit, static_argnames="game")
def _legal(states: Any, game: Game[Any]) -> Bool[Array, "T E n A"]:
    return jax.vmap(jax.vmap(game.legal))(states)


def is_dataset(path: str | Path) -> bool:
    """Returns whether a directory has a dataset header; its contents are not checked."""
    return (Path(path) / HEADER).is_file()


def open_dataset(path: Path, game: Game[Any] | None = None) -> Dataset:
    """Opens a dataset and checks its files.

    Raises:
        InputError: The header or a file is damaged, or the dataset is not of this `game` or of its current version.
    """
    header = read_json(path / HEADER, f"{path} is not a dataset: it has no {HEADER}")
    needed = {"format", "game", "version", "casts", "agent_types", "seed", "episodes", "steps", "rows", "shards"}
    if not isinstance(header, dict) or not needed <= set(header) or header["format"] != FORMAT:
        raise InputError(f"{path / HEADER} does not describe a dataset of format {FORMAT}")
    if not header["rows"]:
        raise InputError(f"{path} is empty: it has no rows")
    dataset = Dataset(path, header)
    if dataset.game.version != header["version"]:
        raise InputError(
            f"{path} was played on version {header['version']} of {header['game']}, and this is version"
            f" {dataset.game.version}"
        )
    if game is not None and game != dataset.game:
        raise InputError(f"{path} was played on {header['game']}, not on {game.name}")
    check_files(path, header)
    return dataset


def describe(dataset: Dataset) -> dict[str, Any]:
    """Returns counts, the share of each action among the rows, and returns and lengths by agent type."""
    recorded = dataset.load()
    trajectory, names = recorded.trajectory, dataset.game.action_names
    actions = np.bincount(np.asarray(trajectory.actions)[trajectory.alive], minlength=len(names))
    returns, lengths = np.asarray(trajectory.returns), np.asarray(trajectory.lengths)
    took = np.asarray(trajectory.took).max(0)
    by_agent_type = {}
    for number, agent_type in enumerate(dataset.agent_types):
        seats = recorded.agent_types == number
        if seats.any():
            by_agent_type[agent_type] = {
                "seats": int(seats.sum()),
                "return": float(returns[seats].mean()),
                "length": float(lengths[seats].mean()),
                "took_something": float((took[seats] > 0).mean()),
            }
    described = ("game", "version", "casts", "seed", "episodes", "steps", "rows")
    return {
        "dataset": str(dataset.path),
        **{name: dataset.header[name] for name in described},
        "actions": {
            name: {"count": int(n), "share": float(n / actions.sum())} for name, n in zip(names, actions, strict=True)
        },
        "mean_return": float(returns.mean()),
        "return_by_seat": returns.mean(0).tolist(),
        "episode_length": float(recorded.played.sum(0).mean()),
        "agent_types": by_agent_type,
    }


# ------------------------------------------------------------------------------------------------------------- write


def collect(
    path: Path,
    game: Game[Any],
    population: Population,
    cast_distribution: CastDistribution,
    steps: int,
    seed: int,
    notes: Mapping[str, Any] | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> Dataset:
    """Plays whole episodes until they have at least `steps` steps, and writes them as a dataset.

    The dataset is written completely or not at all.

    Args:
        path: Directory of the dataset, a new one.
        game: The game to play.
        population: Players of the agent types of the casts, in the same order.
        cast_distribution: The casts; one is drawn per episode.
        steps: Minimum number of environment steps. The last episode is the one that reaches it.
        seed: Seed of casts and play.
        notes: Further entries of the header.
        progress: Called with the number of steps so far.
    """
    if steps < 1:
        raise InputError(f"a dataset needs at least one step, not {steps}")

    def batches() -> Iterator[Recorded]:
        number = done = 0
        while done < steps:
            key = jax.random.fold_in(jax.random.key(seed), number)
            recorded = play_casts(key, game, population, cast_distribution, BATCH)
            ends = np.cumsum(recorded.played.sum(0))
            needed = min(int(np.searchsorted(ends, steps - done)) + 1, BATCH)
            yield recorded.select(np.arange(needed))
            number, done = number + 1, done + int(ends[needed - 1])
            progress(min(done, steps))

    return write_dataset(path, game, batches(), cast_distribution, seed, notes)


def write_dataset(
    path: Path,
    game: Game[Any],
    recorded: Iterable[Recorded],
    cast_distribution: CastDistribution,
    seed: int | None,
    notes: Mapping[str, Any] | None = None,
    replace: bool = False,
) -> Dataset:
    """Writes whole episodes as a dataset, completely or not at all.

    Args:
        path: Directory of the dataset.
        game: The game that was played.
        recorded: The episodes, one shard each; their agent types are indices into those of the casts.
        cast_distribution: The casts of the episodes.
        seed: Seed that the episodes have in common, if any.
        notes: Further entries of the header.
        replace: Replace an existing dataset. A process killed meanwhile may leave the old one under another name;
            `restore_replaced` restores it.
    """
    if replace:
        restore_replaced(path)
    _check_target(path, replace)
    unfinished = unfinished_name(path)
    try:
        unfinished.mkdir(parents=True)
        shards = _write_shards(unfinished, recorded, cast_distribution)
        header = {
            "format": FORMAT,
            "game": game.name,
            "version": game.version,
            "casts": list(cast_distribution.texts),
            "agent_types": list(cast_distribution.agent_types),
            "seed": seed,
            **{name: sum(shard[name] for shard in shards) for name in ("episodes", "steps", "rows")},
            "shards": shards,
            **({} if cast_distribution.weights is None else {"weights": list(cast_distribution.weights)}),
            **(notes or {}),
        }
        if not header["rows"]:
            raise InputError(f"there is nothing to write into {path}: the episodes have no rows")
        (unfinished / HEADER).write_text(json.dumps(header, indent=2) + "\n", encoding="utf-8")
        put_in_place(unfinished, path)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return open_dataset(path)


def _check_target(path: Path, replace: bool) -> None:
    """Raises InputError if the path holds something that a new dataset may not replace."""
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return
    if not replace:
        raise InputError(f"{path} already exists: choose another directory")
    if not is_dataset(path):
        raise InputError(f"{path} already exists and is not a dataset: choose another directory")


def _write_shards(
    directory: Path, recorded: Iterable[Recorded], cast_distribution: CastDistribution
) -> list[dict[str, Any]]:
    shards = []
    for number, part in enumerate(recorded):
        _check_casts(part, cast_distribution)
        shards.append(write_shard(directory / f"{number:05d}", to_arrays(part)))
    return shards


def _check_casts(recorded: Recorded, cast_distribution: CastDistribution) -> None:
    unknown = {*map(tuple, recorded.agent_types.tolist())} - {*map(tuple, cast_distribution.casts.tolist())}
    if unknown:
        cast = ",".join(cast_distribution.agent_types[agent_type] for agent_type in min(unknown))
        raise InputError(f"an episode was played by {cast}, which is none of the casts")


def join_datasets(path: Path, parts: Sequence[Path], notes: Mapping[str, Any] | None = None) -> Dataset:
    """Joins several datasets of one game into a new one, one shard each; agent types are matched by name.

    Casts are weighted by their number of episodes in the parts.
    """
    if len({part.resolve() for part in parts}) < len(parts):
        raise InputError("a dataset is named twice, and its episodes must not count twice")
    first = open_dataset(parts[0])
    datasets = [first, *(open_dataset(part, first.game) for part in parts[1:])]
    weights: dict[str, float] = {}
    for dataset in datasets:
        for cast, share in zip(dataset.header["casts"], dataset.shares, strict=True):
            weights[cast] = weights.get(cast, 0.0) + share * dataset.header["episodes"]
    cast_distribution = parse_casts(list(weights), first.game.num_players, list(weights.values()))
    agent_types = cast_distribution.agent_types

    def loaded() -> Iterator[Recorded]:
        for dataset in datasets:
            recorded = dataset.load()
            index = np.array([agent_types.index(name) for name in dataset.agent_types])
            yield Recorded(recorded.trajectory, index[recorded.agent_types])

    sources = [
        {"dataset": str(dataset.path), **{name: dataset.header[name] for name in ("casts", "seed", "episodes")}}
        for dataset in datasets
    ]
    return write_dataset(path, first.game, loaded(), cast_distribution, None, {**(notes or {}), "joined": sources})
