"""The contest: HOP+ beside what a careful researcher would try first. `page` writes contest.md from what was kept.

hopplus sweep docs/results/contest.toml --out runs/results/contest    # trains and judges
python docs/results/contest.py keep [NAME ...]    # of these, what is done by now
python docs/results/contest.py cross              # cross-play of all runs of a game and regime
python docs/results/contest.py page               # from docs/results/contest/*.json alone
"""

import json
import sys
from collections.abc import Mapping
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
    figures_from,
    head,
    interval,
    keep,
    load_kept,
    rounded,
    sweep_in,
)

from hopplus.evaluation.statistics import compare, estimate
from hopplus.files import write_text
from hopplus.report.adaptation import draw_adaptation
from hopplus.report.crossplay import draw_crossplay
from hopplus.sweeps.plan import Cell, read_plan

HERE = Path(__file__).parent
KEPT = HERE / "contest"
SWEEP = RUNS / "contest"
PLAN = read_plan(HERE / "contest.toml")
NUMBER_OF_SEEDS = 5


METHODS = {
    "ppo": "PPO",
    "curriculum": "PPO, a lone STAG legal in the first half",
    "prosocial": "prosocial PPO",
    "recurrent": "PPO with a recurrent memory",
    "liam": "LIAM",
    "direct-om": "direct opponent modelling",
    "omg": "OMG",
    "hop": "HOP, 3 x 32 simulations instead of 5 x 200, a tenth of the steps",
    "hopplus": "HOP+, codes",
    "no-inter": "HOP+, codes, nothing kept between episodes",
    "tastes": "direct opponent modelling, tastes",
    "hopplus-tastes": "HOP+, codes, tastes",
    "hopplus-guests": "HOP+, prey, tastes, guests as hopeful as its own model of others",
}
"""What the rows of the tables are called."""
CROSSED = ("ppo", "prosocial", "recurrent", "liam", "hopplus", "hopplus-tastes", "hopplus-guests")
"""Who takes part in cross-play: the main rows; every pair is a program to compile, and a search takes long."""


@dataclass(frozen=True)
class Board:
    """A game of the contest."""

    scripts: str
    """Whom learners meet in the regime `pool`, and all of them in cross-play."""
    methods: Mapping[str, tuple[str, ...]]
    """By regime; the last is what is compared with all others."""


RIVALS = ("ppo", "prosocial", "recurrent", "liam", "direct-om", "omg", "hop")
BOARDS = {
    "4x4": Board(
        "ns,nh,random",
        {"self": (*RIVALS, "curriculum", "hopplus", "tastes", "hopplus-tastes"), "pool": (*RIVALS, "hopplus")},
    ),
    "8x8": Board("ns,nh,random", {"self": ("ppo", "hopplus-guests"), "pool": ("ppo", "hopplus")}),
    "msg": Board(
        "cleaner,exploiter,random",
        {
            "self": ("ppo", "hopplus", "hopplus-tastes"),
            "pool": ("ppo", "recurrent", "direct-om", "no-inter", "hopplus"),
        },
    ),
}
REGIMES = {
    "self": "Self-play: nobody but the learner itself has been met in training, so that every set is held out. Tastes:"
    " learners at a table differ in what they like of what can be earned, each learning by its own taste, and one kind"
    " is clumsy (half of its actions are random legal ones); no script is there, and the rules are those of the game."
    " Who is judged likes what the game pays for, and is not clumsy.",
    "pool": "Trained with itself and {scripts}, every composition of the table equally likely. Sets of these players"
    " are not held out then; who learns to tell them apart has an advantage.",
}


WHY = {
    ("4x4", "self"): "It is the tastes that make the difference: without them nobody has ever sat beside somebody who"
    " wants something else, and neither a memory nor goals nor a search make up for that; with them, goals add nothing"
    " that could be told from noise. Beside random players, who are beside a stag with somebody else only by chance,"
    " nobody comes near the oracle.",
    ("4x4", "pool"): "Why HOP+ is not ahead of all: whoever has trained with these players does well even if it keeps"
    " nothing between episodes, as PPO, so that there is little left for beliefs to win; what is left is mostly random"
    " players.",
    ("8x8", "self"): "PPO has learnt to hunt hares alone, which is as good as can be beside hare hunters, and bad"
    " beside all others. HOP+ hunts stags together, and has only begun to learn when not to: beside defectors it is"
    " still getting better when the steps end.",
    ("8x8", "pool"): "Why HOP+ is not ahead: beside defectors both are still learning when the steps end, so that it is"
    " not yet adaptation that is compared.",
    ("msg", "self"): "The tastes, as in the stag hunt: nobody else has met somebody who does not like to clear snow.",
    ("msg", "pool"): "What counts is a memory of the episodes before: the two that have one, goals or a recurrent"
    " network, are ahead of all others, nearly all of it beside exploiters, and cannot be told apart. The oracle knows"
    " from the start that exploiters will not help.",
}
"""What a reader should make of each table, in words that hold for the figures that are kept."""


def experiments() -> dict[str, tuple[str, str, str]]:
    """Board, regime and method of every run, by its name."""
    return {
        f"{board}-{regime}-{name}": (board, regime, name)
        for board, played in BOARDS.items()
        for regime in REGIMES
        for name in played.methods[regime]
    }


# ------------------------------------------------------------------------------------------------------------- keep


def condensed(cell: Cell, found: Figures) -> dict[str, Any]:
    """What is kept of a cell."""
    return {
        **condensed_run(cell, found, ("return",)),
        "adaptation": [_brief(row) for row in adaptation_rows(found)],
    }


def _brief(row: Mapping[str, Any]) -> dict[str, Any]:
    brief = ("set", "seating", "split", "regime", "met_before", "remembers", "score")
    points = ("episode", "mean", "low", "high", "oracle")
    return {
        **{key: row[key] for key in brief},
        "curve": [{key: rounded(point[key]) for key in points} for point in row["curve"]],
    }


def cross() -> None:
    """Let all runs of a game and regime that are done meet each other."""
    sweep = sweep_in(SWEEP)
    done = {cell.name: str(sweep.run_path(cell)) for cell in sweep.plan.cells if sweep.is_done(cell)}
    for board, played in BOARDS.items():
        for regime in REGIMES:
            met = [name for name, where in experiments().items() if where[:2] == (board, regime)]
            met = [name for name in met if experiments()[name][2] in CROSSED]
            runs = [done[name] for name in met if name in done]
            file = KEPT / f"crossplay-{board}-{regime}.json"
            if runs:
                found = figures_from(SWEEP, "crossplay", *runs, "--with", played.scripts, "--episodes", "200")
                write_text(file, json.dumps(_named(found)) + "\n")


def _named(found: dict[str, Any]) -> dict[str, Any]:
    """Cross-play with methods in the place of directories."""

    def label(name: str) -> str:
        return experiments()[cell][2] if (cell := Path(name).name) in experiments() else name

    cells = [{**cell, "row": label(cell["row"]), "column": label(cell["column"])} for cell in found["cells"]]
    return {
        **found,
        "rows": list(map(label, found["rows"])),
        "columns": list(map(label, found["columns"])),
        "cells": cells,
    }


# ------------------------------------------------------------------------------------------------------------- page


def page() -> None:
    """Write contest.md and its pictures."""
    found, text = load_kept(KEPT, experiments()), Page()
    if not found:
        print("no contest is kept yet: python docs/results/contest.py keep")
        return
    few = [name for name, kept in found.items() if len(kept["config"]["seeds"]) < NUMBER_OF_SEEDS]
    if few:
        sys.exit(f"a table needs {NUMBER_OF_SEEDS} seeds, and there are fewer of {', '.join(few)}: train them anew")
    first = next(iter(found.values()))["config"]
    text.add("# The contest")
    text.add(
        "Generated by `python docs/results/contest.py page` from [the figures kept of the runs](contest/), which"
        " `hopplus sweep docs/results/contest.toml --out runs/results/contest` and `python docs/results/contest.py"
        " keep` and `cross` make anew. Every method has the same environment steps (but for one that says so), seeds,"
        " co-players, network, encoder and discount, and else its own defaults. Widths and discount were chosen"
        " once for all, among 64-64 with 0.995 and 128-128 with 0.95, 0.98 and 0.99,"
        " by the scores of two seeds of PPO and of HOP+ with codes with the validation sets on 4x4, regime `pool`;"
        " nothing else was tuned, of any method, but for the tastes, which were thought of after self-play had been"
        " seen to fail with defectors. (Which tastes there are was changed twice: those who liked nothing gave way to"
        " the clumsy, after a first run of the contest's row and play with three `noisy(stay,0.8)`, a set of no split,"
        " had shown that random players were taken for such; and what is not liked came to count as -1 instead of 0,"
        " after one seed had met NH, NS and random players on 8x8, where those who should like hares only went on"
        " hunting stags. So the sets in which these players sit are not wholly untouched for the rows with tastes.)"
        " Scores are the own reward of one focal player in episodes 6 to 10 with the same three others,"
        " weights frozen, at every seat in turn, 16 tables a seat, as a share of what the oracle earns. Means"
        " over seeds with 95% intervals (bootstrapped over seeds, as wide as Student's t asks for);"
        " intervals of differences are not corrected for their number. Minutes are with other jobs beside them, and"
        " those of a run that was broken off or held up are too many."
    )
    text.add(
        "HOP searches before each action while it learns, which makes a step a hundred times as dear; with 5 x 200"
        " simulations, as published, five seeds would come to about 40 steps a second on this machine. It has fewer"
        " simulations and fewer steps here, and more minutes than the others."
    )
    text.add(f"Machine: {first['machine']}, jax {first['versions']['jax']}.")
    for board in BOARDS:
        for regime, remark in REGIMES.items():
            rows = {
                where[2]: found[name]
                for name, where in experiments().items()
                if where[:2] == (board, regime) and name in found
            }
            if rows:
                _add_table(text, board, regime, remark, rows)
    write_text(HERE / "contest.md", text.text())


def judged(kept: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Scores with the sets whose oracle is known."""
    return [row for row in kept["adaptation"] if row["score"]["oracle"] is not None]


def shares(kept: Mapping[str, Any]) -> np.ndarray:
    """Scores as shares of the oracle's: [seeds, sets]."""
    return np.array([np.array(row["score"]["per_seed"]) / row["score"]["oracle"] for row in judged(kept)]).T


def _add_table(text: Page, board: str, regime: str, remark: str, rows: dict[str, Any]) -> None:
    played = BOARDS[board]
    first = PLAN.cell(f"{board}-{regime}-{played.methods[regime][0]}")
    text.add(f"## {first.settings['game']}, regime `{regime}`")
    text.add(f"{remark.format(scripts=played.scripts)} {first.steps / 1e6:g} M steps.")
    sets = [row["set"] for row in judged(next(iter(rows.values())))]
    columns = ("method", "keeps a memory", "self-play", "mean of sets", *sets, "minutes, all seeds")
    text.add("\n".join([head(*columns), *(_row(name, kept) for name, kept in rows.items())]))
    ours = played.methods[regime][-1]
    if ours in rows and len(rows) > 1:
        text.add(f"What {METHODS[ours]} earns more, in shares of the oracle; bold where the interval leaves out 0:")
        lines = [_beside(rows[ours], name, kept) for name, kept in rows.items() if name != ours]
        text.add("\n".join([head("than", "mean of sets", *sets), *lines]))
        text.add(f"{_verdict(rows, ours)} {WHY[board, regime]}")
    picture = f"contest-{board}-{regime}.png"
    draw_adaptation(
        HERE / picture, [{**one, "focal": name} for name, kept in rows.items() for one in kept["adaptation"]]
    )
    text.add(f"![Own reward by episode, {board}, {regime}]({picture})")
    _add_crossplay(text, board, regime)
    text.add("Commands:")
    text.add("```text\n" + "\n".join(kept["command"] for kept in rows.values()) + "\n```")


def _add_crossplay(text: Page, board: str, regime: str) -> None:
    file = KEPT / f"crossplay-{board}-{regime}.json"
    if not file.exists():
        return
    found, picture = json.loads(file.read_text()), f"crossplay-{board}-{regime}.png"
    draw_crossplay(HERE / picture, found)
    text.add(
        f"Cross-play: own reward of one of the rows with three of the columns, {found['episodes']} episodes a pair of"
        f" seeds and seat, first meetings. Intervals and seats are in"
        f" [the figures](contest/{file.name})."
    )
    text.add(f"![Cross-play, {board}, {regime}]({picture})")


def _row(name: str, kept: Mapping[str, Any]) -> str:
    found = shares(kept)
    cells = (
        METHODS[name],
        "yes" if kept["adaptation"][0]["remembers"] else "no",
        interval(by_seed(dict(kept), "sampled"), 2),
        estimate(found.mean(1)[:, None]).text(2),
        *(f"{mean:.2f}" for mean in found.mean(0)),
        f"{kept['seconds'] / 60:.1f}",
    )
    return f"| {' | '.join(cells)} |"


def _beside(ours: Mapping[str, Any], name: str, theirs: Mapping[str, Any]) -> str:
    mine, other = shares(ours), shares(theirs)
    pairs = [(mine.mean(1)[:, None], other.mean(1)[:, None])]
    pairs += [(mine[:, [column]], other[:, [column]]) for column in range(mine.shape[1])]
    return f"| {METHODS[name]} | {' | '.join(_difference(*pair) for pair in pairs)} |"


def _difference(mine: np.ndarray, other: np.ndarray) -> str:
    found = compare(mine, other)
    text = f"{found.difference.value:+.2f} [{found.difference.low:+.2f}, {found.difference.high:+.2f}]"
    return f"**{text}**" if found.outside_noise else text


def _verdict(rows: Mapping[str, Any], ours: str) -> str:
    """On the mean over sets, whom HOP+ is ahead of."""

    def names(sign: int) -> str:
        mine, chosen = shares(rows[ours]).mean(1)[:, None], []
        for name, kept in rows.items():
            found = compare(mine, shares(kept).mean(1)[:, None])
            if name != ours and (np.sign(found.difference.value) if found.outside_noise else 0) == sign:
                chosen.append(METHODS[name])
        return "; ".join(chosen) or "nobody"

    return (
        f"On the mean over sets, outside the interval, {METHODS[ours]} is ahead of: {names(1)}. Behind:"
        f" {names(-1)}. Not to be told apart: {names(0)}."
    )


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["keep", *names]:
            keep(SWEEP, KEPT, names, condensed)
        case ["cross"]:
            cross()
        case ["page"]:
            page()
        case _:
            sys.exit(__doc__)
