"""Environment steps per second while all seats plan, with the settings that the original notes report."""

import dataclasses
import time
from typing import Any

import jax

from hopplus.algorithms.hopplus import HopPlus
from hopplus.algorithms.hopplus.acting import make_moa
from hopplus.algorithms.parameters import value_scale
from hopplus.benchmarks.timed import Timed
from hopplus.configs import PlanningConfig
from hopplus.games import make, one_seat
from hopplus.planning.catalog import PlannerChoice
from hopplus.players import Cast
from hopplus.rollouts import init_rollout, rollout

GAME, BELIEF_SAMPLES, SIMULATIONS, NOTES_STEPS_PER_SECOND = "msh-6x6-4h1s", 3, 200, 0.93
"""Game and settings of the notes, and their speed."""
ENVIRONMENTS, GAMMA = 32, 0.995


def all_seats() -> Timed:
    """Compiles one step of environments in which all seats plan by tree search, with random parameters."""
    key, game, algorithm = jax.random.key(0), make(GAME), HopPlus()
    config = PlanningConfig(belief_samples=BELIEF_SAMPLES, simulations=SIMULATIONS)
    choice = PlannerChoice("tree", config, value_scale(game), GAMMA)
    player = dataclasses.replace(algorithm.player(game, "bench"), planning=choice)

    @jax.jit
    def init_params() -> dict[str, Any]:
        observation = one_seat(game.observe(game.init(key)), 0)
        policy = player.network.init(key, observation)["params"]
        return {"policy": policy, "moa": make_moa(algorithm).init_params(key, game)}

    cast, params = Cast((player,) * game.num_players), (init_params(),) * game.num_players
    state = init_rollout(key, game, cast, ENVIRONMENTS, params)
    started = time.perf_counter()
    compiled = rollout.lower(state, game, cast, 1, params).compile()
    facts = {
        "game": GAME,
        "environments": ENVIRONMENTS,
        "belief_samples": BELIEF_SAMPLES,
        "simulations": SIMULATIONS,
    }
    return Timed(facts, compiled, [(state, params)], time.perf_counter() - started)


def all_seats_figures(timed: Timed) -> dict[str, Any]:
    """Returns the speed, and its ratio to that of the notes."""
    speed = ENVIRONMENTS / timed.seconds
    return {
        **timed.facts,
        "steps_per_second": speed,
        "notes_steps_per_second": NOTES_STEPS_PER_SECOND,
        "ratio_to_notes": speed / NOTES_STEPS_PER_SECOND,
        "compile_seconds": timed.compile_seconds,
    }
