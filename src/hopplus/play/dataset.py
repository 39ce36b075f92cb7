"""Episodes on disk: whole episodes of a game, in files that any tool can map into memory.

A dataset is a directory: `header.json` (the game and its version, who played, seed, counts, checksums), and shards
`00000/`, `00001/`, ... with one .npy file a field. In a shard of N episodes with S steps and R rows:

- `starts` [N + 1]: the steps of episode e are starts[e] to starts[e + 1];
- `kinds` [N, n]: who sat in each seat, an index into the header's `kinds`;
- `state.*` [S + N, ...]: the game's state before each step, and the one that each episode's last step led to: step s of
  episode e began in state s + e and led to state s + e + 1;
- `row.*` [R]: one row for each step of each player still in the game, by episode, step and seat: `step` (its number in
  the shard), `seat`, `action`, `reward`, `left` (whether it left in it), `took` and `cell` (what it took, and where).

There is no row of a player who has left.
"""

import hashlib
import io
import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from hopplus.errors import InputError
from hopplus.files import UNFINISHED, read_json, remove
from hopplus.games import Game, make
from hopplus.keys import Key, environment_keys, fast
from hopplus.play.casting import Casting, parse_casts
from hopplus.play.episode import Episode
from hopplus.play.rollout import first_memories, play_episodes
from hopplus.players import Assigned, Cast, Params, Player, PoolParams
from hopplus.struct import names_and_leaves

HEADER = "header.json"
FORMAT = 1
BATCH = 1024
"""Episodes that are played at once; a shard."""
CASTS, MEMORIES, PLAY = range(3)
"""Purposes of a shard's key."""

Arrays = dict[str, np.ndarray]
"""A shard's arrays by field."""


@dataclass(frozen=True, eq=False)
class Recorded:
    """Whole episodes that were played, and who sat in each seat."""

    episode: Episode
    """[T, E, ...]; nobody is alive in steps after an episode's end."""
    kinds: Int[np.ndarray, "E n"]

    @property
    def played(self) -> Bool[np.ndarray, "T E"]:
        """Which steps took place."""
        return np.asarray(np.asarray(self.episode.alive).any(-1))

    def select(self, episodes: np.ndarray) -> "Recorded":
        """Some of the episodes."""
        by_time = {name: value for name, value in vars(self.episode).items() if name not in ("last_state", "info")}
        chosen = jax.tree.map(lambda leaf: leaf[:, episodes], by_time)
        last_state = jax.tree.map(lambda leaf: leaf[episodes], self.episode.last_state)
        return Recorded(Episode(**chosen, info=(), last_state=last_state), self.kinds[episodes])


# ---------------------------------------------------------------------------------------------------------- collect


@dataclass(frozen=True, eq=False)
class Troupe:
    """The players that can sit in a seat: by seat, and then by kind, with what they have learnt."""

    players: tuple[tuple[Player, ...], ...]
    params: tuple[tuple[Params, ...], ...]

    def of_kind(self, kind: int) -> tuple[Cast, list[Params]]:
        """One kind in every seat."""
        return Cast(tuple(members[kind] for members in self.players)), [members[kind] for members in self.params]

    def cast(self) -> Cast:
        """Everybody at once: each seat is whoever it is assigned to be."""
        return Cast(tuple(Assigned(members) for members in self.players))

    def cast_params(self) -> tuple[PoolParams, ...]:
        weights = jnp.ones(len(self.params[0])) / len(self.params[0])
        return tuple(PoolParams(weights, members) for members in self.params)


def play_casts(key: Key, game: Game[Any], troupe: Troupe, casting: Casting, episodes: int) -> Recorded:
    """So many whole episodes, each with a cast drawn for it."""
    key, cast, params = fast(key), troupe.cast(), troupe.cast_params()
    kinds = casting.draw(jax.random.fold_in(key, CASTS), episodes)
    keys = environment_keys(jax.random.fold_in(key, MEMORIES), episodes)
    memories = tuple(
        replace(memory, member=jnp.asarray(kinds[:, np.array(group.seats)], jnp.int32))
        for group, memory in zip(cast.groups, first_memories(keys, game, cast, params), strict=True)
    )
    _, episode = play_episodes(jax.random.fold_in(key, PLAY), game, cast, episodes, params, memories)
    return Recorded(jax.device_get(Episode(**{**vars(episode), "info": ()})), kinds)


def collect(
    path: Path,
    game: Game[Any],
    troupe: Troupe,
    casts: Sequence[str],
    steps: int,
    seed: int,
    notes: Mapping[str, Any] | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> "Dataset":
    """Play whole episodes until they have so many steps at least, and write them.

    The last episode is the one that makes the number full. A dataset appears whole or not at all.
    """
    if steps < 1:
        raise InputError(f"a dataset needs at least one step, not {steps}")
    casting = parse_casts(casts, game.num_players)

    def played() -> Iterator[Recorded]:
        number = done = 0
        while done < steps:
            key = jax.random.fold_in(jax.random.key(seed), number)
            recorded = play_casts(key, game, troupe, casting, BATCH)
            ends = np.cumsum(recorded.played.sum(0))
            needed = min(int(np.searchsorted(ends, steps - done)) + 1, BATCH)
            yield recorded.select(np.arange(needed))
            number, done = number + 1, done + int(ends[needed - 1])
            progress(min(done, steps))

    return write_dataset(path, game, played(), casts, casting.kinds, seed, notes)


# ------------------------------------------------------------------------------------------------------------- write


def write_dataset(
    path: Path,
    game: Game[Any],
    recorded: Iterable[Recorded],
    casts: Sequence[str],
    kinds: Sequence[str],
    seed: int | None,
    notes: Mapping[str, Any] | None = None,
    replace: bool = False,
    weights: Sequence[float] | None = None,
) -> "Dataset":
    """Write whole episodes, each of `recorded` as a shard; who sat in them are numbers of `kinds`.

    Casts and weights are as `parse_casts` takes them, and the kinds those of the casts, in the order in which they
    name them. The dataset appears whole or not at all; `replace` puts it in the place of one that is there. A process
    that is killed meanwhile may leave the old one under another name, which `restore_replaced` changes back.
    """
    if replace:
        restore_replaced(path)
    _check_place(path, replace)
    casting = parse_casts(casts, game.num_players, weights)
    if tuple(kinds) != casting.kinds:
        raise InputError(f"the kinds of {'; '.join(casts)} are {', '.join(casting.kinds)}, not {', '.join(kinds)}")
    unfinished = _new_name(path)
    try:
        unfinished.mkdir(parents=True)
        shards = []
        for number, one in enumerate(recorded):
            _check_casts(one, casting)
            shards.append(_write_shard(unfinished / f"{number:05d}", to_arrays(one)))
        header = {
            "format": FORMAT,
            "game": game.name,
            "version": game.version,
            "casts": list(casts),
            "kinds": list(kinds),
            "seed": seed,
            **{name: sum(shard[name] for shard in shards) for name in ("episodes", "steps", "rows")},
            "shards": shards,
            **({} if weights is None else {"weights": list(weights)}),
            **(notes or {}),
        }
        if not header["rows"]:
            raise InputError(f"there is nothing to write into {path}: nobody did anything")
        (unfinished / HEADER).write_text(json.dumps(header, indent=2) + "\n", encoding="utf-8")
        _put_in_place(unfinished, path)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return open_dataset(path)


def join_datasets(path: Path, parts: Sequence[Path], notes: Mapping[str, Any] | None = None) -> "Dataset":
    """The episodes of several datasets of one game as a new one, a shard each; kinds are the same by name.

    Casts are as likely as they were in the parts, by the number of their episodes.
    """
    if len({part.resolve() for part in parts}) < len(parts):
        raise InputError("a dataset is named twice, and its episodes must not count twice")
    first = open_dataset(parts[0])
    datasets = [first, *(open_dataset(part, first.game) for part in parts[1:])]
    weights: dict[str, float] = {}
    for one in datasets:
        for cast, share in zip(one.header["casts"], one.shares, strict=True):
            weights[cast] = weights.get(cast, 0.0) + share * one.header["episodes"]
    kinds = parse_casts(list(weights), first.game.num_players).kinds

    def loaded() -> Iterator[Recorded]:
        for one in datasets:
            recorded = one.load()
            numbers = np.array([kinds.index(kind) for kind in one.kinds])
            yield Recorded(recorded.episode, numbers[recorded.kinds])

    described = [
        {"dataset": str(one.path), **{name: one.header[name] for name in ("casts", "seed", "episodes")}}
        for one in datasets
    ]
    notes = {**(notes or {}), "joined": described}
    return write_dataset(path, first.game, loaded(), list(weights), kinds, None, notes, weights=list(weights.values()))


def _check_place(path: Path, replace: bool) -> None:
    """InputError where something is there already that a new dataset may not take the place of."""
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return
    if not replace:
        raise InputError(f"{path} is there already: choose another directory")
    if not is_dataset(path):
        raise InputError(f"{path} is there already and is not a dataset: choose another directory")


def _check_casts(recorded: Recorded, casting: Casting) -> None:
    strange = {*map(tuple, recorded.kinds.tolist())} - {*map(tuple, casting.casts.tolist())}
    if strange:
        who = ",".join(casting.kinds[kind] for kind in min(strange))
        raise InputError(f"an episode was played by {who}, which is none of the casts")


def _new_name(path: Path) -> Path:
    """A name beside a path that nobody else has, for what is not to be seen."""
    return path.parent / f"{UNFINISHED}{secrets.token_hex(8)}"


def _put_in_place(directory: Path, path: Path) -> None:
    """Give a directory its name. The one that had the name before is removed after that, and gets it back if that
    fails."""
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
    """The name of a dataset while another takes its place; not one that `remove_unfinished` removes."""
    return path.with_name(f".{path.name}-replaced")


def restore_replaced(path: Path) -> None:
    """Undo a replacement that was cut short: give the replaced dataset its name back, or remove it where the new one
    has the name. Nobody else may be writing the dataset."""
    before = _replaced_name(path)
    if path.exists():
        remove(before)
    elif before.exists():
        try:
            os.replace(before, path)
        except OSError as error:
            raise InputError(f"cannot give {before} its name {path} back: {error.strerror or error}") from error


def _write_shard(directory: Path, arrays: Arrays) -> dict[str, Any]:
    directory.mkdir()
    checksums = {}
    for field, array in arrays.items():
        data = io.BytesIO()
        np.save(data, array, allow_pickle=False)
        (directory / f"{field}.npy").write_bytes(data.getvalue())
        checksums[field] = hashlib.sha256(data.getvalue()).hexdigest()
    episodes = len(arrays["kinds"])
    steps, rows = int(arrays["starts"][-1]), len(arrays["row.step"])
    return {"name": directory.name, "episodes": episodes, "steps": steps, "rows": rows, "sha256": checksums}


# --------------------------------------------------------------------------------------- arrays with and without gaps


def to_arrays(recorded: Recorded) -> Arrays:
    """Whole episodes as a shard's arrays, nothing in them of steps that did not take place."""
    episode, played = recorded.episode, recorded.played
    lengths = played.sum(0)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    states = jax.tree.map(lambda steps, last: np.concatenate([steps, last[None]]), episode.state, episode.last_state)
    environment, time = np.nonzero(np.arange(len(played) + 1) <= lengths[:, None])
    arrays = {"starts": starts.astype(np.int64), "kinds": recorded.kinds.astype(np.uint8)}
    for name, leaf in names_and_leaves(states).items():
        arrays[f"state.{name.replace('/', '.')}"] = np.ascontiguousarray(leaf[time, environment])
    environment, time, seat = np.nonzero(np.moveaxis(np.asarray(episode.alive), 1, 0))
    at = (time, environment, seat)
    rows = {
        "step": starts[environment] + time,
        "seat": seat.astype(np.uint8),
        "action": episode.actions[at].astype(np.uint8),
        "reward": episode.reward[at].astype(np.float32),
        "left": episode.left[at],
        "took": episode.took[at].astype(np.uint8),
        "cell": episode.cell[at].astype(np.int16),
    }
    return {**arrays, **{f"row.{name}": np.ascontiguousarray(value) for name, value in rows.items()}}


def from_arrays(game: Game[Any], arrays: Mapping[str, np.ndarray]) -> Recorded:
    """A shard's arrays as whole episodes [T, E, ...]: an episode's last state stands in the steps after its end."""
    starts, kinds = np.asarray(arrays["starts"]), np.asarray(arrays["kinds"], np.int64)
    lengths, episodes, steps, n = np.diff(starts), len(kinds), game.last_step, game.num_players
    template = jax.eval_shape(game.init, jax.random.key(0))
    at = starts[:-1] + np.arange(episodes) + np.minimum(np.arange(steps + 1)[:, None], lengths)
    leaves = [np.asarray(arrays[f"state.{name.replace('/', '.')}"])[at] for name in names_and_leaves(template)]
    states = jax.tree.unflatten(jax.tree.structure(template), leaves)

    step = np.asarray(arrays["row.step"])
    environment = np.searchsorted(starts, step, side="right") - 1
    rows = (step - starts[environment], environment, np.asarray(arrays["row.seat"], np.int64))

    def spread(field: str, empty: Any, dtype: Any) -> np.ndarray:
        values = np.full((steps, episodes, n), empty, dtype)
        values[rows] = True if field == "alive" else arrays[f"row.{field}"]
        return values

    alive, reward = spread("alive", False, bool), spread("reward", 0.0, np.float32)
    fields: dict[str, Any] = {
        "state": jax.tree.map(lambda leaf: leaf[:-1], states),
        "actions": spread("action", game.idle_action, np.int32),
        "alive": alive,
        "reward": reward,
        "left": np.maximum.accumulate(spread("left", False, bool), axis=0),
        "over": np.arange(1, steps + 1)[:, None] >= lengths,
        "took": spread("took", 0, np.int32),
        "cell": spread("cell", -1, np.int32),
        "total_reward": np.cumsum(reward, 0),
        "total_steps": np.cumsum(alive, 0, dtype=np.int32),
        "info": (),
        "last_state": jax.tree.map(lambda leaf: leaf[-1], states),
    }
    return Recorded(Episode(**fields), kinds)


def _together(parts: Sequence[Recorded]) -> Recorded:
    """The episodes of several shards as one."""
    if len(parts) == 1:
        return parts[0]

    def joined(axis: int, *trees: Any) -> Any:
        return jax.tree.map(lambda *leaves: np.concatenate(leaves, axis), *trees)

    episodes = [part.episode for part in parts]
    by_time = [{name: value for name, value in vars(one).items() if name != "last_state"} for one in episodes]
    last = joined(0, *(one.last_state for one in episodes))
    return Recorded(Episode(**joined(1, *by_time), last_state=last), joined(0, *(part.kinds for part in parts)))


# ------------------------------------------------------------------------------------------------------------- read


@dataclass(frozen=True, eq=False)
class Dataset:
    """A dataset that is there, its files as they were written."""

    path: Path
    header: Mapping[str, Any]

    @cached_property
    def game(self) -> Game[Any]:
        return make(self.header["game"])

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(self.header["kinds"])

    @property
    def shares(self) -> tuple[float, ...]:
        """How likely each of the casts was: equally, where nobody says otherwise."""
        weights = self.header.get("weights", [1.0] * len(self.header["casts"]))
        return tuple(weight / sum(weights) for weight in weights)

    @property
    def casting(self) -> Casting:
        """The casts as they were drawn."""
        return parse_casts(self.header["casts"], self.game.num_players, self.shares)

    def shards(self) -> list[Arrays]:
        """The arrays of every shard, mapped into memory."""
        return [
            {
                field: np.load(self.path / shard["name"] / f"{field}.npy", mmap_mode="r", allow_pickle=False)
                for field in shard["sha256"]
            }
            for shard in self.header["shards"]
        ]

    def load(self) -> Recorded:
        """All episodes; InputError where a stored action was not legal."""
        recorded = _together([from_arrays(self.game, arrays) for arrays in self.shards()])
        legal = _legal(recorded.episode.state, self.game)
        chosen = np.take_along_axis(np.asarray(legal), np.asarray(recorded.episode.actions)[..., None], -1)[..., 0]
        wrong = np.argwhere(np.asarray(recorded.episode.alive) & ~chosen)
        if len(wrong):
            time, episode, seat = wrong[0]
            raise InputError(
                f"{self.path} holds {len(wrong)} actions that were not legal, the first by seat {seat} in step {time}"
                f" of episode {episode}: it was not written by this version of {self.game.name}"
            )
        return recorded


@partial(jax.jit, static_argnames="game")
def _legal(states: Any, game: Game[Any]) -> Bool[Array, "T E n A"]:
    return jax.vmap(jax.vmap(game.legal))(states)


def is_dataset(path: str | Path) -> bool:
    """Whether a path is that of a dataset, sound or not."""
    return (Path(path) / HEADER).is_file()


def open_dataset(path: Path, game: Game[Any] | None = None) -> Dataset:
    """A dataset whose files are what was written; InputError where they are not, or it is of another game."""
    header = read_json(path / HEADER, f"{path} is not a dataset: it has no {HEADER}")
    needed = {"format", "game", "version", "casts", "kinds", "seed", "episodes", "steps", "rows", "shards"}
    if not isinstance(header, dict) or not needed <= set(header) or header["format"] != FORMAT:
        raise InputError(f"{path / HEADER} does not describe a dataset of format {FORMAT}")
    if not header["rows"]:
        raise InputError(f"{path} is empty: nobody did anything in it")
    found = Dataset(path, header)
    if found.game.version != header["version"]:
        raise InputError(
            f"{path} was played on version {header['version']} of {header['game']}, and this is {found.game.version}"
        )
    if game is not None and game != found.game:
        raise InputError(f"{path} was played on {header['game']}, not on {game.name}")
    _check_files(path, header)
    return found


def _check_files(path: Path, header: Mapping[str, Any]) -> None:
    for shard in header["shards"]:
        for field, digest in shard["sha256"].items():
            file = path / shard["name"] / f"{field}.npy"
            try:
                data = file.read_bytes()
            except OSError as error:
                raise InputError(f"{file} cannot be read: {error.strerror}") from None
            if hashlib.sha256(data).hexdigest() != digest:
                raise InputError(f"{file} is damaged: its bytes are not what was written")


def describe(dataset: Dataset) -> dict[str, Any]:
    """What is in a dataset: counts, the share of each action among the rows, returns and lengths by kind of player."""
    recorded = dataset.load()
    episode, names = recorded.episode, dataset.game.action_names
    actions = np.bincount(np.asarray(episode.actions)[episode.alive], minlength=len(names))
    returns, lengths = np.asarray(episode.returns), np.asarray(episode.lengths)
    took = np.asarray(episode.took).max(0)
    by_kind = {}
    for number, kind in enumerate(dataset.kinds):
        seats = recorded.kinds == number
        if seats.any():
            by_kind[kind] = {
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
        "kinds": by_kind,
    }
