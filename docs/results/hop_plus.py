"""The results of HOP+: `page` writes hopplus.md and its pictures from what was kept of the trainings of hop_plus.toml.

hopplus sweep docs/results/hop_plus.toml --out runs/results/hop_plus    # trains and judges
python docs/results/hop_plus.py keep [NAME ...]    # of these, what is done by now
python docs/results/hop_plus.py moa                # fits models of others offline to the play of what was trained
python docs/results/hop_plus.py page               # from docs/results/hopplus/*.json alone
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pages import (
    RUNS,
    Figures,
    Page,
    adaptation_rows,
    by_seed,
    condensed_run,
    head,
    hopplus,
    interval,
    keep,
    load_kept,
    sweep_in,
)

from hopplus.evaluation.statistics import compare
from hopplus.files import write_text
from hopplus.report.figures import COLOURS, label_steps, new_figure, save_figure
from hopplus.sweeps.plan import Cell

HERE = Path(__file__).parent
KEPT = HERE / "hopplus"
SWEEP = RUNS / "hop_plus"
OBSERVED, MOA = "hopplus-4x4", "moa-online-and-offline"
GOALLESS = "adapt-none"
MARKS = (2.7, 2.8, 2.85)
CURVES = ("return", "moa_top1", "entropy", "value_loss")


@dataclass(frozen=True)
class Experiment:
    """One row of a table: a cell of hop_plus.toml."""

    section: str
    label: str


EXPERIMENTS = {
    OBSERVED: Experiment("4x4", "HOP+"),
    "hopplus-4x4-alone": Experiment("4x4", "HOP+, one seed alone"),
    **{f"hopplus-4x4-seat-{seat}": Experiment("one", f"HOP+ in seat {seat}") for seat in range(4)},
    "hopplus-8x8": Experiment("8x8", "HOP+, optimistic guests (no script, no change of rules)"),
    "hopplus-8x8-alone": Experiment("8x8", "the same, one seed alone"),
    "hopplus-8x8-board": Experiment("8x8", "the same, which does not see what everybody did last"),
    "hopplus-8x8-plain": Experiment("8x8", "HOP+, codes, no guests"),
    "hopplus-8x8-prey": Experiment("8x8", "HOP+, prey for goals, no guests"),
    "ablation-default": Experiment("ablation", "default: codes, inter, PPO, no search"),
    "ablation-goals-none": Experiment("ablation", "no goals (direct opponent modelling)"),
    "ablation-goals-zero": Experiment("ablation", "a goal input that is always 0"),
    "ablation-goals-prey": Experiment("ablation", "prey for goals"),
    "ablation-goals-gaussian": Experiment("ablation", "gaussian subgoals"),
    "ablation-no-inter": Experiment("ablation", "nothing kept between episodes"),
    "ablation-no-intra": Experiment("ablation", "no change within episodes"),
    "ablation-search": Experiment("ablation", "search at decision time"),
    "ablation-search-none": Experiment("ablation", "search at decision time, no goals"),
    "ablation-search-prey": Experiment("ablation", "search at decision time, prey"),
    "ablation-both": Experiment("ablation", "PPO and expert iteration"),
    "ablation-learned": Experiment("ablation", "learned world, half of the rows imagined"),
    "adapt-ppo": Experiment("adapt", "PPO"),
    GOALLESS: Experiment("adapt", "HOP+, no goals"),
    "adapt-codes": Experiment("adapt", "HOP+, codes"),
    "adapt-prey": Experiment("adapt", "HOP+, prey"),
    "adapt-no-inter": Experiment("adapt", "HOP+, codes, nothing kept"),
}


# ------------------------------------------------------------------------------------------------------------- keep


def condensed(cell: Cell, found: Figures) -> dict[str, Any]:
    """What is kept of a cell."""
    brief = ("set", "split", "regime", "met_before", "score")
    return {
        **condensed_run(cell, found, CURVES),
        "judged": judged_on_the_way(found),
        "adaptation": [{key: row[key] for key in brief} for row in adaptation_rows(found)],
    }


def judged_on_the_way(found: Figures) -> dict[str, list[list[float]]]:
    """By seed, steps and the learners' mean return of every greedy evaluation in a training."""
    config = found["config"]
    judged: dict[str, list[list[float]]] = {str(seed): [] for seed in config["seeds"]}
    for line in found["metrics"]:
        if "evaluation" in line:
            mean = float(np.mean([line["evaluation"][seat] for seat in config["learners"]]))
            judged[str(line["seed"])].append([line["steps"], round(mean, 4)])
    return judged


def compare_moa() -> None:
    """Beside the model of others that learnt online, one fitted offline to the play of the same policies."""
    sweep, found = sweep_in(SWEEP), {}
    cell = sweep.plan.cell(OBSERVED)
    run = sweep.run_path(cell)
    if not sweep.is_trained(cell):
        sys.exit(f"there is nothing to observe: {run} is not trained yet")
    for seed in cell.seeds:
        data, fit = (SWEEP / f"{OBSERVED}.{what}-{seed}" for what in ("play", "moa"))
        cast = ",".join([f"run({run},seed={seed})"] * 4)
        if not data.exists():
            hopplus("collect", str(data), "--casts", cast, "--steps", "40000", "--seed", "1")
        if not fit.exists():
            hopplus("fit", "moa", str(data), "--goals", "codes", "--out", str(fit))
        online, offline = (last_line(directory, number) for directory, number in ((run, seed), (fit, 0)))
        found[str(seed)] = {"online": online["moa_top1"], "offline": offline["top1"]}
    write_text(KEPT / f"{MOA}.json", json.dumps(found) + "\n")


def last_line(run: Path, seed: int) -> dict[str, Any]:
    """What a training or fit told last of a seed."""
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [line for line in lines if line["seed"] == seed][-1]


# ------------------------------------------------------------------------------------------------------------- page


def steadiness(kept: dict[str, Any]) -> list[float]:
    """By seed, the last greedy evaluation as a share of the best one; nothing where there were none on the way."""
    return [judged[-1][1] / max(mean for _, mean in judged) for judged in kept["judged"].values() if judged]


def reached(kept: dict[str, Any]) -> str:
    """Of one seed that trained alone: after how many minutes a greedy evaluation was first at each of `MARKS`."""
    ((seed, judged),) = kept["judged"].items()
    curve, found = kept["curves"][seed], []
    for mark in MARKS:
        steps = next((steps for steps, mean in judged if mean >= mark), None)
        if steps is not None:
            found.append(f"{mark:g} after {np.interp(steps, curve['steps'], curve['seconds']) / 60:.1f}")
    return "; ".join(found)


def row(name: str, kept: dict[str, Any]) -> str:
    seeds, steady = len(kept["curves"]), steadiness(kept)
    minutes = f"{kept['seconds'] / 60:.1f}"
    cells = (
        EXPERIMENTS[name].label,
        f"{kept['config']['training']['steps'] / 1e6:g} M x {seeds}",
        interval(by_seed(kept, "sampled")),
        interval(by_seed(kept, "search on")) if "search on" in kept["evaluations"] else "",
        f"{100 * min(steady):.1f}%" if steady else "",
        f"{minutes} ({reached(kept)})" if seeds == 1 else minutes,
    )
    return "| " + " | ".join(cells) + " |"


HEADER = (
    "| training | steps x seeds | return, sampled | with search | last of best, worst seed | minutes, all seeds |\n"
    "|---|---|---|---|---|---|"
)
TEXTS = {
    "4x4": ("Self-play on msh-4x4-4h1s", "The ceiling of the mean is 3."),
    "one": (
        "One HOP+ with three NS, at each seat",
        "The return is the learner's own, in 20,000 episodes a seed: one player's return scatters by 2 an episode, and"
        " all seeds are judged on the same boards, so that 2,000 would leave an error of 0.04 that no interval over"
        " seeds shows.",
    ),
    "8x8": (
        "The large board, msh-8x8-4h1s with 5 block pieces",
        "No scripted player sat at the table or in training, and the rules were never changed. Optimistic guests: in a"
        " share of episodes that falls to none, a seat is played by the learner's own model of others, given the prey"
        " that has paid best so far.",
    ),
    "ablation": (
        "Ablations on msh-4x4-4h1s, self-play, one factor at a time",
        "Beside self-play: own reward in episodes 6 to 10 with held-out players, weights frozen.",
    ),
    "adapt": (
        "Goals on and off, trained with NS, NH and itself on msh-4x4-4h1s",
        "Own reward in episodes 6 to 10, weights frozen. All have met NS and NH in training."
        " Intervals of differences are not corrected for their number, and those who switch are defectors when they are"
        " scored.",
    ),
}


def draw(path: Path, found: dict[str, dict[str, Any]], names: list[str]) -> None:
    """Learning curves over steps and over minutes: mean over learning seats, mean and range over seeds."""
    figure, axes = new_figure(1, 2)
    for number, name in enumerate(names):
        curves = list(found[name]["curves"].values())
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
    """Write hopplus.md and its pictures."""
    found, text = load_kept(KEPT, EXPERIMENTS), Page()
    if not found:
        sys.exit("nothing is kept yet: python docs/results/hop_plus.py keep")
    first = next(iter(found.values()))["config"]
    text.add("# Results of HOP+")
    text.add(
        "Generated by `python docs/results/hop_plus.py page` from [the figures kept of the runs](hopplus/), which"
        " `hopplus sweep docs/results/hop_plus.toml --out runs/results/hop_plus` and `python docs/results/hop_plus.py"
        " keep` make anew. Means and 95% intervals over seeds (Student's t); each seed's figure is the mean of"
        " 2,000 sampled episodes from fresh states (500 with search). Curves: mean over seeds, shaded from the lowest"
        " seed to the highest. `last of best`: of 20 greedy evaluations of 1,000 episodes on the way, the last as a"
        " share of the best. Minutes are of all seeds of a run together, computed at once, with other jobs beside"
        " them; of one seed alone also when a greedy evaluation first was at a mark, which later ones may fall below"
        " again."
    )
    text.add(f"Machine: {first['machine']}, jax {first['versions']['jax']}.")
    for section, (title, remark) in TEXTS.items():
        names = [name for name in found if EXPERIMENTS[name].section == section]
        if names:
            _add_section(text, section, title, remark, {name: found[name] for name in names})
        if section == "4x4":
            _add_moa(text)
    write_text(HERE / "hopplus.md", text.text())


def _add_moa(text: Page) -> None:
    """What the model of others foresees that learnt online, beside one fitted offline to the same play."""
    if not (file := KEPT / f"{MOA}.json").exists():
        return
    found = json.loads(file.read_text())
    text.add("### The model of others: online beside offline")
    text.add(
        "Top-1 of the co-players' actions. Online: by the copy that acted in the last chunk of the first training"
        " above, before it learnt from that play, by the ego's seat. Offline: `hopplus fit moa --goals codes` on 40,000"
        " steps of the trained policies' play, on episodes that were held out."
    )
    rows = [
        f"| {seed} | {' | '.join(f'{top1:.3f}' for top1 in one['online'])} | {one['offline']:.3f} |"
        for seed, one in found.items()
    ]
    text.add("\n".join([head("seed", *(f"seat {seat}" for seat in range(4)), "offline"), *rows]))


def _add_section(text: Page, section: str, title: str, remark: str, found: dict[str, dict[str, Any]]) -> None:
    text.add(f"## {title}")
    text.add(remark)
    text.add(HEADER + "\n" + "\n".join(row(name, kept) for name, kept in found.items()))
    adapted = {name: kept for name, kept in found.items() if kept.get("adaptation")}
    if adapted:
        sets = [one["set"] for one in min((kept["adaptation"] for kept in adapted.values()), key=len)]
        scores = [_adapted(name, kept, sets) for name, kept in adapted.items()]
        text.add("\n".join([head("training", *sets), *scores]))
        if GOALLESS in adapted:
            text.add(f"What each earns more than '{EXPERIMENTS[GOALLESS].label}', with 95% intervals over seeds:")
            rows = [_beside(adapted[GOALLESS], name, kept) for name, kept in adapted.items() if name != GOALLESS]
            text.add("\n".join([head("training", "mean of sets", *sets), *rows]))
            text.add(_verdict(adapted))
    draw(HERE / f"hopplus-{section}.png", found, list(found))
    text.add(f"![Learning curves: {title}](hopplus-{section}.png)")
    text.add("Commands:")
    text.add("```text\n" + "\n".join(kept["command"] for kept in found.values()) + "\n```")


def _scores(kept: dict[str, Any]) -> np.ndarray:
    """[seeds, sets]"""
    return np.array([one["score"]["per_seed"] for one in kept["adaptation"]]).T


def _verdict(adapted: dict[str, dict[str, Any]]) -> str:
    """Whether goals on beats goals off, said plainly."""
    found = {name: compare(_scores(kept), _scores(adapted[GOALLESS])) for name, kept in adapted.items()}
    ahead = [EXPERIMENTS[name].label for name, one in found.items() if one.outside_noise and one.difference.value > 0]
    said = f"ahead of it are: {'; '.join(ahead)}" if ahead else "none is ahead of it: here goals do not earn more"
    return f"On the mean over sets, outside the interval, {said}."


def _beside(without: dict[str, Any], name: str, kept: dict[str, Any]) -> str:
    """By how much one scores more than the one without goals: over all sets, and in each."""
    ours, theirs = _scores(kept), _scores(without)
    cells = []
    for sets in (slice(None), *(slice(number, number + 1) for number in range(ours.shape[1]))):
        found = compare(ours[:, sets], theirs[:, sets])
        difference = found.difference
        text = f"{difference.value:+.3f} [{difference.low:+.3f}, {difference.high:+.3f}]"
        cells.append(f"**{text}**" if found.outside_noise else text)
    return f"| {EXPERIMENTS[name].label} | {' | '.join(cells)} |"


def _adapted(name: str, kept: dict[str, Any], sets: list[str]) -> str:
    cells = []
    for score in (one["score"] for one in kept["adaptation"] if one["set"] in sets):
        bracket = "" if score["low"] is None else f" [{score['low']:.2f}, {score['high']:.2f}]"
        share = "" if score["share_of_oracle"] is None else f", {100 * score['share_of_oracle']:.0f}% of the oracle"
        cells.append(f"{score['mean']:.2f}{bracket}{share}")
    return f"| {EXPERIMENTS[name].label} | {' | '.join(cells)} |"


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["keep", *names]:
            keep(SWEEP, KEPT, names, condensed)
        case ["moa"]:
            if not (KEPT / f"{MOA}.json").exists():
                compare_moa()
        case ["page"]:
            page()
        case _:
            sys.exit(__doc__)
