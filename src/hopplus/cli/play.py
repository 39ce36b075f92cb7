"""`hopplus play`"""

import os
import secrets
import sys
import time
import urllib.parse
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.table import Table as Rows

from hopplus.cli.keyboard import QUIT, keys_of, read_key, understood
from hopplus.cli.output import GAME_HELP, STANDARD_OUTPUT, Json, Plugin, console, run_plugin, show
from hopplus.cli.serve import serve_page
from hopplus.errors import InputError

if TYPE_CHECKING:
    from hopplus.sitting import Record, Setup, Table

RUNS = Path("runs")
GAME, EPISODES = "msh-4x4-4h1s", 5
"""Of a game for which nothing else was asked."""
WATCHING = 0.4
"""Seconds between steps in which the person only looks on."""
GameWord = Annotated[
    str | None, tyro.conf.Positional, tyro.conf.arg(metavar="[GAME]", help=f"{GAME_HELP} By default {GAME}.")
]


def play(
    game: GameWord = None,
    cast: str | None = None,
    episodes: int | None = None,
    hidden: bool = False,
    seed: int | None = None,
    terminal: bool = False,
    record: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None,
    json: Json = None,
    plugin: Plugin = None,
) -> int:
    """Take a seat yourself: play some episodes with agents that model you, and see what they believed of you.

    For example: hopplus play, or hopplus play msh-4x4-4h1s --cast you,hopplus,hopplus,nh --terminal. Opens a page in
    the browser; without one, or with --terminal, the game is played here.

    Args:
        cast: One player a seat, `you` one of them; by default you sit with the package's own HOP+, which plans.
        episodes: How many in a row, with the same players, who remember you; by default 5.
        hidden: Not to be told who is who before the end.
        seed: Of everything random; by default another one each time.
        terminal: Play in the terminal.
        record: Keep the game in this new directory, or go on with the one that is there; in the browser, the page asks.
    """
    run_plugin(plugin)
    if not terminal and json is None and record is None and has_browser():
        asked = {
            "game": game or GAME,
            "cast": cast or "",
            "episodes": EPISODES if episodes is None else episodes,
            "hidden": "yes" if hidden else "",
            **({} if seed is None else {"seed": seed}),
        }
        serve_page(RUNS, "127.0.0.1", 0, f"/play?{urllib.parse.urlencode(asked)}")
        return 0
    from hopplus.sitting import is_record, open_record
    from hopplus.sitting.setup import make_setup

    if record is not None and is_record(record):
        check_same(record, game, cast, episodes, hidden, seed)
        return _series(open_record(record, Path()), json)
    drawn = secrets.randbelow(2**31) if seed is None else seed
    chosen, number = game or GAME, EPISODES if episodes is None else episodes
    setup = make_setup(chosen, cast or default_cast(chosen), number, drawn, hidden)
    return _series(_begun(setup, record), json)


def check_same(
    record: Path, game: str | None, cast: str | None, episodes: int | None, hidden: bool, seed: int | None
) -> None:
    """InputError where something was asked for that a recorded game, which goes on as it began, does not have."""
    from hopplus.sitting.record import read_record
    from hopplus.sitting.setup import setup_from
    from hopplus.specs import split_top_level

    setup = setup_from(read_record(record)["setup"])
    wanted = None if cast is None else ",".join(split_top_level(cast))
    for option, given, kept in (
        ("GAME", game, setup.game),
        ("--cast", wanted, ",".join(setup.cast)),
        ("--episodes", episodes, setup.episodes),
        ("--hidden", hidden or None, setup.hidden),
        ("--seed", seed, setup.seed),
    ):
        if given is not None and given != kept:
            raise InputError(
                f"{record} is a recorded game, which goes on as it began: {option} is {kept} there, not {given}"
            )


def default_cast(game: str) -> str:
    """You, and whom the package brings along for the game."""
    from hopplus.games import make
    from hopplus.sitting import guests_of

    rules = make(game)
    return ",".join(["you", *[guests_of(rules, None)[0].word] * (rules.num_players - 1)])


def has_browser() -> bool:
    """Whether a page can be shown to whoever has started this: not from a script, nor on a machine without a screen,
    where at most a browser for text would be found."""
    has_screen = not sys.platform.startswith("linux") or {"DISPLAY", "WAYLAND_DISPLAY"} & set(os.environ)
    try:
        return bool(has_screen and sys.stdout.isatty() and webbrowser.get())
    except webbrowser.Error:
        return False


def _begun(setup: "Setup", record: Path | None) -> "Record | Table":
    from hopplus.sitting import Table, begin_record, company_of

    table = Table(setup, company_of(setup, Path()))
    table.warm_up()
    print(table.game.rules, file=sys.stderr)
    return table if record is None else begin_record(record, table)


def _series(seated: "Record | Table", json: str | None) -> int:
    """Play until the series is over or the person gets up, and say what everybody believed."""
    from hopplus.sitting import Record, review_of

    table = seated.table if isinstance(seated, Record) else seated
    keys = keys_of(table.game.action_names, table.game.action_names[table.game.idle_action])
    screen = sys.stderr if json == STANDARD_OUTPUT else sys.stdout
    try:
        while not table.finished:
            action = table.legal[0] if table.has_left else _asked(table, keys, screen)
            if action == QUIT:
                seated.get_up()
                break
            if table.has_left and screen.isatty():
                time.sleep(WATCHING)
            ended = len(table.lasts)
            if table.is_compiling:
                print("the other players are being compiled (first time only)", file=sys.stderr)
            seated.act(action)
            if len(table.lasts) > ended:
                _say_end_of_episode(table, screen)
    finally:
        if isinstance(seated, Record):
            seated.close()
    print("asking everybody what they believed", file=sys.stderr)
    review = review_of(table)
    show(review, summary_table(table, review), json)
    if json != STANDARD_OUTPUT:
        for sentence in sentences(table, review):
            console().print(sentence, soft_wrap=True)
        if isinstance(seated, Record):
            console().print(f"recorded: {seated.path}   as a dataset: hopplus dataset {seated.path / 'episodes'}")
    return 0


def _asked(table: "Table", keys: dict[str, str], screen: Any) -> str:
    """What the person does next, asked for until it can be done."""
    from hopplus.report import as_text

    clear = "\x1b[2J\x1b[H" if screen.isatty() else ""
    print(clear + as_text(table.frame(), colour=screen.isatty()), file=screen)
    shown = {" ": "space"}
    may = "  ".join(f"{shown.get(keys[name], keys[name])} {name}" for name in table.legal)
    print(f"episode {len(table.lasts) + 1} of {table.setup.episodes}; you: {may}  q get up", file=screen, flush=True)
    while True:
        key = read_key()
        action = QUIT if key is None else understood(key, keys)
        if action == QUIT or action in table.legal:
            return action
        said = f"{action} is not possible here" if action else f"there is no action {key!r}"
        print(f"{said}: {', '.join(table.legal)}", file=screen, flush=True)


def _say_end_of_episode(table: "Table", screen: Any) -> None:
    number = len(table.lasts)
    got = ", ".join(f"{name} {value:g}" for name, value in zip(table.names, table.returns[-1], strict=True))
    print(f"episode {number} is over: {got}", file=screen, flush=True)
    if screen.isatty() and sys.stdin.isatty() and not table.finished:
        print("any key for the next one", file=screen, flush=True)
        read_key()


def summary_table(table: "Table", review: dict[str, Any]) -> Rows:
    """What everybody got, episode by episode, with who was who."""
    rows = Rows("episode", *(f"{seat}: {name}" for seat, name in enumerate(table.setup.cast)))
    rows.title = f"{table.setup.game}: what everybody got"
    for number, returns in enumerate(review["returns"], start=1):
        rows.add_row(str(number), *(f"{value:g}" for value in returns))
    return rows


def sentences(table: "Table", review: dict[str, Any]) -> list[str]:
    """What everybody believed of the person, and how good the person's choices were."""
    seat, found = table.setup.seat, []
    if not review["returns"]:
        return ["no episode was played to its end, so that there is nothing to tell"]
    for one in review["beliefs"]:
        if one["about"] == seat:
            firsts = {point["episode"]: point["goals"] for point in reversed(one["points"])}
            said = (max(goals.items(), key=lambda goal: goal[1]) for _, goals in sorted(firsts.items()))
            by_episode = ", ".join(f"{goal} {chance:.0%}" for goal, chance in said)
            found.append(
                f"seat {one['by']} ({table.setup.cast[one['by']]}) took you, as each episode began, for: {by_episode}"
            )
    for change in review["changes"]:
        if change["about"] == seat:
            held = f"not {change['before']} but {change['after']}" if change["before"] else change["after"]
            when = f"episode {change['episode'] + 1}, step {change['step']}"
            found.append(
                f"{when}: seat {change['by']} made up its mind: you are after {held} ({change['probability']:.0%})"
            )
    summary = review["summary"]
    if summary["decisions"]:
        found.append(
            f"of your {summary['decisions']} choices {summary['as_the_oracle']:.0%} were as good as the best that was"
            f" found by trying every action with these very others; the rest cost {summary['lost']:.2f} in all"
        )
    return found
