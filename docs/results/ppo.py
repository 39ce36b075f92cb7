"""The results of PPO: `page` writes ppo.md and its pictures from what was kept of the trainings of ppo.toml.

hopplus sweep docs/results/ppo.toml --out runs/results/ppo    # trains and judges
python docs/results/ppo.py keep [NAME ...]                    # of these, what is done by now
python docs/results/ppo.py page                               # from docs/results/ppo/*.json alone
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pages import RUNS, Figures, Page, by_seed, condensed_run, interval, keep, load_kept

from hopplus.files import write_text
from hopplus.report.figures import COLOURS, label_steps, new_figure, save_figure
from hopplus.sweeps.plan import Cell

HERE = Path(__file__).parent
KEPT = HERE / "ppo"
SWEEP = RUNS / "ppo"
CURVES = ("return", "value_loss", "entropy", "staleness")
"""What of a run is kept as a curve."""


@dataclass(frozen=True)
class Experiment:
    """One row of a table: a cell of ppo.toml."""

    section: str
    label: str


EXPERIMENTS = {
    "4x4": Experiment("4x4", "self-play, one network for all seats"),
    "4x4-independent": Experiment("4x4", "self-play, one network a seat"),
    **{f"4x4-seat-{seat}": Experiment("one", f"learner in seat {seat}") for seat in range(4)},
    "4x4-buffer-5000": Experiment("buffer", "buffer of 144 episodes (5,040 rows a seat at most)"),
    "4x4-buffer-20000": Experiment("buffer", "buffer of 576 episodes (20,160 rows a seat at most)"),
    "msg-4x4": Experiment("msg", "msg-4x4, self-play"),
    "msg-8x8": Experiment("msg", "msg-8x8, self-play"),
    "8x8": Experiment("8x8", "plain, 5 block pieces"),
    "8x8-open": Experiment("8x8", "plain, no blocks"),
    "8x8-lone": Experiment("8x8", "lone STAG legal throughout, 5 block pieces"),
    "8x8-open-lone": Experiment("8x8", "lone STAG legal throughout, no blocks"),
    "8x8-rules": Experiment("8x8", "curriculum: lone STAG legal at first"),
    "8x8-no-hares": Experiment("8x8", "curriculum: lone STAG legal and no hares at first"),
    "8x8-guests": Experiment("8x8", "curriculum: NS guests in half of the seats at first, annealed to none"),
}
OWN_CAST = "own cast"
"""How the evaluations are called that take place in the cast of the training."""


def condensed(cell: Cell, found: Figures) -> dict[str, Any]:
    """What is kept of a cell."""
    return condensed_run(cell, found, CURVES)


# ------------------------------------------------------------------------------------------------------------- page


def row(name: str, kept: dict[str, Any]) -> str:
    ceiling = kept["config"]["ceilings"]["mean"]
    sampled, greedy = by_seed(kept, f"{OWN_CAST}, sampled"), by_seed(kept, f"{OWN_CAST}, greedy")
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
        sys.exit("nothing is kept yet: python docs/results/ppo.py keep")
    first = next(iter(found.values()))["config"]
    text.add("# Results of PPO")
    text.add(
        "Generated by `python docs/results/ppo.py page` from [the figures kept of the runs](ppo/), which"
        " `hopplus sweep docs/results/ppo.toml --out runs/results/ppo` and `python docs/results/ppo.py keep` make anew."
        " Means and 95% intervals over seeds (Student's t); each seed's figure is the mean of 2,000 episodes from fresh"
        " states. Curves: mean over seeds, shaded from the lowest seed to the highest."
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
            _met(text, found[name])
        text.add("Commands:")
        text.add("```text\n" + "\n".join(found[name]["command"] for name in names) + "\n```")
    write_text(HERE / "ppo.md", text.text())


def _met(text: Page, kept: dict[str, Any]) -> None:
    """How frozen policies fare against others."""
    casts = [
        cast for cast in dict.fromkeys(name.rpartition(", ")[0] for name in kept["evaluations"]) if cast != OWN_CAST
    ]
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
        case ["keep", *names]:
            keep(SWEEP, KEPT, names, condensed)
        case ["page"]:
            page()
        case _:
            sys.exit(__doc__)
