"""Results of HOP+: `page` writes hopplus.md and its figures from the saved results of hop_plus.toml.

hopplus sweep experiments/hop_plus.toml --out runs/results/hop_plus    # train and evaluate
python experiments/hop_plus.py keep [NAME ...]    # save the results of finished cells
python experiments/hop_plus.py moa                # fit opponent models offline to episodes of the trained policies
python experiments/hop_plus.py page               # reads docs/results/hopplus/*.json only
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from hopplus.core.files import write_text
from hopplus.core.statistics import compare
from hopplus.sweeps.plan import Cell
from hopplus.visualization.figures import COLOURS, label_steps, new_figure, save_figure
from pages import (
    RESULTS,
    RUNS,
    Experiment,
    Figures,
    Page,
    adaptation_rows,
    by_seed,
    condensed_run,
    head,
    hopplus,
    interval,
    keep,
    load_saved,
    sweep_in,
)

SAVED = RESULTS / "hopplus"
SWEEP = RUNS / "hop_plus"
OBSERVED, MOA = "hopplus-4x4", "moa-online-and-offline"
GOALLESS = "adapt-none"
MARKS = (2.7, 2.8, 2.85)
CURVES = ("return", "moa_top1", "entropy", "value_loss")


EXPERIMENTS = {
    OBSERVED: Experiment("4x4", "HOP+"),
    "hopplus-4x4-alone": Experiment("4x4", "HOP+, one seed alone"),
    **{f"hopplus-4x4-seat-{seat}": Experiment("one", f"HOP+ in seat {seat}") for seat in range(4)},
    "hopplus-8x8": Experiment("8x8", "HOP+, optimistic partners (no scripts, no change of rules)"),
    "hopplus-8x8-alone": Experiment("8x8", "the same, one seed alone"),
    "hopplus-8x8-board": Experiment("8x8", "the same, without last actions in the network's input"),
    "hopplus-8x8-plain": Experiment("8x8", "HOP+, codes, no partners"),
    "hopplus-8x8-prey": Experiment("8x8", "HOP+, goals prey, no partners"),
    "ablation-default": Experiment("ablation", "default: codes, inter, PPO, no search"),
    "ablation-goals-none": Experiment("ablation", "no goals (direct opponent modelling)"),
    "ablation-goals-zero": Experiment("ablation", "goal input that is always 0"),
    "ablation-goals-prey": Experiment("ablation", "goals prey"),
    "ablation-goals-gaussian": Experiment("ablation", "gaussian subgoals"),
    "ablation-no-inter": Experiment("ablation", "no beliefs between episodes"),
    "ablation-no-intra": Experiment("ablation", "no belief updates within episodes"),
    "ablation-search": Experiment("ablation", "search at decision time"),
    "ablation-search-none": Experiment("ablation", "search at decision time, no goals"),
    "ablation-search-prey": Experiment("ablation", "search at decision time, prey"),
    "ablation-both": Experiment("ablation", "PPO and expert iteration"),
    "ablation-learned": Experiment("ablation", "learned world model, half of the rows imagined"),
    "adapt-ppo": Experiment("adapt", "PPO"),
    GOALLESS: Experiment("adapt", "HOP+, no goals"),
    "adapt-codes": Experiment("adapt", "HOP+, codes"),
    "adapt-prey": Experiment("adapt", "HOP+, prey"),
    "adapt-no-inter": Experiment("adapt", "HOP+, codes, no beliefs between episodes"),
}


# ------------------------------------------------------------------------------------------------------------- keep


def condensed(cell: Cell, run: Figures) -> dict[str, Any]:
    """Results to save of a cell."""
    brief = ("set", "split", "regime", "met_before", "score")
    return {
        **condensed_run(cell, run, CURVES),
        "judged": training_evaluations(run),
        "adaptation": [{key: row[key] for key in brief} for row in adaptation_rows(run)],
    }


def training_evaluations(run: Figures) -> dict[str, list[list[float]]]:
    """Steps and learners' mean return of every greedy evaluation during training, by seed."""
    config = run["config"]
    evaluations: dict[str, list[list[float]]] = {str(seed): [] for seed in config["seeds"]}
    for line in run["metrics"]:
        if "evaluation" in line:
            mean = float(np.mean([line["evaluation"][seat] for seat in config["learners"]]))
            evaluations[str(line["seed"])].append([line["steps"], round(mean, 4)])
    return evaluations


def compare_moa() -> None:
    """Save top-1 of the online opponent models and of ones fitted offline to episodes of the same policies."""
    sweep, top1 = sweep_in(SWEEP), {}
    cell = sweep.plan.cell(OBSERVED)
    run = sweep.run_path(cell)
    if not sweep.is_trained(cell):
        sys.exit(f"the opponent models need a trained run: {run} is not trained yet")
    for seed in cell.seeds:
        data, fit = (SWEEP / f"{OBSERVED}.{suffix}-{seed}" for suffix in ("play", "moa"))
        cast = ",".join([f"run({run},seed={seed})"] * 4)
        if not data.exists():
            hopplus("collect", str(data), "--casts", cast, "--steps", "40000", "--seed", "1")
        if not fit.exists():
            hopplus("fit", "moa", str(data), "--goals", "codes", "--out", str(fit))
        online, offline = (last_line(directory, number) for directory, number in ((run, seed), (fit, 0)))
        top1[str(seed)] = {"online": online["moa_top1"], "offline": offline["top1"]}
    write_text(SAVED / f"{MOA}.json", json.dumps(top1) + "\n")


def last_line(run: Path, seed: int) -> dict[str, Any]:
    """Last metrics of a seed of a training or fit."""
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [line for line in lines if line["seed"] == seed][-1]


# ------------------------------------------------------------------------------------------------------------- page


def steadiness(result: dict[str, Any]) -> list[float]:
    """Last greedy evaluation as a share of the best, by seed; empty if there were none during training."""
    curves = [curve for curve in result["judged"].values() if curve]
    return [curve[-1][1] / max(mean for _, mean in curve) for curve in curves]


def reached(result: dict[str, Any]) -> str:
    """Minutes until a greedy evaluation first reached each of `MARKS`, for a run with a single seed."""
    ((seed, evaluations),) = result["judged"].items()
    curve, texts = result["curves"][seed], []
    for mark in MARKS:
        steps = next((steps for steps, mean in evaluations if mean >= mark), None)
        if steps is not None:
            texts.append(f"{mark:g} after {np.interp(steps, curve['steps'], curve['seconds']) / 60:.1f}")
    return "; ".join(texts)


def row(name: str, result: dict[str, Any]) -> str:
    """Row of a table of trainings."""
    seeds, steady = len(result["curves"]), steadiness(result)
    minutes = f"{result['seconds'] / 60:.1f}"
    cells = (
        EXPERIMENTS[name].label,
        f"{result['config']['training']['steps'] / 1e6:g} M x {seeds}",
        interval(by_seed(result, "sampled")),
        interval(by_seed(result, "search on")) if "search on" in result["evaluations"] else "",
        f"{100 * min(steady):.1f}%" if steady else "",
        f"{minutes} ({reached(result)})" if seeds == 1 else minutes,
    )
    return "| " + " | ".join(cells) + " |"


HEADER = (
    "| training | steps x seeds | return, sampled | with search | last / best, worst seed | minutes, all seeds |\n"
    "|---|---|---|---|---|---|"
)
TEXTS = {
    "4x4": ("Self-play on msh-4x4-4h1s", "The ceiling of the mean return is 3."),
    "one": (
        "One HOP+ with three NS, at each seat",
        "The return is that of the learner, over 20,000 episodes per seed. A player's return has a standard deviation"
        " of 2 per episode, and all seeds are evaluated on the same boards. With 2,000 episodes, an error of 0.04 would"
        " remain that no interval over seeds shows.",
    ),
    "8x8": (
        "Large board, msh-8x8-4h1s with 5 block pieces",
        "Training has no scripted players and no change of rules. Optimistic partners: in a share of the episodes that"
        " is annealed to zero, the learner's own opponent model plays a seat, given as its goal the prey with the best"
        " payoff so far.",
    ),
    "ablation": (
        "Ablations on msh-4x4-4h1s, self-play, one factor at a time",
        "In addition to self-play: own reward in episodes 6 to 10 with held-out players, weights frozen.",
    ),
    "adapt": (
        "With and without goals, trained with NS, NH and itself on msh-4x4-4h1s",
        "Own reward in episodes 6 to 10, weights frozen. All were trained with NS and NH. Intervals of differences are"
        " not corrected for multiple comparisons. Switching players are defectors in the scored episodes.",
    ),
}


def draw(path: Path, results: dict[str, dict[str, Any]], names: list[str]) -> None:
    """Draw learning curves over steps and over minutes: mean over learners' seats, mean and range over seeds."""
    figure, axes = new_figure(1, 2)
    for number, name in enumerate(names):
        curves = list(results[name]["curves"].values())
        length = min(len(curve["steps"]) for curve in curves)
        returns = np.array([[np.nanmean(np.array(row, float)) for row in c["return"][:length]] for c in curves], float)
        colour = COLOURS[number % len(COLOURS)]
        minutes = np.array(curves[0]["seconds"][:length]) / 60
        for axis, along in zip(axes[0], (np.array(curves[0]["steps"][:length]), minutes), strict=True):
            label = EXPERIMENTS[name].label if axis is axes[0][0] else None
            axis.plot(along, returns.mean(0), color=colour, label=label)
            axis.fill_between(along, returns.min(0), returns.max(0), color=colour, alpha=0.15)
    label_steps(axes[0][0])
    axes[0][0].set_ylabel("return")
    axes[0][1].set_xlabel("minutes, all seeds together")
    figure.legend(loc="outside lower center", fontsize=7)
    save_figure(path, figure)


def page() -> None:
    """Write hopplus.md and its figures."""
    results, text = load_saved(SAVED, EXPERIMENTS), Page()
    if not results:
        sys.exit("no results are saved yet: python experiments/hop_plus.py keep")
    first = next(iter(results.values()))["config"]
    text.add("# Results of HOP+")
    text.add(
        "Generated by `python experiments/hop_plus.py page` from [the saved results of the runs](hopplus/). To"
        " reproduce them: `hopplus sweep experiments/hop_plus.toml --out runs/results/hop_plus`, then"
        " `python experiments/hop_plus.py keep`. Means and 95% intervals over seeds (Student's t); the figure of each"
        " seed is the mean of 2,000 sampled episodes from fresh states (500 with search). Curves show the mean over"
        " seeds, and shading the range from the lowest to the highest seed. `last / best`: of 20 greedy evaluations of"
        " 1,000 episodes during training, the last as a share of the best. Minutes are those of all seeds of a run,"
        " computed together, while other jobs ran. For a single seed they include the time at which a greedy"
        " evaluation first reached a mark; later evaluations may be lower."
    )
    text.add(f"Machine: {first['machine']}, jax {first['versions']['jax']}.")
    for section, (title, remark) in TEXTS.items():
        names = [name for name in results if EXPERIMENTS[name].section == section]
        if names:
            _add_section(text, section, title, remark, {name: results[name] for name in names})
        if section == "4x4":
            _add_moa(text)
    write_text(RESULTS / "hopplus.md", text.text())


def _add_moa(text: Page) -> None:
    """Add the accuracy of the online opponent model, and of one fitted offline to the same policies."""
    if not (file := SAVED / f"{MOA}.json").exists():
        return
    accuracies = json.loads(file.read_text())
    text.add("### Opponent model (MOA): online and offline")
    text.add(
        "Top-1 accuracy on the co-players' actions. Online: the acting copy of the model in the last chunk of the first"
        " training above, before its update on that chunk, by the ego's seat. Offline: `hopplus fit moa --goals codes`"
        " on 40,000 steps of the trained policies, evaluated on held-out episodes."
    )
    rows = [
        f"| {seed} | {' | '.join(f'{top1:.3f}' for top1 in accuracy['online'])} | {accuracy['offline']:.3f} |"
        for seed, accuracy in accuracies.items()
    ]
    text.add("\n".join([head("seed", *(f"seat {seat}" for seat in range(4)), "offline"), *rows]))


def _add_section(text: Page, section: str, title: str, remark: str, results: dict[str, dict[str, Any]]) -> None:
    text.add(f"## {title}")
    text.add(remark)
    text.add(HEADER + "\n" + "\n".join(row(name, result) for name, result in results.items()))
    adapted = {name: result for name, result in results.items() if result.get("adaptation")}
    if adapted:
        shortest = min((result["adaptation"] for result in adapted.values()), key=len)
        sets = [figures["set"] for figures in shortest]
        scores = [_score_row(name, result, sets) for name, result in adapted.items()]
        text.add("\n".join([head("training", *sets), *scores]))
        if GOALLESS in adapted:
            text.add(f"Difference from '{EXPERIMENTS[GOALLESS].label}', with 95% intervals over seeds:")
            rows = [
                _difference_row(adapted[GOALLESS], name, result) for name, result in adapted.items() if name != GOALLESS
            ]
            text.add("\n".join([head("training", "mean of sets", *sets), *rows]))
            text.add(_verdict(adapted))
    draw(RESULTS / f"hopplus-{section}.png", results, list(results))
    text.add(f"![Learning curves: {title}](hopplus-{section}.png)")
    text.add("Commands:")
    text.add("```text\n" + "\n".join(result["command"] for result in results.values()) + "\n```")


def _scores(result: dict[str, Any]) -> np.ndarray:
    """Scores [seeds, sets]."""
    return np.array([figures["score"]["per_seed"] for figures in result["adaptation"]]).T


def _verdict(adapted: dict[str, dict[str, Any]]) -> str:
    """Sentence that names the trainings with goals that beat the one without."""
    comparisons = {name: compare(_scores(result), _scores(adapted[GOALLESS])) for name, result in adapted.items()}
    better = [
        EXPERIMENTS[name].label
        for name, comparison in comparisons.items()
        if comparison.outside_noise and comparison.difference.value > 0
    ]
    if better:
        return f"Significantly better on the mean over sets: {'; '.join(better)}."
    return "No training is significantly better on the mean over sets: goals do not increase the reward here."


def _difference_row(without: dict[str, Any], name: str, result: dict[str, Any]) -> str:
    """Row of score differences from the training without goals: over all sets, and for each set."""
    ours, theirs = _scores(result), _scores(without)
    cells = []
    for sets in (slice(None), *(slice(number, number + 1) for number in range(ours.shape[1]))):
        comparison = compare(ours[:, sets], theirs[:, sets])
        difference = comparison.difference
        text = f"{difference.value:+.3f} [{difference.low:+.3f}, {difference.high:+.3f}]"
        cells.append(f"**{text}**" if comparison.outside_noise else text)
    return f"| {EXPERIMENTS[name].label} | {' | '.join(cells)} |"


def _score_row(name: str, result: dict[str, Any], sets: list[str]) -> str:
    """Row of scores with intervals and shares of the oracle, one cell per set."""
    cells = []
    for score in (figures["score"] for figures in result["adaptation"] if figures["set"] in sets):
        bracket = "" if score["low"] is None else f" [{score['low']:.2f}, {score['high']:.2f}]"
        share = "" if score["share_of_oracle"] is None else f", {100 * score['share_of_oracle']:.0f}% of the oracle"
        cells.append(f"{score['mean']:.2f}{bracket}{share}")
    return f"| {EXPERIMENTS[name].label} | {' | '.join(cells)} |"


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["keep", *names]:
            keep(SWEEP, SAVED, names, condensed)
        case ["moa"]:
            if not (SAVED / f"{MOA}.json").exists():
                compare_moa()
        case ["page"]:
            page()
        case _:
            sys.exit(__doc__)
