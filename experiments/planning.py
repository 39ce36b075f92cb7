"""Planning with beliefs: `page` writes planning.md from the saved results of the HOP+ cells of pretrained.toml.

hopplus sweep experiments/pretrained.toml --out runs/results/pretrained    # train and evaluate
python experiments/planning.py keep [NAME ...]    # save the results of finished cells
python experiments/planning.py likelihood [NAME ...]    # measure how well finished runs predict held-out co-players
python experiments/planning.py page               # reads docs/results/planning/*.json only
"""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hopplus.core.files import write_text
from hopplus.core.specs import Spec
from hopplus.core.statistics import standard_error
from hopplus.evaluation.co_player_sets import CoPlayers, sets_of
from hopplus.games import Game, make
from hopplus.players import Cast, CastSpec
from hopplus.players.cast import info_of
from hopplus.rollouts import Trajectory, play_episodes
from hopplus.sweeps.plan import Cell, narrowed, read_plan
from hopplus.training.casting import seat_cast
from hopplus.training.run import Run, open_run
from pages import RESULTS, ROOT, RUNS, Figures, Page, head, interval, keep, load_saved, rounded, sweep_in

SAVED = RESULTS / "planning"
SWEEP = RUNS / "pretrained"
NAMES = [
    cell.name
    for cell in read_plan(ROOT / "experiments" / "pretrained.toml").cells
    if cell.settings["algorithm"] == "hopplus"
]
DECISIONS = {
    "held-out": "policy alone",
    "planning, uniform": "rollouts, uniform hypotheses",
    "planning": "rollouts",
}
"""Labels of the judges, in the order of the tables."""
EPISODES, TRIALS = 10, 64
"""Episodes per trial and trials of the measured likelihoods."""
LEAST = 1e-6
"""Least probability that counts, so that one impossible action does not decide a mean."""
SELF_PLAY = {"sampled": "policy alone", "planning in self-play": "rollouts at every seat"}


# ------------------------------------------------------------------------------------------------------------- keep


def condensed(cell: Cell, run: Figures) -> dict[str, Any]:
    """Results to save of a cell: scores by judge and set of co-players, and returns in self-play."""
    config, judged = run["config"], run["judged"]
    about = ("versions", "commit", "machine", "started", "seeds", "training")
    brief = ("own_return", "own_standard_error")
    return {
        "name": cell.name,
        "command": "hopplus " + " ".join(cell.argv()),
        "config": {key: config[key] for key in about},
        "seconds": run["final"]["seconds"],
        "adaptation": {name: _by_set(result["rows"]) for name, result in judged.items() if "rows" in result},
        "self_play": {
            name: {key: rounded(result[key]) for key in brief}
            | {"per_seed": [rounded(row["own_return"]) for row in result["per_seed"]]}
            for name, result in judged.items()
            if "rows" not in result
        },
    }


def _by_set(rows: list[dict[str, Any]]) -> dict[str, Any]:
    brief = ("mean", "low", "high", "oracle", "share_of_oracle")
    return {
        row["set"]: {key: rounded(row["score"][key]) for key in brief}
        | {
            "per_seed": [rounded(value) for value in row["score"]["per_seed"]],
            "first_episode": {key: rounded(row["curve"][0][key]) for key in ("mean", "low", "high")},
            "trials": row["trials"],
        }
        for row in rows
    }


# ------------------------------------------------------------------------------------------------------- likelihood


def likelihood(names: Sequence[str]) -> None:
    """Save how well the opponent model of each cell's runs predicts co-players that training did not show."""
    sweep = sweep_in(SWEEP)
    for cell in narrowed(sweep.plan, names or NAMES).cells:
        if sweep.is_trained(cell):
            run = open_run(sweep.run_path(cell))
            game = make(run.config["training"]["game"])
            sets = [known for known in sets_of(game).values() if not known.period > 1]
            measured = {known.name: _likelihood(run, game, known) for known in sets}
            write_text(SAVED / f"{cell.name}-likelihood.json", json.dumps(measured) + "\n")


def _likelihood(run: Run, game: Game[Any], co_players: CoPlayers) -> dict[str, Any]:
    """Mean log-likelihood of the co-players' actions, by episode [10]: predicted in play, and by their true policies.

    The focal player is in seat 0 and plays without planning.
    """
    predicted, exact = [], []
    for seed in run.seeds:
        policies = [policy.with_planner("off") for policy in run.policies(seed)]
        cast = CastSpec((Spec("self"), *co_players.players))
        seated = seat_cast(cast, game, lambda seat, policies=policies: policies[0])
        memories, key = None, jax.random.key(seed)
        for episode in range(EPISODES):
            memories, played = play_episodes(
                jax.random.fold_in(key, episode), game, seated.cast, TRIALS, seated.params(), memories
            )
            info = info_of(seated.cast, played.info, 0)
            predicted.append(_log_likelihood(played, np.asarray(info.action_probs)))
            exact.append(_log_likelihood(played, _true_probabilities(game, seated.cast, played)))
    by_episode = [np.reshape(values, (len(run.seeds), EPISODES)) for values in (predicted, exact)]
    return {
        name: {"first": _with_error(values[:, :1]), "later": _with_error(values[:, EPISODES // 2 :])}
        for name, values in zip(("predicted", "exact"), by_episode, strict=True)
    }


def _log_likelihood(played: Trajectory, probabilities: np.ndarray) -> float:
    """Mean log-probability of the co-players' actions while they and the focal player are in the game."""
    actions, alive = np.asarray(played.actions), np.asarray(played.alive)
    taken = np.take_along_axis(probabilities, actions[..., 1:, None], -1)[..., 0]
    return float(np.log(np.maximum(taken, LEAST))[alive[..., 1:] & alive[..., :1]].mean())


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


def _with_error(values: np.ndarray) -> dict[str, float]:
    means = values.mean(1)
    return {"mean": round(float(means.mean()), 4), "standard_error": round(float(standard_error(means)), 4)}


# ------------------------------------------------------------------------------------------------------------- page


def page() -> None:
    """Write planning.md."""
    saved, text = load_saved(SAVED, NAMES), Page()
    likelihoods = load_saved(SAVED, [f"{name}-likelihood" for name in NAMES])
    text.add("# Planning with beliefs")
    text.add(
        "Generated by `python experiments/planning.py page` from [the saved results](planning). HOP+ with its default"
        " settings, trained in self-play: no scripted player was met in training. Own reward in episodes 6 to 10 of a"
        " trial with held-out co-players, weights frozen, as a share of the oracle's; 95% intervals over training"
        " seeds. [Belief rollouts](../algorithms/rollouts.md) plan at decision time only; with uniform hypotheses, they"
        " simulate co-players of any goal and rationality, while the policy still observes its beliefs. Shares of an"
        " oracle that is a lower bound may be too large."
    )
    for name, result in saved.items():
        _add_game(text, result, likelihoods.get(f"{name}-likelihood"))
    text.add("Commands, and `hopplus sweep experiments/pretrained.toml --out runs/results/pretrained` for all of it:")
    text.add("```text\n" + "\n".join(result["command"] for result in saved.values()) + "\n```")
    write_text(RESULTS / "planning.md", text.text())


def _add_game(text: Page, result: Mapping[str, Any], likelihoods: Mapping[str, Any] | None) -> None:
    training, rows = result["config"]["training"], result["adaptation"]
    text.add(f"## {training['game']}")
    seeds, minutes = len(result["config"]["seeds"]), result["seconds"] / 60
    trials = {label: next(iter(rows[name].values()))["trials"] for name, label in DECISIONS.items() if name in rows}
    text.add(
        f"{seeds} seeds, {training['steps'] / 1e6:g} M steps, {minutes:.0f} minutes for all seeds"
        f" ({result['config']['machine']}). Trials per seed: "
        + ", ".join(f"{number} ({label})" for label, number in trials.items())
        + "."
    )
    shown = list(rows["planning"])
    sets = [name for name in shown if rows["planning"][name]["oracle"] is not None]
    lines = [
        _adaptation_row(label, rows[name], sets)
        for name, label in DECISIONS.items()
        if name in rows and set(sets) <= set(rows[name])
    ]
    text.add("\n".join([head("decision", "mean of sets", *sets), *lines]))
    first = rows["planning"]
    text.add(
        "With rollouts, reward in the first episode and in episodes 6 to 10: "
        + "; ".join(f"{name} {_change(score)}" for name, score in first.items())
        + "."
    )
    if likelihoods is not None:
        text.add(
            "Mean log-likelihood of the co-players' actions (policy alone, 64 trials per seed): predicted in the first"
            " episode, in episodes 6 to 10, and by the co-players' true policies in episodes 6 to 10."
        )
        rows = [
            f"| {name} | {row['predicted']['first']['mean']:.2f} | {row['predicted']['later']['mean']:.2f}"
            f" ± {row['predicted']['later']['standard_error']:.2f} | {row['exact']['later']['mean']:.2f} |"
            for name, row in likelihoods.items()
        ]
        text.add("\n".join([head("co-players", "first episode", "episodes 6 to 10", "true policies"), *rows]))
    played = {label: result["self_play"][name] for name, label in SELF_PLAY.items() if name in result["self_play"]}
    returns = "; ".join(f"{label} {interval(score['per_seed'], 2)}" for label, score in played.items())
    text.add(f"In self-play, mean return: {returns}.")


def _adaptation_row(label: str, by_set: Mapping[str, Any], sets: list[str]) -> str:
    shares = {name: np.array(by_set[name]["per_seed"]) / by_set[name]["oracle"] for name in sets}
    mean = np.mean(list(shares.values()), axis=0).tolist()
    cells = [label, interval(mean, 2), *(interval(values.tolist(), 2) for values in shares.values())]
    return f"| {' | '.join(cells)} |"


def _change(score: Mapping[str, Any]) -> str:
    first = score["first_episode"]
    return (
        f"{first['mean']:.2f} [{first['low']:.2f}, {first['high']:.2f}] to"
        f" {score['mean']:.2f} [{score['low']:.2f}, {score['high']:.2f}]"
    )


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["keep", *names]:
            keep(SWEEP, SAVED, names or NAMES, condensed)
        case ["likelihood", *names]:
            likelihood(names)
        case ["page"]:
            page()
        case _:
            sys.exit(__doc__)
