"""Are all seats alike? The notes' three experiments as one diagnosis, which fails where they are not.

Equal players must earn the same at every seat, and a learner must learn the same wherever it sits, from its own rows
and with the same settings. Seeds are the unit: within a seed, under the hypothesis that seats are alike, the seats'
figures may be exchanged, so that shuffling them within seeds gives the distribution of how far apart seats lie by
chance.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hopplus.errors import InputError
from hopplus.games import Game, make
from hopplus.learning import ppo
from hopplus.play import Episode, Table, play_episodes
from hopplus.play.rollout import step_keys
from hopplus.players import Cast
from hopplus.players import make as make_player
from hopplus.training.recipe import Stage
from hopplus.training.recipes import PPO
from hopplus.training.recipes.ppo import PPOState
from hopplus.training.trainer import Programs, Setup, Training, lines_of, prepare

FALSE_ALARM_RATE = 1e-3
"""Of the whole diagnosis: divided by the number of its statistical tests."""
SHUFFLES = 50_000
SCRIPTED_UNITS = 20
"""Scripted casts play this many separately seeded batches of episodes."""
FAULTS = ("rows-from-seat-0",)
CURVES = ("return", "value_loss", "entropy")


@dataclass(frozen=True)
class Check:
    """One question, and whether the answer is as it should be."""

    name: str
    passed: bool
    detail: str
    p_value: float | None = None
    """Of a statistical test; None where the answer is exact."""


def spread_test(values: Float[np.ndarray, "units seats"], seed: int = 0) -> tuple[float, float]:
    """How far apart the seats' means lie (largest less smallest), and how often chance alone does that or more.

    Exact under the hypothesis that seats are exchangeable within units: shuffles them there, SHUFFLES times.
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


class FirstSeatsRows(PPO):
    """PPO with the notes' fault put back: every parameter set learns from the first seat's rows."""

    def rows(self, state: PPOState, stage: Stage, table: Table | tuple[()], episode: Episode) -> ppo.Rows:
        rows = super().rows(state, stage, table, episode)
        return jax.tree.map(lambda field: jnp.broadcast_to(field[:, :, :1], field.shape), rows)


# ---------------------------------------------------------------------------------------------------- experiments


def scripted_returns(game: Game[Any], player: str, episodes: int, seed: int) -> Float[np.ndarray, "units n"]:
    """Mean returns by seat of a table of equal scripted players, in separately seeded batches."""
    cast = Cast((make_player(player, game),) * game.num_players)
    keys = [jax.random.fold_in(jax.random.key(seed), unit) for unit in range(SCRIPTED_UNITS)]
    return np.stack(
        [np.asarray(play_episodes(key, game, cast, episodes)[1].returns, np.float64).mean(0) for key in keys]
    )


@dataclass(frozen=True, eq=False)
class Learnt:
    """A training in memory: what it logged, and how its players do afterwards at each of the seats that learn."""

    setup: Setup
    lines: list[dict[str, Any]]
    states: Any
    after: dict[str, Float[np.ndarray, "K L"]]
    """`return`, `value_loss` and `entropy` in fresh episodes, measured without any of the training's code."""

    def curve(self, name: str) -> Float[np.ndarray, "chunks K n"]:
        """A logged figure by chunk, seed and seat."""
        seeds = len(self.setup.seeds)
        values = [[np.nan if one is None else one for one in line[name]] for line in self.lines]
        return np.array(values).reshape(-1, seeds, self.setup.game.num_players)


def learn(setup: Setup, episodes: int, advance: Callable[[], None]) -> Learnt:
    """Train all seeds, keeping everything in memory."""
    programs = Programs(setup)
    states, lines, chunk = programs.first_states(), [], 0
    everyone = np.ones(len(setup.seeds), bool)
    while int(np.min(states.steps)) < setup.training.steps:
        states, metrics, _ = programs.chunk(states, int(np.min(states.steps)))
        chunk += 1
        lines += lines_of(setup, states, metrics, everyone, chunk)
    advance()
    return Learnt(setup, lines, states, play_after(setup, states, episodes))


def play_after(setup: Setup, states: Any, episodes: int) -> dict[str, np.ndarray]:
    """Fresh episodes of what was learnt: returns, squared errors of the values against the discounted returns that
    really followed, and entropies, by seed and learning seat."""
    stage, recipe = setup.stages[-1][1], setup.recipe
    discount, learners = recipe.discount, np.array(stage.seats.learners)  # pyright: ignore[reportAttributeAccessIssue]

    @jax.jit
    def one(learnt: Any, key: Array) -> dict[str, Array]:
        params = stage.seats.params(learnt, setup.frozen_params())
        _, episode = play_episodes(key, setup.game, stage.seats.cast, episodes, params)
        choice, _ = stage.seats.choices(episode)
        alive = episode.alive[..., learners]

        def back(following: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
            reward, alive = row
            value = jnp.where(alive, reward + discount * following, 0.0)
            return value, value

        reward = episode.reward[..., learners]
        _, to_come = jax.lax.scan(back, jnp.zeros(reward.shape[1:]), (reward, alive), reverse=True)
        return {
            "return": episode.returns[:, learners].mean(0),
            "value_loss": ppo.masked_mean(jnp.square(choice.value - to_come), alive, (0, 1)),
            "entropy": ppo.masked_mean(-choice.log_probability, alive, (0, 1)),
        }

    found = [
        one(jax.tree.map(lambda leaf, place=place: leaf[place], recipe.learnt(states)), jax.random.key(seed + 10_000))
        for place, seed in enumerate(setup.seeds)
    ]
    return {name: np.stack([np.asarray(row[name], np.float64) for row in found]) for name in found[0]}


# -------------------------------------------------------------------------------------------------------- checks


def check_spread(name: str, values: Float[np.ndarray, "units seats"], tests: int) -> Check:
    """Whether seats agree, at the diagnosis's false-alarm rate shared among its tests."""
    spread, p_value = spread_test(values)
    means = " ".join(f"{mean:.3f}" for mean in values.mean(0))
    return Check(name, p_value >= FALSE_ALARM_RATE / tests, f"means by seat {means}, apart by {spread:.3f}", p_value)


def check_rows(learnt: Learnt) -> Check:
    """Whether every parameter set learnt from its own seat's rows, and from nobody else's."""
    learners = learnt.setup.learners
    trained_on = np.array([line["trained_on"] for line in learnt.lines]).sum(0)
    allowed = np.zeros(trained_on.shape, bool)
    for number in range(len(trained_on)):
        allowed[number, list(learners) if len(trained_on) == 1 else [learners[number]]] = True
    right = bool(((trained_on > 0) == allowed).all())
    said = "; ".join(
        f"set {number} from seat{'s' if (row > 0).sum() > 1 else ''} {', '.join(map(str, np.flatnonzero(row > 0)))}"
        for number, row in enumerate(trained_on)
    )
    return Check("rows that trained each parameter set", right, said)


def check_settings(learnt: Learnt) -> Check:
    """Whether players, numbers of optimiser steps and shapes are the same at every seat that learns."""
    stage, state = learnt.setup.stages[-1][1], learnt.states
    players = {stage.seats.cast.players[seat] for seat in learnt.setup.learners}
    counts = [leaf for leaf in jax.tree.leaves(state.learner.optimiser) if jnp.issubdtype(leaf.dtype, jnp.integer)]
    steps = sorted({int(step) for count in counts for step in np.asarray(count)[0].ravel()})
    same = len(players) == 1 and len(steps) == 1
    return Check("settings the same at every seat", same, f"{len(players)} kind of player, optimiser steps {steps}")


def check_logged_returns(setup: Setup) -> Check:
    """Whether the returns that a training logs are the sums of the rewards that the game's rules give."""
    programs, stage = Programs(setup), setup.stages[-1][1]
    before = jax.tree.map(lambda leaf: leaf[0], programs.first_states())
    iterate = jax.jit(setup.recipe.iterate, static_argnums=1)
    before, _ = iterate(before, stage, setup.frozen_params())
    _, metrics = iterate(before, stage, setup.frozen_params())
    play = jax.jit(setup.recipe.play, static_argnums=1)  # pyright: ignore[reportAttributeAccessIssue]
    _, _, episode = play(before, stage, setup.frozen_params())
    totals, ended = replayed_returns(stage.game, before, episode)
    logged = np.asarray(metrics["return"].total)
    right = bool(np.allclose(logged, totals, rtol=1e-5, atol=1e-4)) and int(metrics["return"].count[0]) == ended
    return Check("logged returns are the game's", right, f"{ended} episodes, sums {np.round(totals, 2).tolist()}")


def replayed_returns(game: Game[Any], before: PPOState, episode: Episode) -> tuple[Float[np.ndarray, " n"], int]:
    """The summed returns of the episodes that ended, by stepping the game itself with what was done, in plain NumPy."""
    steps = episode.actions.shape[0]
    rewards, step = [], jax.jit(jax.vmap(game.step))
    for time in range(steps):
        keys = step_keys(game, before.table, time)  # pyright: ignore[reportArgumentType]
        states = jax.tree.map(lambda leaf, time=time: leaf[time], episode.state)
        _, outcome = step(keys, states, episode.actions[time])
        rewards.append(np.asarray(outcome.reward, np.float64))
    running = np.asarray(before.table.total_reward, np.float64)  # pyright: ignore[reportAttributeAccessIssue]
    over, total, ended = np.asarray(episode.over), np.zeros(game.num_players), 0
    for time in range(steps):
        running = running + rewards[time]
        total += running[over[time]].sum(0)
        ended += int(over[time].sum())
        running = np.where(over[time][:, None], 0.0, running)
    return total, ended


# ------------------------------------------------------------------------------------------------------ diagnosis


def co_player_for(game: Game[Any]) -> str:
    """The scripted player that helps a learner most, of those that fit the game."""
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
    """All checks, as figures for JSON (`passed`, `checks`, `false_alarm_rate`, ...), and curves for a picture."""
    the_game = make(game)
    partner = co_player_for(the_game)
    recipe = (FirstSeatsRows if fault else PPO)(parameters="independent")
    tests = 2 + (2 * len(CURVES) if train else 0)
    total, done = 2 + train * (1 + the_game.num_players), [0]

    def advance() -> None:
        done[0] += 1
        progress(done[0] / total)

    checks: list[Check] = []
    pictures: dict[str, Any] = {}
    for number, player in enumerate(("random", partner)):
        returns = scripted_returns(the_game, player, episodes, seed=number)
        pictures[f"{the_game.num_players} {player}"] = returns
        checks.append(check_spread(f"returns of {the_game.num_players} {player}", returns, tests))
        advance()
    if train:
        training = Training(game=game, seeds=seeds, steps=steps)
        self_play = learn(prepare(training, recipe), episodes, advance)
        checks += [check_rows(self_play), check_settings(self_play), check_logged_returns(self_play.setup)]
        at_each_seat = []
        for seat in range(the_game.num_players):
            cast = ",".join("learner" if other == seat else partner for other in range(the_game.num_players))
            alone = dataclasses.replace(training, cast=cast, steps=steps // 2)
            at_each_seat.append(learn(prepare(alone, recipe), episodes, advance))
            checks.append(dataclasses.replace(check_rows(at_each_seat[-1]), name=f"rows of the learner at seat {seat}"))
        for name in CURVES:
            checks.append(check_spread(f"{name} in self-play", self_play.after[name], tests))
            alone_values = np.concatenate([learnt.after[name] for learnt in at_each_seat], axis=1)
            checks.append(check_spread(f"{name} of one learner with {partner}, by its seat", alone_values, tests))
        pictures["self-play"] = {name: self_play.curve(name) for name in CURVES}
        pictures[f"one learner with {partner}"] = {
            name: np.stack([learnt.curve(name)[..., seat] for seat, learnt in enumerate(at_each_seat)], -1)
            for name in CURVES
        }
        pictures["steps"] = [line["steps"] for line in self_play.lines[:: len(self_play.setup.seeds)]]
        pictures["steps_alone"] = [line["steps"] for line in at_each_seat[0].lines[:: len(self_play.setup.seeds)]]
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
    return figures, pictures
