"""Boards as text and pictures: all contents are visible, and files are written atomically."""

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image, ImageFont

from hopplus.games import Snowdrift, StagHunt
from hopplus.visualization import (
    Frame,
    as_image,
    as_svg,
    as_text,
    describe,
    frame_of,
    picture_of,
    save_gif,
    save_png,
    save_svg,
)
from hopplus.visualization.shapes import ShapeGroup, Text
from hopplus.visualization.style import BLOCK, SEAT_COLOURS

CODES = re.compile(r"\x1b\[[0-9;]*m")
HUNT = Frame(
    height=4,
    width=5,
    players=((0, 0), (2, 3), (2, 3), None),
    things={"block": ((1, 1), (1, 2)), "stag": ((2, 3),), "hare": ((3, 0), (0, 4))},
    last_actions=("UP", "RIGHT", "STAY", "HARE"),
    rewards=(0.0, 2.5, -4.0, 1 / 3),
    totals=(0.0, 12.25, -3.0, 1 / 3),
    time=7,
    deadline=35,
    player_names=("ns", "noisy", "random", "nh"),
    title="hunt & <hare>",
)
CROWD = replace(
    HUNT,
    players=((2, 3),) * 8,
    last_actions=("UP", "DOWN", "LEFT", "RIGHT", "STAY", "STAG", "HARE", "UP"),
    rewards=(0.0,) * 8,
    totals=(0.0,) * 8,
    player_names=tuple(f"p{seat}" for seat in range(8)),
)


def cells_of(text: str, frame: Frame) -> dict[tuple[int, int], str]:
    """Returns the text of each cell, without spaces."""
    lines = [line for line in text.splitlines() if "│" in line]
    assert len(lines) == frame.height
    rows = [line.split("│")[1:-1] for line in lines]
    assert all(len(row) == frame.width for row in rows)
    return {(row, column): cell.strip() for row, cells in enumerate(rows) for column, cell in enumerate(cells)}


def labels(frame: Frame) -> list[str]:
    """Returns the labels of the shapes on the board."""
    return [shape.label for shape in picture_of(frame).shapes if isinstance(shape, ShapeGroup)]


def svg_texts(svg: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


def board_cell(frame: Frame, cell: tuple[int, int]) -> np.ndarray:
    """Returns the pixels of one cell; the board is located by its only rectangle without a filling."""
    border = next(shape for shape in picture_of(frame).shapes if getattr(shape, "fill", "") is None)
    side = round(border.width / frame.width)  # pyright: ignore[reportAttributeAccessIssue]
    left, top = round(border.x + cell[1] * side), round(border.y + cell[0] * side)  # pyright: ignore[reportAttributeAccessIssue]
    return np.asarray(as_image(frame))[top : top + side, left : left + side]


# ------------------------------------------------------------------------------------------------------- frame_of


def test_a_frame_shows_the_state() -> None:
    game = StagHunt(height=4, width=5, players=3, stags=1, hares=2, blocks=1)
    state = game.from_layout(
        players=[(0, 0), (2, 3), None],
        stags=[(2, 3)],
        hares=[(3, 4)],
        blocks=[(1, 1)],
        time=3,
        deadline=8,
        last_actions=[0, 3, 6],
    )
    frame = frame_of(
        game, state, rewards=np.array([0, 0.5, 1]), totals=[1, 2, 3], player_names=["a", "b", "c"], title="t"
    )
    assert frame == Frame(
        height=4,
        width=5,
        players=((0, 0), (2, 3), None),
        things={"block": ((1, 1),), "stag": ((2, 3),), "hare": ((3, 4),)},
        last_actions=("UP", "RIGHT", "HARE"),
        rewards=(0.0, 0.5, 1.0),
        totals=(1.0, 2.0, 3.0),
        time=3,
        deadline=8,
        player_names=("a", "b", "c"),
        title="t",
    )
    plain = {type(value) for cell in frame.players if cell for value in cell} | {type(frame.time), type(frame.deadline)}
    assert plain == {int}


def test_a_first_state_has_no_last_actions() -> None:
    game = Snowdrift(players=2, drifts=1)
    frame = frame_of(game, game.from_layout(players=[(0, 0), (0, 0)], drifts=[(3, 3)]))
    assert frame.last_actions is None
    assert frame.rewards is None
    assert frame.player_names == ("player 0", "player 1")
    assert "STAY" not in as_text(frame) + as_svg(frame)


@dataclass(frozen=True)
class Coins(Snowdrift):
    """Custom game with items and actions that the board does not know."""

    action_names: ClassVar[tuple[str, ...]] = ("UP", "DOWN", "LEFT", "RIGHT", "WAIT", "GRAB")
    item_names: ClassVar[tuple[str, ...]] = ("coin",)


def test_a_custom_game_is_shown_like_a_built_in_one() -> None:
    game = Coins(players=2, drifts=3)
    state = replace(jax.jit(game.init)(jax.random.key(0)), time=jnp.int32(1))
    frame = frame_of(game, state)
    assert list(frame.things) == ["block", "coin"]
    assert len(frame.things["coin"]) == 3
    assert frame.last_actions == ("WAIT", "WAIT")
    assert frame.idle_action == "WAIT"
    assert sum("C" in cell for cell in cells_of(as_text(frame, colour=False), frame).values()) == 3
    assert sum(label.startswith("coin on") for label in labels(frame)) == 3


def test_a_frame_with_missing_entries_or_cells_off_the_board_is_refused() -> None:
    with pytest.raises(ValueError, match="rewards must have one entry for each of 4 players"):
        replace(HUNT, rewards=(1.0,))
    with pytest.raises(ValueError, match=r"the stag at .* is off the 4x5 board"):
        replace(HUNT, things={"stag": ((4, 0),)})


# ----------------------------------------------------------------------------------------------------------- text


@pytest.mark.parametrize("colour", [True, False])
def test_the_text_shows_all_items_in_their_cells(colour: bool) -> None:
    text = as_text(HUNT, colour=colour)
    assert bool(CODES.search(text)) == colour
    shown = {cell: content for cell, content in cells_of(CODES.sub("", text), HUNT).items() if content}
    assert shown == {(0, 0): "0", (0, 4): "h", (1, 1): "█████", (1, 2): "█████", (2, 3): "S12", (3, 0): "h"}


def test_colour_changes_nothing_but_the_codes() -> None:
    assert CODES.sub("", as_text(CROWD, colour=True)) == as_text(CROWD, colour=False)


def test_the_text_has_a_line_for_each_player() -> None:
    lines = [line.split() for line in as_text(HUNT, colour=False).splitlines()]
    assert ["0", "ns", "↑", "UP", "0", "0"] in lines
    assert ["1", "noisy", "→", "RIGHT", "+2.5", "12.25"] in lines
    assert ["2", "random", "STAY", "-4", "-3"] in lines
    assert ["3", "nh", "HARE", "+0.33", "0.33", "left"] in lines


def test_all_borders_of_a_crowded_text_board_line_up() -> None:
    wide = replace(CROWD, height=19, width=19)
    lines = [line for line in as_text(wide, colour=False).splitlines() if set(line) & set("│┌└")]
    assert len({len(line) for line in lines}) == 1
    edges = {tuple(place for place, letter in enumerate(line) if letter in "│┌┬┐└┴┘") for line in lines}
    assert len(edges) == 1
    assert cells_of("\n".join(lines), wide)[2, 3] == "S01234567"


def test_items_of_other_games_get_distinct_letters() -> None:
    frame = replace(HUNT, things={"coin": ((0, 1),), "cake": ((0, 2),), "stag": ((0, 3),)})
    shown = cells_of(as_text(frame, colour=False), frame)
    assert (shown[0, 1], shown[0, 2], shown[0, 3]) == ("C", "A", "S")
    assert {"coin on row 0, column 1", "cake on row 0, column 2"} <= set(labels(frame))
    assert {"C", "A"} <= set(svg_texts(as_svg(frame)))


# ------------------------------------------------------------------------------------------------------------ SVG


def test_the_svg_shows_all_contents() -> None:
    svg = as_svg(HUNT)
    root = ElementTree.fromstring(svg)
    titles = [element.text for element in root.iter("{http://www.w3.org/2000/svg}title")]
    assert titles[0] == "hunt & <hare>, step 7 of 35"
    assert sorted(filter(None, titles[1:])) == sorted(
        [
            "block on row 1, column 1",
            "block on row 1, column 2",
            "hare on row 0, column 4",
            "hare on row 3, column 0",
            "seat 0 (ns) on row 0, column 0, last action UP",
            "seat 1 (noisy) on row 2, column 3, last action RIGHT",
            "seat 2 (random) on row 2, column 3, last action STAY",
            "stag on row 2, column 3",
        ]
    )
    texts = svg_texts(svg)
    assert {"ns", "noisy", "random", "nh", "RIGHT", "HARE, left", "+2.5", "-4", "12.25", "step 7 of 35"} <= set(texts)


def test_the_svg_describes_the_board_in_words() -> None:
    description = ElementTree.fromstring(as_svg(HUNT)).findtext("{http://www.w3.org/2000/svg}desc")
    assert description == describe(HUNT)
    assert "Seat 1 (noisy) stands on row 2, column 3, last action RIGHT, reward +2.5, total 12.25." in describe(HUNT)
    assert "Seat 3 (nh) has left" in describe(HUNT)
    assert "Hare: row 3, column 0; row 0, column 4." in describe(HUNT)


def test_long_names_do_not_run_into_the_next_column() -> None:
    frame = replace(HUNT, player_names=("a very long name " * 9, "b", "c", "d"))
    texts = [shape for shape in picture_of(frame).shapes if isinstance(shape, Text)]
    name = next(text for text in texts if text.text.startswith("a very"))
    action = next(text for text in texts if text.text == "last action")
    assert name.text.endswith("…")
    assert name.x + ImageFont.load_default(name.size).getlength(name.text) < action.x


# --------------------------------------------------------------------------------------------------------- crowds


@pytest.mark.parametrize("number", range(1, 9))
@pytest.mark.parametrize("things", [{}, {"stag": ((2, 3),)}, {"coin": ((2, 3),), "stag": ((2, 3),)}])
def test_nothing_in_a_crowd_leaves_its_cell_or_hides_a_number(number: int, things: dict) -> None:
    frame = replace(
        HUNT,
        players=((2, 3),) * number,
        things=things,
        last_actions=("STAY",) * number,
        rewards=None,
        totals=None,
        player_names=("p",) * number,
    )
    size = 100
    groups = [shape for shape in picture_of(frame, cell_size=size).shapes if isinstance(shape, ShapeGroup)]
    numbers = [
        part for group in groups if group.label.startswith("seat") for part in group.shapes if isinstance(part, Text)
    ]
    assert [text.text for text in numbers] == [str(seat) for seat in range(number)]
    places = np.array([(text.x, text.y) for text in numbers])
    apart = np.linalg.norm(places[:, None] - places, axis=-1) + np.eye(number) * size
    disc = 2 * 0.37 * numbers[0].size / 0.5
    assert apart.min() > disc
    assert np.ptp(places, axis=0).max() + disc <= size
    assert len(groups) == number + len(things)


def test_every_player_on_one_cell_has_its_number_and_colour() -> None:
    texts = svg_texts(as_svg(CROWD))
    assert all(texts.count(str(seat)) >= 2 for seat in range(8))
    pixels = {tuple(pixel) for pixel in board_cell(CROWD, (2, 3)).reshape(-1, 3).tolist()}
    assert {tuple(bytes.fromhex(colour[1:])) for colour in SEAT_COLOURS} <= pixels


def test_a_player_that_has_left_is_in_the_panel_only() -> None:
    assert not any(label.startswith("seat 3") for label in labels(HUNT))
    assert svg_texts(as_svg(replace(HUNT, width=3, height=3, things={}, players=(None,) * 4))).count("3") == 1


# -------------------------------------------------------------------------------------------------- PNG and GIF


@pytest.mark.parametrize(("side", "cell_size", "expected"), [(4, None, 80), (8, None, 70), (19, None, 40), (8, 50, 50)])
def test_an_image_is_a_board_of_cells_of_the_size_and_a_panel(side: int, cell_size: int | None, expected: int) -> None:
    frame = replace(HUNT, height=side, width=side, players=(None,) * 4, things={})
    image, reference = as_image(frame, cell_size), as_image(frame, expected)
    assert image.mode == "RGB"
    assert image.size == reference.size
    assert side * expected + 350 < image.width < side * expected + 500
    assert side * expected + 60 < image.height < side * expected + 100


def test_blocks_are_dark_and_free_cells_are_light() -> None:
    block, free = board_cell(HUNT, (1, 1)), board_cell(HUNT, (3, 4))
    assert (block[2:-2, 2:-2] == list(bytes.fromhex(BLOCK[1:]))).all()
    assert free[3:-3, 3:-3].min() > 230


@pytest.mark.parametrize("kind", ["stag", "hare", "drift", "coin"])
def test_every_kind_of_item_is_drawn(kind: str) -> None:
    empty = replace(HUNT, things={kind: ()})
    drawn = replace(HUNT, things={kind: ((3, 4),)})
    changed = (board_cell(empty, (3, 4)) != board_cell(drawn, (3, 4))).any(-1)
    assert changed.mean() > 0.1
    assert (board_cell(empty, (3, 3)) == board_cell(drawn, (3, 3)))[:, :-2].all()


@pytest.mark.parametrize("action", ["UP", "DOWN", "LEFT", "RIGHT"])
def test_a_move_shows_on_the_side_it_went_to(action: str) -> None:
    frame = replace(HUNT, players=((3, 3), None, None, None), things={})
    still, moved = (
        board_cell(replace(frame, last_actions=(last, "STAY", "STAY", "STAY")), (3, 3)) for last in ("STAY", action)
    )
    rows, columns = np.nonzero((still != moved).any(-1))
    middle = (len(still) - 1) / 2
    assert len(rows) > 20
    direction = {"UP": -rows, "DOWN": rows, "LEFT": -columns, "RIGHT": columns}[action]
    sign = 1 if action in ("DOWN", "RIGHT") else -1
    assert (direction - sign * middle > 0).all()


def test_save_png_writes_the_image(tmp_path: Path) -> None:
    save_png(tmp_path / "board.png", HUNT)
    with Image.open(tmp_path / "board.png") as image:
        assert (np.asarray(image) == np.asarray(as_image(HUNT))).all()
    save_svg(tmp_path / "board.svg", HUNT)
    assert (tmp_path / "board.svg").read_text(encoding="utf-8") == as_svg(HUNT)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["board.png", "board.svg"]


def test_a_gif_has_all_frames_loops_and_holds_the_last(tmp_path: Path) -> None:
    frames = [replace(HUNT, time=time, title="" if time == 2 else "hunt") for time in range(5)]
    save_gif(tmp_path / "game.gif", frames, seconds_per_frame=0.2)
    with Image.open(tmp_path / "game.gif") as image:
        durations = []
        for number in range(image.n_frames):  # pyright: ignore[reportAttributeAccessIssue]
            image.seek(number)
            durations.append(image.info["duration"])
            assert image.convert("RGB").getpixel((1, 1)) == (255, 255, 255)
        assert durations == [200, 200, 200, 200, 800]
        assert image.info["loop"] == 0
        assert image.size == as_image(frames[0]).size
        last = np.asarray(image.convert("RGB")).astype(int)
    assert abs(last - np.asarray(as_image(frames[-1])).astype(int)).mean() < 1


@pytest.mark.parametrize(("frames", "seconds"), [([], 0.5), ([HUNT], 0.0), ([HUNT], float("nan"))])
def test_an_invalid_animation_is_refused(tmp_path: Path, frames: list[Frame], seconds: float) -> None:
    with pytest.raises(ValueError, match=r"at least one frame|seconds_per_frame must be"):
        save_gif(tmp_path / "game.gif", frames, seconds)
    assert not list(tmp_path.iterdir())


# ------------------------------------------------------------------------------------------------------ bad places


@pytest.mark.parametrize(
    "save", [save_png, save_svg, lambda path, frame: save_gif(path, [frame])], ids=["png", "svg", "gif"]
)
def test_an_unwritable_path_is_one_clear_error_and_leaves_no_file(
    tmp_path: Path, save: Callable[[Path, Frame], None]
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("kept")
    for place in ("missing/board", "folder", "file/board"):
        with pytest.raises(ValueError, match=rf"^cannot write .*{place}: "):
            save(tmp_path / place, HUNT)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "folder"]
    assert (tmp_path / "file").read_text() == "kept"


def test_a_failed_write_keeps_the_old_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_png(tmp_path / "board.png", HUNT)
    before = (tmp_path / "board.png").read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(ValueError, match="No space left on device"):
        save_png(tmp_path / "board.png", CROWD)
    assert [path.name for path in tmp_path.iterdir()] == ["board.png"]
    assert (tmp_path / "board.png").read_bytes() == before
