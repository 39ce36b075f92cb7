"""How fast PPO trains: steps/s, where the time goes, how near to the machine's best, and beside a PyTorch peer."""

import dataclasses
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from hopplus.benchmarks.machine import best_seconds, machine, matmul_flops, peak_memory
from hopplus.training.recipes import PPO
from hopplus.training.recipes.ppo import PPOState
from hopplus.training.trainer import Programs, Setup, Training, prepare

WARM_UP_CHUNKS = 3
"""Played before anything is timed: episodes are then as long, and as many players in the game, as in a training."""
PEER_ITERATIONS = 25


def measure(
    game: str,
    recipe: PPO,
    rounds: int,
    peer: bool,
    target: float | None,
    progress: Callable[[float], None] = lambda done: None,
) -> dict[str, Any]:
    """All figures of `hopplus bench ppo`; the peer, if installed, trains in a process of its own in the same run, and
    so do the trainings to a target."""
    jax.config.update("jax_enable_compilation_cache", False)  # compile_seconds is what a first start costs
    setup = prepare(Training(game=game, steps=10**9), recipe)
    one = _trained(setup)
    progress(0.3)
    several = _trained(prepare(Training(game=game, steps=10**9, seeds="0-7"), recipe))
    progress(0.6)
    chunk_seconds = best_seconds(lambda: one.advance(), rounds)
    eight_seconds = best_seconds(lambda: several.advance(), max(1, rounds // 4))
    parts = _parts(setup, jax.tree.map(lambda leaf: leaf[0], one.states), rounds)
    progress(0.8)
    steps = setup.training.chunk * recipe.environments * recipe.rollout_steps
    peak = matmul_flops()
    figures = {
        "game": game,
        "settings": dataclasses.asdict(recipe),
        "steps_per_second": steps / chunk_seconds,
        "play_share": parts["play_seconds"] / (parts["play_seconds"] + parts["learn_seconds"]),
        "learn_share": parts["learn_seconds"] / (parts["play_seconds"] + parts["learn_seconds"]),
        **parts,
        "learn_gflops": parts["learn_flops"] / parts["learn_seconds"] / 1e9,
        "matmul_gflops": peak / 1e9,
        "share_of_matmul": parts["learn_flops"] / parts["learn_seconds"] / peak,
        "compile_seconds": one.compile_seconds,
        "peak_memory_bytes": peak_memory(),
        "eight_seeds_ratio": eight_seconds / chunk_seconds,
        "machine": machine(),
        "rounds": rounds,
    }
    figures |= _beside_torch(game, recipe, figures, rounds) if peer else {"torch": None}
    progress(0.9)
    return {**figures, "time_to_target": _time_to_target(game, target) if target is not None else None}


def _time_to_target(game: str, target: float) -> dict[str, Any]:
    """Seconds from the start of a process until self-play has reached a target and all is saved: with everything to
    compile, and again with what the first one compiled."""
    with tempfile.TemporaryDirectory() as directory:
        environment = {**os.environ, "JAX_COMPILATION_CACHE_DIR": f"{directory}/cache"}
        seconds = []
        for name in ("cold", "warm"):
            out = f"{directory}/{name}"
            words = ["train", "ppo", "--game", game, "--target", str(target), "--out", out, "--json", f"{out}.json"]
            started = time.perf_counter()
            command = [sys.executable, "-m", "hopplus.cli.main", *words]
            subprocess.run(command, check=True, env=environment, capture_output=True)
            seconds.append(time.perf_counter() - started)
        reached = json.loads(Path(f"{directory}/warm.json").read_text(encoding="utf-8"))["per_seed"][0]["reached"]
    return {"target": target, "cold_seconds": seconds[0], "warm_seconds": seconds[1], "reached": reached}


@dataclasses.dataclass
class _Trained:
    """A training that has played itself warm."""

    programs: Programs
    states: Any
    compile_seconds: float

    def advance(self) -> Any:
        self.states = self.programs.chunk(self.states, 0)[0]
        return self.states


def _trained(setup: Setup) -> _Trained:
    programs = Programs(setup)
    states = programs.first_states()
    started = time.perf_counter()
    programs.prefetch(0, evaluation=False)
    trained = _Trained(programs, jax.block_until_ready(programs.chunk(states, 0)[0]), 0.0)
    first = time.perf_counter() - started
    second = best_seconds(trained.advance, 1)
    trained.compile_seconds = first - second
    for _ in range(WARM_UP_CHUNKS):
        trained.advance()
    return trained


def _parts(setup: Setup, state: PPOState, rounds: int) -> dict[str, float]:
    """Seconds of an iteration's play and of its learning, and the floating-point operations of the latter."""
    stage, recipe = setup.stages[-1][1], setup.recipe
    assert isinstance(recipe, PPO)
    play = jax.jit(partial(recipe.play, stage=stage, frozen={}))
    _, rows, _ = jax.block_until_ready(play(state))
    learn = jax.jit(lambda state, rows: recipe.update(state, stage, rows)[1])
    jax.block_until_ready(learn(state, rows))
    living = int(np.asarray(rows.learns).sum())
    return {
        "play_seconds": best_seconds(lambda: play(state), rounds),
        "learn_seconds": best_seconds(lambda: learn(state, rows), rounds),
        "living_share": living / rows.learns.size,
        "learn_flops": float(recipe.epochs * living * _flops_per_row(state)),
    }


def _flops_per_row(state: PPOState) -> int:
    """Of a forward and a backward pass: 6 a weight, but 4 in the first layer, whose input needs no gradient."""
    weights = [int(np.prod(leaf.shape[1:])) for leaf in jax.tree.leaves(state.learner.params) if leaf.ndim == 3]
    return 6 * sum(weights) - 2 * max(weights)


def _beside_torch(game: str, recipe: PPO, figures: dict[str, Any], rounds: int) -> dict[str, Any]:
    """The peer's figures for the same game, batch and epochs, and how many times its speed ours is with the peer's
    network, which sees the board as it is."""
    if game != "msh-4x4-4h1s" or recipe.buffer_episodes:
        return {"torch": None, "note": "the PyTorch peer plays msh-4x4-4h1s on-policy only"}
    same = dataclasses.replace(recipe, encoder="dense")
    ours = _trained(prepare(Training(game=game, steps=10**9), same))
    steps = Training().chunk * recipe.environments * recipe.rollout_steps
    speed = steps / best_seconds(lambda: ours.advance(), rounds)
    rows = recipe.environments * recipe.rollout_steps * (4 if recipe.shares_params else 1)
    minibatches = math.ceil(figures["living_share"] * rows / (recipe.minibatch or math.ceil(rows / 8)))
    arguments = {
        "environments": recipe.environments,
        "steps": recipe.rollout_steps,
        "iterations": PEER_ITERATIONS,
        "epochs": recipe.epochs,
        "minibatches": minibatches,
        "hidden": list(recipe.hidden),
        "independent": not recipe.shares_params,
        "learning_rate": recipe.learning_rate,
        "discount": recipe.discount,
        "trace": recipe.trace,
        "clip": recipe.clip,
        "entropy_weight": recipe.entropy_weight,
        "value_weight": recipe.value_weight,
    }
    code = (
        "import json, sys; from hopplus.benchmarks.torch_ppo import train;"
        " print(json.dumps(train(**json.loads(sys.argv[1]))))"
    )
    answer = subprocess.run([sys.executable, "-c", code, json.dumps(arguments)], capture_output=True, encoding="utf-8")
    if answer.returncode:
        return {"torch": None, "note": "PyTorch is not installed, so there is no peer: pip install 'hopplus[bench]'"}
    torch = json.loads(answer.stdout.splitlines()[-1])
    return {
        "torch": torch,
        "steps_per_second_with_its_network": speed,
        "ratio_to_torch": speed / torch["steps_per_second"],
    }
