"""What can be fitted to a dataset, by name; each family is one file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hopplus.errors import InputError
from hopplus.specs import make_settings
from hopplus.training.fit import Fitted, Model
from hopplus.training.fits.others import MOA, OthersModel, Subgoals
from hopplus.training.fits.world_model import WorldModel
from hopplus.training.run import read_run

FITS: dict[str, type[Model]] = {"moa": MOA, "subgoals": Subgoals, "world-model": WorldModel}


def make_model(name: str, settings: Mapping[str, Any] | None = None) -> Model:
    """The model of that name with some settings changed."""
    return make_settings("model", name, FITS, settings)


def register_model(name: str, model: type[Model]) -> None:
    """Make a model known by a name of its own, for `make_model` and for every command."""
    if name in FITS:
        raise InputError(f"a model named {name!r} is already known")
    FITS[name] = model


def open_fit(path: Path) -> Fitted:
    """A fit that is there; InputError where the directory holds none."""
    run = read_run(path)
    kinds = {"fit": str, "settings": dict, "dataset": str, "game": str, "data": dict}
    if "recipe" in run.config:
        raise InputError(f"{path} is a training of {run.config['recipe']}, not a fit")
    if not all(isinstance(run.config.get(key), kind) for key, kind in kinds.items()):
        raise InputError(f"{path / 'config.json'} does not describe a fit")
    return Fitted(run, make_model(run.config["fit"], run.config["settings"]))


__all__ = ["FITS", "MOA", "OthersModel", "Subgoals", "WorldModel", "make_model", "open_fit", "register_model"]
