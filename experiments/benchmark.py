"""Benchmark of HOP+ and baselines: `page` writes benchmark.md and its figures from the saved results.

hopplus sweep experiments/benchmark.toml --out runs/results/benchmark    # train and evaluate
python experiments/benchmark.py keep [NAME ...]    # save the results of finished cells
python experiments/benchmark.py cross              # cross-play of the main runs of each game and regime
python experiments/benchmark.py page               # reads docs/results/benchmark/*.json only
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hopplus.core.files import write_text
from hopplus.core.statistics import compare, estimate
from hopplus.sweeps.plan import Cell, read_plan
from hopplus.visualization.adaptation import draw_adaptation
from hopplus.visualization.crossplay import draw_crossplay
from pages import (
    RESULTS,
    ROOT,
    RUNS,
    Figures,
    Page,
    adaptation_rows,
    by_seed,
    condensed_run,
    figures_from,
    head,
    interval,
    keep,
    load_saved,
    rounded,
    sweep_in,
)

SAVED = RESULTS / "benchmark"
SWEEP = RUNS / "benchmark"
PLAN = read_plan(ROOT / "experiments" / "benchmark.toml")
NUMBER_OF_SEEDS = 5


METHODS = {
    "ppo": "PPO",
    "curriculum": "PPO, lone STAG legal in the first half",
    "prosocial": "prosocial PPO",
    "recurrent": "PPO with a recurrent memory",
    "liam": "LIAM",
    "direct-om": "direct opponent modelling",
    "omg": "OMG",
    "hop": "HOP, 3 x 32 simulations instead of 5 x 200, a tenth of the steps",
    "hopplus": "HOP+, codes",
    "no-inter": "HOP+, codes, no beliefs between episodes",
    "randomized": "direct opponent modelling, randomised rewards",
    "hopplus-randomized": "HOP+, codes, randomised rewards",
    "hopplus-partner": "HOP+, prey, randomised rewards, optimistic partners",
}
"""Labels of the methods in the tables."""
CROSSED = ("ppo", "prosocial", "recurrent", "liam", "hopplus", "hopplus-randomized", "hopplus-partner")
"""Methods in cross-play: the main rows only, since every pair needs a compiled program and search is slow."""


@dataclass(frozen=True)
class Board:
    """Game of the benchmark."""

    scripts: str
    """Scripted co-players of the regime `pool`, and of cross-play."""
    methods: Mapping[str, tuple[str, ...]]
    """Methods by regime; the last is compared with all others."""


BASELINES = ("ppo", "prosocial", "recurrent", "liam", "direct-om", "omg", "hop")
BOARDS = {
    "4x4": Board(
        "ns,nh,random",
        {
            "self": (*BASELINES, "curriculum", "hopplus", "randomized", "hopplus-randomized"),
            "pool": (*BASELINES, "hopplus"),
        },
    ),
    "8x8": Board("ns,nh,random", {"self": ("ppo", "hopplus-partner"), "pool": ("ppo", "hopplus")}),
    "msg": Board(
        "cleaner,exploiter,random",
        {
            "self": ("ppo", "hopplus", "hopplus-randomized"),
            "pool": ("ppo", "recurrent", "direct-om", "no-inter", "hopplus"),
        },
    ),
}
REGIMES = {
    "self": "Self-play: training has no other players, so every set is held out. With randomised rewards, the learners"
    " in an environment have different preferences: each learns from its own reward weights, and one preference"
    " trembles (half of its actions are random legal ones). There are no scripts, and the rules are those of the game."
    " The evaluated policy has the game's own rewards and does not tremble.",
    "pool": "Trained with itself and {scripts}, all compositions of the cast equally likely. Sets of these players are"
    " not held out in this regime, and a method that learns to distinguish them has an advantage.",
}


INTERPRETATION = {
    ("4x4", "self"): "Reward randomisation explains the gain. Without it, learners never play with co-players that want"
    " something else, and neither memory nor goals nor search compensate for that. With it, goals have no significant"
    " effect. With random players, who meet another player at a stag only by chance, no method comes close to the"
    " oracle.",
    (
        "4x4",
        "pool",
    ): "HOP+ does not beat all baselines here. A method that was trained with these players does well even"
    " without memory between episodes, as PPO does. Little is left to gain from beliefs, and most of it with random"
    " players.",
    ("8x8", "self"): "PPO learns to hunt hares alone, which is optimal with hare hunters and poor with all other"
    " players. HOP+ hunts stags together, and has only begun to learn when not to: with defectors it is still"
    " improving at the end of training.",
    ("8x8", "pool"): "HOP+ does not beat PPO here. With defectors, both are still learning at the end of training, so"
    " the comparison does not yet measure adaptation.",
    ("msg", "self"): "Reward randomisation explains the gain, as in the stag hunt: the other methods never play with"
    " co-players that do not want to clear snow.",
    (
        "msg",
        "pool",
    ): "Memory between episodes decides. The two methods that have it (goals, or a recurrent network) beat"
    " all others, almost entirely with exploiters, and do not differ significantly from each other. The oracle knows"
    " from the start that exploiters will not help.",
}
"""Interpretation of each table; holds for the saved results."""


def experiments() -> dict[str, tuple[str, str, str]]:
    """Board, regime and method of every run, by name of the run."""
    return {
        f"{board}-{regime}-{name}": (board, regime, name)
        for board, game in BOARDS.items()
        for regime in REGIMES
        for name in game.methods[regime]
    }


# ------------------------------------------------------------------------------------------------------------- keep


def condensed(cell: Cell, run: Figures) -> dict[str, Any]:
    """Results to save of a cell."""
    return {
        **condensed_run(cell, run, ("return",)),
        "adaptation": [_brief(row) for row in adaptation_rows(run)],
    }


def _brief(row: Mapping[str, Any]) -> dict[str, Any]:
    brief = ("set", "seating", "split", "regime", "met_before", "has_memory", "score")
    points = ("episode", "mean", "low", "high", "oracle")
    return {
        **{key: row[key] for key in brief},
        "curve": [{key: rounded(point[key]) for key in points} for point in row["curve"]],
    }


def cross() -> None:
    """Run cross-play between the finished runs of each game and regime."""
    sweep = sweep_in(SWEEP)
    done = {cell.name: str(sweep.run_path(cell)) for cell in sweep.plan.cells if sweep.is_done(cell)}
    for board, game in BOARDS.items():
        for regime in REGIMES:
            names = [name for name, labels in experiments().items() if labels[:2] == (board, regime)]
            names = [name for name in names if experiments()[name][2] in CROSSED]
            runs = [done[name] for name in names if name in done]
            file = SAVED / f"crossplay-{board}-{regime}.json"
            if runs:
                figures = figures_from(SWEEP, "crossplay", *runs, "--with", game.scripts, "--episodes", "200")
                write_text(file, json.dumps(_with_method_names(figures)) + "\n")


def _with_method_names(figures: dict[str, Any]) -> dict[str, Any]:
    """Cross-play figures with methods in place of run directories."""

    def label(name: str) -> str:
        return experiments()[cell][2] if (cell := Path(name).name) in experiments() else name

    cells = [{**cell, "row": label(cell["row"]), "column": label(cell["column"])} for cell in figures["cells"]]
    return {
        **figures,
        "rows": list(map(label, figures["rows"])),
        "columns": list(map(label, figures["columns"])),
        "cells": cells,
    }


# ------------------------------------------------------------------------------------------------------------- page


def page() -> None:
    """Write benchmark.md and its figures."""
    results, text = load_saved(SAVED, experiments()), Page()
    if not results:
        print("no results are saved yet: python experiments/benchmark.py keep")
        return
    few = [name for name, result in results.items() if len(result["config"]["seeds"]) < NUMBER_OF_SEEDS]
    if few:
        sys.exit(f"a table needs {NUMBER_OF_SEEDS} seeds, and there are fewer of {', '.join(few)}: train more seeds")
    first = next(iter(results.values()))["config"]
    text.add("# Benchmark")
    for paragraph in INTRODUCTION:
        text.add(paragraph)
    text.add(f"Machine: {first['machine']}, jax {first['versions']['jax']}.")
    for board in BOARDS:
        for regime, remark in REGIMES.items():
            rows = {
                labels[2]: results[name]
                for name, labels in experiments().items()
                if labels[:2] == (board, regime) and name in results
            }
            if rows:
                _add_table(text, board, regime, remark, rows)
    write_text(RESULTS / "benchmark.md", text.text())


INTRODUCTION = (
    "Generated by `python experiments/benchmark.py page` from [the saved results of the runs](benchmark/). To reproduce"
    " them: `hopplus sweep experiments/benchmark.toml --out runs/results/benchmark`, then"
    " `python experiments/benchmark.py keep` and `cross`.",
    "Every method has the same environment steps (with one exception, stated in its row), seeds, co-players, network,"
    " encoder and discount, and otherwise its own default settings. Network widths and discount were chosen once for"
    " all methods, among 64-64 with 0.995 and 128-128 with 0.95, 0.98 and 0.99, by the scores of two seeds of PPO and"
    " of HOP+ with codes on the validation sets on 4x4, regime `pool`. Nothing else was tuned for any method, except"
    " reward randomisation, which was added after self-play had failed with defectors.",
    "The set of preferences was changed twice. First, a trembling preference replaced one that wanted no reward: a"
    " first run of the benchmark's row, and trials with three `noisy(stay,0.8)` (a set of no split), had shown that"
    " random players were mistaken for the latter. Second, the weight of an unwanted reward became -1 instead of 0: in"
    " trials of one seed with NH, NS and random players on 8x8, learners that should only want hares hunted stags."
    " The sets with these players are therefore not entirely untouched for the rows with randomised rewards.",
    "Scores are the own reward of one focal player in episodes 6 to 10 with the same three co-players, weights frozen,"
    " at every seat in turn, 16 trials per seat, as a share of the oracle's reward. Means over seeds with 95% intervals"
    " (bootstrapped over seeds, widened to the coverage of Student's t). Intervals of differences are not corrected for"
    " multiple comparisons. Minutes were measured while other jobs ran, and are too long for runs that were"
    " interrupted or delayed.",
    "HOP searches before each action during training, which makes a step about a hundred times as expensive. With 5 x"
    " 200 simulations, as published, five seeds would reach about 40 steps per second on this machine. HOP has fewer"
    " simulations and fewer steps here, and still takes more minutes than the other methods.",
)


def with_oracle(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Rows of the sets whose oracle is known."""
    return [row for row in result["adaptation"] if row["score"]["oracle"] is not None]


def shares(result: Mapping[str, Any]) -> np.ndarray:
    """Scores as shares of the oracle's reward [seeds, sets]."""
    return np.array([np.array(row["score"]["per_seed"]) / row["score"]["oracle"] for row in with_oracle(result)]).T


def _add_table(text: Page, board: str, regime: str, remark: str, rows: dict[str, Any]) -> None:
    game = BOARDS[board]
    first = PLAN.cell(f"{board}-{regime}-{game.methods[regime][0]}")
    text.add(f"## {first.settings['game']}, regime `{regime}`")
    text.add(f"{remark.format(scripts=game.scripts)} {first.steps / 1e6:g} M steps.")
    sets = [row["set"] for row in with_oracle(next(iter(rows.values())))]
    columns = ("method", "memory", "self-play", "mean of sets", *sets, "minutes, all seeds")
    text.add("\n".join([head(*columns), *(_row(name, result) for name, result in rows.items())]))
    ours = game.methods[regime][-1]
    if ours in rows and len(rows) > 1:
        text.add(
            f"Advantage of {METHODS[ours]} over each method, in shares of the oracle; bold where the interval"
            " excludes 0:"
        )
        lines = [_difference_row(rows[ours], name, result) for name, result in rows.items() if name != ours]
        text.add("\n".join([head("method", "mean of sets", *sets), *lines]))
        text.add(f"{_verdict(rows, ours)} {INTERPRETATION[board, regime]}")
    picture = f"benchmark-{board}-{regime}.png"
    curves = [{**row, "focal": name} for name, result in rows.items() for row in result["adaptation"]]
    draw_adaptation(RESULTS / picture, curves)
    text.add(f"![Own reward by episode, {board}, {regime}]({picture})")
    _add_crossplay(text, board, regime)
    text.add("Commands:")
    text.add("```text\n" + "\n".join(result["command"] for result in rows.values()) + "\n```")


def _add_crossplay(text: Page, board: str, regime: str) -> None:
    file = SAVED / f"crossplay-{board}-{regime}.json"
    if not file.exists():
        return
    figures, picture = json.loads(file.read_text()), f"crossplay-{board}-{regime}.png"
    draw_crossplay(RESULTS / picture, figures)
    text.add(
        f"Cross-play: own reward of one player of the row with three of the column, {figures['episodes']} episodes per"
        " pair of seeds and seat, first episodes only. Intervals and seats are in"
        f" [the figures](benchmark/{file.name})."
    )
    text.add(f"![Cross-play, {board}, {regime}]({picture})")


def _row(name: str, result: Mapping[str, Any]) -> str:
    by_set = shares(result)
    cells = (
        METHODS[name],
        "yes" if result["adaptation"][0]["has_memory"] else "no",
        interval(by_seed(dict(result), "sampled"), 2),
        estimate(by_set.mean(1)[:, None]).text(2),
        *(f"{mean:.2f}" for mean in by_set.mean(0)),
        f"{result['seconds'] / 60:.1f}",
    )
    return f"| {' | '.join(cells)} |"


def _difference_row(ours: Mapping[str, Any], name: str, theirs: Mapping[str, Any]) -> str:
    """Row of differences: on the mean over sets, and for each set."""
    mine, other = shares(ours), shares(theirs)
    pairs = [(mine.mean(1)[:, None], other.mean(1)[:, None])]
    pairs += [(mine[:, [column]], other[:, [column]]) for column in range(mine.shape[1])]
    return f"| {METHODS[name]} | {' | '.join(_difference(*pair) for pair in pairs)} |"


def _difference(mine: np.ndarray, other: np.ndarray) -> str:
    comparison = compare(mine, other)
    difference = comparison.difference
    text = f"{difference.value:+.2f} [{difference.low:+.2f}, {difference.high:+.2f}]"
    return f"**{text}**" if comparison.outside_noise else text


def _verdict(rows: Mapping[str, Any], ours: str) -> str:
    """Sentence that compares HOP+ with each method on the mean over sets."""

    def names(sign: int) -> str:
        mine, chosen = shares(rows[ours]).mean(1)[:, None], []
        for name, result in rows.items():
            comparison = compare(mine, shares(result).mean(1)[:, None])
            if name != ours and (np.sign(comparison.difference.value) if comparison.outside_noise else 0) == sign:
                chosen.append(METHODS[name])
        return "; ".join(chosen) or "none"

    return (
        f"On the mean over sets, {METHODS[ours]} is significantly better than: {names(1)}. Significantly worse than:"
        f" {names(-1)}. No significant difference: {names(0)}."
    )


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["keep", *names]:
            keep(SWEEP, SAVED, names, condensed)
        case ["cross"]:
            cross()
        case ["page"]:
            page()
        case _:
            sys.exit(__doc__)
