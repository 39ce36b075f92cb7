"""Command `hopplus play`."""

import os
import secrets
import sys
import time
import urllib.parse
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.table import Table

from hopplus.cli.keyboard import QUIT, keys_of, parse_key, read_key
from hopplus.cli.output import GAME_HELP, STANDARD_OUTPUT, Json, Plugin, console, run_plugin, show
from hopplus.cli.serve import serve_page
from hopplus.core.errors import InputError

if TYPE_CHECKING:
    from hopplus.human_play import Record, Session, SessionSetup

RUNS = Path("runs")
GAME, EPISODES = "msh-4x4-4h1s", 5
"""Defaults of a session."""
WATCH_SECONDS = 0.4
"""Seconds between steps after the human player has left the board."""
OptionalGame = Annotated[
    str | None, tyro.conf.Positional, tyro.conf.arg(metavar="[GAME]", help=f"{GAME_HELP} By default {GAME}.")
]


def play(
    game: OptionalGame = None,
    cast: str | None = None,
    episodes: int | None = None,
    hidden: bool = False,
    seed: int | None = None,
    terminal: bool = False,
    record: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None,
    json: Json = None,
    plugin: Plugin = None,
) -> int:
    """Play against the agents yourself and review their beliefs about you afterwards.

    For example: hopplus play, or hopplus play msh-4x4-4h1s --cast you,hopplus,hopplus,nh --terminal. Opens a page in
    the browser; without a browser, or with --terminal, the game runs in the terminal.

    Args:
        cast: One player per seat, `you` in one of them; by default you and the pretrained HOP+, which plans.
        episodes: Consecutive episodes with the same players, who keep their memory of you; by default 5.
        hidden: Hide the identities of the other players until the end.
        seed: Seed of the session; by default random.
        terminal: Play in the terminal.
        record: Record the session in this new directory, or resume the session recorded there. On the page in the
            browser, recording is a choice of its form.
    """
    run_plugin(plugin)
    if not terminal and json is None and record is None and has_browser():
        query = {
            "game": game or GAME,
            "cast": cast or "",
            "episodes": EPISODES if episodes is None else episodes,
            "hidden": "yes" if hidden else "",
            **({} if seed is None else {"seed": seed}),
        }
        serve_page(RUNS, "127.0.0.1", 0, f"/play?{urllib.parse.urlencode(query)}")
        return 0
    from hopplus.human_play import is_record, open_record
    from hopplus.human_play.setup import make_setup

    if record is not None and is_record(record):
        check_same(record, game, cast, episodes, hidden, seed)
        return _play_session(open_record(record, Path()), json)
    chosen_seed = secrets.randbelow(2**31) if seed is None else seed
    chosen_game, number = game or GAME, EPISODES if episodes is None else episodes
    setup = make_setup(chosen_game, cast or default_cast(chosen_game), number, chosen_seed, hidden)
    return _play_session(_start_session(setup, record), json)


def check_same(
    record: Path, game: str | None, cast: str | None, episodes: int | None, hidden: bool, seed: int | None
) -> None:
    """Raise InputError if an option differs from the settings of a recorded session, which cannot change."""
    from hopplus.core.specs import split_top_level
    from hopplus.human_play.recording import read_record
    from hopplus.human_play.setup import setup_from

    setup = setup_from(read_record(record)["setup"])
    wanted = None if cast is None else ",".join(split_top_level(cast))
    for option, requested, recorded in (
        ("GAME", game, setup.game),
        ("--cast", wanted, ",".join(setup.cast)),
        ("--episodes", episodes, setup.episodes),
        ("--hidden", hidden or None, setup.hidden),
        ("--seed", seed, setup.seed),
    ):
        if requested is not None and requested != recorded:
            raise InputError(
                f"{record} is a recorded session, whose settings cannot change: {option} is {recorded} there, not"
                f" {requested}"
            )


def default_cast(game: str) -> str:
    """Cast of the human player and the package's first available player for the game."""
    from hopplus.games import make
    from hopplus.human_play import available_players

    rules = make(game)
    return ",".join(["you", *[available_players(rules, None)[0].word] * (rules.num_players - 1)])


def has_browser() -> bool:
    """True if the user can see a page in a browser: not in a script, nor on a machine without a screen.

    Without a screen, at most a text browser is available.
    """
    has_screen = not sys.platform.startswith("linux") or {"DISPLAY", "WAYLAND_DISPLAY"} & set(os.environ)
    try:
        return bool(has_screen and sys.stdout.isatty() and webbrowser.get())
    except webbrowser.Error:
        return False


def _start_session(setup: "SessionSetup", record: Path | None) -> "Record | Session":
    from hopplus.human_play import Session, begin_record, session_players

    session = Session(setup, session_players(setup, Path()))
    session.warm_up()
    print(session.game.rules, file=sys.stderr)
    return session if record is None else begin_record(record, session)


def _play_session(recorded: "Record | Session", json: str | None) -> int:
    """Play until the session is over or the human player quits, and print the review; returns the exit code."""
    from hopplus.human_play import Record, review_of

    session = recorded.session if isinstance(recorded, Record) else recorded
    keys = keys_of(session.game.action_names, session.game.action_names[session.game.idle_action])
    screen = sys.stderr if json == STANDARD_OUTPUT else sys.stdout
    try:
        while not session.finished:
            action = session.legal[0] if session.has_left else _ask_action(session, keys, screen)
            if action == QUIT:
                recorded.stop()
                break
            if session.has_left and screen.isatty():
                time.sleep(WATCH_SECONDS)
            ended = len(session.lasts)
            if session.is_compiling:
                print("the other players are being compiled (first time only)", file=sys.stderr)
            recorded.act(action)
            if len(session.lasts) > ended:
                _print_end_of_episode(session, screen)
    finally:
        if isinstance(recorded, Record):
            recorded.close()
    print("computing the review of the session", file=sys.stderr)
    review = review_of(session)
    show(review, summary_table(session, review), json)
    if json != STANDARD_OUTPUT:
        for sentence in sentences(session, review):
            console().print(sentence, soft_wrap=True)
        if isinstance(recorded, Record):
            console().print(f"recorded: {recorded.path}   as a dataset: hopplus dataset {recorded.path / 'episodes'}")
    return 0


def _ask_action(session: "Session", keys: dict[str, str], screen: Any) -> str:
    """Show the board and ask for an action until a legal one or QUIT is entered."""
    from hopplus.visualization import as_text

    clear = "\x1b[2J\x1b[H" if screen.isatty() else ""
    print(clear + as_text(session.frame(), colour=screen.isatty()), file=screen)
    key_names = {" ": "space"}
    legal = "  ".join(f"{key_names.get(keys[name], keys[name])} {name}" for name in session.legal)
    number = len(session.lasts) + 1
    print(f"episode {number} of {session.setup.episodes}; you: {legal}  q quit", file=screen, flush=True)
    while True:
        key = read_key()
        action = QUIT if key is None else parse_key(key, keys)
        if action == QUIT or action in session.legal:
            return action
        problem = f"{action} is not legal here" if action else f"there is no action {key!r}"
        print(f"{problem}: {', '.join(session.legal)}", file=screen, flush=True)


def _print_end_of_episode(session: "Session", screen: Any) -> None:
    number = len(session.lasts)
    returns = ", ".join(f"{name} {value:g}" for name, value in zip(session.names, session.returns[-1], strict=True))
    print(f"episode {number} is over: {returns}", file=screen, flush=True)
    if screen.isatty() and sys.stdin.isatty() and not session.finished:
        print("press any key for the next episode", file=screen, flush=True)
        read_key()


def summary_table(session: "Session", review: dict[str, Any]) -> Table:
    """Table of all players' returns, one row per episode."""
    table = Table("episode", *(f"{seat}: {name}" for seat, name in enumerate(session.setup.cast)))
    table.title = f"{session.setup.game}: returns"
    for number, returns in enumerate(review["returns"], start=1):
        table.add_row(str(number), *(f"{value:g}" for value in returns))
    return table


def sentences(session: "Session", review: dict[str, Any]) -> list[str]:
    """Co-players' beliefs about the human player, their plans, and the quality of the human player's decisions."""
    seat, texts = session.setup.seat, []
    if not review["returns"]:
        return ["no episode was completed, so there is nothing to review"]
    for beliefs in review["beliefs"]:
        if beliefs["about"] == seat:
            observer = beliefs["by"]
            firsts = {point["episode"]: point["goals"] for point in reversed(beliefs["points"])}
            likeliest = (max(goals.items(), key=lambda goal: goal[1]) for _, goals in sorted(firsts.items()))
            by_episode = ", ".join(f"{goal} {probability:.0%}" for goal, probability in likeliest)
            player = f"seat {observer} ({session.setup.cast[observer]})"
            rationality = f"; rationality at the end: {beliefs['rationality']}" if beliefs["rationality"] else ""
            texts.append(
                f"{player} believed at the start of each episode that your goal was: {by_episode}{rationality}"
            )
    for change in review["changes"]:
        if change["about"] == seat:
            goal = f"{change['after']}, not {change['before']}" if change["before"] else change["after"]
            step = f"episode {change['episode'] + 1}, step {change['step']}"
            probability = f"{change['probability']:.0%}"
            texts.append(f"{step}: seat {change['by']} now believes that your goal is {goal} ({probability})")
    for change in review["plan_changes"] or ():
        texts.append(f"episode {change['episode'] + 1}, step {change['step']}: seat {change['by']}: {change['text']}")
    summary = review["summary"]
    if summary["decisions"]:
        texts.append(
            f"of your {summary['decisions']} decisions {summary['as_the_oracle']:.0%} were as good as the best action"
            f" against these players, found by trying all actions; the others cost {summary['lost']:.2f} in total"
        )
    return texts
