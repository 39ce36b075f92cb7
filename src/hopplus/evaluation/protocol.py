"""Evaluation protocol: length of trials, focal players, and seatings."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from hopplus.algorithms import make_algorithm
from hopplus.algorithms.base import Algorithm
from hopplus.core.errors import InputError
from hopplus.core.specs import Spec, parse
from hopplus.evaluation.co_player_sets import CoPlayers, regime
from hopplus.games import Game, make
from hopplus.players import CastSpec
from hopplus.training.casting import SAVED_RUN, parse_player, seat_cast
from hopplus.training.policies import Policy, checksum, is_policy
from hopplus.training.pretrained import is_pretrained, pretrained_specs
from hopplus.training.run import Run, open_run

SeatingMode = Literal["one", "three"]
"""`one`: one focal player with the whole set. `three`: focal players in all seats but one, with one of the set."""
BLOCK = 5
"""Episodes per reported block."""
SCORED = 2
"""Number of the block whose mean is the score: episodes 6 to 10."""


@dataclass(frozen=True)
class Protocol:
    """Length of a trial, and the part of it that is scored."""

    name: str
    episodes: int | None = None
    """Episodes per trial, reported in blocks of five; the score is the mean of the second block."""
    steps: int | None = None
    """Alternatively, environment steps per trial, reported in blocks of `block` steps; the score is the mean of the
    episodes that end in the last block."""
    block: int = BLOCK

    def check(self, game: Game[Any]) -> None:
        """Raises InputError for a protocol without a score."""
        if self.episodes is not None and self.episodes < SCORED * BLOCK:
            raise InputError(
                f"adaptation is scored on episodes 6 to 10: episodes must be at least 10, not {self.episodes}"
            )
        if self.steps is not None and game.last_step > self.block:
            raise InputError(f"an episode of {game.name} may last longer than the {self.block} steps that are scored")

    def budget(self, game: Game[Any]) -> int:
        """Returns a number of environment steps that always suffices; with weight updates, the steps of learning."""
        return self.steps or (self.episodes or 0) * game.last_step


def few_shot(episodes: int) -> Protocol:
    """Returns the protocol of a number of episodes, scored on episodes 6 to 10."""
    return Protocol("few-shot", episodes=episodes)


HOP = Protocol("hop", steps=2_400, block=600)
"""Protocol of HOP: 2,400 steps, scored on the last 600."""


# ----------------------------------------------------------------------------------------------------- focal players


@dataclass(frozen=True, eq=False)
class Focal:
    """Focal player: the policies of a run, by training seed, or a player by name."""

    name: str
    run: Run | None
    seeds: tuple[int, ...]
    """Training seeds; (0,) for a player by name."""
    planner: str | None = None
    """Planning before acting; None: as in training."""

    @classmethod
    def of(cls, text: str, seeds: Sequence[int] | None = None, planner: str | None = None) -> "Focal":
        """Returns a finished run by its directory, or a player by name.

        Raises:
            InputError: If the run is unfinished or lacks a seed, or if `planner` would have no effect.
        """
        if not Path(text).is_dir() or is_pretrained(text):
            if seeds is not None:
                raise InputError(f"{text!r} is no run directory: only runs have training seeds to choose from")
            return cls(text if planner is None else _with_planner(text, planner), None, (0,), planner)
        run = open_run(Path(text))
        if "final" not in run.evaluations():
            raise InputError(f"{text} is unfinished: resume it first (hopplus train --resume {text})")
        for seed in seeds or ():
            if seed not in run.seeds:
                raise InputError(f"{text} has no seed {seed}: its seeds are {', '.join(map(str, run.seeds))}")
        return cls(text, run, tuple(run.seeds if seeds is None else seeds), planner)

    @cached_property
    def player(self) -> Spec:
        """Parsed name."""
        return parse_player(self.name)

    def check(self, game: Game[Any], update_weights: bool) -> None:
        """Raises InputError if it cannot play the game, cannot learn, or cannot plan as requested."""
        seat_cast(CastSpec((self.player, *[Spec("stay")] * (game.num_players - 1))), game)
        if update_weights and self.planner is not None:
            raise InputError("--planner and --update-weights exclude each other: a run learns with its own settings")
        if update_weights:
            self.algorithm()

    def policies(self, seed: int) -> list[Policy]:
        """Returns the policies of a training seed; an empty list for a player by name."""
        return [policy.with_planner(self.planner) for policy in self.run.policies(seed)] if self.run else []

    def algorithm(self) -> Algorithm:
        """Returns the algorithm of the run. Raises InputError for a player by name."""
        if self.run is None:
            raise InputError(f"{self.name!r} has no weights to update: only runs have")
        return make_algorithm(self.run.config["algorithm"], self.run.config["settings"])

    @property
    def has_memory(self) -> bool:
        """True if memory persists between episodes; assumed for a player by name."""
        return self.run is None or self.algorithm().has_memory

    def regime(self, against: CoPlayers) -> tuple[str, tuple[str, ...]]:
        """Returns the training regime, and the players of a set that were met in training."""
        if self.run:
            return regime(self.run, against)
        return ("self" if is_pretrained(self.name) else "script"), ()


def game_of(focals: Sequence[Focal], game: str | None = None) -> Game[Any]:
    """Returns the game of this name, or that of the first run. Raises InputError if there is neither."""
    names = [game] if game is not None else [focal.run.config["training"]["game"] for focal in focals if focal.run]
    if not names:
        raise InputError("players by name have no game of their own: choose one with --game (in Python: give the game)")
    return make(names[0])


def is_trainable(text: str) -> bool:
    """Returns whether a name is a saved run or policy, or a pretrained policy, rather than a script."""
    return Path(text).is_dir() or is_policy(text) or parse(text).name in (SAVED_RUN, *pretrained_specs())


def _with_planner(text: str, planner: str) -> str:
    """Returns the name of a saved or pretrained policy with the option `planner`.

    Whether the policy can plan is checked when it is loaded.

    Raises:
        InputError: For a script, or a name that has the option already.
    """
    if not is_trainable(text):
        raise InputError(f"{text!r} cannot plan: --planner is for runs of hop and hopplus, and the pretrained hopplus")
    if is_policy(text):
        return f"{SAVED_RUN}({text},planner={planner})"
    spec = parse(text)
    if "planner" in dict(spec.options):
        raise InputError(f"{text!r} sets planner already: leave out that option or --planner")
    return replace(spec, options=(*spec.options, ("planner", planner))).text()


def check_distinct(focals: Sequence[Focal]) -> None:
    """Raises InputError if a training seed occurs twice."""
    seen: dict[str, str] = {}
    for focal in focals:
        for seed in focal.seeds:
            unit = f"seed {seed} of {focal.name}"
            weights = checksum([policy.params for policy in focal.policies(seed)]) if focal.run else focal.name
            if weights in seen:
                raise InputError(f"{unit} is the same as {seen[weights]}, and must not be counted twice")
            seen[weights] = unit


# ---------------------------------------------------------------------------------------------------------- seatings


@dataclass(frozen=True)
class Seating:
    """Players of a trial, focal ones first, and their seats."""

    focal: int
    """Number of focal players."""
    others: tuple[Spec, ...]
    """The co-players."""
    seats: tuple[int, ...]
    """Seat by player."""


def seatings(against: CoPlayers, seating: SeatingMode, players: int) -> list[Seating]:
    """Returns all seatings of a mode: the single focal player or co-player takes every seat in turn."""
    if seating == "one":
        return [Seating(1, against.players, (odd, *_rest(odd, players))) for odd in range(players)]
    return [
        Seating(players - 1, (other,), (*_rest(odd, players), odd))
        for other in dict.fromkeys(against.players)
        for odd in range(players)
    ]


def _rest(odd: int, players: int) -> tuple[int, ...]:
    return tuple(seat for seat in range(players) if seat != odd)
