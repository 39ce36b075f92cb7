"""Setup of a session: game, cast, number of episodes, seed."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hopplus.core.errors import InputError
from hopplus.core.specs import split_top_level
from hopplus.games import Game, make
from hopplus.players import CastSpec
from hopplus.players.human import YOU, Human
from hopplus.rollouts.session import SessionPlayers
from hopplus.training.casting import parse_player, seat_cast
from hopplus.training.policies import is_policy

MOST_EPISODES = 100
MOST_SEED = 2**31


@dataclass(frozen=True)
class SessionSetup:
    """Consecutive episodes with the same players, one of them a person."""

    game: str
    cast: tuple[str, ...]
    """One player per seat; the person is `you`. Runs are named by their path relative to a directory."""
    episodes: int
    seed: int
    hidden: bool = False
    """Hide the names of the co-players until the session ends."""

    def __post_init__(self) -> None:
        if not 1 <= self.episodes <= MOST_EPISODES:
            raise InputError(f"a session has 1 to {MOST_EPISODES} episodes, not {self.episodes}")
        if not 0 <= self.seed < MOST_SEED:
            raise InputError(f"the seed must be a whole number from 0 to {MOST_SEED - 1}, not {self.seed}")
        if self.cast.count(YOU) != 1:
            raise InputError(f"one seat of the cast must be {YOU!r}, not {self.cast.count(YOU)}: {','.join(self.cast)}")

    @property
    def seat(self) -> int:
        """Seat of the person."""
        return self.cast.index(YOU)

    def as_dict(self) -> dict[str, Any]:
        """Returns plain values for JSON."""
        return asdict(self)


def make_setup(game: str, cast: str, episodes: int, seed: int, hidden: bool) -> SessionSetup:
    """Returns the setup for a cast in the notation of the command line."""
    return SessionSetup(game, tuple(split_top_level(cast)), episodes, seed, hidden)


def setup_from(fields: Mapping[str, Any]) -> SessionSetup:
    """Inverse of `SessionSetup.as_dict`. Raises InputError for missing, unknown or mistyped fields."""
    types = {"game": str, "cast": list, "episodes": int, "seed": int, "hidden": bool}
    has_fields = isinstance(fields, Mapping) and set(fields) == set(types)
    if not has_fields or not all(type(fields[name]) is type_ for name, type_ in types.items()):
        expected = ", ".join(f"{name} ({type_.__name__})" for name, type_ in types.items())
        raise InputError(f"a session needs exactly the fields {expected}")
    if not all(isinstance(name, str) for name in fields["cast"]):
        raise InputError("the cast must be a list of names")
    return SessionSetup(**{**fields, "cast": tuple(fields["cast"])})


def session_players(setup: SessionSetup, directory: Path) -> SessionPlayers:
    """Returns the players of a session, with runs looked up below a directory. Raises InputError if one cannot play."""
    game: Game[Any] = make(setup.game)
    names = (name if name == YOU else resolve_run(name, directory) for name in setup.cast)
    seated = seat_cast(CastSpec(tuple(map(parse_player, names))), game, extra={YOU: lambda game: Human()})
    return SessionPlayers(game, seated.cast.players, tuple(seated.params()), setup.seat)


def resolve_run(name: str, directory: Path) -> str:
    """Returns a cast entry with the path of its run, `RUN` or `run(RUN,...)`, prefixed by a directory."""
    if is_policy(str(directory / name)):
        return str(directory / name)
    if name.startswith("run("):
        inner = name.removeprefix("run(").partition(",")
        return f"run({directory / inner[0].rstrip(')')}{',' + inner[2] if inner[1] else ')'}"
    return name
