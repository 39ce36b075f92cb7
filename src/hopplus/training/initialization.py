"""Initial parameters of modules, from another run or fit."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from hopplus.algorithms import make_algorithm
from hopplus.algorithms.base import Algorithm, CurriculumPhase
from hopplus.core.errors import InputError
from hopplus.players import Params
from hopplus.training.run import open_run, read_run


def load_init_params(texts: Sequence[str], algorithm: Algorithm, phase: CurriculumPhase) -> dict[str, Params]:
    """Returns the parameters of `MODULE=RUN` texts by module; InputError where they do not fit the algorithm."""
    if not texts:
        return {}
    state = jax.eval_shape(lambda key: algorithm.init(key, phase, {}), jax.random.key(0))
    modules = algorithm.modules(algorithm.params(state))
    init_params: dict[str, Params] = {}
    for text in texts:
        module, _, path = text.partition("=")
        if module not in modules or not path:
            raise InputError(f"init is written MODULE=RUN with one of {', '.join(modules)}, not {text!r}")
        params = _load(module, Path(path))
        if module == "moa" and "worth" in modules[module] and "worth" not in params:
            params = {**params, "worth": jnp.zeros_like(params["prior"])}  # an offline fit has no returns of goals
        _check(module, path, params, modules[module])
        init_params[module] = params
    return init_params


def _load(module: str, path: Path) -> Params:
    """One parameter set of a module, from a fit or from the first seed of a training."""
    run = read_run(path)
    if "fit" in run.config:
        from hopplus.training.fitted import open_fit

        if run.config["fit"] not in (module, "subgoals") or module == "policy":
            raise InputError(f"{path} is a fit of {run.config['fit']}, which is no {module}")
        return open_fit(path).params()
    trained = open_run(path)
    algorithm = make_algorithm(trained.config["algorithm"], trained.config["settings"])
    modules = algorithm.modules(trained.policies()[0].params)
    if module not in modules:
        raise InputError(f"{path} was trained by {algorithm.name}, which has no {module}")
    return modules[module]


def _check(module: str, path: str, params: Params, fresh: Mapping[str, Any]) -> None:
    """Raises InputError where the shapes of given parameters differ from those of fresh sets [P, ...]."""
    given, needed = (jax.tree_util.tree_leaves_with_path(tree) for tree in (params, fresh))
    shapes = {jax.tree_util.keystr(place): leaf.shape for place, leaf in given}
    expected = {jax.tree_util.keystr(place): leaf.shape[1:] for place, leaf in needed}
    for place in sorted(shapes.keys() | expected.keys()):
        if shapes.get(place) != expected.get(place):
            raise InputError(
                f"the {module} of {path} does not fit: its {place} is {shapes.get(place)}, and here it is"
                f" {expected.get(place)}; goals, widths, boards, preference models and the plan head of learn=both must"
                " be the same"
            )
