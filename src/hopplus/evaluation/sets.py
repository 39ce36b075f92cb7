"""Tables of co-players by name: some for tuning, others held out for reporting; and whom of them a run has met."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import lcm
from pathlib import Path
from typing import Any, Literal

from hopplus.errors import InputError
from hopplus.games import Game, Snowdrift, StagHunt
from hopplus.play.dataset import is_dataset
from hopplus.players import names
from hopplus.specs import Spec, nearest, parse, parse_value, split_top_level
from hopplus.training.policies import is_policy
from hopplus.training.run import Run
from hopplus.training.seats import LEARNER, OWN_GUESTS, SAVED, SELF_PLAY, seat_cast
from hopplus.training.shipped import is_shipped

Split = Literal["validation", "held-out", "own"]

VALIDATION: Mapping[str, tuple[str, ...]] = {
    "noisy-cooperators": ("noisy(ns,0.2)",) * 3,
    "noisy-defectors": ("noisy(nh,0.2)",) * 3,
    "staying-defectors": ("nh:then=stay",) * 3,
    "slow-switching": ("switching(ns,nh,every=7)",) * 3,
}
"""For tuning, in the stag hunt."""
STAG_HUNT: Mapping[str, tuple[str, ...]] = {
    "cooperators": ("ns",) * 3,
    "defectors": ("nh",) * 3,
    "random": ("random",) * 3,
    "mixed": ("ns", "nh", "random"),
    "two-and-one": ("ns", "ns", "random"),
    "switching": ("switching(ns,nh,every=5)",) * 3,
}
"""For reporting, never tuned on."""
BLIND: Mapping[str, tuple[str, ...]] = {
    "cooperators-blind": ("ns:paths=blind",) * 3,
    "defectors-blind": ("nh:paths=blind",) * 3,
}
"""The original scripts, which jam against blocks: extra rows on boards that have some."""
SNOWDRIFT: Mapping[str, tuple[str, ...]] = {
    "cleaners": ("cleaner",) * 3,
    "exploiters": ("exploiter",) * 3,
    "mixed": ("cleaner", "exploiter", "random"),
}
LEARNED = "learned"
"""`learned(RUN)`, or with one run a seat: co-players from saved runs."""
NOT_SCRIPTS = (LEARNER, SELF_PLAY, "self", *OWN_GUESTS)


@dataclass(frozen=True)
class CoPlayers:
    """A table of co-players, one for every seat but the focal player's."""

    name: str
    players: tuple[str, ...]
    split: Split

    def at_episode(self, episode: int) -> tuple[str, ...]:
        """Who they are in an episode, the first being 0: those who switch as whom they are then."""
        return tuple(_at_episode(player, episode) for player in self.players)

    @property
    def period(self) -> int:
        """After how many episodes they are the same again."""
        return lcm(*(2 * every for player in self.players for every in _switches(player)))


def sets_of(game: Game[Any]) -> dict[str, CoPlayers]:
    """All sets that a game has, by name."""
    held_out: Mapping[str, tuple[str, ...]] = {}
    validation: Mapping[str, tuple[str, ...]] = {}
    if isinstance(game, StagHunt):
        held_out, validation = {**STAG_HUNT, **(BLIND if game.blocks else {})}, VALIDATION
    if isinstance(game, Snowdrift):
        held_out = SNOWDRIFT
    return {
        **{name: CoPlayers(name, who, "held-out") for name, who in held_out.items()},
        **{name: CoPlayers(name, who, "validation") for name, who in validation.items()},
    }


def make_sets(text: str, game: Game[Any]) -> list[CoPlayers]:
    """A set by name, all of `held-out` or `validation`, saved runs as in `learned(RUN)`, or a list of players.

    InputError where a set does not fill the seats beside the focal player's, or where somebody cannot play the game.
    """
    known = sets_of(game)
    if text in ("held-out", "validation"):
        found = [one for one in known.values() if one.split == text]
        if not found:
            raise InputError(f"{game.name} has no {text} sets of co-players: name some players, as in random,random")
    elif text in known:
        found = [known[text]]
    elif text.startswith(f"{LEARNED}(") and text.endswith(")"):
        runs = split_top_level(text[len(LEARNED) + 1 : -1])
        found = [CoPlayers(text, tuple(runs * (game.num_players - 1) if len(runs) == 1 else runs), "own")]
    elif "," in text or _is_player(text):
        found = [CoPlayers(text, tuple(split_top_level(text)), "own")]
    else:
        raise InputError(f"{game.name} has no set of co-players {text!r}{nearest(text, [*known, 'held-out'])}")
    for one in found:
        if len(one.players) != game.num_players - 1:
            raise InputError(
                f"the set {one.name!r} has {len(one.players)} players, and {game.name} has {game.num_players - 1} seats"
                " beside the focal player's"
            )
        seat_cast(",".join(["stay", *one.players]), game)
    return found


def kinds(sets: Sequence[CoPlayers]) -> tuple[str, ...]:
    """All different players of several sets; none where they are not several, or have but one kind of player."""
    found = tuple(dict.fromkeys(player for one in sets for player in one.players))
    return found if len(sets) > 1 and len(found) > 1 else ()


def _is_player(text: str) -> bool:
    return is_policy(text) or is_shipped(text) or parse(text).name in (*names(), *SAVED)


# ------------------------------------------------------------------------------------------------------ who switches


def _every(spec: Spec) -> int:
    """After how many episodes one who switches does so."""
    every = dict(spec.options).get("every", spec.arguments[-1].name if len(spec.arguments) == 3 else None)
    try:
        return int(every)  # pyright: ignore[reportArgumentType]
    except (TypeError, ValueError):
        raise InputError(f"switching needs a number of episodes, as in 'switching(ns,nh,5)', not {every}") from None


def _switches(player: str) -> list[int]:
    if is_policy(player):
        return []
    spec = parse(player)
    inside = [every for argument in spec.arguments for every in _switches(argument.text())]
    return [*inside, _every(spec)] if spec.name == "switching" else inside


def _at_episode(player: str, episode: int) -> str:
    if is_policy(player):
        return player
    spec = parse(player)
    if spec.name == "switching":
        return _at_episode(spec.arguments[episode // _every(spec) % 2].text(), episode)
    inside = tuple(parse(_at_episode(argument.text(), episode)) for argument in spec.arguments)
    return Spec(spec.name, inside, spec.options).text()


# ------------------------------------------------------------------------------------------------- what a run has met


def _who(text: str) -> set[str]:
    """The scripts in a cast or player as people type it, without their options, and the paths of its saved runs and
    recorded games."""
    found: set[str] = set()
    for part in split_top_level(text.removeprefix("all:")):
        if is_policy(part) or is_dataset(part):
            found.add(str(Path(part).resolve()))
            continue
        spec = parse(part)
        if spec.arguments:
            found |= set().union(*(_who(argument.text()) for argument in spec.arguments))
        elif spec.name not in NOT_SCRIPTS and isinstance(parse_value(spec.name), str):
            found.add(spec.name)
    return found


def _met_in_training(run: Run) -> set[str]:
    """Who sat at the table when a run was trained, as players, guests or members of pools, or played its data."""
    training, data = run.config["training"], run.config.get("data", {})
    casts = (training["cast"], training.get("guest"), *data.get("casts", []))
    return set().union(*(_who(text) for text in casts if text))


def regime(run: Run, against: CoPlayers) -> tuple[Literal["self", "pool"], tuple[str, ...]]:
    """`self` for a run that has met no script, else `pool`; and whom of a set it has met: it is not held out for those.

    A run has met itself in self-play.
    """
    met = _met_in_training(run)
    known = met | {str(run.path.resolve())}
    return ("pool" if met else "self"), tuple(sorted(known & set().union(*map(_who, against.players))))
