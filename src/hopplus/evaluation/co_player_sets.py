"""Named sets of co-players, for tuning (validation) and reporting (held-out), and the overlap with a run's training."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import lcm
from pathlib import Path
from typing import Any, Literal

from hopplus.algorithms.seats import LEARNER, OWN_PARTNERS
from hopplus.core.errors import InputError
from hopplus.core.specs import Spec, nearest, parse, parse_value, split_top_level
from hopplus.games import Game, Snowdrift, StagHunt
from hopplus.players import CastSpec, names
from hopplus.rollouts.cast_distribution import ALL
from hopplus.rollouts.dataset import is_dataset
from hopplus.training.casting import SAVED, SELF_PLAY, parse_cast, parse_player, seat_cast
from hopplus.training.policies import is_policy
from hopplus.training.pretrained import is_pretrained
from hopplus.training.run import Run

Split = Literal["validation", "held-out", "own"]

STAG_HUNT_VALIDATION: Mapping[str, tuple[str, ...]] = {
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
SNOWDRIFT_VALIDATION: Mapping[str, tuple[str, ...]] = {
    "noisy-cleaners": ("noisy(cleaner,0.2)",) * 3,
    "noisy-exploiters": ("noisy(exploiter,0.2)",) * 3,
    "two-exploiters": ("noisy(exploiter,0.1)", "noisy(exploiter,0.1)", "noisy(cleaner,0.2)"),
    "slow-switching": ("switching(cleaner,exploiter,every=7)",) * 3,
}
"""Validation sets of the snowdrift game. Noise makes an exploiter remove a drift now and then."""
SNOWDRIFT: Mapping[str, tuple[str, ...]] = {
    "cleaners": ("cleaner",) * 3,
    "exploiters": ("exploiter",) * 3,
    "mixed": ("cleaner", "exploiter", "random"),
}
"""Held-out sets of the snowdrift game."""
LEARNED = "learned"
"""`learned(RUN)`, or with one run per seat: co-players from saved runs."""
NOT_SCRIPTS = (LEARNER, SELF_PLAY, "self", *OWN_PARTNERS)


@dataclass(frozen=True)
class CoPlayers:
    """Set of co-players, one for every seat but the focal player's."""

    name: str
    players: tuple[Spec, ...]
    split: Split

    @classmethod
    def of(cls, name: str, players: Sequence[str], split: Split) -> "CoPlayers":
        """Parses the names of the players."""
        return cls(name, tuple(map(parse_player, players)), split)

    def at_episode(self, episode: int) -> tuple[Spec, ...]:
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
        held_out, validation = {**STAG_HUNT, **(BLIND if game.blocks else {})}, STAG_HUNT_VALIDATION
    if isinstance(game, Snowdrift):
        held_out, validation = SNOWDRIFT, SNOWDRIFT_VALIDATION
    return {
        **{name: CoPlayers.of(name, players, "held-out") for name, players in held_out.items()},
        **{name: CoPlayers.of(name, players, "validation") for name, players in validation.items()},
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
        sets = [CoPlayers.of(text, runs * (game.num_players - 1) if len(runs) == 1 else runs, "own")]
    elif "," in text or _is_player(text):
        sets = [CoPlayers.of(text, split_top_level(text), "own")]
    else:
        raise InputError(f"{game.name} has no set of co-players {text!r}{nearest(text, [*known, 'held-out'])}")
    for co_players in sets:
        if len(co_players.players) != game.num_players - 1:
            raise InputError(
                f"the set {co_players.name!r} has {len(co_players.players)} players, and {game.name} has"
                f" {game.num_players - 1} seats beside the focal player's"
            )
        seat_cast(CastSpec((Spec("stay"), *co_players.players)), game)
    return sets


def distinct_players(sets: Sequence[CoPlayers]) -> tuple[Spec, ...]:
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


def _switches(player: Spec) -> bool:
    return player.name == "switching" and not is_policy(player.text())


def _switch_intervals(player: Spec) -> list[int]:
    inside = [interval for argument in player.arguments for interval in _switch_intervals(argument)]
    return [*inside, _switch_interval(player)] if _switches(player) else inside


def _at_episode(player: Spec, episode: int) -> Spec:
    if _switches(player):
        return _at_episode(player.arguments[episode // _switch_interval(player) % 2], episode)
    return replace(player, arguments=tuple(_at_episode(argument, episode) for argument in player.arguments))


# --------------------------------------------------------------------------------------------- co-players in training


def _sources(player: Spec) -> set[str]:
    """Returns the scripts in a player, without options, and the paths of saved runs and recordings."""
    if is_policy(player.text()) or is_dataset(player.text()):
        return {str(Path(player.text()).resolve())}
    if player.arguments:
        return set().union(*map(_sources, player.arguments))
    is_script = player.name not in NOT_SCRIPTS and isinstance(parse_value(player.name), str)
    return {player.name} if is_script else set()


def _met_in_training(run: Run) -> set[str]:
    """Returns the sources of co-players, curriculum partners, pool members and recorded players of a training."""
    others = (run.config["training"].get("partner"), *run.config.get("data", {}).get("casts", []))
    casts = [run.cast, *(parse_cast(text.removeprefix(ALL)) for text in others if text)]
    return set().union(*(_sources(player) for cast in casts for player in cast.players))


def regime(run: Run, against: CoPlayers) -> tuple[Literal["self", "pool"], tuple[str, ...]]:
    """Returns the training regime of a run and the players of a set that it met in training.

    The regime is `self` for a run trained without scripts, else `pool`. The set is not held out for a run that has met
    one of its players. A run has met itself in self-play.
    """
    met = _met_in_training(run)
    known = met | {str(run.path.resolve())}
    return ("pool" if met else "self"), tuple(sorted(known & set().union(*map(_sources, against.players))))
