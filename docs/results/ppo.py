"""The results of PPO: `train` makes the runs, `page` writes ppo.md and its pictures from what was kept of them.

python docs/results/ppo.py train [NAME ...]    # trains what has no figures yet, into runs/results/
python docs/results/ppo.py page                # from docs/results/ppo/*.json alone
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pages import Page, by_seed, hopplus, interval, load_kept, train_or_go_on

from hopplus.files import write_text
from hopplus.report.figures import COLOURS, label_steps, new_figure, save_figure

HERE = Path(__file__).parent
KEPT = HERE / "ppo"
RUNS = HERE.parent.parent / "runs" / "results"
POINTS = 60
"""How many points of a curve are kept."""
CURVES = ("return", "value_loss", "entropy", "staleness")
"""What of a run is kept as a curve, by seat that learns."""


@dataclass(frozen=True)
class Experiment:
    """One row of the table: a training of five seeds, and how what it learnt is judged."""

    section: str
    label: str
    options: str
    against: tuple[str, ...] = ()
    """Casts to meet with weights frozen, beside the one it was trained in."""
    seeds: str = "0-4"


LARGE = "--environments 256 --game msh-8x8-4h1s"
LONE = ":stag_needs_company=False"
EXPERIMENTS = {
    "4x4": Experiment(
        "4x4",
        "self-play, one network for all seats",
        "--steps 1000000",
        ("self,ns,ns,ns", "self,nh,nh,nh", "self,random,random,random"),
    ),
    "4x4-independent": Experiment("4x4", "self-play, one network a seat", "--steps 1000000 --parameters independent"),
    **{
        f"4x4-seat-{seat}": Experiment(
            "one",
            f"learner in seat {seat}",
            f"--cast {','.join('learner' if other == seat else 'ns' for other in range(4))} --steps 400000",
        )
        for seat in range(4)
    },
    "4x4-buffer-5000": Experiment(
        "buffer",
        "buffer of 144 episodes (5,040 rows a seat at most)",
        "--steps 300000 --environments 72 --buffer-episodes 144",
    ),
    "4x4-buffer-20000": Experiment(
        "buffer",
        "buffer of 576 episodes (20,160 rows a seat at most)",
        "--steps 300000 --environments 72 --buffer-episodes 576",
    ),
    "msg-4x4": Experiment("msg", "msg-4x4, self-play", "--game msg-4x4 --steps 400000"),
    "msg-8x8": Experiment("msg", "msg-8x8, self-play", "--game msg-8x8 --steps 500000"),
    "8x8": Experiment("8x8", "plain, 5 block pieces", f"{LARGE} --steps 500000"),
    "8x8-open": Experiment("8x8", "plain, no blocks", f"{LARGE}:blocks=0 --steps 500000"),
    "8x8-lone": Experiment("8x8", "lone STAG legal throughout, 5 block pieces", f"{LARGE}{LONE} --steps 500000"),
    "8x8-open-lone": Experiment(
        "8x8", "lone STAG legal throughout, no blocks", f"{LARGE}:blocks=0{LONE} --steps 500000"
    ),
    "8x8-rules": Experiment(
        "8x8",
        "curriculum: lone STAG legal at first",
        f"{LARGE} --steps 1200000 --until 1000000:stag_needs_company=False",
    ),
    "8x8-no-hares": Experiment(
        "8x8",
        "curriculum: lone STAG legal and no hares at first",
        f"{LARGE} --steps 1200000 --until 600000:stag_needs_company=False:hares=0",
    ),
    "8x8-guests": Experiment(
        "8x8",
        "curriculum: NS guests in half of the seats at first, annealed to none",
        f"{LARGE} --steps 2000000 --guest ns --guest-share 0.5 --guest-steps 1000000",
    ),
}


# ------------------------------------------------------------------------------------------------------------ train


def train(name: str) -> None:
    """Train, or go on training, one experiment; then judge it and keep its figures."""
    experiment, run = EXPERIMENTS[name], RUNS / name
    words = ["train", "ppo", *experiment.options.split(), "--seeds", experiment.seeds]
    train_or_go_on(run, words)
    evaluations = {}
    for cast in ("", *experiment.against):
        for how in ("sampled", "greedy"):
            file = RUNS / f"{name}.evaluation.json"
            chosen = [*(["--cast", cast] if cast else []), *(["--greedy"] if how == "greedy" else [])]
            hopplus("evaluate", str(run), *chosen, "--episodes", "2000", "--json", str(file))
            evaluations[f"{cast or 'own cast'}, {how}"] = json.loads(file.read_text())
            file.unlink()
    KEPT.mkdir(exist_ok=True)
    write_text(KEPT / f"{name}.json", json.dumps(figures_of(name, run, words, evaluations)) + "\n")


def figures_of(
    name: str, run: Path, words: list[str], evaluations: dict[str, Any], curves_of: tuple[str, ...] = CURVES
) -> dict[str, Any]:
    """What is kept of a run."""
    config = json.loads((run / "config.json").read_text())
    final = json.loads((run / "evaluation" / "final.json").read_text())
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    curves = {}
    for seed in config["seeds"]:
        own = [line for line in lines if line["seed"] == seed]
        chosen = np.unique(np.linspace(0, len(own) - 1, POINTS).round().astype(int))
        picked = [own[index] for index in chosen]
        curves[str(seed)] = {
            "steps": [line["steps"] for line in picked],
            "seconds": [round(line["seconds"], 1) for line in picked],
            **{
                key: [_rounded([line[key][seat] for seat in config["learners"]]) for line in picked]
                for key in curves_of
                if key in picked[0]
            },
        }
    keep = ("versions", "commit", "machine", "started", "settings", "training", "seeds", "learners", "ceilings")
    brief = {
        key: {part: found[part] for part in ("mean_return", "own_return", "own_standard_error", "per_seat", "per_seed")}
        for key, found in evaluations.items()
    }
    return {
        "name": name,
        "command": "hopplus " + " ".join(words),
        "seconds": final["seconds"],
        "config": {key: config[key] for key in keep},
        "curves": curves,
        "evaluations": brief,
    }


def _rounded(values: list[float | None]) -> list[float | None]:
    return [None if value is None else round(value, 4) for value in values]


# ------------------------------------------------------------------------------------------------------------- page


def row(name: str, kept: dict[str, Any]) -> str:
    ceiling = kept["config"]["ceilings"]["mean"]
    sampled, greedy = by_seed(kept, "own cast, sampled"), by_seed(kept, "own cast, greedy")
    steps = kept["config"]["training"]["steps"]
    cells = (
        EXPERIMENTS[name].label,
        f"{steps / 1e6:g} M",
        interval(sampled),
        interval(greedy),
        f"{min(sampled):.2f} to {max(sampled):.2f}",
        f"{100 * np.mean(sampled) / ceiling:.1f}%",
        f"{kept['seconds'] / 60:.1f}",
    )
    return "| " + " | ".join(cells) + " |"


HEADER = (
    "| training | steps a seed | return, sampled | return, greedy | from, to | of ceiling | minutes, all seeds |\n"
    "|---|---|---|---|---|---|---|"
)


def draw(path: Path, found: dict[str, dict[str, Any]], names: list[str], key: str = "return") -> None:
    """Learning curves: mean over the seats that learn, mean and range over seeds."""
    figure, axes = new_figure(1, 1)
    axis = axes[0, 0]
    for number, name in enumerate(names):
        curves = found[name]["curves"].values()
        length = min(len(curve["steps"]) for curve in curves)
        steps = np.array(next(iter(curves))["steps"][:length])
        values = np.array(
            [[np.nanmean(np.array(row, float)) for row in curve[key][:length]] for curve in curves], float
        )
        colour = COLOURS[number % len(COLOURS)]
        axis.plot(steps, values.mean(0), color=colour, label=EXPERIMENTS[name].label)
        axis.fill_between(steps, values.min(0), values.max(0), color=colour, alpha=0.15)
    label_steps(axis)
    axis.set_ylabel(key.replace("_", " "))
    figure.legend(loc="outside lower center", fontsize=7)
    save_figure(path, figure)


TEXTS = {
    "4x4": ("Self-play on msh-4x4-4h1s", "The ceiling of the mean is 3 (two on the stag, two on hares)."),
    "one": (
        "One learner with three NS on msh-4x4-4h1s, at each seat in turn",
        "The return is the learner's own; the share is of the mean's ceiling, which a single player may exceed.",
    ),
    "buffer": ("Episode buffers on msh-4x4-4h1s", "Beside the on-policy self-play above."),
    "msg": ("The snowdrift game", "The ceiling of the mean is 30."),
    "8x8": (
        "The large board, msh-8x8-4h1s",
        "Everyone hunting hares is worth 1 at best, two on the stag and two on hares 3.",
    ),
}


def page() -> None:
    """Write ppo.md and its pictures."""
    found, text = load_kept(KEPT, EXPERIMENTS), Page()
    if not found:
        sys.exit("nothing is kept yet: python docs/results/ppo.py train")
    first = next(iter(found.values()))["config"]
    text.add("# Results of PPO")
    text.add(
        "Generated by `python docs/results/ppo.py page` from [the figures kept of the runs](ppo/), which"
        " `python docs/results/ppo.py train` makes anew. Means and 95% intervals over seeds (Student's t); each seed's"
        " figure is the mean of 2,000 episodes from fresh states. Curves: mean over seeds, shaded from the lowest seed"
        " to the highest."
    )
    text.add(f"Machine: {first['machine']}, jax {first['versions']['jax']}. Other jobs ran beside these trainings, so")
    text.lines[-2] += " the minutes are upper bounds; speed is measured by `hopplus bench ppo`."
    for section, (title, remark) in TEXTS.items():
        names = [name for name in found if EXPERIMENTS[name].section == section]
        if not names:
            continue
        text.add(f"## {title}")
        text.add(remark)
        text.add(HEADER + "\n" + "\n".join(row(name, found[name]) for name in names))
        drawn = ["4x4", *names] if section == "buffer" and "4x4" in found else names
        draw(HERE / f"ppo-{section}.png", found, drawn)
        text.add(f"![Learning curves: {title}](ppo-{section}.png)")
        if section == "one":
            draw(HERE / "ppo-one-value-loss.png", found, names, "value_loss")
            text.add("![Value losses of the learner at each seat](ppo-one-value-loss.png)")
        for name in names:
            _met(text, name, found[name])
        text.add("Commands:")
        text.add("```text\n" + "\n".join(found[name]["command"] for name in names) + "\n```")
    write_text(HERE / "ppo.md", text.text())


def _met(text: Page, name: str, kept: dict[str, Any]) -> None:
    """How frozen policies fare against others."""
    casts = EXPERIMENTS[name].against
    if not casts:
        return
    text.add("The same policies, frozen, in seat 0 beside players that they have never met (own return):")
    rows = [
        f"| {cast} | {interval(by_seed(kept, f'{cast}, sampled'))} | {interval(by_seed(kept, f'{cast}, greedy'))} |"
        for cast in casts
    ]
    text.add("| cast | sampled | greedy |\n|---|---|---|\n" + "\n".join(rows))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["train", *names]:
            for chosen in names or [name for name in EXPERIMENTS if not (KEPT / f"{name}.json").exists()]:
                print(chosen, flush=True)
                train(chosen)
        case ["page"]:
            page()
        case _:
            sys.exit(__doc__)
