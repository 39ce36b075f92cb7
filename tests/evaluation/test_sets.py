"""Sets of co-players: members, switching players, and the players that a run has met in training."""

from pathlib import Path
from typing import Any

import pytest

from hopplus import games, players
from hopplus.core.errors import InputError
from hopplus.evaluation.co_player_sets import CoPlayers, Split, make_sets, regime, sets_of
from hopplus.training.run import Run
from toy_games import Medley

GAME = games.make("msh-4x4-4h1s")
WITH_SETS = ("msh-4x4-4h1s", "msh-4x4-4h1s:hares=3", "msh-6x6-4h1s", "msh-8x8-4h1s", "msg-4x4", "msg-6x6", "msg-8x8")
"""Games with held-out and validation sets."""


@pytest.mark.parametrize("name", WITH_SETS)
@pytest.mark.parametrize("split", ["held-out", "validation"])
def test_all_sets_can_be_played(name: str, split: Split) -> None:
    game = games.make(name)
    sets = make_sets(split, game)
    assert len(sets) >= 3
    for co_players in sets:
        assert len(co_players.players) == game.num_players - 1
        for player in co_players.players:
            players.build(player, game)


@pytest.mark.parametrize("name", WITH_SETS)
def test_validation_sets_and_held_out_sets_have_no_player_in_common(name: str) -> None:
    by_split: dict[str, set[str]] = {"held-out": set(), "validation": set()}
    for co_players in sets_of(games.make(name)).values():
        by_split[co_players.split] |= {player.text() for player in co_players.players}
    assert not by_split["held-out"] & by_split["validation"]


def test_held_out_sets_by_game() -> None:
    assert {co_players.name for co_players in make_sets("held-out", games.make("msg-8x8"))} == {
        "cleaners",
        "exploiters",
        "mixed",
    }
    assert "cooperators-blind" in sets_of(games.make("msh-8x8-4h1s"))
    assert "cooperators-blind" not in sets_of(GAME)
    with pytest.raises(InputError, match="test-medley has no validation sets"):
        make_sets("validation", Medley())


def test_switching_co_players_by_episode() -> None:
    others = CoPlayers.of("others", ("switching(ns,nh,3)", "noisy(switching(stay,random,every=2),0.5)", "ns"), "own")
    assert others.period == 12
    assert [player.text() for player in others.at_episode(0)] == ["ns", "noisy(stay,0.5)", "ns"]
    assert [player.text() for player in others.at_episode(2)] == ["ns", "noisy(random,0.5)", "ns"]
    assert [player.text() for player in others.at_episode(5)] == ["nh", "noisy(stay,0.5)", "ns"]
    assert sets_of(GAME)["cooperators"].period == 1


def run_with(**config: Any) -> Run:
    training = {"game": "msh-4x4-4h1s", "cast": "self-play", "partner": None}
    return Run(Path("somewhere"), {"training": {**training, **config.pop("training", {})}, "seeds": [0], **config})


@pytest.mark.parametrize(
    ("config", "trained", "met"),
    [
        ({}, "self", ()),
        ({"training": {"partner": "optimist"}}, "self", ()),  # built from the run's own opponent model
        ({"training": {"cast": "learner,ns,ns,ns"}}, "pool", ("ns",)),
        ({"training": {"partner": "ns:then=hare"}}, "pool", ("ns",)),
        (
            {"training": {"cast": "learner,pool(learner,nh),switching(noisy(ns,0.1),stay,5),random"}},
            "pool",
            ("nh", "ns"),
        ),
        ({"training": {"cast": "learner,stay,stay,stay"}}, "pool", ()),
        ({"data": {"casts": ["all:nh,random"]}}, "pool", ("nh",)),
    ],
)
def test_co_players_that_a_run_has_met(config: dict[str, Any], trained: str, met: tuple[str, ...]) -> None:
    others = CoPlayers.of("others", ("noisy(ns,0.3)", "nh:then=stay", "switching(ns,nh,every=5)"), "own")
    assert regime(run_with(**config), others) == (trained, met)
