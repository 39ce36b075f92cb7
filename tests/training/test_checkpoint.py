"""Checkpoints, atomic writes and locks, without a training."""

import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hopplus.core.errors import DamagedCheckpointWarning, InputError
from hopplus.core.files import write_bytes
from hopplus.core.struct import names_and_leaves
from hopplus.networks.train_state import TrainState
from hopplus.training import checkpoint
from hopplus.training.run import is_locked, locked


def learner(scale: float) -> TrainState:
    """Parameters and optimiser moments, none of them 0."""
    return TrainState({"kernel": jnp.full((2, 3), scale)}, {"mean": jnp.full(3, 2 * scale), "key": jax.random.key(7)})


def leaves(state: Any) -> dict[str, np.ndarray]:
    return {name: checkpoint._plain(leaf) for name, leaf in names_and_leaves(state).items()}


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def test_a_state_is_restored_with_its_optimiser_and_keys(tmp_path: Path) -> None:
    saved = learner(1.5)
    checkpoint.save(tmp_path, 3, saved, {"steps": 12})
    loaded = checkpoint.load(tmp_path)
    assert (loaded.number, loaded.notes, loaded.damaged) == (3, {"steps": 12}, ())
    restored = checkpoint.restore(learner(0.0), loaded.arrays)
    assert jax.tree.structure(restored) == jax.tree.structure(saved)
    jax.tree.map(np.testing.assert_array_equal, leaves(restored), leaves(saved))
    assert restored.opt_state["key"].dtype == saved.opt_state["key"].dtype


def test_the_checkpoint_before_a_damaged_one_is_used(tmp_path: Path) -> None:
    paths = [checkpoint.save(tmp_path, number, learner(number), {}) for number in (1, 2, 3)]
    assert checkpoint.list_checkpoints(tmp_path) == [paths[2], paths[1]], "two are kept"
    damage(paths[2])
    with pytest.warns(DamagedCheckpointWarning, match=paths[2].name):
        loaded = checkpoint.load(tmp_path)
    assert (loaded.number, loaded.path, loaded.damaged) == (2, paths[1], (paths[2],))
    np.testing.assert_array_equal(loaded.arrays["params/kernel"], np.full((2, 3), 2.0, np.float32))
    damage(paths[1])
    with pytest.raises(InputError, match=r"all checkpoints in .* are damaged"):
        checkpoint.load(tmp_path)


def test_a_checkpoint_of_another_shape_is_rejected(tmp_path: Path) -> None:
    arrays = checkpoint.load(checkpoint.save(tmp_path, 1, learner(1.0), {}).parent).arrays
    with pytest.raises(InputError, match=r"params/kernel is float32\[1\], not what it should be"):
        checkpoint.restore(learner(0.0), {**arrays, "params/kernel": np.zeros(1, np.float32)})
    with pytest.raises(InputError, match="they differ in params/bias"):
        checkpoint.restore(learner(0.0), {**arrays, "params/bias": np.zeros(1, np.float32)})


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "file"
    target.write_bytes(b"old")

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match="No space left on device"):
        write_bytes(target, b"new", durable=True)
    assert target.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_directory_is_locked_until_its_owner_is_done(tmp_path: Path) -> None:
    with locked(tmp_path):
        assert is_locked(tmp_path)
        with pytest.raises(InputError, match="another training is writing into"), locked(tmp_path):
            pass
    assert not is_locked(tmp_path)
    with locked(tmp_path):
        pass


def test_a_checkpoint_of_another_format_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint.save(tmp_path, 1, learner(1.0), {})
    monkeypatch.setattr(checkpoint, "FORMAT", 2)
    with pytest.raises(InputError, match="has format 1, and this version of hopplus reads format 2"):
        checkpoint.load(tmp_path)
