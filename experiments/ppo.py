"""Results of PPO: `page` writes ppo.md and its figures from the saved results of ppo.toml.

hopplus sweep experiments/ppo.toml --out runs/results/ppo    # train and evaluate
python experiments/ppo.py keep [NAME ...]                    # save the results of finished cells
python experiments/ppo.py page                               # reads docs/results/ppo/*.json only
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np

from hopplus.core.files import write_text
from hopplus.sweeps.plan import Cell
from hopplus.visualization.figures import COLOURS, label_steps, new_figure, save_figure
from pages import RESULTS, RUNS, Experiment, Figures, Page, by_seed, condensed_run, interval, keep, load_saved

SAVED = RESULTS / "ppo"
SWEEP = RUNS / "ppo"
CURVES = ("return", "value_loss", "entropy", "staleness")
"""Metrics whose curves are saved."""


EXPERIMENTS = {
    "4x4": Experiment("4x4", "self-play, one network for all seats"),
    "4x4-independent": Experiment("4x4", "self-play, one network per seat"),
    **{f"4x4-seat-{seat}": Experiment("one", f"learner in seat {seat}") for seat in range(4)},
    "4x4-buffer-5000": Experiment("buffer", "buffer of 144 episodes (at most 5,040 rows per seat)"),
    "4x4-buffer-20000": Experiment("buffer", "buffer of 576 episodes (at most 20,160 rows per seat)"),
    "msg-4x4": Experiment("msg", "msg-4x4, self-play"),
    "msg-8x8": Experiment("msg", "msg-8x8, self-play"),
    "8x8": Experiment("8x8", "plain, 5 block pieces"),
    "8x8-open": Experiment("8x8", "plain, no blocks"),
    "8x8-lone": Experiment("8x8", "lone STAG legal throughout, 5 block pieces"),
    "8x8-open-lone": Experiment("8x8", "lone STAG legal throughout, no blocks"),
    "8x8-rules": Experiment("8x8", "curriculum: lone STAG legal at first"),
    "8x8-no-hares": Experiment("8x8", "curriculum: lone STAG legal and no hares at first"),
    "8x8-partner": Experiment("8x8", "curriculum: NS partners in half of the seats at first, annealed to zero"),
}
OWN_CAST = "own cast"
"""Prefix of the evaluations in the cast of the training."""


def condensed(cell: Cell, run: Figures) -> dict[str, Any]:
    """Results to save of a cell."""
    return condensed_run(cell, run, CURVES)


# ------------------------------------------------------------------------------------------------------------- page


def row(name: str, result: dict[str, Any]) -> str:
    """Row of a table of trainings."""
    ceiling = result["config"]["ceilings"]["mean"]
    sampled, greedy = by_seed(result, f"{OWN_CAST}, sampled"), by_seed(result, f"{OWN_CAST}, greedy")
    steps = result["config"]["training"]["steps"]
    cells = (
        EXPERIMENTS[name].label,
        f"{steps / 1e6:g} M",
        interval(sampled),
        interval(greedy),
        f"{min(sampled):.2f} to {max(sampled):.2f}",
        f"{100 * np.mean(sampled) / ceiling:.1f}%",
        f"{result['seconds'] / 60:.1f}",
    )
    return "| " + " | ".join(cells) + " |"


HEADER = (
    "| training | steps per seed | return, sampled | return, greedy | range | of ceiling | minutes, all seeds |\n"
    "|---|---|---|---|---|---|---|"
)


def draw(path: Path, results: dict[str, dict[str, Any]], names: list[str], key: str = "return") -> None:
    """Draw learning curves: mean over the learners' seats, mean and range over seeds."""
    figure, axes = new_figure(1, 1)
    axis = axes[0, 0]
    for number, name in enumerate(names):
        curves = results[name]["curves"].values()
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
    "4x4": (
        "Self-play on msh-4x4-4h1s",
        "The ceiling of the mean return is 3 (two players hunt the stag, two hunt hares).",
    ),
    "one": (
        "One learner with three NS on msh-4x4-4h1s, at each seat",
        "The return is that of the learner. Its share refers to the ceiling of the mean return, which a single player"
        " may exceed.",
    ),
    "buffer": ("Episode buffers on msh-4x4-4h1s", "The chart also shows the on-policy self-play above."),
    "msg": ("Snowdrift game", "The ceiling of the mean return is 30."),
    "8x8": (
        "Large board, msh-8x8-4h1s",
        "The mean return is at most 1 if all players hunt hares, and 3 if two hunt the stag and two hunt hares.",
    ),
}


def page() -> None:
    """Write ppo.md and its figures."""
    results, text = load_saved(SAVED, EXPERIMENTS), Page()
    if not results:
        sys.exit("no results are saved yet: python experiments/ppo.py keep")
    first = next(iter(results.values()))["config"]
    text.add("# Results of PPO")
    text.add(
        "Generated by `python experiments/ppo.py page` from [the saved results of the runs](ppo/). To reproduce them:"
        " `hopplus sweep experiments/ppo.toml --out runs/results/ppo`, then `python experiments/ppo.py keep`."
        " Means and 95% intervals over seeds (Student's t); the figure of each seed is the mean of 2,000 episodes from"
        " fresh states. Curves show the mean over seeds, and shading the range from the lowest to the highest seed."
    )
    text.add(
        f"Machine: {first['machine']}, jax {first['versions']['jax']}. Other jobs ran at the same time, so the minutes"
        " are upper bounds. `hopplus bench ppo` measures the speed."
    )
    for section, (title, remark) in TEXTS.items():
        names = [name for name in results if EXPERIMENTS[name].section == section]
        if not names:
            continue
        text.add(f"## {title}")
        text.add(remark)
        text.add(HEADER + "\n" + "\n".join(row(name, results[name]) for name in names))
        drawn = ["4x4", *names] if section == "buffer" and "4x4" in results else names
        draw(RESULTS / f"ppo-{section}.png", results, drawn)
        text.add(f"![Learning curves: {title}](ppo-{section}.png)")
        if section == "one":
            draw(RESULTS / "ppo-one-value-loss.png", results, names, "value_loss")
            text.add("![Value loss of the learner at each seat](ppo-one-value-loss.png)")
        for name in names:
            _add_unseen(text, results[name])
        text.add("Commands:")
        text.add("```text\n" + "\n".join(results[name]["command"] for name in names) + "\n```")
    write_text(RESULTS / "ppo.md", text.text())


def _add_unseen(text: Page, result: dict[str, Any]) -> None:
    """Add a table of the frozen policies with unseen co-players."""
    casts = [
        cast for cast in dict.fromkeys(name.rpartition(", ")[0] for name in result["evaluations"]) if cast != OWN_CAST
    ]
    if not casts:
        return
    text.add("The same policies, frozen, in seat 0 with unseen co-players (own return):")
    rows = [
        f"| {cast} | {interval(by_seed(result, f'{cast}, sampled'))} | {interval(by_seed(result, f'{cast}, greedy'))} |"
        for cast in casts
    ]
    text.add("| cast | sampled | greedy |\n|---|---|---|\n" + "\n".join(rows))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["keep", *names]:
            keep(SWEEP, SAVED, names, condensed)
        case ["page"]:
            page()
        case _:
            sys.exit(__doc__)
