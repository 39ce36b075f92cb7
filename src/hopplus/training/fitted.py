"""Fitted models on disk: a run directory whose config names a model instead of an algorithm."""

from dataclasses import dataclass
from pathlib import Path

import jax

from hopplus.core.errors import InputError
from hopplus.models import Model, make_model
from hopplus.players import Params
from hopplus.rollouts.dataset import Dataset, open_dataset
from hopplus.training import checkpoint
from hopplus.training.run import Run, read_run


@dataclass(frozen=True, eq=False)
class Fitted:
    """Parameters of a fit by epoch and seed."""

    run: Run
    model: Model

    @property
    def epochs(self) -> list[int]:
        """Epochs with a checkpoint, in order."""
        return sorted(checkpoint.number_of(path) for path in checkpoint.list_checkpoints(self.run.checkpoints))

    def params(self, seed: int | None = None, epoch: int | None = None) -> Params:
        """Parameters of a seed (default: the first) after an epoch (default: the last)."""
        seeds = self.run.seeds
        chosen = seeds[0] if seed is None else seed
        if chosen not in seeds:
            raise InputError(f"{self.run.path} has no seed {seed}: its seeds are {', '.join(map(str, seeds))}")
        saved = checkpoint.load(self.run.checkpoints, epoch)
        place = saved.notes["chosen"][seeds.index(chosen)]
        return jax.tree.map(lambda leaf: leaf[place], saved.tree()["params"])

    def dataset(self, path: Path | None = None) -> Dataset:
        """The dataset of the fit, or another of the same game."""
        dataset = open_dataset(Path(self.run.config["dataset"]) if path is None else path)
        played, modelled = dataset.header["game"], self.run.config["game"]
        if played != modelled:
            raise InputError(f"{dataset.path} was played on {played}, and {self.run.path} models {modelled}")
        return dataset


def open_fit(path: Path) -> Fitted:
    """Reads a fit; InputError where the directory holds none."""
    run = read_run(path)
    types = {"fit": str, "settings": dict, "dataset": str, "game": str, "data": dict}
    if "algorithm" in run.config:
        raise InputError(f"{path} is a training of {run.config['algorithm']}, not a fit")
    if not all(isinstance(run.config.get(key), kind) for key, kind in types.items()):
        raise InputError(f"{path / 'config.json'} does not describe a fit")
    return Fitted(run, make_model(run.config["fit"], run.config["settings"]))
