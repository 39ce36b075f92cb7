"""Training speed of PPO: steps per second, shares of time, share of the machine's peak, and a PyTorch peer."""

import dataclasses
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from hopplus.algorithms import PPO
from hopplus.algorithms.ppo import PPOState
from hopplus.benchmarks.machine import best_seconds, machine, matmul_flops, peak_memory
from hopplus.configs import TrainingConfig
from hopplus.training.compiled_loop import CompiledLoop
from hopplus.training.experiment import Experiment, prepare

WARM_UP_CHUNKS = 3
"""Chunks before timing starts, so that episode lengths and the share of living players are those of a training."""
PEER_ITERATIONS = 25


def measure(
    game: str,
    algorithm: PPO,
    rounds: int,
    peer: bool,
    target: float | None,
    progress: Callable[[float], None] = lambda done: None,
) -> dict[str, Any]:
    """Returns all figures of `hopplus bench ppo`.

    The peer, if installed, and the trainings to a target run in their own processes.
    """
    jax.config.update("jax_enable_compilation_cache", False)  # compile_seconds is what a first start costs
    experiment = prepare(TrainingConfig(game=game, steps=10**9), algorithm)
    single = _warm_training(experiment)
    progress(0.3)
    several = _warm_training(prepare(TrainingConfig(game=game, steps=10**9, seeds="0-7"), algorithm))
    progress(0.6)
    chunk_seconds = best_seconds(lambda: single.advance(), rounds)
    eight_seconds = best_seconds(lambda: several.advance(), max(1, rounds // 4))
    parts = _parts(experiment, jax.tree.map(lambda leaf: leaf[0], single.states), rounds)
    progress(0.8)
    steps = experiment.training.iterations_per_call * algorithm.num_envs * algorithm.num_steps
    peak = matmul_flops()
    figures = {
        "game": game,
        "settings": dataclasses.asdict(algorithm),
        "steps_per_second": steps / chunk_seconds,
        "play_share": parts["play_seconds"] / (parts["play_seconds"] + parts["learn_seconds"]),
        "learn_share": parts["learn_seconds"] / (parts["play_seconds"] + parts["learn_seconds"]),
        **parts,
        "learn_gflops": parts["learn_flops"] / parts["learn_seconds"] / 1e9,
        "matmul_gflops": peak / 1e9,
        "share_of_matmul": parts["learn_flops"] / parts["learn_seconds"] / peak,
        "compile_seconds": single.compile_seconds,
        "peak_memory_bytes": peak_memory(),
        "eight_seeds_ratio": eight_seconds / chunk_seconds,
        "machine": machine(),
        "rounds": rounds,
    }
    figures |= _beside_torch(game, algorithm, figures, rounds) if peer else {"torch": None}
    progress(0.9)
    return {**figures, "time_to_target": _time_to_target(game, target) if target is not None else None}


def _time_to_target(game: str, target: float) -> dict[str, Any]:
    """Returns the seconds of a process that trains to a target and saves: with a cold and a warm compilation cache."""
    with tempfile.TemporaryDirectory() as directory:
        environment = {**os.environ, "JAX_COMPILATION_CACHE_DIR": f"{directory}/cache"}
        seconds = []
        for name in ("cold", "warm"):
            out = f"{directory}/{name}"
            argv = ["train", "ppo", "--game", game, "--target", str(target), "--out", out, "--json", f"{out}.json"]
            started = time.perf_counter()
            command = [sys.executable, "-m", "hopplus.cli.main", *argv]
            subprocess.run(command, check=True, env=environment, capture_output=True)
            seconds.append(time.perf_counter() - started)
        reached = json.loads(Path(f"{directory}/warm.json").read_text(encoding="utf-8"))["per_seed"][0]["reached"]
    return {"target": target, "cold_seconds": seconds[0], "warm_seconds": seconds[1], "reached": reached}


@dataclasses.dataclass
class _WarmTraining:
    """Training after its warm-up chunks."""

    loop: CompiledLoop
    states: Any
    compile_seconds: float

    def advance(self) -> Any:
        self.states = self.loop.iterate(self.states, 0)[0]
        return self.states


def _warm_training(experiment: Experiment) -> _WarmTraining:
    loop = CompiledLoop(experiment)
    states = loop.init_states()
    started = time.perf_counter()
    loop.prefetch(0, evaluation=False)
    training = _WarmTraining(loop, jax.block_until_ready(loop.iterate(states, 0)[0]), 0.0)
    first = time.perf_counter() - started
    second = best_seconds(training.advance, 1)
    training.compile_seconds = first - second
    for _ in range(WARM_UP_CHUNKS):
        training.advance()
    return training


def _parts(experiment: Experiment, state: PPOState, rounds: int) -> dict[str, float]:
    """Returns the seconds of play and learning in an iteration, and the floating-point operations of learning."""
    phase, algorithm = experiment.phases[-1][1], experiment.algorithm
    assert isinstance(algorithm, PPO)
    play = jax.jit(lambda state: algorithm.collect(state, phase, {}))
    _, transitions, _ = jax.block_until_ready(play(state))
    learn = jax.jit(lambda state, transitions: algorithm.update(state, phase, transitions)[1])
    jax.block_until_ready(learn(state, transitions))
    valid = int(np.asarray(transitions.is_valid).sum())
    return {
        "play_seconds": best_seconds(lambda: play(state), rounds),
        "learn_seconds": best_seconds(lambda: learn(state, transitions), rounds),
        "living_share": valid / transitions.is_valid.size,
        "learn_flops": float(algorithm.update_epochs * valid * _flops_per_row(state)),
    }


def _flops_per_row(state: PPOState) -> int:
    """Returns the operations of a forward and backward pass: 6 per weight; 4 in the first layer (no input gradient)."""
    weights = [int(np.prod(leaf.shape[1:])) for leaf in jax.tree.leaves(state.train_state.params) if leaf.ndim == 3]
    return 6 * sum(weights) - 2 * max(weights)


def _beside_torch(game: str, algorithm: PPO, figures: dict[str, Any], rounds: int) -> dict[str, Any]:
    """Returns the peer's figures for the same game, batch and epochs, and the ratio of speeds.

    The ratio is measured with the peer's network, which has dense board inputs.
    """
    if game != "msh-4x4-4h1s" or algorithm.buffer_episodes:
        return {"torch": None, "note": "the PyTorch peer plays msh-4x4-4h1s on-policy only"}
    dense = dataclasses.replace(algorithm, encoder="dense")
    ours = _warm_training(prepare(TrainingConfig(game=game, steps=10**9), dense))
    steps = TrainingConfig().iterations_per_call * algorithm.num_envs * algorithm.num_steps
    speed = steps / best_seconds(lambda: ours.advance(), rounds)
    rows = algorithm.num_envs * algorithm.num_steps * (4 if algorithm.shares_params else 1)
    minibatches = math.ceil(figures["living_share"] * rows / (algorithm.minibatch_size or math.ceil(rows / 8)))
    arguments = {
        "num_envs": algorithm.num_envs,
        "steps": algorithm.num_steps,
        "iterations": PEER_ITERATIONS,
        "update_epochs": algorithm.update_epochs,
        "minibatches": minibatches,
        "hidden": list(algorithm.hidden),
        "independent": not algorithm.shares_params,
        "learning_rate": algorithm.learning_rate,
        "gamma": algorithm.gamma,
        "gae_lambda": algorithm.gae_lambda,
        "clip_coef": algorithm.clip_coef,
        "ent_coef": algorithm.ent_coef,
        "vf_coef": algorithm.vf_coef,
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
