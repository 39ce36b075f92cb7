"""What modules of a training begin with: parameters that another run or fit has learnt."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from hopplus.errors import InputError
from hopplus.players import Params
from hopplus.training.recipe import Recipe, Stage
from hopplus.training.run import open_run, read_run

INIT = "init/"
"""Among the params that a recipe's `init` gets, what a module begins with: `init/policy`."""


def load_modules(texts: Sequence[str], recipe: Recipe, stage: Stage) -> dict[str, Params]:
    """What `MODULE=RUN` stands for, by `init/MODULE`; InputError where it does not fit the recipe's own module."""
    if not texts:
        return {}
    state = jax.eval_shape(lambda key: recipe.init(key, stage, {}), jax.random.key(0))
    own = recipe.modules(recipe.learnt(state))
    found: dict[str, Params] = {}
    for text in texts:
        module, _, path = text.partition("=")
        if module not in own or not path:
            raise InputError(f"init is written MODULE=RUN with one of {', '.join(own)}, not {text!r}")
        learnt = _load(module, Path(path))
        if module == "moa" and "worth" in own[module] and "worth" not in learnt:
            learnt = {**learnt, "worth": jnp.zeros_like(learnt["prior"])}  # what is followed only in a training
        _check(module, path, learnt, own[module])
        found[INIT + module] = learnt
    return found


def _load(module: str, path: Path) -> Params:
    """A module from a fit, or from the first seed of a training: one parameter set."""
    run = read_run(path)
    if "fit" in run.config:
        from hopplus.training.fits import open_fit

        if run.config["fit"] not in (module, "subgoals") or module == "policy":
            raise InputError(f"{path} is a fit of {run.config['fit']}, which is no {module}")
        return open_fit(path).params()
    from hopplus.training.recipes import make_recipe

    trained = open_run(path)
    recipe = make_recipe(trained.config["recipe"], trained.config["settings"])
    modules = recipe.modules(trained.policies()[0].params)
    if module not in modules:
        raise InputError(f"{path} was trained by {recipe.name}, which has no {module}")
    return modules[module]


def _check(module: str, path: str, learnt: Params, own: Mapping[str, Any]) -> None:
    given, needed = (jax.tree_util.tree_leaves_with_path(tree) for tree in (learnt, own))
    one = {jax.tree_util.keystr(place): leaf.shape for place, leaf in given}
    other = {jax.tree_util.keystr(place): leaf.shape[1:] for place, leaf in needed}
    for place in sorted(one.keys() | other.keys()):
        if one.get(place) != other.get(place):
            raise InputError(
                f"the {module} of {path} does not fit: its {place} is {one.get(place)}, and here it is"
                f" {other.get(place)}; goals, widths and boards must be the same"
            )
