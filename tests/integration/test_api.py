"""The public API: what `import hopplus` offers, and that it works."""

import inspect
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import hopplus
from hopplus import api
from hopplus.core.errors import InputError

SMALL = {"num_envs": 8, "num_steps": 8, "hidden": (8,), "iterations_per_call": 1}


def test_import_does_not_import_jax() -> None:
    code = "import sys, hopplus; assert dir(hopplus); sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize("name", hopplus.__all__)
def test_every_function_is_documented_with_an_example(name: str) -> None:
    function = getattr(hopplus, name)
    assert function is getattr(api, name)
    docstring = inspect.getdoc(function) or ""
    for part in ("Args:", "Returns:", "Example:", f"hopplus.{name}("):
        assert part in docstring
    for parameter in inspect.signature(function).parameters:
        assert f"{parameter}: " in docstring


def test_unknown_attributes_are_refused() -> None:
    with pytest.raises(AttributeError, match="no attribute 'play'"):
        _ = hopplus.play


def test_rollouts_and_players() -> None:
    game = hopplus.make("msh-4x4-2h1s", T=8)
    assert hopplus.make_player("nh", game).name == "nh"
    trajectory = hopplus.rollout(game, "ns,nh", episodes=4, seed=1)
    assert trajectory.returns.shape == (4, 2)
    same = hopplus.rollout("msh-4x4-2h1s:T=8", "ns,nh", episodes=4, seed=1)
    np.testing.assert_array_equal(trajectory.actions, same.actions)


def test_train_load_evaluate_adapt(tmp_path: Path) -> None:
    path = tmp_path / "run"
    run = hopplus.train("ppo", game="msh-4x4-2h1s:T=8", steps=300, out=path, **SMALL)
    assert repr(run) == f"Run({str(path)!r}: ppo on msh-4x4-2h1s:T=8, seeds 0)"
    assert run.config == hopplus.load(path).config
    assert repr(run.policies()[0]) == "Policy(ppo, trained on msh-4x4-2h1s:T=8, seed 0, seat 0)"
    steps, entropy = run.curve("entropy")
    assert entropy.shape == (len(steps), 2)
    with pytest.raises(InputError, match="no metric 'nothing'"):
        run.curve("nothing")
    figures = hopplus.evaluate(path, "self,nh", episodes=8)
    assert figures["episodes"] == 8
    (row,) = hopplus.adapt(run, "nh", trials=2)
    assert len(row["curve"]) == 10
    with pytest.raises(InputError, match="ppo has no beliefs"):
        run.beliefs("nh")


def test_settings_of_training_and_algorithm_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'ppo' has no option 'num_env'"):
        hopplus.train("ppo", num_env=3, out=tmp_path / "run")
    with pytest.raises(InputError, match="num_envs must be at least 1"):
        hopplus.train("ppo", num_envs=0, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_beliefs_of_a_pretrained_policy_over_a_trial() -> None:
    from hopplus.training.casting import parse_cast
    from hopplus.training.episode_beliefs import episode_beliefs
    from hopplus.training.pretrained import load_pretrained

    policy = load_pretrained("hopplus", hopplus.make("msh-4x4-4h1s"))
    first, second = episode_beliefs(policy, parse_cast("nh,nh,nh"), episodes=2, seed=0)
    assert first.goal_names == ("nothing", "stag", "hare")
    np.testing.assert_allclose(first.belief.sum(-1), 1, rtol=1e-4)
    assert first.belief.shape[1:] == (3, 3)
    assert second.belief[0, :, 2].min() > first.belief[0, :, 2].max(), "the second episode begins with what was learnt"


def test_a_player_without_a_game_needs_one() -> None:
    with pytest.raises(InputError, match="give the game"):
        hopplus.adapt("nh")
