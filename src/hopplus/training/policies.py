"""A learnt policy by itself: one parameter set, and what network it belongs to; as a file, or taken from a run."""

import hashlib
import json
import struct as binary
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from hopplus.errors import InputError
from hopplus.files import make_directory, write_bytes, write_text
from hopplus.games import Game, GridGame, make
from hopplus.players import Params, Player
from hopplus.players.likeness import Likeness

SUFFIX = ".safetensors"
SOURCES = "sources.json"
SHORT = np.float16
"""How numbers are written where space matters: to three digits."""


@dataclass(frozen=True, eq=False)
class Policy:
    """One parameter set and where it comes from."""

    recipe: str
    """How it was learnt: a recipe's name, or `likeness` for what somebody did in recorded games."""
    settings: Mapping[str, Any]
    """Of the recipe: they determine the network."""
    game: str
    """What it was trained for."""
    seed: int
    seat: int
    """The seat whose rows trained it; the first of them if there are several."""
    params: Params

    def searching(self, search: str | None) -> "Policy":
        """The same, which searches before it acts (on) or does not (off); None: as it was trained to."""
        if search is None:
            return self
        if search not in ("on", "off") or "search" not in self.settings:
            raise InputError(
                f"search is on or off, for runs of hop and hopplus: not {search!r} for one of {self.recipe}"
            )
        return replace(self, settings={**self.settings, "search": search})

    def player(self, game: Game[Any], source: str, greedy: bool = False) -> Player:
        """A player with this policy's network for a game; InputError where the game does not fit it."""
        from hopplus.training.recipes import make_recipe

        trained_for = make(self.game)
        if not same_shape(game, trained_for):
            raise InputError(f"a policy trained on {self.game} cannot play {game.name}: boards or actions differ")
        if self.recipe == Likeness.name:
            assert isinstance(trained_for, GridGame)
            return Likeness(trained_for, source)
        return make_recipe(self.recipe, self.settings).player(trained_for, source, greedy)


def same_shape(game: Game[Any], other: Game[Any]) -> bool:
    """Whether what is seen and done in two games has the same form."""

    def form(game: Game[Any]) -> tuple[Any, ...]:
        board = tuple(getattr(game, side, None) for side in ("height", "width"))
        return game.num_players, game.action_names, game.channel_names, board

    return form(game) == form(other)


def is_policy(text: str) -> bool:
    """Whether a word of a cast names a saved run or policy rather than a player."""
    path = Path(text)
    return (path / "config.json").is_file() or (path.suffix == SUFFIX and path.is_file())


def load_policy(path: str, seed: int | None = None, trained_at: int | None = None, seat: int = 0) -> Policy:
    """From a policy file, or from a run's newest checkpoint: of its first seed, unless another is named, the parameter
    set trained at the seat named, or else at the seat where it will sit, or else at the first that learnt."""
    if Path(path).is_dir():
        from hopplus.training.run import open_run

        return open_run(Path(path)).policy(seed, trained_at, seat)
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"there is no saved run or policy {path} ({error.strerror})") from None
    notes, arrays = read_arrays(data, path)
    try:
        return Policy(**json.loads(notes["policy"]), params=nested(_lengthened(arrays)))
    except (KeyError, TypeError, ValueError):
        raise InputError(f"{path} is not a saved policy: it does not say of which network it is") from None


def save_policy(path: Path, policy: Policy, short: bool = False) -> None:
    """Write a policy as one file; with numbers of half the length, it takes half the space."""
    described = {key: value for key, value in vars(policy).items() if key != "params"}
    arrays = flat(policy.params)
    if short:
        arrays = {name: array.astype(SHORT) if array.dtype == np.float32 else array for name, array in arrays.items()}
    write_bytes(path, safetensors.numpy.save(arrays, {"policy": json.dumps(described)}))


def _lengthened(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Numbers as networks compute with them, whatever their length in a file."""
    return {name: array.astype(np.float32) if array.dtype == SHORT else array for name, array in arrays.items()}


def read_arrays(data: bytes, name: str) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    """The notes and arrays of a safetensors file; InputError where it is none."""
    try:
        (length,) = binary.unpack("<Q", data[:8])
        notes = json.loads(data[8 : 8 + length]).get("__metadata__", {})
        return notes, safetensors.numpy.load(data)
    except (ValueError, AttributeError, binary.error, safetensors.SafetensorError) as error:
        raise InputError(f"{name} is damaged: {error}") from None


def flat(tree: Any, prefix: str = "") -> dict[str, np.ndarray]:
    """Nested mappings of arrays as one mapping, names joined by slashes."""
    if not isinstance(tree, Mapping):
        return {prefix: np.ascontiguousarray(tree)}
    parts = [flat(value, f"{prefix}/{key}" if prefix else str(key)) for key, value in tree.items()]
    return {name: array for part in parts for name, array in part.items()}


def checksum(tree: Any) -> str:
    """The same for the same arrays, whatever tree of them they are in, and for no others."""
    import jax

    digest = hashlib.sha256()
    for leaf in jax.tree.leaves(tree):
        array = np.ascontiguousarray(leaf)
        digest.update(f"{array.dtype}{array.shape}".encode() + array.tobytes())
    return digest.hexdigest()[:16]


def nested(arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The inverse of `flat`."""
    tree: dict[str, Any] = {}
    for name, array in arrays.items():
        *path, last = name.split("/")
        branch = tree
        for part in path:
            branch = branch.setdefault(part, {})
        branch[last] = array
    return tree


def save_policies(directory: Path, policies: Mapping[str, Policy]) -> None:
    """Keep policies by source: a file each, and a list of which is which."""
    if not policies:
        return
    make_directory(directory)
    for number, policy in enumerate(policies.values()):
        save_policy(directory / f"{number}{SUFFIX}", policy)
    write_text(directory / SOURCES, json.dumps(list(policies), indent=2) + "\n")


def load_policies(directory: Path) -> dict[str, Policy]:
    """What `save_policies` kept; nothing where it kept none."""
    if not (directory / SOURCES).is_file():
        return {}
    sources = json.loads((directory / SOURCES).read_text(encoding="utf-8"))
    return {source: load_policy(str(directory / f"{number}{SUFFIX}")) for number, source in enumerate(sources)}
