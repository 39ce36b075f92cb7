"""Diagnosis of seat symmetry: three experiments that fail where seats differ.

Equal players must have the same mean return in every seat. A learner must learn the same in every seat, from its own
transitions and with the same settings. Seeds are the units of replication. Under the hypothesis of equal seats, figures
are exchangeable between the seats of a seed; shuffling them within seeds gives the null distribution of their spread.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hopplus.algorithms import PPO, ppo_update
from hopplus.algorithms.ppo import PPOState
from hopplus.configs import TrainingConfig
from hopplus.core.errors import InputError
from hopplus.games import Game, make
from hopplus.players import Cast
from hopplus.players import make as make_player
from hopplus.rollouts import Trajectory, play_episodes
from hopplus.rollouts.rollout import step_keys
from hopplus.training.compiled_loop import CompiledLoop
from hopplus.training.experiment import Experiment, prepare
from hopplus.training.summary import log_lines

FALSE_ALARM_RATE = 1e-3
"""False alarm rate of the whole diagnosis, divided by the number of its statistical tests."""
SHUFFLES = 50_000
SCRIPTED_UNITS = 20
"""Separately seeded batches of episodes of scripted casts."""
FAULTS = ("rows-from-seat-0",)
CURVES = ("return", "value_loss", "entropy")


@dataclass(frozen=True)
class Check:
    """Result of one check."""

    name: str
    passed: bool
    detail: str
    p_value: float | None = None
    """p-value of a statistical test; None for an exact check."""


def spread_test(values: Float[np.ndarray, "units seats"], seed: int = 0) -> tuple[float, float]:
    """Returns the range of the seats' means (largest minus smallest) and the p-value of a permutation test.

    The test is exact if seats are exchangeable within units; it uses SHUFFLES random permutations.
    """
    units, seats = values.shape
    if units * (seats > 1) < 2:
        raise InputError("comparing seats needs at least two seats and two seeds")
    generator = np.random.default_rng(seed)
    centred = values - values.mean(1, keepdims=True)

    def statistic(shuffled: np.ndarray) -> np.ndarray:
        return np.square(shuffled.mean(-2)).sum(-1)

    observed, as_extreme, batch = statistic(centred), 0, 5_000
    for _ in range(SHUFFLES // batch):
        order = generator.random((batch, units, seats)).argsort(-1)
        shuffled = np.take_along_axis(np.broadcast_to(centred, order.shape), order, -1)
        as_extreme += int((statistic(shuffled) >= observed - 1e-12).sum())
    means = values.mean(0)
    return float(means.max() - means.min()), (1 + as_extreme) / (1 + SHUFFLES)


class FirstSeatTransitions(PPO):
    """PPO with an injected fault: every parameter set learns from the transitions of the first seat."""

    def transitions(self, *arguments: Any, **keywords: Any) -> ppo_update.Transitions:
        rows = super().transitions(*arguments, **keywords)
        return jax.tree.map(lambda field: jnp.broadcast_to(field[:, :, :1], field.shape), rows)


# ---------------------------------------------------------------------------------------------------- experiments


def scripted_returns(game: Game[Any], player: str, episodes: int, seed: int) -> Float[np.ndarray, "units n"]:
    """Returns mean returns by seat of equal scripted players, in separately seeded batches."""
    cast = Cast((make_player(player, game),) * game.num_players)
    keys = [jax.random.fold_in(jax.random.key(seed), unit) for unit in range(SCRIPTED_UNITS)]
    return np.stack(
        [np.asarray(play_episodes(key, game, cast, episodes)[1].returns, np.float64).mean(0) for key in keys]
    )


@dataclass(frozen=True, eq=False)
class TrainedSeats:
    """Training in memory: its log, and the evaluation of its players in the learning seats."""

    experiment: Experiment
    lines: list[dict[str, Any]]
    states: Any
    after: dict[str, Float[np.ndarray, "K L"]]
    """`return`, `value_loss` and `entropy` in fresh episodes, measured without the training code."""

    def curve(self, name: str) -> Float[np.ndarray, "chunks K n"]:
        """Returns a logged metric by chunk, seed and seat."""
        seeds = len(self.experiment.seeds)
        values = [[np.nan if value is None else value for value in line[name]] for line in self.lines]
        return np.array(values).reshape(-1, seeds, self.experiment.game.num_players)


def train_seats(experiment: Experiment, episodes: int, advance: Callable[[], None]) -> TrainedSeats:
    """Trains all seeds in memory, then evaluates them."""
    loop = CompiledLoop(experiment)
    states, lines, chunk = loop.init_states(), [], 0
    all_seeds = np.ones(len(experiment.seeds), bool)
    while int(np.min(states.steps)) < experiment.training.steps:
        states, metrics, _ = loop.iterate(states, int(np.min(states.steps)))
        chunk += 1
        lines += log_lines(experiment, states, metrics, all_seeds, chunk)
    advance()
    return TrainedSeats(experiment, lines, states, play_after(experiment, states, episodes))


def play_after(experiment: Experiment, states: Any, episodes: int) -> dict[str, np.ndarray]:
    """Evaluates trained policies in fresh episodes.

    Returns:
        Returns, squared errors of the values against realised discounted returns, and entropies, by seed and learning
        seat.
    """
    phase, algorithm = experiment.phases[-1][1], experiment.algorithm
    assert isinstance(algorithm, PPO)
    gamma, learners = algorithm.gamma, np.array(phase.seats.learners)

    @jax.jit
    def evaluate(trained_params: Any, key: Array) -> dict[str, Array]:
        params = phase.seats.params(trained_params, experiment.frozen_params())
        _, trajectory = play_episodes(key, experiment.game, phase.seats.cast, episodes, params)
        choice, _ = phase.seats.infos(trajectory)
        alive = trajectory.alive[..., learners]

        def discount(following: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
            reward, alive = row
            value = jnp.where(alive, reward + gamma * following, 0.0)
            return value, value

        reward = trajectory.reward[..., learners]
        _, returns_to_go = jax.lax.scan(discount, jnp.zeros(reward.shape[1:]), (reward, alive), reverse=True)
        return {
            "return": trajectory.returns[:, learners].mean(0),
            "value_loss": ppo_update.masked_mean(jnp.square(choice.value - returns_to_go), alive, (0, 1)),
            "entropy": ppo_update.masked_mean(-choice.log_probability, alive, (0, 1)),
        }

    by_seed = []
    for place, seed in enumerate(experiment.seeds):
        trained_params = jax.tree.map(lambda leaf, place=place: leaf[place], algorithm.params(states))
        by_seed.append(evaluate(trained_params, jax.random.key(seed + 10_000)))
    return {name: np.stack([np.asarray(row[name], np.float64) for row in by_seed]) for name in by_seed[0]}


# -------------------------------------------------------------------------------------------------------- checks


def check_spread(name: str, values: Float[np.ndarray, "units seats"], tests: int) -> Check:
    """Checks that seats agree, at the false alarm rate divided by the number of tests."""
    spread, p_value = spread_test(values)
    means = " ".join(f"{mean:.3f}" for mean in values.mean(0))
    return Check(name, p_value >= FALSE_ALARM_RATE / tests, f"means by seat {means}, apart by {spread:.3f}", p_value)


def check_rows(trained: TrainedSeats) -> Check:
    """Checks that every parameter set learnt from its own seat's transitions only."""
    learners = trained.experiment.learners
    trained_on = np.array([line["trained_on"] for line in trained.lines]).sum(0)
    allowed = np.zeros(trained_on.shape, bool)
    for number in range(len(trained_on)):
        allowed[number, list(learners) if len(trained_on) == 1 else [learners[number]]] = True
    passed = bool(((trained_on > 0) == allowed).all())
    detail = "; ".join(
        f"set {number} from seat{'s' if (row > 0).sum() > 1 else ''} {', '.join(map(str, np.flatnonzero(row > 0)))}"
        for number, row in enumerate(trained_on)
    )
    return Check("rows that trained each parameter set", passed, detail)


def check_settings(trained: TrainedSeats) -> Check:
    """Checks that players, optimiser steps and shapes are the same in every learning seat."""
    phase, state = trained.experiment.phases[-1][1], trained.states
    players = {phase.seats.cast.players[seat] for seat in trained.experiment.learners}
    counts = [leaf for leaf in jax.tree.leaves(state.train_state.opt_state) if jnp.issubdtype(leaf.dtype, jnp.integer)]
    steps = sorted({int(step) for count in counts for step in np.asarray(count)[0].ravel()})
    same = len(players) == 1 and len(steps) == 1
    return Check("settings the same at every seat", same, f"{len(players)} agent type, optimiser steps {steps}")


def check_logged_returns(experiment: Experiment) -> Check:
    """Checks that logged returns are the sums of the rewards by the rules of the game."""
    loop, phase = CompiledLoop(experiment), experiment.phases[-1][1]
    before = jax.tree.map(lambda leaf: leaf[0], loop.init_states())
    iterate = jax.jit(experiment.algorithm.iterate, static_argnums=1)
    before, _ = iterate(before, phase, experiment.frozen_params())
    _, metrics = iterate(before, phase, experiment.frozen_params())
    train_step = jax.jit(experiment.algorithm.train_step, static_argnums=1)
    _, trajectory, _ = train_step(before, phase, experiment.frozen_params())
    totals, ended = replayed_returns(phase.game, before, trajectory)
    logged = np.asarray(metrics["return"].total)
    passed = bool(np.allclose(logged, totals, rtol=1e-5, atol=1e-4)) and int(metrics["return"].count[0]) == ended
    return Check("logged returns are the game's", passed, f"{ended} episodes, sums {np.round(totals, 2).tolist()}")


def replayed_returns(game: Game[Any], before: PPOState, trajectory: Trajectory) -> tuple[Float[np.ndarray, " n"], int]:
    """Replays the actions in the game. Returns the summed returns and the number of finished episodes."""
    steps = trajectory.actions.shape[0]
    rewards, step = [], jax.jit(jax.vmap(game.step))
    for time in range(steps):
        keys = step_keys(game, before.rollout_state, time)  # pyright: ignore[reportArgumentType]
        states = jax.tree.map(lambda leaf, time=time: leaf[time], trajectory.state)
        _, outcome = step(keys, states, trajectory.actions[time])
        rewards.append(np.asarray(outcome.reward, np.float64))
    running = np.asarray(before.rollout_state.total_reward, np.float64)  # pyright: ignore[reportOptionalMemberAccess]
    over, total, ended = np.asarray(trajectory.over), np.zeros(game.num_players), 0
    for time in range(steps):
        running = running + rewards[time]
        total += running[over[time]].sum(0)
        ended += int(over[time].sum())
        running = np.where(over[time][:, None], 0.0, running)
    return total, ended


# ------------------------------------------------------------------------------------------------------ diagnosis


def co_player_for(game: Game[Any]) -> str:
    """Returns the scripted player that helps a learner most in the game."""
    for name in ("ns", "cleaner", "random"):
        try:
            make_player(name, game)
        except InputError:
            continue
        return name
    raise AssertionError


def diagnose(
    game: str,
    train: bool = False,
    episodes: int = 2000,
    seeds: str = "0-4",
    steps: int = 400_000,
    fault: str | None = None,
    progress: Callable[[float], None] = lambda done: None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Runs all checks.

    Returns:
        Figures for JSON (`passed`, `checks`, `false_alarm_rate`, ...), and curves for a chart.
    """
    the_game = make(game)
    partner = co_player_for(the_game)
    algorithm = (FirstSeatTransitions if fault else PPO)(parameters="independent")
    tests = 2 + (2 * len(CURVES) if train else 0)
    total, done = 2 + train * (1 + the_game.num_players), [0]

    def advance() -> None:
        done[0] += 1
        progress(done[0] / total)

    checks: list[Check] = []
    curves: dict[str, Any] = {}
    for number, player in enumerate(("random", partner)):
        returns = scripted_returns(the_game, player, episodes, seed=number)
        curves[f"{the_game.num_players} {player}"] = returns
        checks.append(check_spread(f"returns of {the_game.num_players} {player}", returns, tests))
        advance()
    if train:
        training = TrainingConfig(game=game, seeds=seeds, steps=steps)
        trained_checks, trained_curves = _diagnose_training(training, algorithm, partner, episodes, tests, advance)
        checks += trained_checks
        curves |= trained_curves
    figures = {
        "game": the_game.name,
        "passed": all(check.passed for check in checks),
        "false_alarm_rate": FALSE_ALARM_RATE,
        "tests": tests,
        "seeds": seeds if train else None,
        "steps": steps if train else None,
        "episodes": episodes,
        "fault": fault,
        "checks": [dataclasses.asdict(check) for check in checks],
    }
    return figures, curves


def _diagnose_training(
    training: TrainingConfig, algorithm: PPO, partner: str, episodes: int, tests: int, advance: Callable[[], None]
) -> tuple[list[Check], dict[str, Any]]:
    """Trains in self-play and as a single learner in each seat; returns checks and curves."""
    self_play = train_seats(prepare(training, algorithm), episodes, advance)
    checks = [check_rows(self_play), check_settings(self_play), check_logged_returns(self_play.experiment)]
    players, at_each_seat = self_play.experiment.game.num_players, []
    for seat in range(players):
        cast = ",".join("learner" if other == seat else partner for other in range(players))
        single = dataclasses.replace(training, cast=cast, steps=training.steps // 2)
        at_each_seat.append(train_seats(prepare(single, algorithm), episodes, advance))
        checks.append(dataclasses.replace(check_rows(at_each_seat[-1]), name=f"rows of the learner at seat {seat}"))
    for name in CURVES:
        checks.append(check_spread(f"{name} in self-play", self_play.after[name], tests))
        seat_values = np.concatenate([trained.after[name] for trained in at_each_seat], axis=1)
        checks.append(check_spread(f"{name} of one learner with {partner}, by its seat", seat_values, tests))
    seeds = len(self_play.experiment.seeds)
    curves: dict[str, Any] = {
        "self-play": {name: self_play.curve(name) for name in CURVES},
        f"one learner with {partner}": {
            name: np.stack([trained.curve(name)[..., seat] for seat, trained in enumerate(at_each_seat)], -1)
            for name in CURVES
        },
        "steps": [line["steps"] for line in self_play.lines[::seeds]],
        "steps_alone": [line["steps"] for line in at_each_seat[0].lines[::seeds]],
    }
    return checks, curves
