"""Checkpoints: everything that determines the future of a training, in one file that cannot be half right.

A checkpoint's name carries its number and the SHA-256 of its bytes, so that any damage shows. It appears whole or not
at all, and older ones are removed only once it is there.
"""

import hashlib
import json
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import safetensors.numpy

from hopplus.errors import DamagedCheckpointWarning, InputError
from hopplus.files import make_directory, write_bytes
from hopplus.struct import names_and_leaves
from hopplus.training.policies import nested, read_arrays

NAME = re.compile(r"\d{10}-[0-9a-f]{16}\.safetensors")
KEPT = 2
"""How many of the newest checkpoints are kept: the last one, and one to fall back on."""


@dataclass(frozen=True)
class Checkpoint:
    """What was read back."""

    number: int
    path: Path
    notes: dict[str, Any]
    arrays: dict[str, np.ndarray]
    """By the names of the state's tree."""
    damaged: tuple[Path, ...]
    """Newer ones that were passed over because their bytes are not what was written."""

    def tree(self) -> dict[str, Any]:
        """The arrays as nested mappings."""
        return nested(self.arrays)


def _plain(leaf: Any) -> np.ndarray:
    return np.ascontiguousarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)


def _is_key(leaf: Any) -> bool:
    return bool(jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key))


def _as_keys(array: np.ndarray, like: Any) -> Any:
    """Key data as keys of a template's generator, which may be an array or only its shape."""
    wrapped: list[Any] = []

    def look(key: Any) -> None:
        wrapped.append(jax.random.key_impl(key))

    jax.eval_shape(look, like)
    return jax.random.wrap_key_data(jnp.asarray(array), impl=wrapped[0])


def save(directory: Path, number: int, state: Any, notes: Mapping[str, Any], kept: int = KEPT) -> Path:
    """Write checkpoint `number`, then remove all but the newest `kept`; others of this number or a later one are of a
    training that went on from before them, since they are damaged."""
    arrays = {name: _plain(leaf) for name, leaf in names_and_leaves(jax.device_get(state)).items()}
    data = safetensors.numpy.save(arrays, {"notes": json.dumps(dict(notes))})
    path = directory / f"{number:010d}-{hashlib.sha256(data).hexdigest()[:16]}.safetensors"
    make_directory(directory)
    write_bytes(path, data, durable=True)
    others = [other for other in found(directory) if other != path]
    fallbacks = [other for other in others if number_of(other) < number][: kept - 1]
    for other in set(others) - set(fallbacks):
        other.unlink(missing_ok=True)
    return path


def found(directory: Path) -> list[Path]:
    """The checkpoints of a directory, newest first."""
    return sorted((path for path in directory.glob("*.safetensors") if NAME.fullmatch(path.name)), reverse=True)


def number_of(path: Path) -> int:
    """The number in a checkpoint's name."""
    return int(path.name.partition("-")[0])


def load(directory: Path, number: int | None = None) -> Checkpoint:
    """The newest checkpoint whose bytes are what was written, or that of a number; InputError where there is none.

    A DamagedCheckpointWarning names each newer one that is damaged.
    """
    damaged: list[Path] = []
    for path in found(directory):
        if number is not None and number_of(path) != number:
            continue
        digest = path.stem.partition("-")[2]
        data = path.read_bytes()
        if hashlib.sha256(data).hexdigest()[:16] != digest:
            damaged.append(path)
            continue
        notes, arrays = read_arrays(data, path.name)
        _warn_of(damaged, directory)
        return Checkpoint(number_of(path), path, json.loads(notes["notes"]), arrays, tuple(damaged))
    if damaged:
        raise InputError(f"all checkpoints in {directory} are damaged: {', '.join(path.name for path in damaged)}")
    raise InputError(f"there is no checkpoint in {directory}")


def _warn_of(damaged: Sequence[Path], directory: Path) -> None:
    for path in damaged:
        sentence = f"the checkpoint {path.name} of {directory.parent} is damaged; using the one before it"
        warnings.warn(DamagedCheckpointWarning(sentence), stacklevel=3)


def restore(template: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """The state of a template's structure (of arrays or shapes) from arrays by name; InputError where they differ."""
    wanted = names_and_leaves(template)
    if set(wanted) != set(arrays):
        differing = ", ".join(sorted(set(wanted) ^ set(arrays))[:3])
        raise InputError(f"the checkpoint is of another version of the training: it differs in {differing}")

    def leaf(name: str, like: Any) -> Any:
        array = arrays[name]
        if _is_key(like):
            return _as_keys(array, like)
        if array.shape != like.shape or array.dtype != like.dtype:
            raise InputError(f"the checkpoint's {name} is {array.dtype}{list(array.shape)}, not what it should be")
        return jnp.asarray(array)

    return jax.tree.unflatten(jax.tree.structure(template), [leaf(name, like) for name, like in wanted.items()])
