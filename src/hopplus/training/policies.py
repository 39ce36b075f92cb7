"""A trained policy: one parameter set with the algorithm and settings of its network, from a file or a run."""

import hashlib
import json
import struct as binary
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from hopplus.configs import PlanningConfig, check_fields
from hopplus.core.errors import InputError
from hopplus.core.files import check_format, make_directory, write_bytes, write_text
from hopplus.core.settings import flatten
from hopplus.core.specs import check_options, parse
from hopplus.games import Game, GridGame, board_shape, make
from hopplus.planning import catalog as planners
from hopplus.players import Params, Player
from hopplus.players.clone import BehaviorClone
from hopplus.players.planner import Planner

SUFFIX = ".safetensors"
SOURCES = "sources.json"
FORMAT = 1
"""Format of policy files."""
HALF = np.float16
"""Storage type of small policy files: about three digits."""
TRAINING_ONLY = ("learn", "planned_states", "planned_share", "plan_coef")
"""Settings of planning without effect in play."""
DECISION_SETTINGS = (*(name for name in flatten(PlanningConfig()) if name not in TRAINING_ONLY), "inter", "intra")
"""Settings that may differ between training and play."""


@dataclass(frozen=True, eq=False)
class Policy:
    """One parameter set and its origin."""

    algorithm: str
    """Name of the algorithm, or `clone` for a behaviour clone of recorded games."""
    settings: Mapping[str, Any]
    """Settings of the algorithm, which determine the network."""
    game: str
    """Game of the training."""
    seed: int
    seat: int
    """Seat whose transitions trained the parameters; the first one of several."""
    params: Params
    decision: Mapping[str, Any] = field(default_factory=dict)
    """Settings of planning and beliefs in play, where they differ from those of the training."""

    def __repr__(self) -> str:
        return f"Policy({self.algorithm}, trained on {self.game}, seed {self.seed}, seat {self.seat})"

    def with_planner(self, planner: str | None) -> "Policy":
        """Returns the policy with another planner; None leaves it as trained.

        Args:
            planner: Name of the planner, with settings of planning and beliefs if they differ from those of the
                training: `rollouts(rollouts=32,plan_beliefs=uniform)`.
        """
        if planner is None:
            return self
        if "planner" not in self.settings:
            raise InputError(f"planner={planner} is for runs of hop and hopplus, not for one of {self.algorithm}")
        from hopplus.algorithms import make_algorithm

        spec = parse(planner)
        planners.check(spec.name)
        check_options(f"planner {spec.name!r}", dict(spec.options), DECISION_SETTINGS)
        options = {
            name: (value,) if name == "plans" and isinstance(value, str) else value for name, value in spec.options
        }
        changed = replace(self, decision={**self.decision, **options, "planner": spec.name})
        check_fields(make_algorithm(self.algorithm, changed.play_settings))
        return changed

    @property
    def play_settings(self) -> dict[str, Any]:
        """Settings of the algorithm in play."""
        return {**self.settings, **self.decision}

    def player(self, game: Game[Any], source: str, greedy: bool = False) -> Player:
        """Returns a player with this policy's network; InputError where the game does not fit it."""
        from hopplus.algorithms import make_algorithm

        trained_for = make(self.game)
        if not same_shape(game, trained_for):
            raise InputError(f"a policy trained on {self.game} cannot play {game.name}: boards or actions differ")
        if self.algorithm == BehaviorClone.name:
            assert isinstance(trained_for, GridGame)
            return BehaviorClone(trained_for, source)
        trained = make_algorithm(self.algorithm, self.settings).player(trained_for, source, greedy)
        if not self.decision:
            return trained
        deciding = make_algorithm(self.algorithm, self.play_settings).player(trained_for, source, greedy)
        assert isinstance(trained, Planner)
        assert isinstance(deciding, Planner)
        # The network, with the base plans of its plan head, is that of the training.
        return replace(deciding, network=trained.network, plans=trained.plans)


def same_shape(game: Game[Any], other: Game[Any]) -> bool:
    """Returns whether observations and actions of two games have the same shape."""

    def form(game: Game[Any]) -> tuple[Any, ...]:
        return game.num_players, game.action_names, game.taken_names, board_shape(game)

    return form(game) == form(other)


def is_policy(text: str) -> bool:
    """Returns whether a name in a cast is a saved run or policy file."""
    path = Path(text)
    return (path / "config.json").is_file() or (path.suffix == SUFFIX and path.is_file())


def load_policy(path: str, seed: int | None = None, trained_at: int | None = None, seat: int = 0) -> Policy:
    """Loads a policy file, or a parameter set from a run's newest checkpoint.

    Args:
        seed: Training seed; default: the first.
        trained_at: Seat whose transitions trained the parameters; default: `seat` if it learnt, else the first.
        seat: Seat where the policy will play.
    """
    if Path(path).is_dir():
        from hopplus.training.run import open_run

        return open_run(Path(path)).policy(seed, trained_at, seat)
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"there is no saved run or policy {path} ({error.strerror})") from None
    notes, arrays = read_arrays(data, path)
    unknown = InputError(f"{path} is not a saved policy: it does not name its network")
    try:
        described = dict(json.loads(notes["policy"]))
    except (KeyError, TypeError, ValueError):
        raise unknown from None
    check_format(path, described.pop("format", None), FORMAT)
    try:
        return Policy(**described, params=nested(_lengthened(arrays)))
    except (KeyError, TypeError, ValueError):
        raise unknown from None


def save_policy(path: Path, policy: Policy, short: bool = False) -> None:
    """Writes a policy file; `short` stores half-precision numbers."""
    described = {"format": FORMAT, **{key: value for key, value in vars(policy).items() if key != "params"}}
    arrays = flat(policy.params)
    if short:
        arrays = {name: array.astype(HALF) if array.dtype == np.float32 else array for name, array in arrays.items()}
    write_bytes(path, safetensors.numpy.save(arrays, {"policy": json.dumps(described)}))


def _lengthened(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Arrays with half-precision numbers converted to float32."""
    return {name: array.astype(np.float32) if array.dtype == HALF else array for name, array in arrays.items()}


def read_arrays(data: bytes, name: str) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    """Metadata and arrays of a safetensors file; InputError where it is none."""
    try:
        (length,) = binary.unpack("<Q", data[:8])
        notes = json.loads(data[8 : 8 + length]).get("__metadata__", {})
        return notes, safetensors.numpy.load(data)
    except (ValueError, AttributeError, binary.error, safetensors.SafetensorError) as error:
        raise InputError(f"{name} is damaged: {error}") from None


def flat(tree: Any, prefix: str = "") -> dict[str, np.ndarray]:
    """Nested mappings of arrays as one mapping, with names joined by slashes."""
    if not isinstance(tree, Mapping):
        return {prefix: np.ascontiguousarray(tree)}
    parts = [flat(value, f"{prefix}/{key}" if prefix else str(key)) for key, value in tree.items()]
    return {name: array for part in parts for name, array in part.items()}


def checksum(tree: Any) -> str:
    """Hash of the arrays of a tree, independent of the tree's structure."""
    import jax

    digest = hashlib.sha256()
    for leaf in jax.tree.leaves(tree):
        array = np.ascontiguousarray(leaf)
        digest.update(f"{array.dtype}{array.shape}".encode() + array.tobytes())
    return digest.hexdigest()[:16]


def nested(arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Inverse of `flat`."""
    tree: dict[str, Any] = {}
    for name, array in arrays.items():
        *path, last = name.split("/")
        branch = tree
        for part in path:
            branch = branch.setdefault(part, {})
        branch[last] = array
    return tree


def save_policies(directory: Path, policies: Mapping[str, Policy]) -> None:
    """Writes policies by source: a file each, and a list of the sources."""
    if not policies:
        return
    make_directory(directory)
    for number, policy in enumerate(policies.values()):
        save_policy(directory / f"{number}{SUFFIX}", policy)
    write_text(directory / SOURCES, json.dumps(list(policies), indent=2) + "\n")


def load_policies(directory: Path) -> dict[str, Policy]:
    """Reads what `save_policies` wrote; nothing where there is nothing."""
    if not (directory / SOURCES).is_file():
        return {}
    sources = json.loads((directory / SOURCES).read_text(encoding="utf-8"))
    return {source: load_policy(str(directory / f"{number}{SUFFIX}")) for number, source in enumerate(sources)}
