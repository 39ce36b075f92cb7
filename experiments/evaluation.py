"""Oracles, and frozen PPO with unseen co-players: `page` writes evaluation.md from the saved results.

python experiments/evaluation.py oracles [GAME ...]  # compute the unknown oracles of the package (hours)
python experiments/evaluation.py keep                # write the known ones of these into the package
python experiments/evaluation.py adapt [NAME ...]    # needs the runs of ppo.toml: see ppo.py
python experiments/evaluation.py page                # reads the package's oracles and evaluation/*.json only

An oracle is known if it is in the package or in the user's cache: to compute it again, delete it there.
"""

import json
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from hopplus.core.files import write_text
from hopplus.core.specs import Spec
from hopplus.evaluation.co_player_sets import BLIND, SNOWDRIFT, CoPlayers, sets_of
from hopplus.evaluation.oracle import PACKAGED, lookup, mean_of, oracle, phases, share, unseen_loss
from hopplus.evaluation.oracle_value import Effort
from hopplus.games import make
from hopplus.players import CastSpec
from hopplus.visualization.adaptation import draw_adaptation
from pages import RESULTS, ROOT, RUNS, Page, hopplus, rounded, sweep_in
from ppo import EXPERIMENTS, SWEEP

SAVED = RESULTS / "evaluation"
GAMES = ("msh-4x4-4h1s", "msh-8x8-4h1s", "msg-4x4", "msg-8x8")
SCARCE = "msh-4x4-4h1s:hares=3"
"""Stag hunt with fewer hares than players: waiting costs."""
PACKAGED_SETS: Mapping[str, tuple[str, ...]] = {
    **{name: tuple(sets_of(make(name))) for name in GAMES if name != "msg-8x8"},
    "msg-8x8": tuple(SNOWDRIFT),
    SCARCE: ("defectors", "noisy-defectors"),
}
"""Sets by game whose oracles are packaged."""
ALL_LAYOUTS = Effort(layouts=8_008)
"""All layouts of six drifts on 16 cells: they cost little with co-players that remove nothing."""
UNTRAINED = ("cooperators", "random", *BLIND, "noisy-cooperators")
"""Sets on the large board without trained best responses: in all sets that were tried, scripts did better than PPO."""
SLOW = ("noisy-defectors", "staying-defectors")
"""Sets on the large board without lookahead either: it is slow there, and gained 2% and 0.4% in 256 episodes."""
EFFORTS: Mapping[str, Mapping[str, Effort]] = {
    "msh-8x8-4h1s": {
        **dict.fromkeys(UNTRAINED, Effort(steps=0)),
        **dict.fromkeys(SLOW, Effort(steps=0, lookahead=False)),
    },
    "msg-4x4": {"exploiters": ALL_LAYOUTS, "mixed": ALL_LAYOUTS},
}
"""Efforts by game and set, where they are not the default."""
JUDGED = {
    "msh-4x4-4h1s": ("4x4",),
    "msh-8x8-4h1s": ("8x8", "8x8-rules", "8x8-partner"),
    "msg-4x4": ("msg-4x4",),
    "msg-8x8": ("msg-8x8",),
}
"""Cells of experiments/ppo.toml by game."""
TRIALS = {"msh-4x4-4h1s": 64, "msh-8x8-4h1s": 16, "msg-4x4": 64, "msg-8x8": 16}
"""Trials per seat by game: large boards take longer."""


def casts_of(game_name: str) -> dict[tuple[Spec, ...], Effort]:
    """All casts of co-players of a game whose oracles are packaged, with the effort of their computation."""
    sets, efforts = sets_of(make(game_name)), {}
    for name in PACKAGED_SETS[game_name]:
        for cast in phases(sets[name]):
            efforts.setdefault(cast, EFFORTS.get(game_name, {}).get(name, Effort()))
    return efforts


def compute_oracles(names: Sequence[str]) -> None:
    """Compute the unknown oracles of some games and write all known ones into the package."""
    for name in names:
        for cast, effort in casts_of(name).items():
            started = time.perf_counter()
            best = oracle(make(name), name, cast, effort)
            seconds = time.perf_counter() - started
            value = f"{best.value:.4f} ± {best.standard_error:.4f}"
            print(f"{name} {CastSpec(cast).text}: {value} ({best.method}; {seconds:.0f} s)", flush=True)
        keep_oracles()


def keep_oracles() -> None:
    """Write the known oracles into the package."""
    oracles = [lookup(make(name), cast) for name in PACKAGED_SETS for cast in casts_of(name)]
    lines = ",\n".join(json.dumps(known.as_dict()) for known in oracles if known is not None)
    write_text(PACKAGED, f"[\n{lines}\n]\n")


def adapt(name: str) -> None:
    """Run `hopplus adapt` on a run with all held-out sets and save the figures."""
    sweep = sweep_in(SWEEP)
    cell, file = sweep.plan.cell(name), RUNS / f"{name}.adaptation.json"
    run = sweep.run_path(cell)
    config = json.loads((run / "config.json").read_text())
    trials = TRIALS[config["training"]["game"]]
    argv = ("adapt", str(run.relative_to(ROOT)), "--against", "held-out", "--trials", str(trials))
    hopplus(*argv, "--json", str(file))
    rows = json.loads(file.read_text())["rows"]
    file.unlink()
    for row in rows:
        row["focal"] = EXPERIMENTS[name].label
        row["curve"] = [
            {key: rounded(point[key]) for key in ("episode", "mean", "low", "high", "oracle")} for point in row["curve"]
        ]
        del row["weights"]
    provenance = ("versions", "commit", "machine", "started")
    result = {
        "command": "hopplus " + " ".join(argv),
        "training": "hopplus " + " ".join(cell.argv()),
        **{key: config[key] for key in provenance},
        "rows": rows,
    }
    SAVED.mkdir(exist_ok=True)
    write_text(SAVED / f"{name}.json", json.dumps(result) + "\n")


# ---------------------------------------------------------------------------------------------------------------- page


def page() -> None:
    """Write evaluation.md and its figures."""
    text = Page()
    text.add("# Evaluation: oracles, and frozen PPO with unseen co-players")
    text.add(
        "Generated by `python experiments/evaluation.py page` from [the package's oracles]"
        "(../../src/hopplus/evaluation/oracles.json) and [the saved results of the runs](evaluation/). All returns are"
        " undiscounted."
    )
    _add_oracles(text)
    text.add("## PPO, weights frozen")
    text.add(
        "Return of the focal player in trials of 50 episodes with the same co-players. The score is the mean of"
        " episodes 6 to 10. The focal player takes every seat in turn. This PPO has no memory, so its behaviour cannot"
        " change between episodes: it is the baseline for adaptation. The regime `self` was trained in self-play only."
        " The regime `pool` was trained with the named scripts, and a set that contains them is not held out. Shares"
        " of an oracle that is a lower bound may be too large."
    )
    for game, names in JUDGED.items():
        results = {name: json.loads(file.read_text()) for name in names if (file := SAVED / f"{name}.json").exists()}
        if results:
            _add_game(text, game, results)
    write_text(RESULTS / "evaluation.md", text.text())


def _add_oracles(text: Page) -> None:
    text.add("## Oracles")
    text.add(
        "Return of the best response to each set, which knows the rules and the co-players' true policies. Exact values"
        " are by dynamic programming (all initial cells of sampled or all layouts; the error is the sampling error)."
        " Lower bounds (≥) are the realised mean return of the best candidate: scripts, PPO trained with the same"
        " co-players (3 seeds), and lookahead from either. The episodes that select the candidate are not used to"
        f" measure it. On `msh-8x8-4h1s`, there is no PPO for {', '.join((*UNTRAINED, *SLOW))}, and no lookahead for"
        f" {' and '.join(SLOW)}."
    )
    for name in PACKAGED_SETS:
        game, rows = make(name), []
        for co_players in (sets_of(game)[set_name] for set_name in PACKAGED_SETS[name]):
            parts = [lookup(game, cast) for cast in phases(co_players)]
            known = [part for part in parts if part is not None]
            if len(known) < len(parts):
                continue
            best, ceiling = mean_of(known), game.ceilings["player"]
            value = f"{'' if best.exact else '≥ '}{best.value:.3f} ± {best.standard_error:.3f}"
            share = f"{100 * best.value / ceiling:.1f}%"
            rows.append(
                f"| {co_players.name} | {co_players.split} | {value} | {share} | {best.units:,} | {best.method} |"
            )
        if rows:
            text.add(f"### {name}")
            head = (
                "| set | split | best response ± s.e. | of a player's ceiling | n | method |\n|---|---|---|---|---|---|"
            )
            text.add(head + "\n" + "\n".join(rows))


def _with_oracles(row: dict[str, Any]) -> dict[str, Any]:
    """Row of figures with the current oracles."""
    game, players = make(row["game"]), CoPlayers.of(row["set"], row["players"], row["split"])
    oracles = [lookup(game, cast) for cast in phases(players)]
    if row["seating"] != "one" or None in oracles or "standard_error" not in row["score"]:
        return row  # the oldest saved results have no standard errors; their oracles have not changed since
    known = [best for best in oracles if best is not None]
    curve = [{**point, "oracle": known[(point["episode"] - 1) % len(known)].value} for point in row["curve"]]
    score = row["score"]
    best = mean_of([known[(episode - 1) % len(known)] for episode in range(score["first"], score["last"] + 1)])
    unseen = unseen_loss(game, row["trials"] * len(row["seeds"]))
    share_of_oracle = share(best, score["mean"], score["standard_error"], unseen)
    return {**row, "curve": curve, "score": {**score, "oracle": best.value, "share_of_oracle": share_of_oracle}}


def _add_game(text: Page, game: str, results: dict[str, Any]) -> None:
    text.add(f"### {game}")
    figures = [
        {**_with_oracles(row), "focal": EXPERIMENTS[name].label}
        for name, result in results.items()
        for row in result["rows"]
    ]
    intervals = list(dict.fromkeys(row["score"]["interval"] for row in figures))
    first = next(iter(results.values()))
    text.add(
        f"Brackets: {'; '.join(intervals)}; {TRIALS[game]} trials per seat for each of them. Machine:"
        f" {first['machine']}, jax {first['versions']['jax']}."
    )
    for seating, title in (("one", "One focal player with the set"), ("three", "Three copies with one of the set")):
        rows = [_row(row) for row in figures if row["seating"] == seating]
        head = "| training | set | regime | score | interquartile mean | of oracle | of a player's ceiling |\n"
        text.add(f"{title}:")
        text.add(head + "|---|---|---|---|---|---|---|\n" + "\n".join(rows))
    picture = f"evaluation-{game}.png"
    draw_adaptation(RESULTS / picture, [row for row in figures if row["seating"] == "one"])
    text.add(f"![Focal return by episode on {game}]({picture})")
    commands = [line for result in results.values() for line in (result["training"], result["command"])]
    text.add("Commands:")
    text.add("```text\n" + "\n".join(commands) + "\n```")


def _row(row: dict[str, Any]) -> str:
    score = row["score"]
    regime = row["regime"] + (f" (trained with {', '.join(row['met_before'])})" if row["met_before"] else "")
    bracket = "" if score["low"] is None else f" [{score['low']:.3f}, {score['high']:.3f}]"
    share = "" if score["share_of_oracle"] is None else f"{100 * score['share_of_oracle']:.1f}%"
    cells = (row["focal"], row["set"], regime, f"{score['mean']:.3f}{bracket}", f"{score['interquartile_mean']:.3f}")
    return "| " + " | ".join((*cells, share, f"{100 * score['share_of_ceiling']:.1f}%")) + " |"


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["oracles", *names]:
            compute_oracles(names or list(PACKAGED_SETS))
        case ["keep"]:
            keep_oracles()
        case ["adapt", *names]:
            for chosen in names or [name for names in JUDGED.values() for name in names]:
                print(chosen, flush=True)
                adapt(chosen)
        case ["page"]:
            page()
        case _:
            sys.exit(__doc__)
