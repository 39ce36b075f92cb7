"""`hopplus demo`"""

import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from hopplus.cli.adapt import keep_figures
from hopplus.cli.output import STANDARD_OUTPUT, Json, console, progress_bar, show
from hopplus.cli.train import train
from hopplus.errors import InputError
from hopplus.notation import percent

if TYPE_CHECKING:
    from hopplus.evaluation.sets import CoPlayers
    from hopplus.evaluation.tables import Focal

GAME = "msh-4x4-4h1s"
ALIKE = ("--hidden", "128", "128", "--encoder", "full", "--discount", "0.99", "--acquaintance", "10")
"""Settings of both."""
RECIPES = {"ppo": ("ppo",), "hopplus": ("hopplus", "--tastes")}
SETS = ("cooperators", "defectors", "random")
HARD = "defectors"
EPISODES = 10


def demo(steps: int = 400_000, tables: int = 16, seed: int = 0, out: Path = Path("demo"), json: Json = None) -> int:
    """Train PPO and HOP+ in self-play, let both meet players whom they have never met, and write a report.

    Args:
        steps: Environment steps of each training.
        tables: Tables of strangers for every seat, at which each plays ten episodes with frozen weights.
        seed: Of the trainings and of the play.
        out: The directory for both runs and the report; what is there already is gone on with.
    """
    from hopplus.evaluation.sets import kinds, make_sets
    from hopplus.evaluation.tables import Focal
    from hopplus.games import make
    from hopplus.report.page import NAME, write_report
    from hopplus.training.run import open_run

    if tables < 1:
        raise InputError(f"tables must be at least 1, not {tables}")
    quiet = json == STANDARD_OUTPUT
    paths = {name: out / name for name in RECIPES}
    for name, path in paths.items():
        words = _words(name, path, steps, seed)
        console(quiet).print(f"training {name} in self-play: {path}", soft_wrap=True)
        with contextlib.redirect_stdout(sys.stderr if quiet else sys.stdout):
            if code := train(words):
                return code
    focals = {name: Focal.of(str(path)) for name, path in paths.items()}
    sets = [one for against in SETS for one in make_sets(against, make(GAME))]
    figures = [row for one in sets for row in _meet(focals, one, kinds(sets), tables, seed)]
    runs = {name: open_run(path) for name, path in paths.items()}
    report = write_report(list(runs.values()), out / NAME)
    alone = {name: run.evaluations()["final"]["own_return"] for name, run in runs.items()}
    show({"self_play": alone, "rows": figures, "report": str(report)}, _table(figures, alone), json)
    if not quiet:
        console().print(_verdict(figures), soft_wrap=True)
        console().print(f"report, with both at work step by step: {report}", soft_wrap=True)
    return 0


def _words(name: str, path: Path, steps: int, seed: int) -> list[str]:
    """How a training is begun, or gone on with; InputError where another one is there."""
    from hopplus.training.run import CONFIG, open_run

    if not (path / CONFIG).exists():
        chosen = ["--game", GAME, "--steps", str(steps), "--seeds", str(seed), *ALIKE]
        return [*RECIPES[name], *chosen, "--out", str(path), "--no-report"]
    there = open_run(path)
    same = (there.config["recipe"], there.config["training"]["game"], there.seeds) == (name, GAME, [seed])
    if not same or there.config["settings"].get("tastes", False) != ("--tastes" in RECIPES[name]):
        raise InputError(f"{path} holds another training than the demo's with seed {seed}: choose another --out")
    return ["--resume", str(path), "--steps", str(steps), "--no-report"]


def _meet(
    focals: "dict[str, Focal]", others: "CoPlayers", among: Sequence[str], tables: int, seed: int
) -> list[dict[str, Any]]:
    """What each earns with the same strangers, kept with its run."""
    from hopplus.evaluation.adaptation import adapt
    from hopplus.evaluation.tables import few_shot
    from hopplus.games import make

    game, found = make(GAME), []
    with progress_bar(f"meeting {others.name}", 100 * len(focals)) as advance:
        for number, focal in enumerate(focals.values()):

            def show_share(done: float, number: int = number) -> None:
                advance(round(100 * (number + done)))

            row = adapt(focal, game, others, "one", few_shot(EPISODES), False, tables, False, seed, show_share, among)
            keep_figures([focal], [row], others.name)
            found.append(row)
    return found


def _table(figures: list[dict[str, Any]], alone: dict[str, float]) -> Table:
    table = Table("with", *RECIPES, "oracle", title=f"own reward on {GAME}, weights frozen")
    table.add_row("itself (greedy)", *(f"{alone[name]:.2f}" for name in RECIPES), "-")
    for against in SETS:
        rows = [row for row in figures if row["set"] == against]
        cells = [f"{row['score']['mean']:.2f}  {percent(row['score']['share_of_oracle'])}" for row in rows]
        oracle = rows[0]["score"]["oracle"]
        table.add_row(f"three {against}", *cells, "-" if oracle is None else f"{oracle:.2f}")
    table.caption = f"episodes 6 to {EPISODES} with the same three, share of an oracle who knows them; one seed"
    return table


def _verdict(figures: list[dict[str, Any]]) -> str:
    """What the table shows, in a sentence."""
    ppo, ours = (percent(row["score"]["share_of_oracle"]) for row in figures if row["set"] == HARD)
    return (
        f"Neither has met anybody but itself. With three hare hunters PPO gets {ppo} of what an oracle would, and HOP+"
        f" {ours}, which has learnt at tables of different tastes, and sees what it makes of the others."
    )
