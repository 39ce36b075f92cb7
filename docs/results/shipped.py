"""What comes with the package: `keep` takes it from the trainings of shipped.toml and measures it, `page` writes
shipped.md.

hopplus sweep docs/results/shipped.toml --out runs/results/shipped    # trains and judges
python docs/results/shipped.py keep [NAME ...]    # the best seeds of the games that are done, into the package
python docs/results/shipped.py page               # from the package's figures alone
"""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pages import RUNS, Figures, Page, adaptation_rows, figures_from, head, rounded, sweep_in

from hopplus.errors import InputError
from hopplus.files import make_directory, write_text
from hopplus.games import make
from hopplus.planning.goals import prey_names
from hopplus.sweeps.directory import figures
from hopplus.sweeps.plan import Cell, narrowed
from hopplus.training import shipped
from hopplus.training.policies import SUFFIX, Policy, save_policy
from hopplus.training.run import open_run

HERE = Path(__file__).parent
SWEEP = RUNS / "shipped"
LABELS = {"ppo": "PPO", "hopplus": "HOP+"}
EPISODES, TABLES = 2000, 64
"""Of self-play; and a seat, with the sets that are held out."""


# ------------------------------------------------------------------------------------------------------------- keep


def keep(names: Sequence[str]) -> None:
    """Put the best seed of each recipe into the package, game by game; of those games alone that are named, if some
    are, each by a cell of it."""
    sweep = sweep_in(SWEEP)
    try:
        named = narrowed(sweep.plan, names).cells
    except InputError as error:
        sys.exit(str(error))
    for game in dict.fromkeys(cell.settings["game"] for cell in named):
        own = [cell for cell in sweep.plan.cells if cell.settings["game"] == game]
        missing = [cell.name for cell in own if not sweep.is_done(cell)]
        if missing:
            print(f"{game}: not done yet: {', '.join(missing)}")
            continue
        found = {cell.name: figures(sweep, cell) for cell in own}
        best = best_scores(map(validation, found.values()))
        for cell in own:
            seed = best_seed(validation(found[cell.name]), best, cell.seeds)
            keep_policy(cell, found[cell.name], open_run(sweep.run_path(cell)).policies(seed)[0])
            print(f"{game}: {cell.settings['recipe']}, seed {seed}")


def validation(found: Figures) -> dict[str, list[float]]:
    """The scores of every seed with the sets for validation, by set."""
    judged = {name: one for name, one in found["judged"].items() if name.startswith("validation")}
    return {row["set"]: row["score"]["per_seed"] for row in adaptation_rows({"judged": judged})}


def best_scores(scores: Iterable[Mapping[str, Sequence[float]]]) -> dict[str, float]:
    """The best score with each set that any seed of any recipe has."""
    best: dict[str, float] = {}
    for one in scores:
        best |= {name: max([*per_seed, best.get(name, 0.0)]) for name, per_seed in one.items()}
    return best


def best_seed(scores: Mapping[str, Sequence[float]], best: Mapping[str, float], seeds: Sequence[int]) -> int:
    """The seed whose scores are the largest shares of the best ones, on the mean over sets: all sets count alike."""
    shares = np.mean([np.array(per_seed) / best[name] for name, per_seed in scores.items()], axis=0)
    return seeds[int(shares.argmax())]


def keep_policy(cell: Cell, found: Figures, policy: Policy) -> None:
    """Write a policy into the package, measure it there, and add its figures to the others'."""
    game, recipe, config = policy.game, policy.recipe, found["config"]
    file = make_directory(shipped.DIRECTORY / game) / f"{recipe}{SUFFIX}"
    save_policy(file, policy, short=True)
    about = {key: config[key] for key in ("machine", "versions", "commit", "started")}
    kept = {
        "game": game,
        "seed": policy.seed,
        "steps": cell.steps,
        "goals": list(prey_names(make(game))) if policy.settings.get("goals") == "prey" else [],
        "bytes": file.stat().st_size,
        "training": "hopplus " + " ".join(cell.words()),
        **about,
        "seeds": chosen_by(found),
        "self_play": self_play(game, recipe),
        "held_out": held_out(game, recipe),
    }
    listed = shipped.DIRECTORY / shipped.FIGURES
    every = shipped.read_figures() if listed.exists() else {}
    every[game] = {**every.get(game, {}), recipe: kept}
    write_text(listed, json.dumps(every, indent=1) + "\n")


def chosen_by(found: Figures) -> dict[str, dict[str, Any]]:
    """By seed, its return in self-play, and the scores by which one was chosen."""
    scores, sampled = validation(found), found["judged"]["sampled"]["per_seed"]
    return {
        str(row["seed"]): {
            "self-play": rounded(row["mean_return"]),
            **{name: rounded(per_seed[number]) for name, per_seed in scores.items()},
        }
        for number, row in enumerate(sampled)
    }


def self_play(game: str, recipe: str) -> dict[str, Any]:
    """What a policy of the package earns with itself."""
    words = ("match", game, "--cast", ",".join([recipe] * make(game).num_players), "--episodes", str(EPISODES))
    found = figures_from(SWEEP, *words)
    brief = {key: rounded(found[key]) for key in ("mean_return", "standard_error", "share_of_ceiling")}
    return {"command": "hopplus " + " ".join(words), **brief}


def held_out(game: str, recipe: str) -> dict[str, Any]:
    """What a policy of the package earns in episodes 6 to 10 with each set that is held out; and, where it has beliefs
    about prey, how sure it is in the first and in the tenth of what the others take then."""
    words = ("adapt", recipe, "--game", game, "--seating", "one", "--episodes", "10", "--tables", str(TABLES))
    sets = {}
    for row in figures_from(SWEEP, *words)["rows"]:
        score = {key: rounded(row["score"][key]) for key in ("mean", "standard_error", "oracle", "share_of_oracle")}
        belief = [rounded(row["curve"][episode]["goal_belief"]) for episode in (0, -1)]
        sets[row["set"]] = {**score, "belief": None if None in belief else belief}
    return {"command": "hopplus " + " ".join(words), "sets": sets}


# ------------------------------------------------------------------------------------------------------------- page


def page() -> None:
    """Write shipped.md."""
    found, text = shipped.read_figures(), Page()
    first = next(iter(next(iter(found.values())).values()))
    every = [kept for by_recipe in found.values() for kept in by_recipe.values()]
    text.add("# What comes with the package")
    text.add(
        "Generated by `python docs/results/shipped.py page` from [the package's figures]"
        "(../../src/hopplus/training/shipped/figures.json), which `hopplus sweep docs/results/shipped.toml --out"
        " runs/results/shipped` and `python docs/results/shipped.py keep` make anew, with the policies themselves."
    )
    text.add(
        "In a cast, `hopplus` and `ppo` are these policies; they play any game of the same board, actions and players."
        " All were trained in self-play, and have met no script. Of each training the seed comes with the package that"
        " does best with the sets for validation (in the snowdrift game, three noisy cleaners and three noisy"
        " exploiters): the mean over sets, each as a share of the best score there. Weights are kept to three digits,"
        f" {sum(kept['bytes'] for kept in every) / 1e3:.0f} KB in all; all figures below are of the kept ones."
    )
    text.add(f"Machine: {first['machine']}, jax {first['versions']['jax']}.")
    for game, by_recipe in found.items():
        _add_game(text, game, by_recipe)
    write_text(HERE / "shipped.md", text.text())


def _add_game(text: Page, game: str, by_recipe: Mapping[str, Mapping[str, Any]]) -> None:
    judged = {name: one for name, one in _sets(by_recipe).items() if one["oracle"] is not None}
    text.add(f"## {game}")
    text.add(
        f"Self-play: mean return of {EPISODES:,} sampled episodes, first meetings, and as a share of the ceiling."
        f" With the sets that are held out: own reward in episodes 6 to 10 of {TABLES} tables a seat, as a share of the"
        " oracle's."
    )
    columns = ("policy", "seed", "of", "steps", "self-play", "of the ceiling", *judged, "KB")
    rows = [_row(name, kept, list(judged)) for name, kept in by_recipe.items()]
    text.add("\n".join([head(*columns), *rows]))
    for name, kept in by_recipe.items():
        if kept["goals"]:
            _add_beliefs(text, name, kept)
    text.add("Commands:")
    commands = [kept["training"] for kept in by_recipe.values()]
    commands += [kept[part]["command"] for part in ("self_play", "held_out") for kept in by_recipe.values()]
    text.add("```text\n" + "\n".join(commands) + "\n```")


def _sets(by_recipe: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    return next(iter(by_recipe.values()))["held_out"]["sets"]


def _row(name: str, kept: Mapping[str, Any], sets: Sequence[str]) -> str:
    played = kept["self_play"]
    cells = (
        LABELS[name],
        str(kept["seed"]),
        ", ".join(kept["seeds"]),
        f"{kept['steps'] / 1e6:g} M",
        f"{played['mean_return']:.2f}",
        f"{played['share_of_ceiling']:.2f}",
        *(f"{kept['held_out']['sets'][one]['share_of_oracle']:.2f}" for one in sets),
        f"{kept['bytes'] / 1e3:.0f}",
    )
    return f"| {' | '.join(cells)} |"


def _add_beliefs(text: Page, name: str, kept: Mapping[str, Any]) -> None:
    known = {one: row["belief"] for one, row in kept["held_out"]["sets"].items() if row["belief"] is not None}
    goals = kept["goals"] if len(kept["goals"]) < 5 else [*kept["goals"][:2], "...", kept["goals"][-1]]
    text.add(
        f"What {LABELS[name]} takes others to be after: {', '.join(goals)}. The probability that it gives, on the mean"
        " over steps, to what another takes in the end (a thing of that kind), where it takes something:"
    )
    rows = [
        f"| {episode} | {' | '.join(f'{belief[place]:.2f}' for belief in known.values())} |"
        for place, episode in enumerate(("first episode", "tenth episode"))
    ]
    text.add("\n".join([head("with", *known), *rows]))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["keep", *names]:
            keep(names)
        case ["page"]:
            page()
        case _:
            sys.exit(__doc__)
