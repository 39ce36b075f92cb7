"""Keys of stored oracles: what they depend on, and what they do not."""

import dataclasses
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import pytest

from hopplus import games
from hopplus.algorithms import PPO
from hopplus.algorithms.base import initial_params
from hopplus.evaluation.oracle_opponents import OracleOpponents, name_without_paths
from hopplus.training.casting import parse_player
from hopplus.training.policies import Policy, save_policy


def opponents_of(game: games.Game[Any], names: Sequence[str]) -> OracleOpponents:
    return OracleOpponents.of(game, [parse_player(name) for name in names])


def test_the_key_does_not_depend_on_class_names() -> None:
    game = games.make("msh-4x4-4h1s")
    opponents = opponents_of(game, ["ns", "nh", "random"])
    key = opponents.key(game)
    before = {renamed: renamed.__qualname__ for renamed in (*map(type, opponents.players), type(game))}
    try:
        for renamed in before:
            renamed.__qualname__ = "Renamed"
        assert "Renamed" in repr(opponents.players[0]), "the class has another name now"
        assert opponents.key(game) == key
    finally:
        for renamed, name in before.items():
            renamed.__qualname__ = name
    assert opponents_of(game, ["random", "ns", "nh"]).key(game) == key, "another order of the same co-players"


def test_the_key_depends_on_settings_version_and_co_players(monkeypatch: pytest.MonkeyPatch) -> None:
    game, against = games.make("msh-4x4-4h1s"), ["ns", "nh", "random"]
    key = opponents_of(game, against).key(game)
    longer = games.make("msh-4x4-4h1s:T=36")
    keys = [
        opponents_of(longer, against).key(longer),
        opponents_of(game, ["ns", "nh", "stay"]).key(game),
        opponents_of(game, ["ns:then=stay", "nh", "random"]).key(game),
    ]
    same_name: Any = dataclasses.replace(game, T=36)  # pyright: ignore[reportArgumentType]
    keys.append(opponents_of(same_name, against).key(same_name))
    monkeypatch.setattr(type(game), "version", "another")
    keys.append(opponents_of(game, against).key(game))
    assert len({key, *keys}) == 1 + len(keys)


def saved_policy(path: Path, game: games.Game[Any], params: Any, **settings: Any) -> str:
    save_policy(path, Policy("ppo", {"hidden": (4,), **settings}, game.name, seed=0, seat=0, params=params))
    return str(path)


def test_the_key_of_trained_co_players_depends_on_weights_and_settings_but_not_on_paths(tmp_path: Path) -> None:
    game = games.make("msh-4x4-4h1s")
    network = PPO(hidden=(4,)).network(game)
    params = jax.device_get(jax.jit(lambda key: initial_params(network, game, key))(jax.random.key(0)))
    policy = saved_policy(tmp_path / "a.safetensors", game, params)
    copied = shutil.copy(policy, tmp_path / "b.safetensors")
    weights = saved_policy(tmp_path / "c.safetensors", game, jax.tree.map(lambda leaf: leaf + 1, params))
    settings = saved_policy(tmp_path / "d.safetensors", game, params, gamma=0.5)
    original, copy, *others = (
        opponents_of(game, [str(path), "ns", "ns"]).key(game) for path in (policy, copied, weights, settings)
    )
    assert original == copy
    assert len({original, *others}) == 3
    assert opponents_of(game, [policy, "ns", "ns"]).is_trained
    assert name_without_paths(parse_player(policy)) == "run"
    assert name_without_paths(parse_player("noisy(run(some/where, seed=1), 0.20)")) == "noisy(run:seed=1,0.20)"
