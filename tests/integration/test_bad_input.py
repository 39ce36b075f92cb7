"""Users' mistakes: a message of one sentence, ValueError from the library, exit code 2 from the command."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from hopplus import games, players
from hopplus.cli.main import main
from hopplus.core.errors import InputError, require
from hopplus.core.specs import parse
from hopplus.evaluation import match

HUNT = games.make("msh-4x4-4h1s")
DRIFT = games.make("msg-4x4")
SEATS = [(0, 0), (0, 1), (0, 2), (0, 3)]


LIBRARY: dict[str, tuple[Callable[[], Any], str]] = {
    "unknown game": (lambda: games.make("msh-4x4-4h2s"), "did you mean 'msh-4x4-4h1s'"),
    "nothing like a game": (lambda: games.make("chess"), "known: msg-4x4"),
    "unknown setting": (lambda: games.make("msh-4x4-4h1s", stgas=2), "did you mean 'stags'"),
    "unknown setting in the name": (lambda: games.make("msh-4x4-4h1s:TT=2"), "did you mean 'T'"),
    "setting without a value": (lambda: games.make("msh-4x4-4h1s:T"), "key=value"),
    "settings in brackets": (lambda: games.make("msh-4x4-4h1s(3)"), "follow a colon"),
    "more prey than cells": (lambda: games.make("msh-4x4-4h1s", hares=16), "17 items do not fit on the 16 cells"),
    "more prey than free cells": (lambda: games.make("msh-4x4-4h1s", hares=13, blocks=1), "1 block pieces do not fit"),
    "blocks that cannot fit": (lambda: games.make("msh-8x8-4h1s", blocks=60), "60 block pieces do not fit"),
    "negative size": (lambda: games.make("msh-4x4-4h1s", height=-4), "height must be a whole number from 2 to 19"),
    "too large": (lambda: games.make("msh-4x4-4h1s", width=20), "width must be a whole number from 2 to 19"),
    "fraction": (lambda: games.make("msh-4x4-4h1s", T=3.5), "T must be a whole number of at least 1"),
    "no time": (lambda: games.make("msh-4x4-4h1s", T=0), "T must be"),
    "nine players": (lambda: games.make("msh-4x4-4h1s", players=9), "players must be a whole number from 2 to 8"),
    "negative prey": (lambda: games.make("msh-4x4-4h1s", stags=-1), "stags must be"),
    "negative blocks": (lambda: games.make("msh-4x4-4h1s", blocks=-1), "blocks must be"),
    "no drift": (lambda: games.make("msg-4x4", drifts=0), "drifts must be"),
    "a reward that is none": (lambda: games.make("msh-4x4-4h1s", stag_reward="ten"), "stag_reward must be"),
    "an endless reward": (lambda: games.make("msg-4x4", cost=float("inf")), "cost must be"),
    "strengths of too few": (lambda: games.make("msh-4x4-4h1s", strengths=(1, 2)), "strengths must be 4 whole"),
    "broken strengths": (lambda: games.make("msh-4x4-4h1s", strengths=(1, 2, 3, 0.5)), "strengths must be 4 whole"),
    "a prosocial seat that is none": (lambda: games.make("msh-4x4-4h1s", prosocial=(4,)), "seats from 0 to 3"),
    "two prey on a cell": (
        lambda: HUNT.from_layout(players=SEATS, stags=[(1, 1)], hares=[(1, 1)]),
        r"a stag and a hare on cell \(1, 1\)",
    ),
    "two hares on a cell": (lambda: HUNT.from_layout(players=SEATS, hares=[(1, 1), (1, 1)]), "a hare and a hare"),
    "prey on a block": (lambda: HUNT.from_layout(players=SEATS, stags=[(1, 1)], blocks=[(1, 1)]), "a block and a stag"),
    "a player on a block": (
        lambda: HUNT.from_layout(players=SEATS, blocks=[(0, 1)]),
        r"a player on the block at \(0, 1\)",
    ),
    "a player off the board": (lambda: HUNT.from_layout(players=[(0, 4), *SEATS[1:]]), "off the 4x4 board"),
    "a negative cell": (lambda: HUNT.from_layout(players=SEATS, hares=[(-1, 0)]), "off the 4x4 board"),
    "too few players": (lambda: HUNT.from_layout(players=SEATS[:3]), "has 4 players, and the layout places 3"),
    "too many stags": (lambda: HUNT.from_layout(players=SEATS, stags=[(1, 1), (2, 2)]), "at most 1 of stag"),
    "a time after the end": (lambda: HUNT.from_layout(players=SEATS, time=36), "time of a layout"),
    "a deadline after the end": (lambda: HUNT.from_layout(players=SEATS, deadline=36), "deadline of a layout"),
    "an action that is none": (lambda: HUNT.from_layout(players=SEATS, last_actions=[4, 4, 4, 7]), "last_actions"),
    "a player who left a snowdrift": (lambda: DRIFT.from_layout(players=[None, *SEATS[1:]]), "no player can leave"),
    "actions of too few": (lambda: step(jnp.zeros(3, int)), "takes 4 integer actions"),
    "one action for all": (lambda: step(jnp.int32(4)), "takes 4 integer actions"),
    "actions of a batch": (lambda: step(jnp.zeros((2, 4), int)), "takes 4 integer actions"),
    "broken actions": (lambda: step(jnp.zeros(4)), "takes 4 integer actions"),
    "unknown player": (lambda: players.make("nss", HUNT), "did you mean 'ns'"),
    "unknown option of a player": (lambda: players.make("nh:thn=stay", HUNT), "did you mean 'then'"),
    "unknown value of an option": (lambda: players.make("nh:then=sta", HUNT), "then cannot be 'sta'"),
    "unknown paths": (lambda: players.make("ns:paths=blnd", HUNT), "did you mean 'blind'"),
    "a hunter without prey": (lambda: players.make("ns", DRIFT), "needs a game with the action STAG"),
    "a cleaner without drifts": (lambda: players.make("cleaner", HUNT), "needs a game with the action REMOVE"),
    "an exploiter without drifts": (lambda: players.make("exploiter", HUNT), "no action REMOVE"),
    "noise without a number": (lambda: players.make("noisy(ns)", HUNT), r"written 'noisy\(player,eps\)'"),
    "noise without a player": (lambda: players.make("noisy(nss,0.2)", HUNT), "wraps a player"),
    "too much noise": (lambda: players.make("noisy(ns,1.5)", HUNT), "probability from 0 to 1"),
    "switching never": (lambda: players.make("switching(ns,nh,every=0)", HUNT), "whole number of episodes"),
    "switching of one": (lambda: players.make("switching(ns,every=2)", HUNT), "written 'switching"),
    "arguments of a plain player": (lambda: players.make("ns(3)", HUNT), "written 'ns'"),
    "an open bracket": (lambda: players.make("noisy(ns,0.2", HUNT), "opening bracket without a closing one"),
    "a closing bracket": (lambda: parse("ns)"), "closing bracket without an opening one"),
    "an empty seat": (lambda: players.make_cast("ns,,ns,ns", HUNT), "is not a name with options"),
    "a cast of the wrong size": (lambda: players.make_cast("ns,ns,ns", HUNT), "has 4 seats, but the cast"),
    "no episode": (lambda: match(HUNT, players.make_cast("ns,ns,ns,ns", HUNT), 0), "episodes must be at least 1"),
    "a name taken": (lambda: games.register("msg-4x4", lambda: DRIFT), "already registered"),
    "a player's name taken": (lambda: players.register("ns", lambda game: players.make("ns", game)), "already known"),
}


def step(actions: Any) -> Any:
    """A step of the stag hunt from a fixed layout."""
    return HUNT.step(jax.random.key(0), HUNT.from_layout(players=SEATS), actions)


@pytest.mark.parametrize("mistake", LIBRARY)
def test_the_library_raises_one_sentence(mistake: str) -> None:
    call, expected = LIBRARY[mistake]
    with pytest.raises(InputError, match=expected) as caught:
        call()
    assert isinstance(caught.value, ValueError)
    assert "\n" not in str(caught.value)


COMMANDS: dict[str, tuple[list[str], str]] = {
    "unknown command": (["mtch"], "did you mean 'match'"),
    "unknown option": (["match", "msh-4x4-4h1s", "--cst", "ns,ns,ns,ns"], "did you mean '--cast'"),
    "missing option": (["match", "msh-4x4-4h1s"], "needs --cast"),
    "missing game": (["match", "--cast", "ns,ns,ns,ns"], "needs GAME"),
    "unknown game": (["match", "msh-4x4", "--cast", "ns,ns,ns,ns"], "there is no game 'msh-4x4'"),
    "unknown player": (["match", "msh-4x4-4h1s", "--cast", "ns,ns,ns,nss"], "did you mean 'ns'"),
    "cast of the wrong size": (["watch", "msh-4x4-4h1s", "--cast", "ns,ns"], "has 4 seats"),
    "more prey than cells": (["watch", "msh-4x4-4h1s:hares=30", "--cast", "ns,ns,ns,ns"], "do not fit"),
    "no episodes": (["match", "msh-4x4-4h1s", "--cast", "ns,ns,ns,ns", "--episodes", "0"], "at least 1"),
    "not a number": (["match", "msh-4x4-4h1s", "--cast", "ns,ns,ns,ns", "--episodes", "many"], "many"),
    "no plugin": (["games", "--plugin", "nowhere.py"], "there is no plugin file"),
    "a step without a picture": (["watch", "msh-4x4-4h1s", "--cast", "ns,ns,ns,ns", "--at", "2"], "--svg and --png"),
    "negative delay": (["watch", "msh-4x4-4h1s", "--cast", "ns,ns,ns,ns", "--delay", "-1"], "more than 0 seconds"),
    "no such benchmark": (["bench", "gmaes"], "gmaes"),
    "no rounds": (["bench", "games", "--rounds", "0"], "at least one round"),
    "no rounds of growth": (["bench", "scale", "--rounds", "0"], "at least one round"),
    "a sweep of no cells": (["bench", "sweep", "--cells", "0"], "an even number of cells"),
    "a sweep without halves": (["bench", "sweep", "--cells", "3"], "not 3: --cells 16"),
    "no decisions": (["bench", "planning", "--batches", "0"], "at least one decision"),
    "planning in an unknown game": (["bench", "planning", "--games", "gamble"], "gamble"),
    "planning without a policy": (["bench", "planning", "--games", "msh-6x6-4h1s"], "no pretrained hopplus"),
    "an unknown planner": (["bench", "planning", "--planners", "tre"], "did you mean 'tree'"),
    "no planner": (["bench", "planning", "--planners", "off"], "needs a planner"),
    "a policy that cannot plan": (["bench", "planning", "--policy", "ppo"], "for runs of hop and hopplus"),
    "unwritable figures": (["games", "--json", "no/such/directory/games.json"], "cannot write"),
}


@pytest.mark.parametrize("mistake", COMMANDS)
def test_a_command_ends_with_code_2_and_one_message(mistake: str, capsys: pytest.CaptureFixture[str]) -> None:
    argv, expected = COMMANDS[mistake]
    try:
        code = main(argv)
    except SystemExit as stop:
        code = stop.code
    output = capsys.readouterr()
    assert code == 2
    assert expected in output.err
    assert "Traceback" not in output.err


def test_a_refused_picture_leaves_nothing_behind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "missing" / "hunt.svg"
    assert main(["watch", "msh-4x4-4h1s:T=2", "--cast", "stay,stay,stay,stay", "--svg", str(target)]) == 2
    assert "cannot write" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_missing_package_is_named_with_the_extra_that_installs_it() -> None:
    assert require("json", "analysis") is json
    with pytest.raises(
        InputError, match=r"needs no_such_package, which is not installed: pip install 'hopplus\[bench\]'"
    ):
        require("no_such_package.inner", "bench")
