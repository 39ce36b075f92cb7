"""A run directory: what was trained, how it went, and what came of it, as files that any tool can read.

config.json (settings, versions, commit), metrics.jsonl, events/seed-N (TensorBoard), checkpoints/, evaluation/,
co_players/ (frozen players that sat at the table). One training at a time writes into it.
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
from pathlib import Path
from typing import IO, Any

import hopplus
from hopplus.errors import InputError
from hopplus.files import make_directory, read_json, remove_unfinished, write_text
from hopplus.players import Params
from hopplus.training import checkpoint
from hopplus.training.policies import Policy

CONFIG, METRICS, CHECKPOINTS, EVALUATION = "config.json", "metrics.jsonl", "checkpoints", "evaluation"
LOCK = "lock"
LOOKS, LOOK_SECONDS = 5, 0.05
"""How often, and how far apart, one looks whether a directory is free before it is said to be taken."""


@dataclass(frozen=True)
class Run:
    """A run directory and what its config.json says."""

    path: Path
    config: Mapping[str, Any]

    @property
    def checkpoints(self) -> Path:
        return self.path / CHECKPOINTS

    @property
    def co_players(self) -> Path:
        """Where the frozen players that sat at the table are kept."""
        return self.path / "co_players"

    @property
    def seeds(self) -> list[int]:
        return list(self.config["seeds"])

    def with_config(self, changes: Mapping[str, Any]) -> "Run":
        """The same run with some entries of its config.json changed, on the disk too."""
        config = json.loads(as_json({**self.config, **changes}))
        if config != self.config:
            write_text(self.path / CONFIG, as_json(config, indent=2) + "\n")
        return Run(self.path, config)

    def metrics(self) -> list[dict[str, Any]]:
        """The whole lines of metrics.jsonl; a last line that a killed training left unfinished is not there."""
        file = self.path / METRICS
        try:
            lines = whole_lines(file)
        except (OSError, ValueError) as error:
            raise InputError(f"{file} is damaged: {error}") from None
        for number, line in enumerate(lines, start=1):
            if not isinstance(line, dict) or "seed" not in line:
                raise InputError(f"{file} is damaged: line {number} does not say of which seed it is")
        return lines

    def state(self, lines: Sequence[Mapping[str, Any]], final: Mapping[str, Any] | None) -> str:
        """`training`, `finished`, or `unfinished`: also where it has gone on since its final evaluation."""
        if is_locked(self.path):
            return "training"
        if final is None:
            return "unfinished"
        judged = final.get("steps", [])
        went_on = judged and any(line["steps"] > max(judged) for line in lines[-len(self.seeds) :])
        return "unfinished" if went_on else "finished"

    def policy(self, seed: int | None = None, trained_at: int | None = None, seat: int = 0) -> Policy:
        """A seed's newest parameter set, as `load_policy` chooses it."""
        learners = self.config["learners"]
        if trained_at is not None and trained_at not in learners:
            seats = ", ".join(map(str, learners))
            raise InputError(f"{self.path}: nobody learnt at seat {trained_at} (seats that did: {seats})")
        return self.seated(self.policies(seed), seat if trained_at is None else trained_at)

    def seated(self, policies: Sequence[Policy], seat: int) -> Policy:
        """Of a seed's parameter sets the one trained at a seat, or else the first."""
        learners = self.config["learners"]
        return policies[learners.index(seat)] if len(policies) > 1 and seat in learners else policies[0]

    def policies(self, seed: int | None = None) -> list[Policy]:
        """A seed's newest parameter sets: one for each seat that learnt, or the one that they share."""
        import jax

        from hopplus.training.recipes import make_recipe

        chosen = self.seeds[0] if seed is None else seed
        if chosen not in self.seeds:
            raise InputError(f"{self.path} has no seed {seed}: its seeds are {', '.join(map(str, self.seeds))}")
        recipe = make_recipe(self.config["recipe"], self.config["settings"])
        place = self.seeds.index(chosen)
        learnt = jax.tree.map(lambda leaf: leaf[place], recipe.learnt(checkpoint.load(self.checkpoints).tree()))
        return self.policies_of(learnt, chosen)

    def policies_of(self, params: Params, seed: int | None = None) -> list[Policy]:
        """Parameter sets [P, ...] of a seed of this run as policies."""
        import jax

        chosen = self.seeds[0] if seed is None else seed
        described = (self.config["recipe"], self.config["settings"], self.config["training"]["game"], chosen)
        return [
            Policy(*described, seat=seat, params=jax.tree.map(lambda leaf, number=number: leaf[number], params))
            for number, seat in enumerate(self.config["learners"][: len(jax.tree.leaves(params)[0])])
        ]

    def diagnostics(self, name: str) -> Path:
        """Where a diagnosis puts its tables and pictures."""
        return make_directory(self.path / "diagnostics" / name)

    def evaluations(self) -> dict[str, dict[str, Any]]:
        """What evaluations found, by name."""
        found = {}
        for file in sorted((self.path / EVALUATION).glob("*.json")):
            try:
                found[file.stem] = json.loads(file.read_text(encoding="utf-8"))
            except (OSError, ValueError) as error:
                raise InputError(f"{file} is damaged: {error}") from None
            if not isinstance(found[file.stem], dict):
                raise InputError(f"{file} is damaged: it holds no figures by name")
        return found

    def write_evaluation(self, name: str, figures: Mapping[str, Any]) -> Path:
        """Keep what an evaluation found."""
        directory = make_directory(self.path / EVALUATION)
        write_text(directory / f"{name}.json", as_json(figures, indent=2) + "\n")
        return directory / f"{name}.json"


def whole_lines(path: Path) -> list[Any]:
    """What a file of JSON lines says; a last line that was cut off is not there, and no file says nothing."""
    with contextlib.suppress(FileNotFoundError):
        return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n")[:-1]]
    return []


def read_run(path: Path) -> Run:
    """Whatever run is there, a training or a fit; InputError where the directory holds none."""
    config = read_json(path / CONFIG, f"{path} is not a run: it has no {CONFIG}")
    if not isinstance(config, dict) or not isinstance(config.get("seeds"), list):
        raise InputError(f"{path / CONFIG} does not describe a run")
    return Run(path, config)


def open_run(path: Path) -> Run:
    """A training that is there; InputError where the directory holds none."""
    return check_training(read_run(path))


def check_training(run: Run) -> Run:
    """The run, if it is a training that is described in full; InputError if not."""
    path, config = run.path, run.config
    if "fit" in config:
        raise InputError(f"{path} is a fit of {config['fit']}, not a training")
    kinds = {"recipe": str, "settings": dict, "training": dict, "learners": list}
    described = all(isinstance(config.get(key), kind) for key, kind in kinds.items())
    if not described or not {"game", "cast", "seeds", "steps", "chunk", "until"} <= set(config["training"]):
        raise InputError(f"{path / CONFIG} does not describe a run")
    return run


@contextlib.contextmanager
def new_run(path: Path, config: Mapping[str, Any]) -> Iterator[Run]:
    """A fresh run directory, nobody else's as long as this lasts; one that holds a run already is refused."""
    make_directory(path)
    if not (path / LOCK).exists():
        _refuse_others(path)
    with locked(path):
        _refuse_others(path)
        write_text(path / CONFIG, as_json({**config, **provenance()}, indent=2) + "\n")
        yield read_run(path)


def _refuse_others(path: Path) -> None:
    """InputError where something is in a directory."""
    others = [file.name for file in path.iterdir() if file.name != LOCK]
    if others:
        what = f"already holds a run: go on with it (--resume {path})" if CONFIG in others else "is not empty:"
        raise InputError(f"{path} {what}{' or' if CONFIG in others else ''} choose another --out")


def is_locked(path: Path) -> bool:
    """Whether a training is writing into the directory now."""
    try:
        with (path / LOCK).open(encoding="utf-8") as file:
            return not _take(file)
    except OSError:
        return False


@contextlib.contextmanager
def locked(path: Path, who: str = "another training is writing into") -> Iterator[None]:
    """The directory, nobody else's as long as this lasts, even if the process is killed; InputError if it is taken,
    saying by whom."""
    try:
        file = (path / LOCK).open("a", encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write into {path}: {error.strerror}") from None
    with file:
        # Whoever asks `is_locked` holds the lock for a moment.
        if not any(_take(file) or time.sleep(LOOK_SECONDS) for _ in range(LOOKS)):
            raise InputError(f"{who} {path}")
        remove_unfinished(path)
        yield


def _take(file: IO[str]) -> bool:
    """Lock an open file until it is closed; False where somebody else has it."""
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
    """What a reader needs to know about where figures come from."""
    import jax

    return {
        "versions": {"hopplus": hopplus.__version__, "jax": jax.__version__, "python": platform.python_version()},
        "commit": _commit(),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, {jax.devices()[0].device_kind}",
        "started": time.strftime("%Y-%m-%dT%H:%M:%S"),
    }


def _commit() -> str | None:
    """The git commit of the package's sources, if they are in a repository."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=12"]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(command, capture_output=True, encoding="utf-8", check=True, timeout=5).stdout.strip()
    return None


def as_json(value: Any, indent: int | None = None) -> str:
    """JSON as the standard has it: what is not a finite number is null."""

    def plain(part: Any) -> Any:
        if isinstance(part, Mapping):
            return {str(key): plain(inner) for key, inner in part.items()}
        if isinstance(part, list | tuple):
            return [plain(inner) for inner in part]
        if dataclasses.is_dataclass(part) and not isinstance(part, type):
            return plain(dataclasses.asdict(part))
        return None if isinstance(part, float) and not math.isfinite(part) else part

    return json.dumps(plain(value), indent=indent, allow_nan=False)
