"""Layout of the reasoning table in a picture.

One row per planner, with a bar of goal probabilities for each co-player and the values or probabilities of its own
actions. Below the row of a planner that chooses among base plans are the plan that it follows and the values of all.
The size of the table depends on the cast alone, so that all pictures of an episode have the same size.
"""

import math
from collections.abc import Iterator, Mapping, Sequence

from hopplus.visualization import glyphs
from hopplus.visualization.frame import Frame
from hopplus.visualization.plan_summary import PlanSummary
from hopplus.visualization.reasoning import Belief, FrameReasoning, Reasoning, likeliest
from hopplus.visualization.shapes import Line, Rectangle, Shape, ShapeGroup, Shapes, Text, placed
from hopplus.visualization.style import (
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
from hopplus.visualization.text import (
    FIRST_ESTIMATES,
    aligned,
    describe_base_plans,
    describe_belief,
    describe_choice,
    describe_rationality,
    share,
    visits_label,
)

TITLE_HEIGHT, HEAD_HEIGHT, ROW_HEIGHT, LEGEND_HEIGHT = 30, 30, 50, 26
THIRD_LINE, PLAN_LINE, PLAN_GAP = 16, 18, 8
"""Heights of the line with rationalities and errors, of a line about base plans, and of the gap below these lines."""
MOST_BAR_WIDTH, BAR_HEIGHT, BAR_GAP, WORD_GAP, SMALL_CHIP = 190, 14, 20, 10, 22
MOST_PLAN_WIDTH = 1000
ARROW_ROOM = 4 / 3
"""Width of an arrow, relative to the size of the text after it."""
ACTION_WIDTH, ACTIONS_GAP, GAUGE_WIDTH = 54, 48, 38
TITLE_SIZE, SWATCH, SWATCH_GAP, LEGEND_GAP = TEXT_SIZE + 2, 13, 18, 6
TITLE = "Reasoning"
SUBTITLES = (
    "predicted next action of each co-player",
    "goal probabilities of each co-player; below, its likeliest goal and next action",
)
"""Subtitles for a single goal, and for several."""
RATIONALITY_SUBTITLE = "; last, a likely rationality"
"""End of the subtitle if there are several rationality hypotheses."""
EMPTY = "none: all planners have left, or the episode is over"


def reasoning_size(frame: Frame) -> tuple[int, int]:
    """Returns the width and height of the table in pixels; 0 without planners."""
    if frame.reasoning is None:
        return 0, 0
    bars = len(_subjects(frame)) * (_bar_width(frame.reasoning) + BAR_GAP)
    columns = bars + ACTIONS_GAP + len(frame.reasoning.actions) * ACTION_WIDTH
    width = math.ceil(CHIP_ROOM + max(columns, *map(_plan_width, frame.reasoning.base_plans.values()), 0))
    lines = len(_legend_lines(frame.reasoning, width))
    legend = LEGEND_HEIGHT * lines + LEGEND_GAP if lines else 0
    rows = sum(_row_height(frame.reasoning, seat) for seat in frame.reasoning.by_seat)
    return width, TITLE_HEIGHT + HEAD_HEIGHT + rows + legend


def reasoning_table(frame: Frame, left: float, top: float) -> Iterator[Shape]:
    """Yields the title, the column heads, one row per planner, and the legend of goal colours."""
    if frame.reasoning is None:
        return
    reasoning, (width, _) = frame.reasoning, reasoning_size(frame)
    column_width, first = _bar_width(reasoning) + BAR_GAP, left + CHIP_ROOM
    columns = {seat: first + index * column_width for index, seat in enumerate(_subjects(frame))}
    first += len(columns) * column_width + ACTIONS_GAP
    actions = {name: first + (index + 0.5) * ACTION_WIDTH for index, name in enumerate(reasoning.actions)}
    yield from placed(_title(reasoning, width), left, top + TITLE_HEIGHT / 2, 1.0)
    y = top + TITLE_HEIGHT + HEAD_HEIGHT
    yield from _heads(frame, columns, actions, y - HEAD_HEIGHT / 2)
    yield Line(((left, y), (left + width, y)), GRID_LINE, 1)
    for seat, player in reasoning.by_seat.items():
        yield from placed(_chip(frame, seat), left + CHIP_SIDE / 2, y + ROW_HEIGHT / 2, CHIP_SIDE)
        if player is not None:
            yield from _beliefs(reasoning, seat, player, columns, y + ROW_HEIGHT / 2)
            yield from _actions(seat, player, actions, y + ROW_HEIGHT / 2)
            below = y + ROW_HEIGHT + _third_line(reasoning)
            yield from _plan_lines(seat, player, left + CHIP_ROOM, below, width - CHIP_ROOM)
        y += _row_height(reasoning, seat)
        if seat in reasoning.base_plans:
            rule = y - PLAN_GAP / 2
            yield Line(((left, rule), (left + width, rule)), NOTHING, 1)
    y += LEGEND_GAP
    for line in _legend_lines(reasoning, width):
        yield from placed(_legend(reasoning, line), left + CHIP_ROOM, y + LEGEND_HEIGHT / 2, 1.0)
        y += LEGEND_HEIGHT


def _third_line(reasoning: FrameReasoning) -> int:
    """Returns the height of the third line of all rows; 0 if there is nothing to show in it."""
    return THIRD_LINE if reasoning.rationalities or reasoning.base_plans else 0


def _row_height(reasoning: FrameReasoning, seat: int) -> int:
    plan_lines = 2 * PLAN_LINE + PLAN_GAP if seat in reasoning.base_plans else 0
    return ROW_HEIGHT + _third_line(reasoning) + plan_lines


def action_label(name: str, text: str, x: float, y: float, size: float, colour: str, room: float) -> Shapes:
    """Returns text about an action that starts at x, after an arrow if the action is a move, shortened to `room`."""
    side, indent = size * 14 / 15, size * ARROW_ROOM if name in glyphs.DIRECTIONS else 0.0
    mark = placed(glyphs.arrow(name, colour), x + side / 2, y, side) if indent else ()
    return (*mark, Text(x + indent, y, shortened(text, size, room - indent), size, colour))


def _subjects(frame: Frame) -> list[int]:
    """Returns the seats that a planner has beliefs about: all except the seat of a single planner."""
    planners = set(frame.reasoning.by_seat if frame.reasoning else ())
    return [seat for seat in range(len(frame.players)) if planners - {seat}]


def _chip(frame: Frame, seat: int) -> Shapes:
    return glyphs.absent_player(seat) if frame.players[seat] is None else glyphs.player(seat, None)


def _title(reasoning: FrameReasoning, width: float) -> Iterator[Shape]:
    """Yields title and subtitle."""
    offset = font(TITLE_SIZE).getlength(TITLE) + 12
    about = SUBTITLES[len(reasoning.goals) > 1] + (RATIONALITY_SUBTITLE if reasoning.rationalities else "")
    subtitle = about if reasoning.reasonings else EMPTY
    yield Text(0, 0, TITLE, TITLE_SIZE, INK)
    yield Text(offset, 1, shortened(subtitle, SMALL_SIZE, width - offset), SMALL_SIZE, FAINT_INK)


def _heads(frame: Frame, columns: Mapping[int, float], actions: Mapping[str, float], y: float) -> Iterator[Shape]:
    for seat, x in columns.items():
        yield Text(x, y, "about", SMALL_SIZE, FAINT_INK)
        yield from placed(_chip(frame, seat), x + font(SMALL_SIZE).getlength("about") + 18, y, SMALL_CHIP)
    for name, x in actions.items():
        yield Text(x, y, shortened(name, SMALL_SIZE, ACTION_WIDTH - 4), SMALL_SIZE, FAINT_INK, "middle")


# ---------------------------------------------------------------------------------------------------- one row


def _beliefs(
    reasoning: FrameReasoning, seat: int, player: Reasoning, columns: Mapping[int, float], y: float
) -> Iterator[Shape]:
    """Yields a bar of goal probabilities for each co-player; below it the likeliest goal, action and rationality."""
    width = _bar_width(reasoning)
    for belief in player.beliefs:
        x, below, shapes = columns[belief.about], y + 12, []
        action, probability = likeliest(belief.actions)
        text, room = _prediction(action, probability)
        if len(belief.goals) > 1:
            goal = _goal(belief, width - room - WORD_GAP)
            shapes += (*_bar(reasoning, belief, x, y - 16, width), Text(x, below, goal, SMALL_SIZE, INK))
            x += width - room
        shapes += action_label(action, text, x, below if shapes else y, SMALL_SIZE, FAINT_INK, width)
        if rationality := describe_rationality(belief):
            line = shortened(rationality, SMALL_SIZE, width)
            shapes.append(Text(columns[belief.about], below + THIRD_LINE, line, SMALL_SIZE, INK))
        yield ShapeGroup(f"seat {seat} about seat {belief.about}: {describe_belief(belief)}", tuple(shapes))


def _bar_width(reasoning: FrameReasoning) -> float:
    """Returns the width that fits any goal, action and rationality below the bar, up to `MOST_BAR_WIDTH`."""
    goals = (font(SMALL_SIZE).getlength(f"{name} 100%") + WORD_GAP for name in reasoning.goals)
    actions = max(_prediction(name, 1.0)[1] for name in reasoning.actions)
    rationality = max((font(SMALL_SIZE).getlength(f"{name}: 100%") for name in reasoning.rationalities), default=0)
    return min(MOST_BAR_WIDTH, max(rationality, (max(goals) if len(reasoning.goals) > 1 else 0) + actions))


def _prediction(action: str, probability: float) -> tuple[str, float]:
    """Returns the text of a predicted action and its width with the arrow; a move is shown as an arrow without name."""
    is_move, percentage = action in glyphs.DIRECTIONS, share(probability)
    text = percentage if is_move else shortened(f"{action} {percentage}", SMALL_SIZE, MOST_BAR_WIDTH / 2)
    return text, font(SMALL_SIZE).getlength(text) + (SMALL_SIZE * ARROW_ROOM if is_move else 0)


def _goal(belief: Belief, room: float) -> str:
    """Returns the likeliest goal and its probability, with the name shortened to fit."""
    name, probability = likeliest(belief.goals)
    percentage = f" {share(probability)}"
    return shortened(name, SMALL_SIZE, room - font(SMALL_SIZE).getlength(percentage)) + percentage


def _bar(reasoning: FrameReasoning, belief: Belief, x: float, y: float, length: float) -> Iterator[Shape]:
    """Yields a bar divided by the goal probabilities of a co-player."""
    begin = x
    for name, probability in reasoning.shown(belief).items():
        width = length * probability
        if width > 0.3:
            yield Rectangle(begin, y, width, BAR_HEIGHT, _colour(reasoning, name))
        begin += width
    yield Rectangle(x, y, length, BAR_HEIGHT, fill=None, outline=FAINT_INK, stroke=1)


def _colour(reasoning: FrameReasoning, goal: str) -> str:
    return goal_colour(goal, (*reasoning.goals, goal).index(goal))


def _actions(seat: int, player: Reasoning, actions: Mapping[str, float], y: float) -> Iterator[Shape]:
    """Yields the plan's figures for the legal actions, or their probabilities; frames the likeliest."""
    best = likeliest(player.action_probabilities)[0]
    lines = len(_labels(player))
    label_end = min(actions.values()) - ACTION_WIDTH / 2 - 4
    for label, height in zip(_labels(player), (y - 9, y + 10, y + 10 + THIRD_LINE), strict=False):
        yield Text(label_end, height, label, SMALL_SIZE, FAINT_INK, "end")
    for name, probability in player.action_probabilities.items():
        x, shapes = actions[name], []
        if name == best:
            height = ROW_HEIGHT - 9 + (THIRD_LINE if lines > 2 else 0)
            box = (x - ACTION_WIDTH / 2 + 3, y - ROW_HEIGHT / 2 + 5, ACTION_WIDTH - 6, height)
            shapes.append(Rectangle(*box, fill=None, outline=seat_colour(seat), stroke=2, radius=7))
        if player.plan:
            figures, label = _planned(player.plan, name)
            ink = INK if player.plan.visits[name] else FAINT_INK
            shapes.append(Text(x, y - 9, figures[0], SMALL_SIZE + 2, ink, "middle"))
            for number, figure in enumerate(figures[1:]):
                shapes.append(Text(x, y + 10 + number * THIRD_LINE, figure, SMALL_SIZE, FAINT_INK, "middle"))
        else:
            percentage = share(probability)
            shapes += (Text(x, y - 9, percentage, SMALL_SIZE + 2, INK, "middle"), *_gauge(x, y + 10, probability))
            label = f"probability {percentage}"
        yield ShapeGroup(f"seat {seat}, action {name}: {label}", tuple(shapes))


def _labels(player: Reasoning) -> tuple[str, ...]:
    """Returns the labels of the lines about actions."""
    if player.plan is None:
        return ("policy",)
    return ("value", *(["error"] if player.plan.errors is not None else []), visits_label(player.plan))


def _planned(plan: PlanSummary, action: str) -> tuple[list[str], str]:
    """Returns value, error (if the planner has errors) and visits of an action, and their description."""
    value, visits = aligned(plan.values[action]), str(plan.visits[action])
    if plan.errors is None:
        return [value, visits], f"value {value}, visits {visits}"
    error = f"±{aligned(plan.errors[action])}" if action in plan.errors else ""
    described = f"value {value}" + (f" {error}" if error else "")
    return [value, error, visits], f"{described}, {visits_label(plan)} {visits}"


def _gauge(x: float, y: float, part: float) -> Shapes:
    """Returns a gauge around x that is filled to `part` (0 to 1)."""
    begin = x - GAUGE_WIDTH / 2
    filled = Rectangle(begin, y - 2, GAUGE_WIDTH * part, 4, FAINT_INK)
    return (Rectangle(begin, y - 2, GAUGE_WIDTH, 4, NOTHING), *([filled] if GAUGE_WIDTH * part > 0.3 else []))


# ------------------------------------------------------------------------------------------------- base plans


def _plan_lines(seat: int, player: Reasoning, x: float, y: float, room: float) -> Iterator[Shape]:
    """Yields the base plan that the player follows, and the values of all, if it chose among them."""
    if player.plan is None or player.plan.choice is None:
        return
    lines = (describe_choice(player.plan.choice), INK), (describe_base_plans(player.plan.choice), FAINT_INK)
    for number, (text, ink) in enumerate(lines):
        line = Text(x, y + (number + 0.5) * PLAN_LINE, shortened(text, SMALL_SIZE, room), SMALL_SIZE, ink)
        yield ShapeGroup(f"seat {seat}, {text}", (line,))


def _plan_width(names: Sequence[str]) -> float:
    """Returns the width of both lines about these base plans with long numbers, up to `MOST_PLAN_WIDTH`."""
    value, longest = "-88.88 ± 8.88", max(names, key=font(SMALL_SIZE).getlength)
    lines = (
        f"plan: {longest} (replaced {longest}: {value} against {value}, difference {value})",
        f"{FIRST_ESTIMATES} {'; '.join(f'{name} {value}' for name in names)}",
    )
    return min(MOST_PLAN_WIDTH, max(map(font(SMALL_SIZE).getlength, lines)))


# ------------------------------------------------------------------------------------------------- the legend


def _legend_lines(reasoning: FrameReasoning, width: float) -> list[list[str]]:
    """Divides the goal names into lines that fit the width."""
    lines: list[list[str]] = []
    for name in reasoning.shown_goals if len(reasoning.goals) > 1 else ():
        if not lines or sum(map(_legend_width, (*lines[-1], name))) > width - CHIP_ROOM:
            lines.append([])
        lines[-1].append(name)
    return lines


def _legend_width(name: str) -> float:
    return SWATCH + 6 + font(SMALL_SIZE).getlength(name) + SWATCH_GAP


def _legend(reasoning: FrameReasoning, names: list[str]) -> Iterator[Shape]:
    x = 0.0
    for name in names:
        yield Rectangle(x, -SWATCH / 2, SWATCH, SWATCH, _colour(reasoning, name), FAINT_INK, 1)
        yield Text(x + SWATCH + 6, 0, name, SMALL_SIZE, INK)
        x += _legend_width(name)
