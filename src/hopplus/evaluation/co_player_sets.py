"""Named sets of co-players, for tuning (validation) and reporting (held-out), and the overlap with a run's training."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import lcm
from pathlib import Path
from typing import Any, Literal

from hopplus.algorithms.seats import LEARNER, OWN_PARTNERS
from hopplus.core.errors import InputError
from hopplus.core.specs import Spec, nearest, parse, parse_value, split_top_level
from hopplus.games import Game, Snowdrift, StagHunt
from hopplus.players import names
from hopplus.rollouts.dataset import is_dataset
from hopplus.training.casting import SAVED, SELF_PLAY, seat_cast
from hopplus.training.policies import is_policy
from hopplus.training.pretrained import is_pretrained
from hopplus.training.run import Run

Split = Literal["validation", "held-out", "own"]

VALIDATION: Mapping[str, tuple[str, ...]] = {
    "noisy-cooperators": ("noisy(ns,0.2)",) * 3,
    "noisy-defectors": ("noisy(nh,0.2)",) * 3,
    "staying-defectors": ("nh:then=stay",) * 3,
    "slow-switching": ("switching(ns,nh,every=7)",) * 3,
}
"""Validation sets of the stag hunt, for tuning."""
STAG_HUNT: Mapping[str, tuple[str, ...]] = {
    "cooperators": ("ns",) * 3,
    "defectors": ("nh",) * 3,
    "random": ("random",) * 3,
    "mixed": ("ns", "nh", "random"),
    "two-and-one": ("ns", "ns", "random"),
    "switching": ("switching(ns,nh,every=5)",) * 3,
}
"""Held-out sets of the stag hunt, for reporting; never used for tuning."""
BLIND: Mapping[str, tuple[str, ...]] = {
    "cooperators-blind": ("ns:paths=blind",) * 3,
    "defectors-blind": ("nh:paths=blind",) * 3,
}
"""Further held-out sets on boards with blocks: the original scripts, which get stuck at blocks."""
SNOWDRIFT: Mapping[str, tuple[str, ...]] = {
    "cleaners": ("cleaner",) * 3,
    "exploiters": ("exploiter",) * 3,
    "mixed": ("cleaner", "exploiter", "random"),
}
LEARNED = "learned"
"""`learned(RUN)`, or with one run per seat: co-players from saved runs."""
NOT_SCRIPTS = (LEARNER, SELF_PLAY, "self", *OWN_PARTNERS)


@dataclass(frozen=True)
class CoPlayers:
    """Set of co-players, one for every seat but the focal player's."""

    name: str
    players: tuple[str, ...]
    split: Split

    def at_episode(self, episode: int) -> tuple[str, ...]:
        """Returns the co-players of an episode, counted from 0; switching players are replaced by the active one."""
        return tuple(_at_episode(player, episode) for player in self.players)

    @property
    def period(self) -> int:
        """Number of episodes after which the co-players repeat."""
        return lcm(*(2 * interval for player in self.players for interval in _switch_intervals(player)))


def sets_of(game: Game[Any]) -> dict[str, CoPlayers]:
    """Returns all sets of a game by name."""
    held_out: Mapping[str, tuple[str, ...]] = {}
    validation: Mapping[str, tuple[str, ...]] = {}
    if isinstance(game, StagHunt):
        held_out, validation = {**STAG_HUNT, **(BLIND if game.blocks else {})}, VALIDATION
    if isinstance(game, Snowdrift):
        held_out = SNOWDRIFT
    return {
        **{name: CoPlayers(name, players, "held-out") for name, players in held_out.items()},
        **{name: CoPlayers(name, players, "validation") for name, players in validation.items()},
    }


def make_sets(text: str, game: Game[Any]) -> list[CoPlayers]:
    """Returns a set by name, all sets of `held-out` or `validation`, saved runs (`learned(RUN)`), or a list of players.

    Raises:
        InputError: If a set does not fill all seats but the focal player's, or a player cannot play the game.
    """
    known = sets_of(game)
    if text in ("held-out", "validation"):
        sets = [co_players for co_players in known.values() if co_players.split == text]
        if not sets:
            raise InputError(f"{game.name} has no {text} sets of co-players: name some players, as in random,random")
    elif text in known:
        sets = [known[text]]
    elif text.startswith(f"{LEARNED}(") and text.endswith(")"):
        runs = split_top_level(text[len(LEARNED) + 1 : -1])
        sets = [CoPlayers(text, tuple(runs * (game.num_players - 1) if len(runs) == 1 else runs), "own")]
    elif "," in text or _is_player(text):
        sets = [CoPlayers(text, tuple(split_top_level(text)), "own")]
    else:
        raise InputError(f"{game.name} has no set of co-players {text!r}{nearest(text, [*known, 'held-out'])}")
    for co_players in sets:
        if len(co_players.players) != game.num_players - 1:
            raise InputError(
                f"the set {co_players.name!r} has {len(co_players.players)} players, and {game.name} has"
                f" {game.num_players - 1} seats beside the focal player's"
            )
        seat_cast(",".join(["stay", *co_players.players]), game)
    return sets


def distinct_players(sets: Sequence[CoPlayers]) -> tuple[str, ...]:
    """Returns the distinct players of several sets; empty for a single set or a single player."""
    players = tuple(dict.fromkeys(player for co_players in sets for player in co_players.players))
    return players if len(sets) > 1 and len(players) > 1 else ()


def _is_player(text: str) -> bool:
    return is_policy(text) or is_pretrained(text) or parse(text).name in (*names(), *SAVED)


# -------------------------------------------------------------------------------------------------- switching players


def _switch_interval(spec: Spec) -> int:
    """Returns the number of episodes after which a switching player switches."""
    every = dict(spec.options).get("every", spec.arguments[-1].name if len(spec.arguments) == 3 else None)
    try:
        return int(every)  # pyright: ignore[reportArgumentType]
    except (TypeError, ValueError):
        raise InputError(f"switching needs a number of episodes, as in 'switching(ns,nh,5)', not {every}") from None


def _switch_intervals(player: str) -> list[int]:
    if is_policy(player):
        return []
    spec = parse(player)
    inside = [interval for argument in spec.arguments for interval in _switch_intervals(argument.text())]
    return [*inside, _switch_interval(spec)] if spec.name == "switching" else inside


def _at_episode(player: str, episode: int) -> str:
    if is_policy(player):
        return player
    spec = parse(player)
    if spec.name == "switching":
        return _at_episode(spec.arguments[episode // _switch_interval(spec) % 2].text(), episode)
    inside = tuple(parse(_at_episode(argument.text(), episode)) for argument in spec.arguments)
    return Spec(spec.name, inside, spec.options).text()


# --------------------------------------------------------------------------------------------- co-players in training


def _sources(text: str) -> set[str]:
    """Returns the scripts in a typed cast or player, without options, and the paths of saved runs and recordings."""
    sources: set[str] = set()
    for part in split_top_level(text.removeprefix("all:")):
        if is_policy(part) or is_dataset(part):
            sources.add(str(Path(part).resolve()))
            continue
        spec = parse(part)
        if spec.arguments:
            sources |= set().union(*(_sources(argument.text()) for argument in spec.arguments))
        elif spec.name not in NOT_SCRIPTS and isinstance(parse_value(spec.name), str):
            sources.add(spec.name)
    return sources


def _met_in_training(run: Run) -> set[str]:
    """Returns the sources of co-players, curriculum partners, pool members and recorded players of a training."""
    training, data = run.config["training"], run.config.get("data", {})
    casts = (training["cast"], training.get("partner"), *data.get("casts", []))
    return set().union(*(_sources(text) for text in casts if text))


def regime(run: Run, against: CoPlayers) -> tuple[Literal["self", "pool"], tuple[str, ...]]:
    """Returns the training regime of a run and the players of a set that it met in training.

    The regime is `self` for a run trained without scripts, else `pool`. The set is not held out for a run that has met
    one of its players. A run has met itself in self-play.
    """
    met = _met_in_training(run)
    known = met | {str(run.path.resolve())}
    return ("pool" if met else "self"), tuple(sorted(known & set().union(*map(_sources, against.players))))
