"""How well opponent models predict co-players that training did not show: `page` writes likelihood.md.

hopplus sweep experiments/pretrained.toml --out runs/results/pretrained    # runs of the default HOP+
hopplus sweep experiments/likelihood.toml --out runs/results/likelihood    # younger models
python experiments/likelihood.py measure [BOARD ...]
python experiments/likelihood.py page    # reads docs/results/likelihood/*.json only
"""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hopplus.algorithms import make_algorithm
from hopplus.algorithms.hopplus.acting import make_belief_tracker, make_simulator
from hopplus.beliefs.belief_tracker import BeliefTracker
from hopplus.core.files import write_text
from hopplus.core.statistics import standard_error
from hopplus.evaluation.co_player_sets import CoPlayers, sets_of
from hopplus.games import Game, Observation, make
from hopplus.planning.simulator import Simulator
from hopplus.players import Cast, Player
from hopplus.players.cast import info_of
from hopplus.players.catalog import build
from hopplus.rollouts import Trajectory, play_episodes
from hopplus.training.policies import Policy
from hopplus.training.run import Run, open_run
from pages import RESULTS, RUNS, Page, head, load_saved, sweep_in

SAVED = RESULTS / "likelihood"
SETS = {
    "4x4": ("noisy-cooperators", "noisy-defectors", "cooperators", "defectors", "random"),
    "msg": ("noisy-cleaners", "noisy-exploiters", "cleaners", "exploiters"),
    "hares3": ("noisy-defectors", "defectors"),
}
"""Sets of co-players by board: those for choices (validation) first."""
YOUNGER = ("100k", "300k")
EPISODES, TRIALS = 10, 16
LEAST = 1e-6
"""Least probability that counts, so that one impossible action does not decide a mean."""
NO_PREFERENCES = {"preference_models": False}
HYPOTHESES: Mapping[str, Mapping[str, Any]] = {
    "goals": {**NO_PREFERENCES, "trembles": (0.02,), "random_hypothesis": False},
    "goals, trembles": NO_PREFERENCES,
    "goals, trembles, sharpness 1 and 3": {**NO_PREFERENCES, "sharpness": (1.0, 3.0)},
    "goals, trembles, preferences (default)": {},
    "default, sharpness 1 and 3": {"sharpness": (1.0, 3.0)},
    "default, no memory between episodes": {"inter": False},
    "default, no update within episodes": {"intra": False},
}
"""Settings of the beliefs by name: hypotheses about a co-player, all with the opponent model of the run."""
YOUNGER_ROWS = (
    "A *younger model* is the opponent model of a shorter training with the same seed, with the default hypotheses; the"
    " row with two of them has exact Bayesian weights of the three models within a trial. "
)
DEFAULT = "goals, trembles, preferences (default)"
ENSEMBLE = "default, and two younger models"


@dataclass(frozen=True)
class Observed(Player):
    """A player beside whom other beliefs are tracked; `info` holds what these predict [V, n-1, A].

    Params: those of the player, and the opponent model of each tracker.
    """

    player: Player
    simulator: Simulator
    trackers: tuple[BeliefTracker, ...]
    name: str = "observed"

    def init(self, key: Any, params: Any) -> Any:
        return self.player.init(key, params[0]), tuple(
            tracker.init(jax.random.fold_in(key, 1 + number), model)
            for number, (tracker, model) in enumerate(zip(self.trackers, params[1], strict=True))
        )

    def begin(self, memory: Any) -> Any:
        return self._with_trackers(memory, self.player.begin(memory[0]), lambda tracker, own: tracker.begin(own))

    def act(self, key: Any, params: Any, memory: Any, observation: Observation) -> tuple[Any, Any, Any]:
        action, own_memory, _ = self.player.act(key, params[0], memory[0], observation)
        sim_state = self.simulator.from_observation(observation)
        observations = self.simulator.observe(sim_state)
        memories, predicted = [], []
        for tracker, model, tracked in zip(self.trackers, params[1], memory[1], strict=True):
            after, beliefs = tracker.predict(model, tracked, observation, observations, sim_state.state)
            memories.append(after)
            predicted.append(tracker.action_probs(beliefs))
        return action, (own_memory, tuple(memories)), jnp.stack(predicted)

    def watch(self, params: Any, memory: Any, observation: Observation) -> Any:
        own_memory = self.player.watch(params[0], memory[0], observation)
        return self._with_trackers(memory, own_memory, lambda tracker, own: tracker.watch(own, observation))

    def end(self, memory: Any) -> Any:
        return self._with_trackers(memory, self.player.end(memory[0]), lambda tracker, own: tracker.end(own))

    def _with_trackers(self, memory: Any, own_memory: Any, change: Any) -> Any:
        pairs = zip(self.trackers, memory[1], strict=True)
        return own_memory, tuple(change(tracker, tracked) for tracker, tracked in pairs)


# ---------------------------------------------------------------------------------------------------------- measure


def measure(boards: Sequence[str]) -> None:
    """Save the likelihoods of the boards."""
    SAVED.mkdir(exist_ok=True)
    for board in boards:
        run = open_run(RUNS / "pretrained" / "cells" / f"{board}-hopplus")
        younger = {age: open_run(path) for age, path in _younger_paths(board).items()}
        game = make(run.config["training"]["game"])
        known = sets_of(game)
        measured = {name: likelihoods(run, younger, game, known[name]) for name in SETS[board]}
        about = {"game": game.name, "machine": run.config["machine"], "seeds": run.seeds}
        write_text(SAVED / f"{board}.json", json.dumps({**about, "sets": measured}) + "\n")


def _younger_paths(board: str) -> dict[str, Path]:
    """Finished runs with younger models, by age."""
    if not (RUNS / "likelihood").exists():
        return {}
    sweep = sweep_in(RUNS / "likelihood")
    cells = {age: sweep.plan.cell(f"{board}-{age}") for age in YOUNGER}
    return {age: sweep.run_path(cell) for age, cell in cells.items() if sweep.is_done(cell)}


def likelihoods(run: Run, younger: Mapping[str, Run], game: Game[Any], co_players: CoPlayers) -> dict[str, Any]:
    """Mean log-likelihood of the co-players' actions, in the first episode and in the last five, by hypothesis set.

    The focal player is in seat 0 and plays without planning.
    """
    by_seed = [_of_seed(run, younger, seed, game, co_players) for seed in run.seeds]
    return {
        name: {
            "first": _with_error([float(values[name][0]) for values in by_seed]),
            "later": _with_error([float(values[name][EPISODES // 2 :].mean()) for values in by_seed]),
        }
        for name in by_seed[0]
    }


def _of_seed(
    run: Run, younger: Mapping[str, Run], seed: int, game: Game[Any], co_players: CoPlayers
) -> dict[str, np.ndarray]:
    """Mean log-likelihood by episode [10], by hypothesis set and by the co-players' true policies."""
    policy = run.policy(seed).with_planner("off")
    others = {age: other.policy(seed) for age, other in younger.items()}
    observed = _observed(policy, len(others))
    cast = Cast((observed, *(build(player, game) for player in co_players.players)))
    models = (
        *(_moa(policy, game, changes) for changes in HYPOTHESES.values()),
        *(other.params["moa"] for other in others.values()),
    )
    params = ((policy.params, models), *(player.default_params() for player in cast.players[1:]))
    memories, taken, exact, counts = None, [], [], []
    for episode in range(EPISODES):
        key = jax.random.fold_in(jax.random.key(seed), episode)
        memories, played = play_episodes(key, game, cast, TRIALS, params, memories)
        alive = np.asarray(played.alive)
        counts.append(alive[..., 1:] & alive[..., :1])
        predicted = np.moveaxis(np.asarray(info_of(cast, played.info, 0)), 2, 0)
        taken.append(_of_actions(played, predicted))
        exact.append(_of_actions(played, _true_probabilities(game, cast, played)))
    by_tracker, mask = np.stack(taken, 1), np.stack(counts)
    default = list(HYPOTHESES).index(DEFAULT)
    named = {**dict(zip(HYPOTHESES, by_tracker, strict=False)), "exact": np.stack(exact)}
    if others:
        ages = dict(zip((f"{age} steps" for age in others), by_tracker[len(HYPOTHESES) :], strict=True))
        ensemble = mixture(by_tracker[[default, *range(len(HYPOTHESES), len(by_tracker))]], mask)
        named |= {**ages, ENSEMBLE: ensemble}
    return {name: _by_episode(values, mask) for name, values in named.items()}


def _observed(policy: Policy, younger: int) -> Observed:
    """The policy's player with a tracker for each hypothesis set, and the default one for each younger model."""
    trained_for = make(policy.game)

    def tracker(changes: Mapping[str, Any]) -> BeliefTracker:
        return make_belief_tracker(make_algorithm(policy.algorithm, {**policy.settings, **changes}), trained_for)  # pyright: ignore[reportArgumentType]

    trackers = tuple(tracker(changes) for changes in [*HYPOTHESES.values(), *[{}] * younger])
    algorithm = make_algorithm(policy.algorithm, policy.settings)
    return Observed(policy.player(trained_for, "observed"), make_simulator(algorithm, trained_for), trackers)  # pyright: ignore[reportArgumentType]


def _moa(policy: Policy, game: Game[Any], changes: Mapping[str, Any]) -> Any:
    """The opponent model, without the outputs of the preference models where these are left out."""
    model = policy.params["moa"]
    if changes.get("preference_models", True):
        return model
    outputs = len(model["prior"]) * game.num_actions
    last = {name: leaf[..., :outputs] for name, leaf in model["network"]["policy"].items()}
    return {**model, "network": {**model["network"], "policy": last}}


def _of_actions(played: Trajectory, probabilities: np.ndarray) -> np.ndarray:
    """Probabilities [..., T, E, n-1] of the co-players' actions."""
    actions = np.asarray(played.actions)[..., 1:, None]
    shape = np.broadcast_shapes(actions.shape[:-1], probabilities.shape[:-1])
    return np.take_along_axis(probabilities, np.broadcast_to(actions, (*shape, 1)), -1)[..., 0]


def _true_probabilities(game: Game[Any], cast: Cast, played: Trajectory) -> np.ndarray:
    """Action probabilities [T, E, n-1, A] of scripted co-players without memory."""

    @jax.jit
    def of_states(states: Any) -> Any:
        observations = jax.vmap(jax.vmap(game.observe))(states)
        by_seat = [
            jax.vmap(jax.vmap(lambda seen, player=player: player.probabilities((), (), seen)))(
                jax.tree.map(lambda leaf, seat=seat: leaf[:, :, seat], observations)
            )
            for seat, player in enumerate(cast.players)
            if seat
        ]
        return jnp.stack(by_seat, 2)

    return np.asarray(of_states(played.state))


def mixture(probabilities: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Predictions of a Bayesian mixture of models that do not switch within a trial.

    Args:
        probabilities: Probabilities of the actions by model [M, episodes, T, E, n-1], given the past of the trial.
        counts: Which of them count [episodes, T, E, n-1].

    Returns:
        Probabilities [episodes, T, E, n-1]: exact Bayes over the models, jointly with whatever each of them infers.
    """
    models, episodes, steps = probabilities.shape[:3]
    log_weights = np.zeros((models, *probabilities.shape[3:]))
    mixed = np.zeros(probabilities.shape[1:])
    for episode in range(episodes):
        for step in range(steps):
            now = probabilities[:, episode, step]
            weights = np.exp(log_weights - log_weights.max(0))
            mixed[episode, step] = (weights * now).sum(0) / weights.sum(0)
            log_weights += np.where(counts[episode, step], np.log(np.maximum(now, LEAST)), 0.0)
    return mixed


def _by_episode(probabilities: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Mean log-probability by episode."""
    log = np.where(counts, np.log(np.maximum(probabilities, LEAST)), 0.0)
    return log.sum((1, 2, 3)) / counts.sum((1, 2, 3))


def _with_error(values: Sequence[float]) -> dict[str, float]:
    return {
        "mean": round(float(np.mean(values)), 4),
        "standard_error": round(float(standard_error(np.array(values))), 4),
    }


# ------------------------------------------------------------------------------------------------------------- page


def page() -> None:
    """Write likelihood.md."""
    text = Page()
    text.add("# Predictions of co-players that training did not show")
    text.add(
        "Generated by `python experiments/likelihood.py page` from [the saved results](likelihood). Mean log-likelihood"
        " of the co-players' actions, predicted by the opponent model and beliefs of HOP+ (default settings, 1 M steps"
        f" of self-play, {TRIALS} trials for each training seed, no planning): in the first episode, then in episodes 6"
        " to 10, ± its standard error over training seeds. Every row tracks beliefs about the same games."
    )
    by_board = load_saved(SAVED, SETS)
    has_younger = any(ENSEMBLE in by_name for saved in by_board.values() for by_name in saved["sets"].values())
    text.add(
        "A hypothesis about a co-player is a goal, a tremble and a sharpness, or a preference and a tremble"
        " ([beliefs](../algorithms/beliefs.md)). "
        + (YOUNGER_ROWS if has_younger else "")
        + "*True policies* is the likelihood under the co-players' own action probabilities, which no prediction"
        " exceeds on average."
    )
    for saved in by_board.values():
        _add_game(text, saved)
    write_text(RESULTS / "likelihood.md", text.text())


def _add_game(text: Page, saved: Mapping[str, Any]) -> None:
    text.add(f"## {saved['game']}")
    text.add(f"{len(saved['seeds'])} training seeds ({saved['machine']}).")
    sets = saved["sets"]
    labels = {
        **{name: name for name in HYPOTHESES},
        **{f"{age} steps": f"default, younger model ({age} steps)" for age in YOUNGER},
        ENSEMBLE: ENSEMBLE,
        "exact": "true policies",
    }
    measured = next(iter(sets.values()))
    rows = [
        f"| {label} | {' | '.join(_cell(sets[known][name]) for known in sets)} |"
        for name, label in labels.items()
        if name in measured
    ]
    text.add("\n".join([head("hypotheses", *sets), *rows]))


def _cell(score: Mapping[str, Any]) -> str:
    later = score["later"]
    return f"{score['first']['mean']:.2f}, {later['mean']:.2f} ± {later['standard_error']:.2f}"


def _main(argv: Iterable[str]) -> None:
    match list(argv):
        case ["measure", *boards]:
            measure(boards or list(SETS))
        case ["page"]:
            page()
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    _main(sys.argv[1:])
