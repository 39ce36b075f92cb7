"""Where everything is in the picture of what players think: a row for each that thinks, with a bar for each co-player
that shows what it may be after, and what it makes of its own actions."""

import math
from collections.abc import Iterator, Mapping

from hopplus.report import glyphs
from hopplus.report.frame import Frame
from hopplus.report.shapes import Group, Line, Rectangle, Shape, Shapes, Text, placed
from hopplus.report.style import (
    CHIP_ROOM,
    CHIP_SIDE,
    FAINT_INK,
    GRID_LINE,
    INK,
    NOTHING,
    SMALL_SIZE,
    TEXT_SIZE,
    font,
    goal_colour,
    seat_colour,
    shortened,
)
from hopplus.report.thoughts import Belief, Reasoning, Thinking, likeliest
from hopplus.report.words import aligned, believed, share

TITLE_HEIGHT, HEAD_HEIGHT, ROW_HEIGHT, LEGEND_HEIGHT = 30, 30, 50, 26
MOST_BAR_WIDTH, BAR_HEIGHT, BAR_GAP, WORD_GAP, SMALL_CHIP = 190, 14, 20, 10, 22
ARROW_ROOM = 4 / 3
"""Of an arrow, in sizes of the text behind it."""
ACTION_WIDTH, ACTIONS_GAP, GAUGE_WIDTH = 54, 48, 38
TITLE_SIZE, SWATCH, SWATCH_GAP, LEGEND_GAP = TEXT_SIZE + 2, 13, 18, 6
TITLE = "What they think"
SUBTITLES = ("what another will probably do", "what another may be after; below, its likeliest goal and next action")
"""Where there is but one goal, and where there are more."""
NOBODY = "nothing more: whoever thinks has left, or the episode is over"


def thinking_size(frame: Frame) -> tuple[int, int]:
    """How wide and high the table is; 0 where nobody thinks."""
    if frame.thinking is None:
        return 0, 0
    bars = len(_subjects(frame)) * (_bar_width(frame.thinking) + BAR_GAP)
    width = math.ceil(CHIP_ROOM + bars + ACTIONS_GAP + len(frame.thinking.actions) * ACTION_WIDTH)
    lines = len(_legend_lines(frame.thinking, width))
    legend = LEGEND_HEIGHT * lines + LEGEND_GAP if lines else 0
    return width, TITLE_HEIGHT + HEAD_HEIGHT + ROW_HEIGHT * len(frame.thinking.by_seat) + legend


def thinking_table(frame: Frame, left: float, top: float) -> Iterator[Shape]:
    """The title, the heads, one row for each player that thinks, and which colour is which goal."""
    if frame.thinking is None:
        return
    thinking, (width, _) = frame.thinking, thinking_size(frame)
    wide, first = _bar_width(thinking) + BAR_GAP, left + CHIP_ROOM
    columns = {seat: first + place * wide for place, seat in enumerate(_subjects(frame))}
    first += len(columns) * wide + ACTIONS_GAP
    actions = {name: first + (place + 0.5) * ACTION_WIDTH for place, name in enumerate(thinking.actions)}
    yield from placed(_title(thinking, width), left, top + TITLE_HEIGHT / 2, 1.0)
    y = top + TITLE_HEIGHT + HEAD_HEIGHT
    yield from _heads(frame, columns, actions, y - HEAD_HEIGHT / 2)
    yield Line(((left, y), (left + width, y)), GRID_LINE, 1)
    for seat, own in thinking.by_seat.items():
        yield from placed(_chip(frame, seat), left + CHIP_SIDE / 2, y + ROW_HEIGHT / 2, CHIP_SIDE)
        if own is not None:
            yield from _beliefs(thinking, seat, own, columns, y + ROW_HEIGHT / 2)
            yield from _actions(seat, own, actions, y + ROW_HEIGHT / 2)
        y += ROW_HEIGHT
    y += LEGEND_GAP
    for line in _legend_lines(thinking, width):
        yield from placed(_legend(thinking, line), left + CHIP_ROOM, y + LEGEND_HEIGHT / 2, 1.0)
        y += LEGEND_HEIGHT


def written_action(name: str, words: str, x: float, y: float, size: float, colour: str, room: float) -> Shapes:
    """What is to be said of an action, beginning at x: after an arrow if it is a move."""
    side, indent = size * 14 / 15, size * ARROW_ROOM if name in glyphs.DIRECTIONS else 0.0
    mark = placed(glyphs.arrow(name, colour), x + side / 2, y, side) if indent else ()
    return (*mark, Text(x + indent, y, shortened(words, size, room - indent), size, colour))


def _subjects(frame: Frame) -> list[int]:
    """The seats that somebody thinks about: all, but for one who is the only one to think."""
    thinkers = set(frame.thinking.by_seat if frame.thinking else ())
    return [seat for seat in range(len(frame.players)) if thinkers - {seat}]


def _chip(frame: Frame, seat: int) -> Shapes:
    return glyphs.absent_player(seat) if frame.players[seat] is None else glyphs.player(seat, None)


def _title(thinking: Thinking, width: float) -> Iterator[Shape]:
    """The title, and what is to be seen."""
    beside = font(TITLE_SIZE).getlength(TITLE) + 12
    subtitle = SUBTITLES[len(thinking.goals) > 1] if thinking.reasonings else NOBODY
    yield Text(0, 0, TITLE, TITLE_SIZE, INK)
    yield Text(beside, 1, shortened(subtitle, SMALL_SIZE, width - beside), SMALL_SIZE, FAINT_INK)


def _heads(frame: Frame, columns: Mapping[int, float], actions: Mapping[str, float], y: float) -> Iterator[Shape]:
    for seat, x in columns.items():
        yield Text(x, y, "about", SMALL_SIZE, FAINT_INK)
        yield from placed(_chip(frame, seat), x + font(SMALL_SIZE).getlength("about") + 18, y, SMALL_CHIP)
    for name, x in actions.items():
        yield Text(x, y, shortened(name, SMALL_SIZE, ACTION_WIDTH - 4), SMALL_SIZE, FAINT_INK, "middle")


# ---------------------------------------------------------------------------------------------------- one row


def _beliefs(thinking: Thinking, seat: int, own: Reasoning, columns: Mapping[int, float], y: float) -> Iterator[Shape]:
    """A bar of goals for each co-player, below it the likeliest one and the likeliest action."""
    width = _bar_width(thinking)
    for belief in own.beliefs:
        x, below, shapes = columns[belief.about], y + 12, []
        action, chance = likeliest(belief.actions)
        words, room = _foreseen(action, chance)
        if len(belief.goals) > 1:
            goal = _goal(belief, width - room - WORD_GAP)
            shapes += (*_bar(thinking, belief, x, y - 16, width), Text(x, below, goal, SMALL_SIZE, INK))
            x += width - room
        shapes += written_action(action, words, x, below if shapes else y, SMALL_SIZE, FAINT_INK, width)
        yield Group(f"seat {seat} about seat {belief.about}: {believed(belief)}", tuple(shapes))


def _bar_width(thinking: Thinking) -> float:
    """Room for any goal and any action below the bar, unless the names are very long."""
    goals = (font(SMALL_SIZE).getlength(f"{name} 100%") + WORD_GAP for name in thinking.goals)
    actions = max(_foreseen(name, 1.0)[1] for name in thinking.actions)
    return min(MOST_BAR_WIDTH, (max(goals) if len(thinking.goals) > 1 else 0) + actions)


def _foreseen(action: str, chance: float) -> tuple[str, float]:
    """What is said of an action that somebody will probably take, a move being only an arrow, and the room it takes."""
    is_move = action in glyphs.DIRECTIONS
    words = share(chance) if is_move else shortened(f"{action} {share(chance)}", SMALL_SIZE, MOST_BAR_WIDTH / 2)
    return words, font(SMALL_SIZE).getlength(words) + (SMALL_SIZE * ARROW_ROOM if is_move else 0)


def _goal(belief: Belief, room: float) -> str:
    """The likeliest goal and how likely it is, the name shortened where there is no room."""
    name, probability = likeliest(belief.goals)
    chance = f" {share(probability)}"
    return shortened(name, SMALL_SIZE, room - font(SMALL_SIZE).getlength(chance)) + chance


def _bar(thinking: Thinking, belief: Belief, x: float, y: float, length: float) -> Iterator[Shape]:
    """What a co-player may be after, as parts of a whole."""
    begin = x
    for name, probability in thinking.shown(belief).items():
        width = length * probability
        if width > 0.3:
            yield Rectangle(begin, y, width, BAR_HEIGHT, _colour(thinking, name))
        begin += width
    yield Rectangle(x, y, length, BAR_HEIGHT, fill=None, outline=FAINT_INK, stroke=1)


def _colour(thinking: Thinking, goal: str) -> str:
    return goal_colour(goal, (*thinking.goals, goal).index(goal))


def _actions(seat: int, own: Reasoning, actions: Mapping[str, float], y: float) -> Iterator[Shape]:
    """Every legal action: what it is worth by the search and how often it was tried, or how likely it is; the likeliest
    is framed."""
    upper, lower, best = y - 9, y + 10, likeliest(own.chances)[0]
    before = min(actions.values()) - ACTION_WIDTH / 2 - 4
    for words, height in (("value", upper), ("visits", lower)) if own.search else (("chance", upper),):
        yield Text(before, height, words, SMALL_SIZE, FAINT_INK, "end")
    for name, chance in own.chances.items():
        x, shapes = actions[name], []
        if name == best:
            box = (x - ACTION_WIDTH / 2 + 3, y - ROW_HEIGHT / 2 + 5, ACTION_WIDTH - 6, ROW_HEIGHT - 9)
            shapes.append(Rectangle(*box, fill=None, outline=seat_colour(seat), stroke=2, radius=7))
        if own.search:
            worth, tried = aligned(own.search.values[name]), own.search.visits[name]
            shapes.append(Text(x, upper, worth, SMALL_SIZE + 2, INK if tried else FAINT_INK, "middle"))
            shapes.append(Text(x, lower, str(tried), SMALL_SIZE, FAINT_INK, "middle"))
            label = f"worth {worth}, visits {tried}"
        else:
            shapes += (Text(x, upper, share(chance), SMALL_SIZE + 2, INK, "middle"), *_gauge(x, lower, chance))
            label = f"chance {share(chance)}"
        yield Group(f"seat {seat}, action {name}: {label}", tuple(shapes))


def _gauge(x: float, y: float, part: float) -> Shapes:
    """How much of a whole, around x."""
    begin = x - GAUGE_WIDTH / 2
    filled = Rectangle(begin, y - 2, GAUGE_WIDTH * part, 4, FAINT_INK)
    return (Rectangle(begin, y - 2, GAUGE_WIDTH, 4, NOTHING), *([filled] if GAUGE_WIDTH * part > 0.3 else []))


# ------------------------------------------------------------------------------------------------- the legend


def _legend_lines(thinking: Thinking, width: float) -> list[list[str]]:
    """The names of goals, as many on each line as fit."""
    lines: list[list[str]] = []
    for name in thinking.shown_goals if len(thinking.goals) > 1 else ():
        if not lines or sum(map(_legend_width, (*lines[-1], name))) > width - CHIP_ROOM:
            lines.append([])
        lines[-1].append(name)
    return lines


def _legend_width(name: str) -> float:
    return SWATCH + 6 + font(SMALL_SIZE).getlength(name) + SWATCH_GAP


def _legend(thinking: Thinking, names: list[str]) -> Iterator[Shape]:
    x = 0.0
    for name in names:
        yield Rectangle(x, -SWATCH / 2, SWATCH, SWATCH, _colour(thinking, name), FAINT_INK, 1)
        yield Text(x + SWATCH + 6, 0, name, SMALL_SIZE, INK)
        x += _legend_width(name)
