"""A run directory, in files that any tool can read.

config.json (settings, versions, commit), metrics.jsonl, events/seed-N (TensorBoard), checkpoints/, evaluation/,
co_players/ (frozen co-players of the training). One training at a time writes into it.
"""

import contextlib
import dataclasses
import json
import math
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

import hopplus
from hopplus.core.errors import InputError
from hopplus.core.files import check_format, make_directory, read_json, remove_unfinished, write_text
from hopplus.players import CastSpec, Params
from hopplus.training import checkpoint
from hopplus.training.policies import Policy

if TYPE_CHECKING:
    from hopplus.training.episode_beliefs import EpisodeBeliefs

FORMAT = 1
"""Format of a run directory, in its config.json; evaluations state it too."""
CONFIG, METRICS, CHECKPOINTS, EVALUATION = "config.json", "metrics.jsonl", "checkpoints", "evaluation"
LOCK = "lock"
LOOKS, LOOK_SECONDS = 5, 0.05
"""Attempts to lock a directory, and seconds between them."""


@dataclass(frozen=True)
class Run:
    """A run directory and its config.json."""

    path: Path
    config: Mapping[str, Any]

    @property
    def checkpoints(self) -> Path:
        """Directory of the checkpoints."""
        return self.path / CHECKPOINTS

    @property
    def co_players(self) -> Path:
        """Directory of the frozen co-players of the training."""
        return self.path / "co_players"

    @property
    def seeds(self) -> list[int]:
        """Training seeds."""
        return list(self.config["seeds"])

    @cached_property
    def cast(self) -> CastSpec:
        """Cast of the training."""
        from hopplus.training.casting import parse_cast

        return parse_cast(self.config["training"]["cast"])

    def with_config(self, changes: Mapping[str, Any]) -> "Run":
        """Returns the run with some entries of config.json changed, on disk too."""
        config = json.loads(as_json({**self.config, **changes}))
        if config != self.config:
            write_text(self.path / CONFIG, as_json(config, indent=2) + "\n")
        return Run(self.path, config)

    def metrics(self) -> list[dict[str, Any]]:
        """Complete lines of metrics.jsonl, without a last line that a killed training left unfinished."""
        file = self.path / METRICS
        try:
            lines = whole_lines(file)
        except (OSError, ValueError) as error:
            raise InputError(f"{file} is damaged: {error}") from None
        for number, line in enumerate(lines, start=1):
            if not isinstance(line, dict) or "seed" not in line:
                raise InputError(f"{file} is damaged: line {number} has no seed")
        return lines

    def state(self, lines: Sequence[Mapping[str, Any]], final: Mapping[str, Any] | None) -> str:
        """`training`, `finished`, or `unfinished`, also where training continued after the final evaluation."""
        if is_locked(self.path):
            return "training"
        if final is None:
            return "unfinished"
        evaluated = final.get("steps", [])
        continued = evaluated and any(line["steps"] > max(evaluated) for line in lines[-len(self.seeds) :])
        return "unfinished" if continued else "finished"

    def __repr__(self) -> str:
        training, seeds = self.config.get("training", {}), ", ".join(map(str, self.seeds))
        what = self.config.get("algorithm") or f"fit of {self.config.get('fit')}"
        return f"Run({str(self.path)!r}: {what} on {training.get('game') or self.config.get('game')}, seeds {seeds})"

    def curve(self, name: str, seed: int | None = None) -> "tuple[np.ndarray, np.ndarray]":
        """Returns the steps [lines] and values [lines] or [lines, n] of a metric of one seed (default: the first)."""
        chosen = self.seeds[0] if seed is None else seed
        lines = [line for line in self.metrics() if line["seed"] == chosen and line.get(name) is not None]
        if not lines:
            raise InputError(f"{self.path} has no metric {name!r} of seed {chosen}")
        values = np.array([np.array(line[name], dtype=np.float64) for line in lines])
        return np.array([line["steps"] for line in lines]), values

    def beliefs(self, co_players: str, episodes: int = 1, seed: int = 0) -> "list[EpisodeBeliefs]":
        """Plays one trial beside co-players (`nh,nh,nh`) and returns the planner's beliefs, episode by episode."""
        from hopplus.training.casting import parse_cast
        from hopplus.training.episode_beliefs import episode_beliefs

        return episode_beliefs(self.policies()[0], parse_cast(co_players), episodes, seed)

    def policy(self, seed: int | None = None, trained_at: int | None = None, seat: int = 0) -> Policy:
        """Newest parameter set of a seed, as `load_policy` chooses it."""
        learners = self.config["learners"]
        if trained_at is not None and trained_at not in learners:
            seats = ", ".join(map(str, learners))
            raise InputError(f"{self.path}: seat {trained_at} did not learn (learning seats: {seats})")
        return self.seated(self.policies(seed), seat if trained_at is None else trained_at)

    def seated(self, policies: Sequence[Policy], seat: int) -> Policy:
        """The parameter set that was trained at a seat, or else the first."""
        learners = self.config["learners"]
        return policies[learners.index(seat)] if len(policies) > 1 and seat in learners else policies[0]

    def policies(self, seed: int | None = None) -> list[Policy]:
        """Newest parameter sets of a seed: one per learning seat, or the shared one."""
        import jax

        from hopplus.algorithms import make_algorithm

        chosen = self.seeds[0] if seed is None else seed
        if chosen not in self.seeds:
            raise InputError(f"{self.path} has no seed {seed}: its seeds are {', '.join(map(str, self.seeds))}")
        algorithm = make_algorithm(self.config["algorithm"], self.config["settings"])
        place = self.seeds.index(chosen)
        by_seed = algorithm.params(checkpoint.load(self.checkpoints).tree())
        return self.policies_of(jax.tree.map(lambda leaf: leaf[place], by_seed), chosen)

    def policies_of(self, params: Params, seed: int | None = None) -> list[Policy]:
        """Policies of the parameter sets [P, ...] of a seed."""
        import jax

        chosen = self.seeds[0] if seed is None else seed
        described = (self.config["algorithm"], self.config["settings"], self.config["training"]["game"], chosen)
        return [
            Policy(*described, seat=seat, params=jax.tree.map(lambda leaf, number=number: leaf[number], params))
            for number, seat in enumerate(self.config["learners"][: len(jax.tree.leaves(params)[0])])
        ]

    def diagnostics(self, name: str) -> Path:
        """Directory of the tables and figures of a diagnosis."""
        return make_directory(self.path / "diagnostics" / name)

    def evaluations(self) -> dict[str, dict[str, Any]]:
        """Results of evaluations by name."""
        results = {}
        for file in sorted((self.path / EVALUATION).glob("*.json")):
            try:
                results[file.stem] = json.loads(file.read_text(encoding="utf-8"))
            except (OSError, ValueError) as error:
                raise InputError(f"{file} is damaged: {error}") from None
            if not isinstance(results[file.stem], dict):
                raise InputError(f"{file} is damaged: it is no JSON object")
            check_format(file, results[file.stem].pop("format", None), FORMAT)
        return results

    def write_evaluation(self, name: str, figures: Mapping[str, Any]) -> Path:
        """Writes the result of an evaluation."""
        directory = make_directory(self.path / EVALUATION)
        write_text(directory / f"{name}.json", as_json({"format": FORMAT, **figures}, indent=2) + "\n")
        return directory / f"{name}.json"


def default_path(algorithm: str, game: str) -> Path:
    """Directory of a run without a name of its own: runs/ALGORITHM-GAME-TIME."""
    return Path("runs") / f"{algorithm}-{game.replace(':', '-')}-{time.strftime('%Y%m%d-%H%M%S')}"


def whole_lines(path: Path) -> list[Any]:
    """Lines of a JSON lines file, without a last line that was cut off; no lines where there is no file."""
    with contextlib.suppress(FileNotFoundError):
        return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n")[:-1]]
    return []


def read_run(path: Path) -> Run:
    """Reads a training or a fit; InputError where the directory holds none."""
    config = read_json(path / CONFIG, f"{path} is not a run: it has no {CONFIG}")
    if not isinstance(config, dict) or not isinstance(config.get("seeds"), list):
        raise InputError(f"{path / CONFIG} does not describe a run")
    check_format(path / CONFIG, config.get("format"), FORMAT)
    return Run(path, config)


def open_run(path: Path) -> Run:
    """Reads a training; InputError where the directory holds none."""
    return check_training(read_run(path))


def check_training(run: Run) -> Run:
    """Returns the run if it is a training with a complete config, else raises InputError."""
    path, config = run.path, run.config
    if "fit" in config:
        raise InputError(f"{path} is a fit of {config['fit']}, not a training")
    types = {"algorithm": str, "settings": dict, "training": dict, "learners": list}
    described = all(isinstance(config.get(key), kind) for key, kind in types.items())
    if not described or not {"game", "cast", "seeds", "steps", "iterations_per_call", "curriculum"} <= set(
        config["training"]
    ):
        raise InputError(f"{path / CONFIG} does not describe a run")
    return run


@contextlib.contextmanager
def new_run(path: Path, config: Mapping[str, Any]) -> Iterator[Run]:
    """Creates a run directory and locks it; InputError where the directory is not empty."""
    make_directory(path)
    if not (path / LOCK).exists():
        _refuse_others(path)
    with locked(path):
        _refuse_others(path)
        write_text(path / CONFIG, as_json({"format": FORMAT, **config, **provenance()}, indent=2) + "\n")
        yield read_run(path)


def _refuse_others(path: Path) -> None:
    """Raises InputError where a directory is not empty."""
    others = [file.name for file in path.iterdir() if file.name != LOCK]
    if others:
        what = f"already holds a run: go on with it (--resume {path})" if CONFIG in others else "is not empty:"
        raise InputError(f"{path} {what}{' or' if CONFIG in others else ''} choose another --out")


def is_locked(path: Path) -> bool:
    """Returns whether a training is writing into the directory."""
    try:
        with (path / LOCK).open(encoding="utf-8") as file:
            return not _take(file)
    except OSError:
        return False


@contextlib.contextmanager
def locked(path: Path, who: str = "another training is writing into") -> Iterator[None]:
    """Locks a directory; the lock ends with the process, even a killed one. InputError where it is taken."""
    try:
        file = (path / LOCK).open("a", encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write into {path}: {error.strerror}") from None
    with file:
        # `is_locked` of another process holds the lock for a moment.
        if not any(_take(file) or time.sleep(LOOK_SECONDS) for _ in range(LOOKS)):
            raise InputError(f"{who} {path}")
        remove_unfinished(path)
        yield


def _take(file: IO[str]) -> bool:
    """Locks an open file until it is closed; False where another process holds the lock."""
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def provenance() -> dict[str, Any]:
    """Versions, commit, machine and time of a run."""
    import jax

    return {
        "versions": {"hopplus": hopplus.__version__, "jax": jax.__version__, "python": platform.python_version()},
        "commit": _commit(),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, {jax.devices()[0].device_kind}",
        "started": time.strftime("%Y-%m-%dT%H:%M:%S"),
    }


def _commit() -> str | None:
    """Git commit of the package's sources; None outside of a repository."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=12"]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(command, capture_output=True, encoding="utf-8", check=True, timeout=5).stdout.strip()
    return None


def as_json(value: Any, indent: int | None = None) -> str:
    """Standard JSON: numbers that are not finite become null."""

    def plain(part: Any) -> Any:
        if isinstance(part, Mapping):
            return {str(key): plain(inner) for key, inner in part.items()}
        if isinstance(part, list | tuple):
            return [plain(inner) for inner in part]
        if dataclasses.is_dataclass(part) and not isinstance(part, type):
            return plain(dataclasses.asdict(part))
        return None if isinstance(part, float) and not math.isfinite(part) else part

    return json.dumps(plain(value), indent=indent, allow_nan=False)
