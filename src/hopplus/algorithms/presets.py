"""Named groups of settings; individual options override them."""

from collections.abc import Callable
from typing import Any

from hopplus.configs import PPOConfig
from hopplus.games import Game


def hop_paper(game: Game[Any]) -> dict[str, Any]:
    """HOP as published.

    5 belief samples with a tree each, 200 simulations, PUCT on raw values with a constant per game and no forced
    visits, values of the network at leaves, actions by softmax(2 Q), discounted counts between episodes, plain Bayes
    within.
    """
    return {
        "goals": "cells" if game.name.startswith("msg") else "prey",
        "belief_samples": 5,
        "simulations": 200,
        "exploration": 15.0 if game.name.startswith("msg") else 1.0,
        "temperature": 0.5,
        "hypotheses": "tree",
        "cover_root": False,
        "leaf": "value",
        "gamma": 0.95,
        "trial_memory": "counts",
        "goal_switch_probability": 0.0,
        "trembles": (0.0,),
        "only_rewarded": True,
    }


ONE_RATIONALITY = {"trembles": (0.02,), "sharpness": (1.0,), "random_hypothesis": False}
"""Settings without beliefs about rationality."""


def plain(game: Game[Any]) -> dict[str, Any]:
    """HOP+ as PPO with beliefs about learnt codes: PPO's own settings, no reward randomisation, no planning.

    Planned targets are used during the whole training.
    """
    shared = ("gamma", "hidden", "encoder", "trial_episodes", "randomize_rewards", "late_start_share")
    return {
        "goals": "codes",
        "planner": "off",
        "planned_share": 1.0,
        **{name: getattr(PPOConfig, name) for name in shared},
    }


def omg(game: Game[Any]) -> dict[str, Any]:
    """OMG: subgoals from an autoencoder, inferred within each episode only, without planning."""
    return {**plain(game), "goals": "gaussian", "inter": False, **ONE_RATIONALITY}


def direct_om(game: Game[Any]) -> dict[str, Any]:
    """Direct opponent modelling: predicted actions of the co-players, without goals."""
    return {**plain(game), "goals": "none", **ONE_RATIONALITY}


PRESETS: dict[str, tuple[str, Callable[[Game[Any]], dict[str, Any]]]] = {
    "hop-paper": ("hop", hop_paper),
    "plain": ("hopplus", plain),
    "omg": ("hopplus", omg),
    "direct-om": ("hopplus", direct_om),
}
"""Algorithm and settings of every preset."""
