"""Checkpoints: the complete state of a training in one file.

The file name carries the checkpoint's number and the SHA-256 of its bytes, so that damage is detected. A checkpoint is
written atomically, and older ones are removed afterwards.
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

from hopplus.core.errors import DamagedCheckpointWarning, InputError
from hopplus.core.files import check_format, make_directory, write_bytes
from hopplus.core.struct import names_and_leaves
from hopplus.training.policies import nested, read_arrays

NAME = re.compile(r"\d{10}-[0-9a-f]{16}\.safetensors")
FORMAT = 1
"""Format of a checkpoint; the paths of its arrays are those of the algorithm's state."""
KEPT = 2
"""Number of checkpoints kept: the newest, and one to fall back on."""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that was read."""

    number: int
    path: Path
    notes: dict[str, Any]
    arrays: dict[str, np.ndarray]
    """Arrays by path in the state's tree."""
    damaged: tuple[Path, ...]
    """Newer checkpoints that were skipped because their bytes have changed."""

    def tree(self) -> dict[str, Any]:
        """Arrays as nested mappings."""
        return nested(self.arrays)


def _plain(leaf: Any) -> np.ndarray:
    return np.ascontiguousarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)


def _is_key(leaf: Any) -> bool:
    return bool(jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key))


def _as_keys(array: np.ndarray, like: Any) -> Any:
    """Key data as keys of the same generator as `like`, an array or a shape."""
    generators: list[Any] = []

    def note_generator(key: Any) -> None:
        generators.append(jax.random.key_impl(key))

    jax.eval_shape(note_generator, like)
    return jax.random.wrap_key_data(jnp.asarray(array), impl=generators[0])


def save(directory: Path, number: int, state: Any, notes: Mapping[str, Any], kept: int = KEPT) -> Path:
    """Writes checkpoint `number`, then removes all but the newest `kept`.

    Other checkpoints of this number or a later one are damaged: the training was resumed from before them.
    """
    arrays = {name: _plain(leaf) for name, leaf in names_and_leaves(jax.device_get(state)).items()}
    data = safetensors.numpy.save(arrays, {"notes": json.dumps({"format": FORMAT, **notes})})
    path = directory / f"{number:010d}-{hashlib.sha256(data).hexdigest()[:16]}.safetensors"
    make_directory(directory)
    write_bytes(path, data, durable=True)
    others = [other for other in list_checkpoints(directory) if other != path]
    fallbacks = [other for other in others if number_of(other) < number][: kept - 1]
    for other in set(others) - set(fallbacks):
        other.unlink(missing_ok=True)
    return path


def list_checkpoints(directory: Path) -> list[Path]:
    """Checkpoints of a directory, newest first."""
    return sorted((path for path in directory.glob("*.safetensors") if NAME.fullmatch(path.name)), reverse=True)


def number_of(path: Path) -> int:
    """Number in a checkpoint's name."""
    return int(path.name.partition("-")[0])


def load(directory: Path, number: int | None = None) -> Checkpoint:
    """Returns the newest intact checkpoint, or that of a number; InputError where there is none.

    A DamagedCheckpointWarning names each newer checkpoint that is damaged.
    """
    damaged: list[Path] = []
    for path in list_checkpoints(directory):
        if number is not None and number_of(path) != number:
            continue
        digest = path.stem.partition("-")[2]
        data = path.read_bytes()
        if hashlib.sha256(data).hexdigest()[:16] != digest:
            damaged.append(path)
            continue
        notes, arrays = read_arrays(data, path.name)
        _warn_of(damaged, directory)
        described = json.loads(notes["notes"])
        check_format(path, described.pop("format", None), FORMAT)
        return Checkpoint(number_of(path), path, described, arrays, tuple(damaged))
    if damaged:
        raise InputError(f"all checkpoints in {directory} are damaged: {', '.join(path.name for path in damaged)}")
    raise InputError(f"there is no checkpoint in {directory}")


def _warn_of(damaged: Sequence[Path], directory: Path) -> None:
    for path in damaged:
        sentence = f"the checkpoint {path.name} of {directory.parent} is damaged; using the one before it"
        warnings.warn(DamagedCheckpointWarning(sentence), stacklevel=3)


def restore(template: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """Returns the state with a template's structure from arrays by path; InputError where they do not match."""
    wanted = names_and_leaves(template)
    if set(wanted) != set(arrays):
        differing = ", ".join(sorted(set(wanted) ^ set(arrays))[:3])
        raise InputError(f"the checkpoint is of another version of the training: they differ in {differing}")

    def leaf(name: str, like: Any) -> Any:
        array = arrays[name]
        if _is_key(like):
            return _as_keys(array, like)
        if array.shape != like.shape or array.dtype != like.dtype:
            raise InputError(f"the checkpoint's {name} is {array.dtype}{list(array.shape)}, not what it should be")
        return jnp.asarray(array)

    return jax.tree.unflatten(jax.tree.structure(template), [leaf(name, like) for name, like in wanted.items()])
