"""Rows of a list of runs: algorithm, game, progress and result."""

from pathlib import Path
from typing import Any

from hopplus.core.errors import InputError
from hopplus.training.run import Run, open_run, read_run


def describe(path: Path) -> dict[str, Any]:
    """Row of a run; the row of an unreadable run has the reason as its state."""
    try:
        run = read_run(path)
        if "fit" in run.config:
            return _describe_fit(run)
        run = open_run(path)
        lines, final = run.metrics(), run.evaluations().get("final")
    except (InputError, ValueError) as error:
        return unreadable(path, error)
    state = run.state(lines, final)
    training = run.config["training"]
    return {
        "run": str(path),
        "algorithm": run.config["algorithm"],
        "game": training["game"],
        "cast": training["cast"],
        "seeds": run.seeds,
        "steps": lines[-1]["steps"] if lines else None,
        "own_return": final["own_return"] if final else None,
        "share_of_ceiling": final["share_of_ceiling"] if final else None,
        "state": state,
    }


def unreadable(path: Path, error: Exception) -> dict[str, Any]:
    """Row of an unreadable run."""
    nothing = dict.fromkeys(("algorithm", "game", "cast"), "?")
    unknown = {"seeds": [], "steps": None, "own_return": None, "share_of_ceiling": None}
    return {"run": str(path), **nothing, **unknown, "state": f"unreadable: {error}"}


def _describe_fit(run: Run) -> dict[str, Any]:
    """Row of a fit: the casts of its dataset as cast, epochs as steps."""
    lines, final = run.metrics(), run.evaluations().get("final")
    return {
        "run": str(run.path),
        "algorithm": run.config["fit"],
        "game": run.config["game"],
        "cast": "; ".join(run.config["data"]["casts"]),
        "seeds": run.seeds,
        "steps": lines[-1]["iteration"] if lines else None,
        "own_return": None,
        "share_of_ceiling": lines[-1].get("share_of_ceiling") if lines else None,
        "state": run.state(lines, final),
    }
