"""What a person has chosen to play: the game, who sits where, how many episodes."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hopplus.errors import InputError
from hopplus.games import Game, make
from hopplus.play.live import Company
from hopplus.players.person import YOU, Person
from hopplus.specs import split_top_level
from hopplus.training.policies import is_policy
from hopplus.training.seats import seat_cast

MOST_EPISODES = 100
MOST_SEED = 2**31


@dataclass(frozen=True)
class Setup:
    """A series of episodes in a row with the same players, one of them a person."""

    game: str
    cast: tuple[str, ...]
    """One player a seat, as in every cast; the person is `you`. Runs are named by where they lie below a directory."""
    episodes: int
    seed: int
    hidden: bool = False
    """Whether the person is told who is who only at the end."""

    def __post_init__(self) -> None:
        if not 1 <= self.episodes <= MOST_EPISODES:
            raise InputError(f"a series has 1 to {MOST_EPISODES} episodes, not {self.episodes}")
        if not 0 <= self.seed < MOST_SEED:
            raise InputError(f"the seed must be a whole number from 0 to {MOST_SEED - 1}, not {self.seed}")
        if self.cast.count(YOU) != 1:
            raise InputError(f"one seat of the cast must be {YOU!r}, not {self.cast.count(YOU)}: {','.join(self.cast)}")

    @property
    def seat(self) -> int:
        """Where the person sits."""
        return self.cast.index(YOU)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def make_setup(game: str, cast: str, episodes: int, seed: int, hidden: bool) -> Setup:
    """What somebody has typed: a cast as in every command."""
    return Setup(game, tuple(split_top_level(cast)), episodes, seed, hidden)


def setup_from(found: Mapping[str, Any]) -> Setup:
    """The inverse of `Setup.as_dict`; InputError where something else is there."""
    kinds = {"game": str, "cast": list, "episodes": int, "seed": int, "hidden": bool}
    fits = isinstance(found, Mapping) and set(found) == set(kinds)
    if not fits or not all(type(found[name]) is kind for name, kind in kinds.items()):
        raise InputError(f"a game to be played is described by {', '.join(kinds)}, each of its own kind")
    if not all(isinstance(word, str) for word in found["cast"]):
        raise InputError("a cast is a list of names")
    return Setup(**{**found, "cast": tuple(found["cast"])})


def company_of(setup: Setup, directory: Path) -> Company:
    """Those who sit at the table, runs being those below a directory; InputError where one of them cannot."""
    game: Game[Any] = make(setup.game)
    words = (word if word == YOU else located(word, directory) for word in setup.cast)
    seated = seat_cast(",".join(words), game, extra={YOU: lambda game: Person()})
    return Company(game, seated.cast.players, tuple(seated.params()), setup.seat)


def located(word: str, directory: Path) -> str:
    """A word of a cast as it is understood everywhere: a run, or a run's name in brackets, with where it lies."""
    if is_policy(str(directory / word)):
        return str(directory / word)
    if word.startswith("run("):
        inner = word.removeprefix("run(").partition(",")
        return f"run({directory / inner[0].rstrip(')')}{',' + inner[2] if inner[1] else ')'}"
    return word
