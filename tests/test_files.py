"""Files that appear whole or not at all: leftovers of killed processes are removed, and nothing beside them."""

import os
from pathlib import Path

import pytest

from hopplus.files import UNFINISHED, remove_unfinished


def test_leftover_files_and_directories_are_removed_at_any_depth(tmp_path: Path) -> None:
    for name in ("a", f"{UNFINISHED}1", f"inner/{UNFINISHED}2"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "kept").touch()
        (tmp_path / name / f"{UNFINISHED}3").touch()
    remove_unfinished(tmp_path)
    assert sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")) == ["a", "a/kept", "inner"]


def test_links_are_removed_and_not_followed(tmp_path: Path) -> None:
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    (outside / f"{UNFINISHED}1").mkdir(parents=True)
    (outside / "kept").touch()
    (inside / f"{UNFINISHED}2").mkdir(parents=True)
    for name in (f"{UNFINISHED}3", f"{UNFINISHED}2/link", "link"):
        try:
            (inside / name).symlink_to(outside, target_is_directory=True)
        except OSError:
            pytest.skip("this system has no links")
    (inside / f"{UNFINISHED}4").symlink_to(inside / "nowhere")
    remove_unfinished(inside)
    assert os.listdir(inside) == ["link"]
    assert sorted(os.listdir(outside)) == [f"{UNFINISHED}1", "kept"]
