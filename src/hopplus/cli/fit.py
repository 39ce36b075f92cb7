"""Command `hopplus fit`."""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar

import tyro
from rich.table import Table

from hopplus.cli.output import Json, Plugin, console, progress_bar, run_plugin, show
from hopplus.cli.training_options import graceful_stop, parse_options, show_choices, value_of
from hopplus.core.errors import InputError
from hopplus.core.formatting import quote_path
from hopplus.core.specs import nearest

if TYPE_CHECKING:
    from hopplus.fitting.loop import FitSetup
    from hopplus.training.run import Run

M = TypeVar("M")


@dataclass(frozen=True)
class FitOptions(Generic[M]):
    """Options of `hopplus fit MODEL DATASET` in addition to the settings of the model."""

    dataset: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DATASET")]
    """Directory of a dataset, as written by hopplus collect."""
    model: M
    seeds: str = "0"
    """Seeds of independent fits, computed together: 0, 0-4 or 0,3,5."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """New run directory; by default runs/MODEL-GAME-TIME."""
    json: Json = None
    plugin: Plugin = None


def fit(argv: Sequence[str]) -> int:
    """Fit a model to a dataset (`hopplus fit moa DATASET`), or resume a fit (`hopplus fit --resume RUN`)."""
    argv = list(argv)
    run_plugin(value_of("--plugin", argv))
    from hopplus.models import MODELS

    resumed = value_of("--resume", argv)
    if resumed is not None:
        return _resume(resumed, argv)
    if not argv or {"-h", "--help"} & set(argv[:1]):
        more = "To resume a fit: hopplus fit --resume RUN"
        return show_choices("hopplus fit MODEL DATASET [--help]", "model", MODELS, more)
    name = argv.pop(0)
    if name not in MODELS:
        raise InputError(f"there is no model {name!r}{nearest(name, MODELS)}")
    if not {"-h", "--help"} & set(argv) and (not argv or argv[0].startswith("-")):
        raise InputError(f"hopplus fit {name} needs DATASET as its next argument: hopplus fit {name} DATASET")
    default = FitOptions(Path("DATASET"), MODELS[name]())
    return _start(name, parse_options(f"hopplus fit {name}", argv, FitOptions, (MODELS[name],), default))


def _start(name: str, options: FitOptions[Any]) -> int:
    """Fit a model in a new run; returns the exit code."""
    from hopplus.fitting.loop import describe, prepare
    from hopplus.rollouts.dataset import open_dataset
    from hopplus.training.experiment import parse_seeds
    from hopplus.training.run import new_run

    dataset = open_dataset(options.dataset)
    setup = prepare(options.model, dataset, parse_seeds(options.seeds))
    game = dataset.header["game"].replace(":", "-")
    out = options.out or Path("runs") / f"{name}-{game}-{time.strftime('%Y%m%d-%H%M%S')}"
    with new_run(out, describe(setup)) as run:
        return _run(run, setup, None, options.json)


def _resume(path: Path, argv: Sequence[str]) -> int:
    """Continue a fit; returns the exit code."""
    from hopplus.fitting.loop import prepare
    from hopplus.training import checkpoint
    from hopplus.training.fitted import open_fit
    from hopplus.training.run import locked

    allowed = ("--resume", "--json", "--plugin")
    refused = [arg for arg in argv if arg.startswith("--") and arg.partition("=")[0] not in allowed]
    if refused:
        raise InputError(f"a resumed fit keeps its settings: {refused[0]} cannot be given with --resume")
    fitted = open_fit(path)
    with locked(path):
        setup = prepare(fitted.model, fitted.dataset(), tuple(fitted.run.seeds))
        saved = checkpoint.load(fitted.run.checkpoints) if fitted.epochs else None
        json = value_of("--json", argv)
        return _run(fitted.run, setup, saved, None if json is None else str(json))


def _run(run: "Run", setup: "FitSetup", saved: Any, json: str | None) -> int:
    """Fit and print the results; returns the exit code."""
    from hopplus.fitting.loop import fit as fit_model
    from hopplus.training.callbacks import DivergedError

    try:
        with graceful_stop() as should_stop, progress_bar(f"{setup.model.name}: epochs", setup.model.epochs) as advance:
            summary = fit_model(run, setup, saved, lambda lines: advance(lines[0]["iteration"]), should_stop)
    except DivergedError as error:
        print(f"hopplus: fitting stopped: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"hopplus: stopped and saved; resume with: hopplus fit --resume {quote_path(run.path)}", file=sys.stderr)
        return 130
    show({"run": str(run.path), **summary}, summary_table(summary, run.metrics()), json)
    if json != "-":
        console().print(
            f"run: {run.path}   curves: tensorboard --logdir {quote_path(run.path / 'events')}", soft_wrap=True
        )
        console().print(f"more: hopplus diagnose {setup.model.name} {quote_path(run.path)}", soft_wrap=True)
    return 0


def summary_table(summary: dict[str, Any], lines: Sequence[dict[str, Any]]) -> Table:
    """Table of a fit: held-out metrics per epoch, means over seeds; ceilings in the last rows."""
    seeds = summary["seeds"]
    unit = f"{len(seeds)} seeds" if len(seeds) > 1 else f"seed {seeds[0]}"
    names = [name for name in lines[-1] if name in HEADLINES]
    table = Table("epoch", *(HEADLINES[name] for name in names), title=f"{summary['fit']} on {summary['game']}, {unit}")
    for epoch in sorted({line["iteration"] for line in lines}):
        chosen = [line for line in lines if line["iteration"] == epoch]
        means = {name: sum(line[name] for line in chosen) / len(chosen) for name in names if name in chosen[0]}
        table.add_row(str(epoch), *(f"{means[name]:.5g}" for name in names))
    labels = (("history", "ceiling given the history"), ("agent_type", "ceiling given the agent type"))
    for which, label in labels:
        ceilings = {name: lines[-1].get(f"ceiling_{which}_{name}") for name in names}
        if any(value is not None for value in ceilings.values()):
            table.add_section()
            table.add_row(label, *("" if value is None else f"{value:.5g}" for value in ceilings.values()))
    table.caption = f"held-out episodes; {summary['data']['rows']:,} rows in the dataset; {summary['seconds']:.1f} s"
    return table


HEADLINES = {
    "top1": "top-1",
    "top3": "top-3",
    "cross_entropy": "cross-entropy",
    "share_of_ceiling": "top-1 of ceiling",
    "given_goal_top1": "(top-1 given goal)",
    "held_out_reconstruction": "reconstruction",
    "held_out_action": "action",
    "held_out_kl": "KL",
    "held_out_inference": "inference",
    "codes_in_use": "codes in use",
    "observation_mse": "observation MSE",
    "psnr": "PSNR, dB",
    "reward_mse": "reward MSE",
    "exact": "exact",
    "exact_10": "exact, 10 steps",
    "impossible": "impossible",
}
"""Columns of the summary by metric; a model shows those metrics that it has."""
