"""Request guard and path checks of the server, tested as functions."""

from pathlib import Path

import pytest

from hopplus.human_play.guard import LARGEST_BODY, why_refused
from hopplus.human_play.run_index import NotFoundError, check_links, inside

HOST = {b"host": b"127.0.0.1:8477"}
JSON = {**HOST, b"content-type": b"application/json"}


@pytest.mark.parametrize(
    ("method", "headers"),
    [
        ("GET", HOST),
        ("GET", {b"host": b"localhost:8477", b"origin": b"http://localhost:8477"}),
        ("POST", {**JSON, b"content-length": str(LARGEST_BODY).encode()}),
    ],
)
def test_requests_of_the_page_are_accepted(method: str, headers: dict[bytes, bytes]) -> None:
    assert why_refused(method, headers, "127.0.0.1") is None


@pytest.mark.parametrize(
    ("method", "headers", "code"),
    [
        ("PUT", JSON, 405),
        ("GET", {}, 403),
        ("GET", {b"host": b"evil.example"}, 403),
        ("GET", {b"host": b"127.0.0.1.evil.example:80"}, 403),
        ("GET", {**HOST, b"origin": b"http://evil.example"}, 403),
        ("POST", {**JSON, b"origin": b"null"}, 403),
        ("POST", {**JSON, b"origin": b"http://127.0.0.1:1"}, 403),
        ("POST", HOST, 415),
        ("POST", {**HOST, b"content-type": b"text/plain"}, 415),
        ("POST", {**JSON, b"content-length": str(LARGEST_BODY + 1).encode()}, 413),
    ],
)
def test_requests_of_other_sites_are_refused(method: str, headers: dict[bytes, bytes], code: int) -> None:
    refused = why_refused(method, headers, "127.0.0.1")
    assert refused is not None
    assert refused[0] == code


@pytest.fixture
def served(tmp_path: Path) -> Path:
    """A served directory with one run, beside a directory that is not served."""
    for name in ("served/runs/small", "outside"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "served" / "link").symlink_to(tmp_path / "outside")
    return tmp_path / "served"


def test_a_name_leads_into_the_directory(served: Path) -> None:
    assert inside(served, "runs/small") == served / "runs" / "small"


@pytest.mark.parametrize("name", ["", "..", "runs/../../outside", "/etc", "runs\\small", "C:", "link", "link/x"])
def test_a_name_that_leads_out_of_the_directory_is_rejected(served: Path, name: str) -> None:
    with pytest.raises(NotFoundError):
        inside(served, name)


def test_a_run_with_a_link_that_leads_out_is_rejected(served: Path) -> None:
    run = served / "runs" / "small"
    (run / "itself").symlink_to(run)
    check_links(served, run)
    (run / "secret").symlink_to(served.parent / "outside")
    with pytest.raises(NotFoundError, match="leads out"):
        check_links(served, run)
