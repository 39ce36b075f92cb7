"""`hopplus bench`"""

from rich.table import Table

from hopplus.cli.output import Json, progress_bar, show


def bench_games(
    games: tuple[str, ...] = (),
    batches: tuple[int, ...] = (256, 1024, 4096),
    rounds: int = 10,
    json: Json = None,
) -> None:
    """Environment steps/s on this machine, beside its peers in the same run.

    With random legal actions, observations for all seats and auto-reset to fresh states. The peers, JaxMARL's
    coin_game and overcooked, need `pip install 'hopplus[peers]'`.

    Args:
        games: Games by name; without it, all named games and how cost grows with players and board.
        batches: Numbers of environments side by side.
        rounds: How often each is timed, all in turn; the best counts.
    """
    from hopplus.benchmarks.games import measure

    with progress_bar("measuring", 1) as advance:
        figures = measure(games, batches, rounds, advance)
    columns = ("name", "batch", "million steps/s", "x coin_game", "ns/step", "compile s", "GB/s", "of copy")
    table = Table(*columns, title="Environment steps", caption=figures["machine"])
    for row in figures["rows"]:
        ratio = row["ratio_to_coin_game"]
        table.add_row(
            row["name"],
            str(row["batch"]),
            f"{row['steps_per_second'] / 1e6:.2f}",
            "-" if ratio is None else f"{ratio:.1f}",
            f"{1e9 / row['steps_per_second']:.0f}",
            f"{row['compile_seconds']:.1f}",
            f"{row['bytes_per_second'] / 1e9:.1f}",
            f"{100 * row['share_of_copy_bandwidth']:.0f}%",
        )
    show(figures, table, json)
    if figures["note"] and json != "-":
        print(figures["note"])


def bench_ppo(json: Json = None) -> None:
    """x"""
