"""Pretrained policies: `keep` selects and evaluates them from the runs of pretrained.toml, `page` writes pretrained.md.

hopplus sweep experiments/pretrained.toml --out runs/results/pretrained    # train and evaluate
python experiments/pretrained.py keep [NAME ...]    # write the best seeds of finished games into the package
python experiments/pretrained.py shares             # compare stored scores with the present oracles
python experiments/pretrained.py page               # reads the package's figures only
"""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from hopplus.beliefs.goal_space import labelled_goals
from hopplus.core.errors import InputError
from hopplus.core.files import make_directory, write_text
from hopplus.evaluation.co_player_sets import sets_of
from hopplus.evaluation.oracle import lookup
from hopplus.games import make, names
from hopplus.sweeps.directory import figures
from hopplus.sweeps.plan import Cell, narrowed
from hopplus.training import pretrained
from hopplus.training.policies import SUFFIX, Policy, save_policy
from hopplus.training.run import open_run
from pages import RESULTS, RUNS, Figures, Page, adaptation_rows, figures_from, head, rounded, sweep_in

SWEEP = RUNS / "pretrained"
LABELS = {"ppo": "PPO", "hopplus": "HOP+"}
ALONE = {"ppo": "PPO", "hopplus": "HOP+, policy alone"}
PLANNERS = ("hopplus",)
"""Algorithms that plan at decision time."""
EPISODES, TRIALS, PLANNING_TRIALS = 2000, 64, 4
"""Episodes of self-play; trials per seat with the held-out sets of a policy alone, and of one that plans."""


# ------------------------------------------------------------------------------------------------------------- keep


def keep(chosen: Sequence[str]) -> None:
    """Write the best seed of each cell into the package, for every game whose cells are finished.

    Args:
        chosen: Cells to keep; all if empty. Games with settings of their own are not packaged.
    """
    sweep = sweep_in(SWEEP)
    try:
        named = narrowed(sweep.plan, chosen).cells
    except InputError as error:
        sys.exit(str(error))
    for game in dict.fromkeys(cell.settings["game"] for cell in named if cell.settings["game"] in names()):
        cells = [cell for cell in named if cell.settings["game"] == game]
        missing = [cell.name for cell in cells if not sweep.is_done(cell)]
        if missing:
            print(f"{game}: unfinished: {', '.join(missing)}")
            continue
        runs = {cell.name: figures(sweep, cell) for cell in cells}
        best = best_scores(map(validation, runs.values()))
        for cell in cells:
            seed = best_seed(validation(runs[cell.name]), best, cell.seeds)
            keep_policy(cell, runs[cell.name], open_run(sweep.run_path(cell)).policies(seed)[0])
            print(f"{game}: {cell.settings['algorithm']}, seed {seed}")


def validation(run: Figures) -> dict[str, list[float]]:
    """Scores of every seed with the validation sets, by set."""
    judged = {name: result for name, result in run["judged"].items() if name.startswith("validation")}
    return {row["set"]: row["score"]["per_seed"] for row in adaptation_rows({"judged": judged})}


def best_scores(scores: Iterable[Mapping[str, Sequence[float]]]) -> dict[str, float]:
    """Best score with each set over all seeds of all algorithms."""
    best: dict[str, float] = {}
    for by_set in scores:
        best |= {name: max([*per_seed, best.get(name, 0.0)]) for name, per_seed in by_set.items()}
    return best


def best_seed(scores: Mapping[str, Sequence[float]], best: Mapping[str, float], seeds: Sequence[int]) -> int:
    """Seed with the largest mean over sets of its scores as shares of the best ones; all sets have equal weight."""
    shares = np.mean([np.array(per_seed) / best[name] for name, per_seed in scores.items()], axis=0)
    return seeds[int(shares.argmax())]


def keep_policy(cell: Cell, run: Figures, policy: Policy) -> None:
    """Write a policy into the package, evaluate it there, and add its figures to those of the package."""
    game, algorithm, config = policy.game, policy.algorithm, run["config"]
    file = make_directory(pretrained.DIRECTORY / game) / f"{algorithm}{SUFFIX}"
    save_policy(file, policy, short=True)
    about = {key: config[key] for key in ("machine", "versions", "commit", "started")}
    goals = labelled_goals(policy.settings["goals"]) if "goals" in policy.settings else None
    result = {
        "game": game,
        "seed": policy.seed,
        "steps": cell.steps,
        "goals": list(goals.names(make(game))) if goals else [],
        "bytes": file.stat().st_size,
        "training": "hopplus " + " ".join(cell.argv()),
        **about,
        "seeds": selection_scores(run),
        "self_play": self_play(game, _alone(algorithm)),
        "held_out": held_out(game, _alone(algorithm), TRIALS),
        "planning": held_out(game, algorithm, PLANNING_TRIALS) if algorithm in PLANNERS else None,
    }
    figures_file = pretrained.DIRECTORY / pretrained.FIGURES
    packaged = pretrained.read_figures() if figures_file.exists() else {}
    packaged[game] = {**packaged.get(game, {}), algorithm: result}
    write_text(figures_file, json.dumps(packaged, indent=1) + "\n")


def _alone(algorithm: str) -> str:
    """Name of a pretrained policy without planning."""
    return f"{algorithm}:planner=off" if algorithm in PLANNERS else algorithm


def selection_scores(run: Figures) -> dict[str, dict[str, Any]]:
    """Return in self-play and validation scores of every seed."""
    scores, sampled = validation(run), run["judged"]["sampled"]["per_seed"]
    return {
        str(row["seed"]): {
            "self-play": rounded(row["mean_return"]),
            **{name: rounded(per_seed[number]) for name, per_seed in scores.items()},
        }
        for number, row in enumerate(sampled)
    }


def self_play(game: str, player: str) -> dict[str, Any]:
    """Return of a pretrained policy in self-play."""
    argv = ("match", game, "--cast", ",".join([player] * make(game).num_players), "--episodes", str(EPISODES))
    figures = figures_from(SWEEP, *argv)
    brief = {key: rounded(figures[key]) for key in ("mean_return", "standard_error", "share_of_ceiling")}
    return {"command": "hopplus " + " ".join(argv), **brief}


def held_out(game: str, player: str, trials: int) -> dict[str, Any]:
    """Scores of a pretrained policy with each held-out set, in episodes 6 to 10.

    A policy with beliefs about prey also has `belief`: the mean probability of the prey that co-players take, in the
    first and in the tenth episode.
    """
    argv = ("adapt", player, "--game", game, "--trials", str(trials))
    sets = {}
    for row in figures_from(SWEEP, *argv)["rows"]:
        score = {key: rounded(row["score"][key]) for key in ("mean", "standard_error", "oracle", "share_of_oracle")}
        belief = [rounded(row["curve"][episode]["goal_belief"]) for episode in (0, -1)]
        sets[row["set"]] = {**score, "belief": None if None in belief else belief}
    return {"command": "hopplus " + " ".join(argv), "sets": sets}


def shares() -> None:
    """Compute the shares of the stored scores anew, with the present oracles."""
    packaged = pretrained.read_figures()
    for game, by_algorithm in packaged.items():
        known = sets_of(make(game))
        for result in by_algorithm.values():
            for part in ("held_out", "planning"):
                for name, score in (result.get(part) or {"sets": {}})["sets"].items():
                    best = lookup(make(game), known[name].players) if known[name].period == 1 else None
                    if best is not None:
                        score |= {"oracle": rounded(best.value), "share_of_oracle": rounded(score["mean"] / best.value)}
    write_text(pretrained.DIRECTORY / pretrained.FIGURES, json.dumps(packaged, indent=1) + "\n")


# ------------------------------------------------------------------------------------------------------------- page


def page() -> None:
    """Write pretrained.md."""
    by_game, text = pretrained.read_figures(), Page()
    first = next(iter(next(iter(by_game.values())).values()))
    results = [result for by_algorithm in by_game.values() for result in by_algorithm.values()]
    text.add("# Pretrained policies")
    text.add(
        "Generated by `python experiments/pretrained.py page` from [the package's figures]"
        "(../../src/hopplus/training/pretrained/figures.json). To reproduce the figures and the policies:"
        " `hopplus sweep experiments/pretrained.toml --out runs/results/pretrained`, then"
        " `python experiments/pretrained.py keep`."
    )
    text.add(
        "In a cast, `hopplus` and `ppo` are these policies. They play any game with the same board, actions and number"
        " of players. All were trained in self-play, without scripts. Of each training, the package has the seed with"
        " the best mean over the validation sets, each set as a share of the best score with it. Weights are stored"
        " with three digits,"
        f" {sum(result['bytes'] for result in results) / 1e3:.0f} KB in total; all figures below are those of the"
        " stored weights."
    )
    text.add("Shares of an oracle that is a lower bound may be too large.")
    text.add(f"Machine: {first['machine']}, jax {first['versions']['jax']}.")
    for game, by_algorithm in by_game.items():
        _add_game(text, game, by_algorithm)
    write_text(RESULTS / "pretrained.md", text.text())


def _add_game(text: Page, game: str, by_algorithm: Mapping[str, Mapping[str, Any]]) -> None:
    sets = next(iter(by_algorithm.values()))["held_out"]["sets"]
    with_oracle = [name for name, score in sets.items() if score["oracle"] is not None]
    text.add(f"## {game}")
    text.add(
        f"Self-play: mean return of {EPISODES:,} sampled episodes, first episodes only, and its share of the ceiling."
        f" Held-out sets: own reward in episodes 6 to 10 of {TRIALS} trials per seat ({PLANNING_TRIALS} with planning),"
        " as a share of the oracle's."
    )
    columns = ("policy", "seed", "of", "steps", "self-play", "of the ceiling", *with_oracle, "KB")
    rows = [
        _row(label, result, result[part], with_oracle)
        for name, result in by_algorithm.items()
        for part, label in (
            ("planning", LABELS[name]),
            ("held_out", f"{LABELS[name]}{', policy alone' if name in PLANNERS else ''}"),
        )
        if result.get(part)
    ]
    text.add("\n".join([head(*columns), *rows]))
    for name, result in by_algorithm.items():
        if result["goals"]:
            _add_beliefs(text, name, result)
    text.add("Commands:")
    commands = [result["training"] for result in by_algorithm.values()]
    parts = ("self_play", "held_out", "planning")
    commands += [result[part]["command"] for part in parts for result in by_algorithm.values() if result.get(part)]
    text.add("```text\n" + "\n".join(commands) + "\n```")


def _row(label: str, result: Mapping[str, Any], held_out: Mapping[str, Any], sets: Sequence[str]) -> str:
    in_self_play = result["self_play"] if held_out is result["held_out"] else None
    cells = (
        label,
        str(result["seed"]),
        ", ".join(result["seeds"]),
        f"{result['steps'] / 1e6:g} M",
        f"{in_self_play['mean_return']:.2f}" if in_self_play else "",
        f"{in_self_play['share_of_ceiling']:.2f}" if in_self_play else "",
        *(f"{held_out['sets'][set_name]['share_of_oracle']:.2f}" for set_name in sets),
        f"{result['bytes'] / 1e3:.0f}",
    )
    return f"| {' | '.join(cells)} |"


def _add_beliefs(text: Page, name: str, result: Mapping[str, Any]) -> None:
    sets = result["held_out"]["sets"]
    beliefs = {set_name: row["belief"] for set_name, row in sets.items() if row["belief"] is not None}
    goals = result["goals"] if len(result["goals"]) < 5 else [*result["goals"][:2], "...", result["goals"][-1]]
    text.add(
        f"Goals in the beliefs of {LABELS[name]}: {', '.join(goals)}. Probability of the prey that a co-player takes in"
        " the end (any prey of the same type), mean over steps, for co-players that take something:"
    )
    rows = [
        f"| {episode} | {' | '.join(f'{belief[index]:.2f}' for belief in beliefs.values())} |"
        for index, episode in enumerate(("first episode", "tenth episode"))
    ]
    text.add("\n".join([head("co-players", *beliefs), *rows]))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["keep", *chosen]:
            keep(chosen)
        case ["shares"]:
            shares()
        case ["page"]:
            page()
        case _:
            sys.exit(__doc__)
