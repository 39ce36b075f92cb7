"""`hopplus fit`"""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar

import tyro
from rich.table import Table

from hopplus.cli.long_work import parse_options, polite_stop, show_choices, value_of
from hopplus.cli.output import Json, Plugin, console, progress_bar, run_plugin, show
from hopplus.errors import InputError
from hopplus.notation import as_word
from hopplus.specs import nearest

if TYPE_CHECKING:
    from hopplus.training.fit import Setup
    from hopplus.training.run import Run

M = TypeVar("M")


@dataclass(frozen=True)
class Options(Generic[M]):
    """What `hopplus fit MODEL DATASET` takes beside the settings of the model."""

    dataset: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DATASET")]
    """A dataset, as hopplus collect writes it."""
    model: M
    seeds: str = "0"
    """Independent fits, computed together: 0, 0-4 or 0,3,5."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """The run directory, a new one; by default runs/MODEL-GAME-TIME."""
    json: Json = None
    plugin: Plugin = None


def fit(words: Sequence[str]) -> int:
    """Fit a model to a dataset: `hopplus fit moa DATASET`; go on with a fit: `hopplus fit --resume RUN`."""
    given = list(words)
    run_plugin(value_of("--plugin", given))
    from hopplus.training.fits import FITS

    resumed = value_of("--resume", given)
    if resumed is not None:
        return _fit_on(resumed, given)
    if not given or {"-h", "--help"} & set(given[:1]):
        more = "To go on with a fit that was stopped: hopplus fit --resume RUN"
        return show_choices("hopplus fit MODEL DATASET [--help]", "model", FITS, more)
    name = given.pop(0)
    if name not in FITS:
        raise InputError(f"there is no model {name!r}{nearest(name, FITS)}")
    if not {"-h", "--help"} & set(given) and (not given or given[0].startswith("-")):
        raise InputError(f"hopplus fit {name} needs DATASET as its next word: hopplus fit {name} DATASET")
    kinds = (FITS[name],)
    default = Options(Path("DATASET"), FITS[name]())
    return _fit_anew(name, parse_options(f"hopplus fit {name}", given, Options, kinds, default))


def _fit_anew(name: str, options: Options[Any]) -> int:
    from hopplus.play.dataset import open_dataset
    from hopplus.training.fit import describe, prepare
    from hopplus.training.run import new_run
    from hopplus.training.trainer import parse_seeds

    dataset = open_dataset(options.dataset)
    setup = prepare(options.model, dataset, parse_seeds(options.seeds))
    game = dataset.header["game"].replace(":", "-")
    out = options.out or Path("runs") / f"{name}-{game}-{time.strftime('%Y%m%d-%H%M%S')}"
    with new_run(out, describe(setup)) as run:
        return _run(run, setup, None, options.json)


def _fit_on(path: Path, words: Sequence[str]) -> int:
    from hopplus.training import checkpoint
    from hopplus.training.fit import prepare
    from hopplus.training.fits import open_fit
    from hopplus.training.run import locked

    others = [
        word
        for word in words
        if word.startswith("--") and word.partition("=")[0] not in ("--resume", "--json", "--plugin")
    ]
    if others:
        raise InputError(f"a fit goes on as it began: {others[0]} cannot be given with --resume")
    fitted = open_fit(path)
    with locked(path):
        setup = prepare(fitted.model, fitted.dataset(), tuple(fitted.run.seeds))
        saved = checkpoint.load(fitted.run.checkpoints) if fitted.epochs else None
        json = value_of("--json", words)
        return _run(fitted.run, setup, saved, None if json is None else str(json))


def _run(run: "Run", setup: "Setup", saved: Any, json: str | None) -> int:
    from hopplus.training.fit import fit as fit_model
    from hopplus.training.trainer import DivergedError

    try:
        with polite_stop() as should_stop, progress_bar(f"{setup.model.name}: epochs", setup.model.epochs) as advance:
            summary = fit_model(run, setup, saved, lambda lines: advance(lines[0]["iteration"]), should_stop)
    except DivergedError as error:
        print(f"hopplus: fitting stopped: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"hopplus: stopped and saved; go on with: hopplus fit --resume {as_word(run.path)}", file=sys.stderr)
        return 130
    show({"run": str(run.path), **summary}, summary_table(summary, run.metrics()), json)
    if json != "-":
        console().print(
            f"run: {run.path}   curves: tensorboard --logdir {as_word(run.path / 'events')}", soft_wrap=True
        )
        console().print(f"more: hopplus diagnose {setup.model.name} {as_word(run.path)}", soft_wrap=True)
    return 0


def summary_table(summary: dict[str, Any], lines: Sequence[dict[str, Any]]) -> Table:
    """Epoch by epoch, means over seeds, what a fit is judged by; ceilings in the last row."""
    seeds = summary["seeds"]
    unit = f"{len(seeds)} seeds" if len(seeds) > 1 else f"seed {seeds[0]}"
    names = [name for name in lines[-1] if name in HEADLINES]
    table = Table("epoch", *(HEADLINES[name] for name in names), title=f"{summary['fit']} on {summary['game']}, {unit}")
    for epoch in sorted({line["iteration"] for line in lines}):
        chosen = [line for line in lines if line["iteration"] == epoch]
        means = {name: sum(line[name] for line in chosen) / len(chosen) for name in names if name in chosen[0]}
        table.add_row(str(epoch), *(f"{means[name]:.5g}" for name in names))
    for which, said in (("history", "best, knowing the history"), ("kind", "best, knowing the kind")):
        ceilings = {name: lines[-1].get(f"ceiling_{which}_{name}") for name in names}
        if any(value is not None for value in ceilings.values()):
            table.add_section()
            table.add_row(said, *("" if value is None else f"{value:.5g}" for value in ceilings.values()))
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
"""What the summary shows, where a model has it."""
