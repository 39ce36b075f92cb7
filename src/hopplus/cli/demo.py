"""Command `hopplus demo`."""

import contextlib
import sys
from pathlib import Path
from typing import Any

from rich.table import Table

from hopplus.cli.adapt import run_jobs, save_figures
from hopplus.cli.output import STANDARD_OUTPUT, Json, console, show
from hopplus.cli.train import train
from hopplus.core.errors import InputError
from hopplus.core.formatting import percent

GAME = "msh-4x4-4h1s"
ALGORITHM_ARGV = {
    "ppo": ("ppo", "--hidden", "128", "128", "--encoder", "full", "--gamma", "0.99", "--trial-episodes", "10"),
    "hopplus": ("hopplus",),
}
"""HOP+ with its default settings, and PPO with the same network, discount and trials."""
SETS = ("cooperators", "defectors", "random")
HARD = "defectors"
EPISODES = 10


def demo(steps: int = 400_000, trials: int = 4, seed: int = 0, out: Path = Path("demo"), json: Json = None) -> int:
    """Train PPO and HOP+ in self-play, evaluate both with unseen co-players, and write a report.

    Args:
        steps: Environment steps of each training.
        trials: Trials of ten episodes per seat and set of unseen co-players, with frozen weights.
        seed: Seed of the trainings and of the trials.
        out: Directory for both runs and the report; runs that exist there are resumed.
    """
    from hopplus.evaluation.co_player_sets import make_sets
    from hopplus.evaluation.protocol import Focal
    from hopplus.games import make
    from hopplus.training.run import open_run
    from hopplus.visualization.report import NAME, write_report

    if trials < 1:
        raise InputError(f"trials must be at least 1, not {trials}")
    quiet = json == STANDARD_OUTPUT
    paths = {name: out / name for name in ALGORITHM_ARGV}
    for name, path in paths.items():
        argv = _train_argv(name, path, steps, seed)
        console(quiet).print(f"training {name} in self-play: {path}", soft_wrap=True)
        with contextlib.redirect_stdout(sys.stderr if quiet else sys.stdout):
            if code := train(argv):
                return code
    focals = [Focal.of(str(path)) for path in paths.values()]
    sets = [co_players for against in SETS for co_players in make_sets(against, make(GAME))]
    figures = run_jobs(
        [(co_players, "one", focal) for co_players in sets for focal in focals], make(GAME), trials, seed
    )
    for row in figures:
        save_figures([focal for focal in focals if focal.name == row["focal"]], [row], row["set"])
    runs = {name: open_run(path) for name, path in paths.items()}
    report = write_report(list(runs.values()), out / NAME)
    self_play = {name: run.evaluations()["final"]["own_return"] for name, run in runs.items()}
    show({"self_play": self_play, "rows": figures, "report": str(report)}, _table(figures, self_play), json)
    if not quiet:
        console().print(_verdict(figures), soft_wrap=True)
        console().print(f"report with step-by-step replays of both: {report}", soft_wrap=True)
    return 0


def _train_argv(name: str, path: Path, steps: int, seed: int) -> list[str]:
    """Arguments of `hopplus train` that start or resume a training; InputError if `path` holds another one."""
    from hopplus.training.run import CONFIG, open_run

    if not (path / CONFIG).exists():
        training = ["--game", GAME, "--steps", str(steps), "--seeds", str(seed)]
        return [*ALGORITHM_ARGV[name], *training, "--out", str(path), "--no-report"]
    run = open_run(path)
    if (run.config["algorithm"], run.config["training"]["game"], run.seeds) != (name, GAME, [seed]):
        raise InputError(f"{path} holds another training than the demo's with seed {seed}: choose another --out")
    return ["--resume", str(path), "--steps", str(steps), "--no-report"]


def _table(figures: list[dict[str, Any]], self_play: dict[str, float]) -> Table:
    table = Table("co-players", *ALGORITHM_ARGV, "oracle", title=f"own reward on {GAME}, weights frozen")
    table.add_row("itself (greedy)", *(f"{self_play[name]:.2f}" for name in ALGORITHM_ARGV), "-")
    for against in SETS:
        rows = [row for row in figures if row["set"] == against]
        cells = [f"{row['score']['mean']:.2f}  {percent(row['score']['share_of_oracle'])}" for row in rows]
        oracle = rows[0]["score"]["oracle"]
        table.add_row(f"three {against}", *cells, "-" if oracle is None else f"{oracle:.2f}")
    table.caption = f"episodes 6 to {EPISODES} with the same co-players, share of the oracle's return; one seed"
    return table


def _verdict(figures: list[dict[str, Any]]) -> str:
    """Summary of the table in two sentences."""
    ppo, ours = (percent(row["score"]["share_of_oracle"]) for row in figures if row["set"] == HARD)
    return (
        f"Both were trained in self-play only. With three hare hunters, PPO gets {ppo} of the oracle's return and HOP+,"
        f" which was trained with reward randomisation and plans with its beliefs about co-players, {ours}."
    )
