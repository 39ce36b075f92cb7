"""`hopplus bench`"""

from typing import Literal

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
    coin_game and overcooked, need `pip install 'hopplus[bench]'`.

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


def bench_ppo(
    game: str = "msh-4x4-4h1s",
    parameters: Literal["shared", "independent"] = "shared",
    rounds: int = 12,
    peer: bool = True,
    target: float | None = None,
    json: Json = None,
) -> None:
    """Training steps/s of PPO in self-play, where the time goes, and how near to the machine's best it is.

    Beside it, in the same run, a PyTorch PPO on a NumPy version of the game, with the same network, batch and epochs:
    it needs `pip install 'hopplus[bench]'`.

    Args:
        game: The game by name.
        parameters: One network for all seats, or one each.
        rounds: How often each part is timed; the best counts.
        peer: Also time the PyTorch peer.
        target: Also time a training of its own to this mean return, from a cold start and from a warm one.
    """
    from hopplus.benchmarks.ppo import measure
    from hopplus.training.recipes import PPO

    with progress_bar("measuring", 1) as advance:
        figures = measure(game, PPO(parameters=parameters), rounds, peer, target, advance)
    table = Table("figure", "value", title=f"PPO on {game}, {parameters} parameters", caption=figures["machine"])
    torch, memory = figures["torch"], figures["peak_memory_bytes"]
    for name, value in {
        "training steps/s": f"{figures['steps_per_second']:,.0f}",
        "with the peer's network": "-" if torch is None else f"{figures['steps_per_second_with_its_network']:,.0f}",
        "PyTorch peer's": "-" if torch is None else f"{torch['steps_per_second']:,.0f}",
        "times the peer's": "-" if torch is None else f"{figures['ratio_to_torch']:.1f}",
        "time in play, in learning": f"{100 * figures['play_share']:.0f}%, {100 * figures['learn_share']:.0f}%",
        "GFLOP/s of learning": f"{figures['learn_gflops']:.1f}",
        "GFLOP/s of a plain product": f"{figures['matmul_gflops']:.1f}",
        "share of it reached": f"{100 * figures['share_of_matmul']:.0f}%",
        "eight seeds cost": f"{figures['eight_seeds_ratio']:.1f} times one",
        "compile seconds": f"{figures['compile_seconds']:.1f}",
        "peak memory": "-" if memory is None else f"{memory / 2**20:.0f} MiB",
    }.items():
        table.add_row(name, value)
    if (timed := figures["time_to_target"]) is not None:
        seconds = f"{timed['cold_seconds']:.1f} cold, {timed['warm_seconds']:.1f} warm"
        table.add_row(f"seconds to {timed['target']:g}", seconds)
    show(figures, table, json)
    if figures.get("note") and json != "-":
        print(figures["note"])


def bench_search(
    games: tuple[str, ...] = ("msh-4x4-4h1s", "msh-8x8-4h1s"),
    batches: tuple[int, ...] = (16, 128, 512),
    rounds: int = 5,
    json: Json = None,
) -> None:
    """Simulations/s and decisions/s of HOP+'s search, by the rules and in a learned world.

    Beside it, in the same run and with the same networks, a plain use of mctx; where the time goes; how much a plain
    matrix product's speed would allow; and environment steps/s while all seats plan, beside the notes' 0.93.

    Args:
        games: Games on a grid, by name.
        batches: Numbers of decisions planned at once; a learned world is timed with the largest.
        rounds: How often each is timed, all in turn; the best counts.
    """
    from hopplus.benchmarks.search import measure

    with progress_bar("measuring", 1) as advance:
        figures = measure(games, batches, rounds, advance)
    columns = ("game", "world", "decisions", "simulations/s", "decisions/s", "x mctx", "of the limit", "compile s")
    settings, play = figures["settings"], figures["play"]
    title = f"Search: {settings['draws']} draws x {settings['simulations']} simulations a decision"
    table = Table(*columns, title=title, caption=figures["machine"])
    for row in figures["rows"]:
        table.add_row(
            row["game"],
            row["world"],
            str(row["decisions"]),
            f"{row['simulations_per_second']:,.0f}",
            f"{row['decisions_per_second']:,.0f}",
            f"{row['ratio_to_plain']:.1f}",
            f"{100 * row['share_of_limit']:.0f}%",
            f"{row['compile_seconds']:.1f}",
        )
    show(figures, table, json)
    if json != "-":
        parts = figures["parts"]
        shares = ", ".join(f"{name.replace('_', ' ')} {100 * parts[name]:.0f}%" for name in parts["names"])
        print(f"where the time goes ({parts['game']}, {parts['decisions']} decisions): {shares}")
        print(
            f"play on {play['game']}, all seats planning with {play['draws']} x {play['simulations']}:"
            f" {play['steps_per_second']:,.0f} environment steps/s, {play['ratio_to_notes']:,.0f} times the notes'"
        )


def bench_scale(rounds: int = 3, json: Json = None) -> None:
    """How the cost of training grows with players, board, environments and simulations.

    One of them is changed at a time, for PPO, for HOP+ and for HOP, which searches. A model of what an iteration costs
    is fitted to the measured points of each, and every point predicted from the others. Takes a quarter of an hour.

    Args:
        rounds: How often each point is timed, all in turn; the best counts.
    """
    from hopplus.benchmarks.scale import AHEAD, POINTS, measure

    with progress_bar("measuring", 1) as advance:
        figures = measure(POINTS, AHEAD, rounds, advance)
    columns = ("recipe", "players", "side", "environments", "simulations", "us/step", "x base", "foretold", "MB")
    table = Table(*columns, "compile s", title="Cost of training", caption=figures["machine"])
    for row, error in zip(figures["rows"], figures["left_out"], strict=True):
        table.add_row(
            row["recipe"],
            *(str(row[name] or "-") for name in ("players", "side", "environments", "simulations")),
            f"{1e6 * row['seconds_per_step']:,.1f}",
            "-" if row["ratio_to_base"] is None else f"{row['ratio_to_base']:.2f}",
            f"{100 * error['seconds']:+.0f}%",
            f"{row['memory_bytes'] / 1e6:,.0f}",
            f"{row['compile_seconds']:.1f}",
        )
    show(figures, table, json)
    if json != "-":
        print("foretold: by how much the time is missed if it is predicted from all other rows of the recipe")


def bench_sweep(cells: int = 16, json: Json = None) -> None:
    """How fast a sweep is: cells one by one, with every split of the cores, and with cores that all cells share.

    The cells, half PPO and half HOP+, are all different programs; in each way they begin with nothing compiled. Takes a
    quarter of an hour on 2 cores.

    Args:
        cells: How many cells the sweep has: an even number.
    """
    from hopplus.benchmarks.sweep import measure

    with progress_bar("measuring", 1) as advance:
        figures = measure(cells, advance)
    columns = ("cells at a time", "cores each", "seconds", "cells/min", "sum of cells, s", "x one by one")
    speeds = (f"{recipe} steps/s" for recipe in figures["steps"])
    table = Table(*columns, *speeds, title=f"A sweep of {cells} cells", caption=figures["machine"])
    for row in figures["rows"]:
        table.add_row(
            str(row["workers"]),
            f"{row['cores']}, shared" if row["shared"] else str(row["cores"]),
            f"{row['seconds']:.0f}",
            f"{row['cells_per_minute']:.2f}",
            f"{row['cell_seconds']:.0f}",
            f"{row['ratio_to_one_by_one']:.2f}",
            *(f"{row['steps_per_second'][recipe]:,.0f}" for recipe in figures["steps"]),
        )
    show(figures, table, json)
    if json != "-":
        best = figures["best"]
        print(
            f"a sweep by default: {figures['ratio']:.2f} times its cells one by one;"
            f" the best split: {best['workers']} at a time, cores each: {best['cores']}"
        )


def bench_play(turns: int = 40, at_once: int = 50, json: Json = None) -> None:
    """How long a person waits for an answer, beside each of the package's own agents, alone and with many others.

    Games are played through hopplus serve, in a process of its own on this machine, by clients that stand still.

    Args:
        turns: Turns of every game.
        at_once: Games that are played at the same time, each turn taken as soon as the one before was answered.
    """
    from hopplus.benchmarks.play import measure

    with progress_bar("measuring", 1) as advance:
        figures = measure(turns, at_once, advance)
    columns = ("game", "three of", "sitting down s", "again s", "turn ms", "95% below", "longest")
    table = Table(*columns, title="Waiting for an answer", caption=figures["machine"])
    for row in figures["rows"]:
        waited = (f"{row['first_seconds']:.1f}", f"{row['again_seconds']:.2f}")
        table.add_row(row["game"], row["guest"], *waited, *(f"{row[key]:.0f}" for key in TURN_KEYS))
    show(figures, table, json)
    if json != "-":
        many = figures["together"]
        said = ", ".join(f"{name} {many[key]:,.0f} ms" for name, key in zip(TURN_WORDS, TURN_KEYS, strict=True))
        print(f"{many['games']} games at once ({many['game']}, three {many['guest']}): {said};", end=" ")
        print(f"{many['turns_per_second']:.0f} turns/s")


TURN_KEYS = ("median_ms", "p95_ms", "most_ms")
TURN_WORDS = ("median", "95% below", "longest")
