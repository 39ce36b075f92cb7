"""Atomic file writes: removal of leftovers of killed processes, and durable files that survive a power failure."""

import errno
import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from hopplus.core.errors import InputError
from hopplus.core.files import UNFINISHED, remove_unfinished, write_bytes


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


# -------------------------------------------------------------------------------------------------------------- durable

POSIX = pytest.mark.skipif(sys.platform == "win32", reason="Windows cannot open a directory")


@POSIX
@pytest.mark.parametrize("durable", [True, False])
def test_a_durable_file_is_flushed_before_its_rename_and_its_directory_after(
    durable: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    fsync, replace = os.fsync, os.replace

    def record_fsync(descriptor: int) -> None:
        status = os.fstat(descriptor)
        is_parent = os.path.samestat(status, os.stat(tmp_path))
        calls.append("file" if stat.S_ISREG(status.st_mode) else "directory" if is_parent else "something else")
        fsync(descriptor)

    def record_replace(source: Any, target: Any) -> None:
        calls.append("name")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", record_fsync)
    monkeypatch.setattr(os, "replace", record_replace)
    write_bytes(tmp_path / "file", b"data", durable=durable)
    assert calls == (["file", "name", "directory"] if durable else ["name"])
    assert (tmp_path / "file").read_bytes() == b"data"


@POSIX
@pytest.mark.parametrize(("number", "fails"), [(errno.EINVAL, False), (errno.EIO, True)])
def test_a_file_system_that_cannot_sync_directories_is_no_error_and_a_broken_one_is(
    number: int, fails: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fsync(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fsync)
    if fails:
        with pytest.raises(InputError, match="cannot write"):
            write_bytes(tmp_path / "file", b"data", durable=True)
    else:
        write_bytes(tmp_path / "file", b"data", durable=True)
    assert (tmp_path / "file").read_bytes() == b"data"
