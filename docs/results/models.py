"""The results of the models: `fit` makes datasets and runs, `page` writes models.md from what was kept of them.

python docs/results/models.py fit [NAME ...]    # fits what has no figures yet, into runs/results/
python docs/results/models.py time [FIT ...]     # measures how long fits take, with and without a compilation cache
python docs/results/models.py page              # from docs/results/models/*.json alone
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
from pages import Page, hopplus, interval

from hopplus.files import write_text
from hopplus.report.figures import COLOURS, new_figure, save_figure
from hopplus.training.run import provenance

HERE = Path(__file__).parent
KEPT = HERE / "models"
RUNS = HERE.parent.parent / "runs" / "results"
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
"""Fits, and the seconds that they are to stay below."""
TIMES = "timings"


@dataclass(frozen=True)
class Experiment:
    """Five seeds of a fit; a row in the table of every question that it is asked."""

    label: str
    model: str
    dataset: str
    options: str
    diagnoses: tuple[str, ...]


EXPERIMENTS = {
    "moa-none": Experiment("4x4, none", "moa", "4x4", "--goals none", ("moa",)),
    "moa-prey": Experiment("4x4, prey", "moa", "4x4", "--goals prey", ("moa",)),
    "moa-earning": Experiment("4x4, codes, only players who earned", "moa", "4x4", "--goals codes --earning", ("moa",)),
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
"""Which seeds are diagnosed: of the MOA the first, as the figures of all are in the lines."""


# -------------------------------------------------------------------------------------------------------------- fit


def collected(name: str) -> Path:
    """Where a dataset is, which is made if it is not there."""
    data = RUNS.parent / "data" / name
    if not data.exists():
        hopplus("collect", str(data), *DATASETS[name].split())
    return data


def time_fits(chosen: list[str]) -> None:
    """Wall-clock seconds of whole commands, 10 epochs of one seed: with nothing compiled before, and once more."""
    data, file = collected("4x4-107k"), KEPT / f"{TIMES}.json"
    header = json.loads((data / "header.json").read_text())
    fits = json.loads(file.read_text())["fits"] if file.exists() else {}
    for words in chosen:
        with tempfile.TemporaryDirectory() as directory:
            os.environ["JAX_COMPILATION_CACHE_DIR"] = f"{directory}/cache"
            model, *options = words.split()
            seconds = []
            for attempt in ("first", "again"):
                started = time.perf_counter()
                hopplus("fit", model, str(data), *options, "--out", f"{directory}/{attempt}")
                seconds.append(time.perf_counter() - started)
        fits[words] = {"first": seconds[0], "again": seconds[1], "aim": TIMED[words]}
        kept = {"rows": header["rows"], "machine": provenance()["machine"], "fits": fits}
        write_text(file, json.dumps(kept, indent=2) + "\n")


def fit(name: str) -> None:
    """Fit, or go on fitting, one experiment; then diagnose every seed and keep the figures."""
    experiment, run = EXPERIMENTS[name], RUNS / name
    data = collected(experiment.dataset)
    words = [experiment.model, *experiment.options.split(), "--seeds", f"{SEEDS[0]}-{SEEDS[-1]}"]
    if (run / "config.json").exists():
        hopplus("fit", "--resume", str(run))
    else:
        hopplus("fit", words[0], str(data), *words[1:], "--out", str(run))
    found: dict[str, Any] = {}
    for diagnosis in experiment.diagnoses:
        found[diagnosis] = []
        for seed in DIAGNOSED[diagnosis]:
            file = RUNS / f"{name}.json"
            hopplus("diagnose", diagnosis, str(run), "--seed", str(seed), "--json", str(file))
            found[diagnosis].append(_without_places(json.loads(file.read_text())))
            file.unlink()
    config = json.loads((run / "config.json").read_text())
    keep = ("versions", "commit", "machine", "started", "settings", "data", "game", "seeds")
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    kept = {
        "name": name,
        "commands": [
            f"hopplus collect DATA {DATASETS[experiment.dataset]}",
            f"hopplus fit {words[0]} DATA {' '.join(words[1:])}",
        ],
        "config": {key: config[key] for key in keep},
        "seconds": max(line["seconds"] for line in lines),
        "lines": lines,
        "diagnoses": found,
    }
    KEPT.mkdir(exist_ok=True)
    write_text(KEPT / f"{name}.json", json.dumps(kept) + "\n")


def _without_places(figures: dict[str, Any]) -> dict[str, Any]:
    """Figures without what only says where files are, and without the epochs, which the lines have."""
    return {name: value for name, value in figures.items() if name not in ("run", "dataset", "epochs")}


# ------------------------------------------------------------------------------------------------------------- page


def last(kept: dict[str, Any]) -> list[dict[str, Any]]:
    """Every seed's last line."""
    final = max(line["iteration"] for line in kept["lines"])
    return [line for line in kept["lines"] if line["iteration"] == final]


def over_seeds(kept: dict[str, Any], name: str, digits: int = 4) -> str:
    values = [line[name] for line in last(kept) if line.get(name) is not None]
    return interval(values, digits) if values else ""


def table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [" | ".join(cells) for cells in (header, ("---",) * len(header), *rows)]
    return "\n".join(f"| {line} |" for line in lines)


def page_moa(text: Page, found: dict[str, dict[str, Any]]) -> None:
    text.add("## The model of other agents (MOA)")
    text.add(
        "Held-out episodes of players drawn as in the notes: 0 to 4 NS, equally likely, the others NH, seats"
        " shuffled. The two ceilings are exact: the best possible figures of one who knows each player's kind, and of"
        " a Bayesian who knows the kinds that there are and everybody's past actions. The predictions are filtered,"
        " from the past only; top-1 given the goal's hindsight label is no prediction and stands apart. The notes had"
        " 0.6152 and 0.7405, in-sample."
    )
    figures = ("top1", "top3", "cross_entropy", "share_of_ceiling", "given_goal_top1")
    said = ("top-1", "top-3", "cross-entropy", "top-1 of the ceiling (history)", "(top-1 given the goal)")
    rows = []
    for name, kept in found.items():
        own = (over_seeds(kept, key) for key in figures)
        rows.append((EXPERIMENTS[name].label, *own))
        for which, best in (("history", "best, knowing the history"), ("kind", "best, knowing the kind")):
            line = last(kept)[0]
            if f"ceiling_{which}_top1" in line:
                limits = (f"{line[f'ceiling_{which}_{key}']:.4f}" for key in figures[:3])
                rows.append((f"*{best}*", *limits, "", ""))
    text.add(table(("model", *said), rows))
    if "codes-4x4" in found:
        text.add("Action by action (codes on 4x4, means over seeds; the best predictors' recall on the same rows):")
        text.add(_actions(found["codes-4x4"]))


def _actions(kept: dict[str, Any]) -> str:
    diagnoses = kept["diagnoses"]["moa"]
    ceilings = diagnoses[0]["ceilings"]
    rows = []
    for number, row in enumerate(ceilings["kind"]["actions"]):
        own = [line[f"recall_{row['action']}"] for line in last(kept)]
        best = (f"{ceilings[which]['actions'][number]['recall']:.3f}" for which in ("history", "kind"))
        rows.append((row["action"], f"{row['count']:,}", f"{row['share']:.3f}", interval(own), *best))
    return table(("action", "rows", "share", "recall", "best, history", "best, kind"), rows)


def page_subgoals(text: Page, found: dict[str, dict[str, Any]]) -> None:
    text.add("## Subgoals")
    text.add(
        "Nobody tells these models of kinds or prey. How often the kind of a player is told right from its subgoal"
        " after so many of its actions were seen (codes and clusters get their names by majority on the episodes"
        " learnt from), beside the exact posterior of a Bayesian who knows the kinds and looks at each player alone,"
        " or at all together."
    )
    steps = (1, 2, 3, 4, 6)
    rows = []
    for name, kept in found.items():
        seeds = kept["diagnoses"]["subgoals"]
        told = [interval([one["by_time"][step]["kind_told"] for one in seeds]) for step in steps]
        rows.append((EXPERIMENTS[name].label, *told))
        for key, said in (("exact_alone", "exact, alone"), ("exact", "exact, together")):
            rows.append((f"*{said}*", *(f"{seeds[0]['by_time'][step][key]:.3f}" for step in steps)))
    text.add(table(("subgoals", *(f"after {step}" for step in steps)), rows))
    text.add("What else they say, and what swapping one does to the predicted actions:")
    rows = []
    for name, kept in found.items():
        seeds = kept["diagnoses"]["subgoals"]
        visited = [one["visited_later"]["share"] for one in seeds if one["visited_later"]]
        chance = f" (by chance {seeds[0]['visited_later']['by_chance']:.3f})" if visited else ""
        rows.append(
            (
                EXPERIMENTS[name].label,
                *(interval([one[key] for one in seeds]) for key in ("purity_kind", "prey_accuracy")),
                interval(visited) + chance if visited else "",
                interval([one["interventions"]["total_variation"] for one in seeds]),
                interval([one["interventions"]["likeliest_action_changes"] for one in seeds]),
            )
        )
    text.add(
        table(
            (
                "subgoals",
                "purity by kind",
                "prey told",
                "state visited later",
                "swapped: total variation",
                "likeliest action changes",
            ),
            rows,
        )
    )
    gaussian = {name: kept for name, kept in found.items() if "gaussian" in name}
    if gaussian:
        text.add(
            "The two terms of the autoencoder, apart (held-out): a reconstruction error and an action cross-entropy"
            " are not comparable, which was the puzzle of the first note (1.6 against 0)."
        )
        keys = ("reconstruction", "action", "kl", "inference")
        rows = [
            (EXPERIMENTS[name].label, *(over_seeds(kept, f"held_out_{key}") for key in keys))
            for name, kept in gaussian.items()
        ]
        text.add(table(("subgoals", "reconstruction (MSE)", "action (cross-entropy)", "KL", "inference (KL)"), rows))
    _draw_told(found)
    text.add("![How often the kind is told right](models-subgoals.png)")


def _draw_told(found: dict[str, dict[str, Any]]) -> None:
    sizes = [size for size in ("4x4", "8x8") if any(EXPERIMENTS[name].dataset == size for name in found)]
    figure, axes = new_figure(1, len(sizes))
    for column, size in enumerate(sizes):
        chosen = {name: kept for name, kept in found.items() if EXPERIMENTS[name].dataset == size}
        for number, (name, kept) in enumerate(chosen.items()):
            seeds = kept["diagnoses"]["subgoals"]
            length = min(len(one["by_time"]) for one in seeds)
            told = np.array([[row["kind_told"] for row in one["by_time"][:length]] for one in seeds])
            axes[0, column].plot(told.mean(0), "o-", color=COLOURS[number], label=EXPERIMENTS[name].label, markersize=3)
            axes[0, column].fill_between(range(length), told.min(0), told.max(0), color=COLOURS[number], alpha=0.15)
        rows = next(iter(chosen.values()))["diagnoses"]["subgoals"][0]["by_time"]
        for key, style in (("exact_alone", "--"), ("exact", ":")):
            axes[0, column].plot([row[key] for row in rows], style, color="black", label=key.replace("_", ", "))
        axes[0, column].set_xlabel("actions seen")
        axes[0, column].set_title(f"{size}: kind told right", fontsize=9)
        axes[0, column].legend(fontsize=7)
    save_figure(HERE / "models-subgoals.png", figure)


def page_world(text: Page, found: dict[str, dict[str, Any]]) -> None:
    text.add("## The world model")
    text.add(
        "Held-out episodes of NS, NH and random players, every mixture equally likely. `dense` is the notes' kind"
        " (they had an observation MSE of 0.0074, a PSNR of 24 dB, a reward MSE of 0.0012, and players that jump two"
        " cells)."
    )
    keys = ("observation_mse", "psnr", "reward_mse", "exact", "exact_10", "impossible")
    rows = []
    for name, kept in found.items():
        values = [f"{np.mean([line[key] for line in last(kept)]):.4g}" for key in keys]
        worst = min(line["exact"] for line in last(kept))
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


def page_times(text: Page, kept: dict[str, Any]) -> None:
    text.add("## How long a fit takes")
    text.add(
        f"Wall-clock seconds of whole commands, 10 epochs of one seed on {kept['rows']:,} rows of `msh-4x4-4h1s`: the"
        " first time, with everything to compile, and again, with what was compiled kept on disk (as it is by default)."
        " `python docs/results/models.py time`."
    )
    rows = [
        (f"`hopplus fit {words}`", f"{row['first']:.0f}", f"{row['again']:.0f}", f"{row['aim']}")
        for words, row in kept["fits"].items()
    ]
    text.add(table(("fit", "first", "again", "aim"), rows))


def page() -> None:
    """Write models.md and its pictures."""
    found = {name: json.loads(file.read_text()) for name in EXPERIMENTS if (file := KEPT / f"{name}.json").exists()}
    if not found:
        sys.exit("nothing is kept yet: python docs/results/models.py fit")
    text, first = Page(), next(iter(found.values()))["config"]
    text.add("# Results of the models of others and of the world")
    text.add(
        "Generated by `python docs/results/models.py page` from [the figures kept of the runs](models/), which"
        " `python docs/results/models.py fit` makes anew. Means and 95% intervals over 5 seeds (Student's t), on"
        " held-out episodes."
    )
    text.add(f"Machine: {first['machine']}, jax {first['versions']['jax']}.")
    for question, write in (("moa", page_moa), ("subgoals", page_subgoals), ("world-model", page_world)):
        chosen = {name: kept for name, kept in found.items() if question in EXPERIMENTS[name].diagnoses}
        if chosen:
            write(text, chosen)
            commands = dict.fromkeys(command for kept in chosen.values() for command in kept["commands"])
            text.add("Commands:")
            text.add("```text\n" + "\n".join(commands) + "\n```")
    if (KEPT / f"{TIMES}.json").exists():
        page_times(text, json.loads((KEPT / f"{TIMES}.json").read_text()))
    write_text(HERE / "models.md", text.text())


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["fit", *names]:
            for chosen in names or [name for name in EXPERIMENTS if not (KEPT / f"{name}.json").exists()]:
                print(chosen, flush=True)
                fit(chosen)
        case ["time", *fits]:
            time_fits(fits or list(TIMED))
        case ["page"]:
            page()
        case _:
            sys.exit(__doc__)
