"""`hopplus runs`"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.table import Table

from hopplus.cli.output import Json, show
from hopplus.errors import InputError

if TYPE_CHECKING:
    from hopplus.training.run import Run


def runs(
    directory: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")] = Path("runs"), json: Json = None
) -> None:
    """List the runs below a directory: what was trained, how far, and how good it is.

    Args:
        directory: Where to look.
    """
    if not directory.is_dir():
        raise InputError(f"there is no directory {directory}")
    found = [describe(path.parent) for path in sorted(directory.rglob("config.json"))]
    table = Table("run", "recipe", "game", "cast", "seeds", "steps", "return", "of ceiling", "state")
    for row in found:
        steps = "-" if row["steps"] is None else f"{row['steps']:,}"
        result = "-" if row["own_return"] is None else f"{row['own_return']:.3f}"
        share = "-" if row["share_of_ceiling"] is None else f"{100 * row['share_of_ceiling']:.1f}%"
        seeds = str(len(row["seeds"]))
        table.add_row(row["run"], row["recipe"], row["game"], row["cast"], seeds, steps, result, share, row["state"])
    table.caption = f"{len(found)} runs" if found else "no runs here: hopplus train ppo"
    show(found, table, json)


def describe(path: Path) -> dict[str, Any]:
    """One run as a row; one that cannot be read says why."""
    from hopplus.training.run import open_run, read_run

    try:
        run = read_run(path)
        if "fit" in run.config:
            return _describe_fit(run)
        run = open_run(path)
        lines, final = run.metrics(), run.evaluations().get("final")
    except (InputError, ValueError) as error:
        nothing = dict.fromkeys(("recipe", "game", "cast"), "?")
        unknown = {"seeds": [], "steps": None, "own_return": None, "share_of_ceiling": None}
        return {"run": str(path), **nothing, **unknown, "state": f"unreadable: {error}"}
    state = run.state(lines, final)
    training = run.config["training"]
    return {
        "run": str(path),
        "recipe": run.config["recipe"],
        "game": training["game"],
        "cast": training["cast"],
        "seeds": run.seeds,
        "steps": lines[-1]["steps"] if lines else None,
        "own_return": final["own_return"] if final else None,
        "share_of_ceiling": final["share_of_ceiling"] if final else None,
        "state": state,
    }


def _describe_fit(run: "Run") -> dict[str, Any]:
    """A fit as a row: who played its dataset for the cast, epochs for steps."""
    lines, final = run.metrics(), run.evaluations().get("final")
    return {
        "run": str(run.path),
        "recipe": run.config["fit"],
        "game": run.config["game"],
        "cast": "; ".join(run.config["data"]["casts"]),
        "seeds": run.seeds,
        "steps": lines[-1]["iteration"] if lines else None,
        "own_return": None,
        "share_of_ceiling": lines[-1].get("share_of_ceiling") if lines else None,
        "state": run.state(lines, final),
    }
