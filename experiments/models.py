"""Results of the models: `fit` makes datasets and runs, `page` writes models.md from the saved results.

python experiments/models.py fit [NAME ...]    # run the fits without saved results, into runs/results/
python experiments/models.py time [FIT ...]    # time the fits, with and without a compilation cache
python experiments/models.py page              # reads docs/results/models/*.json only
"""

import json
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hopplus.core.files import write_text
from hopplus.training.run import provenance
from hopplus.visualization.figures import COLOURS, new_figure, save_figure
from pages import RESULTS, RUNS, Page, hopplus, interval

SAVED = RESULTS / "models"
SEEDS = range(5)
DATASETS = {
    "4x4": "--game msh-4x4-4h1s --casts all:ns,nh --steps 107000 --seed 0",
    "8x8": "--game msh-8x8-4h1s --casts all:ns,nh --steps 107000 --seed 0",
    "4x4-all": "--game msh-4x4-4h1s --casts all:ns,nh,random --steps 107000 --seed 0",
    "8x8-all": "--game msh-8x8-4h1s --casts all:ns,nh,random --steps 107000 --seed 0",
    "4x4-107k": "--game msh-4x4-4h1s --casts all:ns,nh --steps 69800 --seed 0",
}
TIMED = {
    "moa --goals none": 30,
    "moa --goals codes": 30,
    "moa --goals gaussian": 30,
    "subgoals --kind gaussian --loss reconstruction": 30,
    "world-model --kind structured": 120,
    "world-model --kind dense": 120,
}
"""Fits and their target times in seconds."""
TIMES = "timings"


@dataclass(frozen=True)
class Experiment:
    """Five seeds of a fit: a row in the table of each of its diagnoses."""

    label: str
    model: str
    dataset: str
    options: str
    diagnoses: tuple[str, ...]


EXPERIMENTS = {
    "moa-none": Experiment("4x4, none", "moa", "4x4", "--goals none", ("moa",)),
    "moa-prey": Experiment("4x4, prey", "moa", "4x4", "--goals prey", ("moa",)),
    "moa-earning": Experiment(
        "4x4, codes, only rewarded players", "moa", "4x4", "--goals codes --only-rewarded-players", ("moa",)
    ),
    **{
        f"{name}-{size}": Experiment(f"{size}, {label}", "moa", size, options, ("moa", "subgoals"))
        for size in ("4x4", "8x8")
        for name, label, options in (
            ("codes", "codes", "--goals codes"),
            ("gaussian-action", "gaussian, action loss", "--goals gaussian --loss action"),
            ("gaussian-reconstruction", "gaussian, reconstruction loss", "--goals gaussian --loss reconstruction"),
        )
    },
    **{
        f"world-{kind}-{size}": Experiment(
            f"{size}, {kind}", "world-model", f"{size}-all", f"--kind {kind}", ("world-model",)
        )
        for size in ("4x4", "8x8")
        for kind in ("structured", "dense")
    },
}
DIAGNOSED = {"moa": SEEDS[:1], "subgoals": SEEDS, "world-model": SEEDS}
"""Seeds that are diagnosed; for the MOA only the first, since the metrics have the figures of all seeds."""


# -------------------------------------------------------------------------------------------------------------- fit


def collected(name: str) -> Path:
    """Directory of a dataset, which is collected if it does not exist."""
    data = RUNS.parent / "data" / name
    if not data.exists():
        hopplus("collect", str(data), *DATASETS[name].split())
    return data


def time_fits(chosen: list[str]) -> None:
    """Save wall-clock seconds of whole commands, 10 epochs of one seed: with a cold and a warm compilation cache."""
    data, file = collected("4x4-107k"), SAVED / f"{TIMES}.json"
    header = json.loads((data / "header.json").read_text())
    fits = json.loads(file.read_text())["fits"] if file.exists() else {}
    for command in chosen:
        with tempfile.TemporaryDirectory() as directory:
            os.environ["JAX_COMPILATION_CACHE_DIR"] = f"{directory}/cache"
            model, *options = command.split()
            seconds = []
            for attempt in ("first", "again"):
                started = time.perf_counter()
                hopplus("fit", model, str(data), *options, "--out", f"{directory}/{attempt}")
                seconds.append(time.perf_counter() - started)
        fits[command] = {"first": seconds[0], "again": seconds[1], "aim": TIMED[command]}
        result = {"rows": header["rows"], "machine": provenance()["machine"], "fits": fits}
        write_text(file, json.dumps(result, indent=2) + "\n")


def fit(name: str) -> None:
    """Start or resume the fit of one experiment, diagnose it and save the results."""
    experiment, run = EXPERIMENTS[name], RUNS / name
    data = collected(experiment.dataset)
    options = [*experiment.options.split(), "--seeds", f"{SEEDS[0]}-{SEEDS[-1]}"]
    if (run / "config.json").exists():
        hopplus("fit", "--resume", str(run))
    else:
        hopplus("fit", experiment.model, str(data), *options, "--out", str(run))
    diagnoses: dict[str, Any] = {}
    for diagnosis in experiment.diagnoses:
        diagnoses[diagnosis] = []
        for seed in DIAGNOSED[diagnosis]:
            file = RUNS / f"{name}.json"
            hopplus("diagnose", diagnosis, str(run), "--seed", str(seed), "--json", str(file))
            diagnoses[diagnosis].append(_without_paths(json.loads(file.read_text())))
            file.unlink()
    config = json.loads((run / "config.json").read_text())
    keys = ("versions", "commit", "machine", "started", "settings", "data", "game", "seeds")
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    result = {
        "name": name,
        "commands": [
            f"hopplus collect DATA {DATASETS[experiment.dataset]}",
            f"hopplus fit {experiment.model} DATA {' '.join(options)}",
        ],
        "config": {key: config[key] for key in keys},
        "seconds": max(line["seconds"] for line in lines),
        "lines": lines,
        "diagnoses": diagnoses,
    }
    SAVED.mkdir(exist_ok=True)
    write_text(SAVED / f"{name}.json", json.dumps(result) + "\n")


def _without_paths(figures: dict[str, Any]) -> dict[str, Any]:
    """Figures without paths of files, and without the epochs, which are in the metrics."""
    return {name: value for name, value in figures.items() if name not in ("run", "dataset", "epochs")}


# ------------------------------------------------------------------------------------------------------------- page


def last(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Last metrics of every seed."""
    final = max(line["iteration"] for line in result["lines"])
    return [line for line in result["lines"] if line["iteration"] == final]


def over_seeds(result: dict[str, Any], name: str, digits: int = 4) -> str:
    """Mean and interval over seeds of a final metric, or an empty text."""
    values = [line[name] for line in last(result) if line.get(name) is not None]
    return interval(values, digits) if values else ""


def table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Markdown table."""
    lines = [" | ".join(cells) for cells in (header, ("---",) * len(header), *rows)]
    return "\n".join(f"| {line} |" for line in lines)


def page_moa(text: Page, results: dict[str, dict[str, Any]]) -> None:
    """Add the section about opponent models."""
    text.add("## Opponent model (MOA)")
    text.add(
        "Held-out episodes of casts sampled as in the notes: 0 to 4 NS, equally likely, the rest NH, seats"
        " shuffled. Both ceilings are exact: the best figures given each player's type, and the best figures of a"
        " Bayesian predictor given the set of types and all players' past actions. Predictions are filtered: they use"
        " the past only. Top-1 given the goal's hindsight label is not a prediction and has its own column. The notes"
        " report 0.6152 and 0.7405, in-sample."
    )
    metrics = ("top1", "top3", "cross_entropy", "share_of_ceiling", "given_goal_top1")
    labels = ("top-1", "top-3", "cross-entropy", "top-1 of the ceiling (history)", "(top-1 given the goal)")
    rows = []
    for name, result in results.items():
        rows.append((EXPERIMENTS[name].label, *(over_seeds(result, metric) for metric in metrics)))
        for which, label in (("history", "ceiling given the history"), ("agent_type", "ceiling given the agent type")):
            line = last(result)[0]
            if f"ceiling_{which}_top1" in line:
                limits = (f"{line[f'ceiling_{which}_{metric}']:.4f}" for metric in metrics[:3])
                rows.append((f"*{label}*", *limits, "", ""))
    text.add(table(("model", *labels), rows))
    if "codes-4x4" in results:
        text.add("Recall by action (codes on 4x4, means over seeds; recall of the exact predictors on the same rows):")
        text.add(_actions(results["codes-4x4"]))


def _actions(result: dict[str, Any]) -> str:
    """Table of the recall of each action."""
    diagnoses = result["diagnoses"]["moa"]
    ceilings = diagnoses[0]["ceilings"]
    rows = []
    for number, row in enumerate(ceilings["agent_type"]["actions"]):
        recalls = [line[f"recall_{row['action']}"] for line in last(result)]
        best = (f"{ceilings[which]['actions'][number]['recall']:.3f}" for which in ("history", "agent_type"))
        rows.append((row["action"], f"{row['count']:,}", f"{row['share']:.3f}", interval(recalls), *best))
    return table(("action", "rows", "share", "recall", "ceiling, history", "ceiling, agent type"), rows)


def page_subgoals(text: Page, results: dict[str, dict[str, Any]]) -> None:
    """Add the section about subgoals."""
    text.add("## Subgoals")
    text.add(
        "These models are trained without labels of agent types or prey. Accuracy of the agent type inferred from a"
        " player's subgoal, by number of observed actions. Codes and clusters are labelled by majority on the training"
        " episodes. For comparison: the exact posterior of a Bayesian observer that knows the agent types, for each"
        " player separately and for all players jointly."
    )
    diagnoses = {name: result["diagnoses"]["subgoals"] for name, result in results.items()}
    steps = (1, 2, 3, 4, 6)
    rows = []
    for name, seeds in diagnoses.items():
        accuracy = [interval([seed["by_time"][step]["agent_type_accuracy"] for seed in seeds]) for step in steps]
        rows.append((EXPERIMENTS[name].label, *accuracy))
        for key, label in (("exact_alone", "exact, separately"), ("exact", "exact, jointly")):
            rows.append((f"*{label}*", *(f"{seeds[0]['by_time'][step][key]:.3f}" for step in steps)))
    text.add(table(("subgoals", *(f"after {step}" for step in steps)), rows))
    text.add("Further information in the subgoals, and the effect of swapping them on the predicted actions:")
    columns = ("purity by agent type", "prey accuracy", "state visited later", "swapped: total variation")
    header = ("subgoals", *columns, "most probable action changes")
    text.add(table(header, [_meaning_row(name, seeds) for name, seeds in diagnoses.items()]))
    gaussian = {name: result for name, result in results.items() if "gaussian" in name}
    if gaussian:
        text.add(
            "The two terms of the autoencoder's loss, separately (held-out). A reconstruction error and an action"
            " cross-entropy are not comparable, which explains the discrepancy in the first note (1.6 against 0)."
        )
        keys = ("reconstruction", "action", "kl", "inference")
        rows = [
            (EXPERIMENTS[name].label, *(over_seeds(result, f"held_out_{key}") for key in keys))
            for name, result in gaussian.items()
        ]
        text.add(table(("subgoals", "reconstruction (MSE)", "action (cross-entropy)", "KL", "inference (KL)"), rows))
    _draw_accuracy(results)
    text.add("![Accuracy of the agent type by number of observed actions](models-subgoals.png)")


def _meaning_row(name: str, seeds: list[dict[str, Any]]) -> tuple[str, ...]:
    """Row about the information in the subgoals of one model; `seeds` are the diagnoses of its seeds."""
    visited = [seed["visited_later"]["share"] for seed in seeds if seed["visited_later"]]
    chance = f" (by chance {seeds[0]['visited_later']['by_chance']:.3f})" if visited else ""
    return (
        EXPERIMENTS[name].label,
        *(interval([seed[key] for seed in seeds]) for key in ("purity_agent_type", "prey_accuracy")),
        interval(visited) + chance if visited else "",
        interval([seed["interventions"]["total_variation"] for seed in seeds]),
        interval([seed["interventions"]["likeliest_action_changes"] for seed in seeds]),
    )


def _draw_accuracy(results: dict[str, dict[str, Any]]) -> None:
    """Draw the accuracy of the inferred agent type by number of observed actions."""
    sizes = [size for size in ("4x4", "8x8") if any(EXPERIMENTS[name].dataset == size for name in results)]
    figure, axes = new_figure(1, len(sizes))
    for column, size in enumerate(sizes):
        chosen = {name: result for name, result in results.items() if EXPERIMENTS[name].dataset == size}
        for number, (name, result) in enumerate(chosen.items()):
            seeds = result["diagnoses"]["subgoals"]
            length = min(len(seed["by_time"]) for seed in seeds)
            accuracy = np.array([[row["agent_type_accuracy"] for row in seed["by_time"][:length]] for seed in seeds])
            colour, label = COLOURS[number], EXPERIMENTS[name].label
            axes[0, column].plot(accuracy.mean(0), "o-", color=colour, label=label, markersize=3)
            axes[0, column].fill_between(range(length), accuracy.min(0), accuracy.max(0), color=colour, alpha=0.15)
        rows = next(iter(chosen.values()))["diagnoses"]["subgoals"][0]["by_time"]
        for key, style, label in (("exact_alone", "--", "exact, separately"), ("exact", ":", "exact, jointly")):
            axes[0, column].plot([row[key] for row in rows], style, color="black", label=label)
        axes[0, column].set_xlabel("observed actions")
        axes[0, column].set_ylabel("accuracy of the agent type")
        axes[0, column].set_title(size, fontsize=9)
        axes[0, column].legend(fontsize=7)
    save_figure(RESULTS / "models-subgoals.png", figure)


def page_world(text: Page, results: dict[str, dict[str, Any]]) -> None:
    """Add the section about world models."""
    text.add("## World model")
    text.add(
        "Held-out episodes of NS, NH and random players, all mixtures equally likely. `dense` is the model of the notes"
        " (which report an observation MSE of 0.0074, a PSNR of 24 dB, a reward MSE of 0.0012, and players that jump"
        " two cells)."
    )
    keys = ("observation_mse", "psnr", "reward_mse", "exact", "exact_10", "impossible")
    rows = []
    for name, result in results.items():
        values = [f"{np.mean([line[key] for line in last(result)]):.4g}" for key in keys]
        worst = min(line["exact"] for line in last(result))
        rows.append((EXPERIMENTS[name].label, *values, f"{worst:.5f}"))
    header = (
        "model",
        "observation MSE",
        "PSNR, dB",
        "reward MSE",
        "exact next state",
        "exact 10 steps ahead",
        "impossible transitions",
        "exact, worst seed",
    )
    text.add(table(header, rows))


def page_times(text: Page, timings: dict[str, Any]) -> None:
    """Add the section about the times of fits."""
    text.add("## Time per fit")
    text.add(
        f"Wall-clock seconds of whole commands, 10 epochs of one seed on {timings['rows']:,} rows of `msh-4x4-4h1s`,"
        " with a cold and with a warm compilation cache (which is on disk by default). Measured by"
        " `python experiments/models.py time`."
    )
    rows = [
        (f"`hopplus fit {command}`", f"{row['first']:.0f}", f"{row['again']:.0f}", f"{row['aim']}")
        for command, row in timings["fits"].items()
    ]
    text.add(table(("fit", "cold", "warm", "target"), rows))


def page() -> None:
    """Write models.md and its figures."""
    results = {name: json.loads(file.read_text()) for name in EXPERIMENTS if (file := SAVED / f"{name}.json").exists()}
    if not results:
        sys.exit("no results are saved yet: python experiments/models.py fit")
    text, first = Page(), next(iter(results.values()))["config"]
    text.add("# Results of opponent and world models")
    text.add(
        "Generated by `python experiments/models.py page` from [the saved results of the runs](models/). To reproduce"
        " them: `python experiments/models.py fit`. Means and 95% intervals over 5 seeds (Student's t), on held-out"
        " episodes."
    )
    text.add(f"Machine: {first['machine']}, jax {first['versions']['jax']}.")
    for diagnosis, write in (("moa", page_moa), ("subgoals", page_subgoals), ("world-model", page_world)):
        chosen = {name: result for name, result in results.items() if diagnosis in EXPERIMENTS[name].diagnoses}
        if chosen:
            write(text, chosen)
            commands = dict.fromkeys(command for result in chosen.values() for command in result["commands"])
            text.add("Commands:")
            text.add("```text\n" + "\n".join(commands) + "\n```")
    if (SAVED / f"{TIMES}.json").exists():
        page_times(text, json.loads((SAVED / f"{TIMES}.json").read_text()))
    write_text(RESULTS / "models.md", text.text())


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["fit", *names]:
            for chosen in names or [name for name in EXPERIMENTS if not (SAVED / f"{name}.json").exists()]:
                print(chosen, flush=True)
                fit(chosen)
        case ["time", *fits]:
            time_fits(fits or list(TIMED))
        case ["page"]:
            page()
        case _:
            sys.exit(__doc__)
