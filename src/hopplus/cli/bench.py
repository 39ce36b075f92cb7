"""Command `hopplus bench`."""

from typing import Any, Literal

from rich.table import Table

from hopplus.cli.output import Json, console, progress_bar, show


def bench_games(
    games: tuple[str, ...] = (),
    batches: tuple[int, ...] = (256, 1024, 4096),
    rounds: int = 10,
    json: Json = None,
) -> None:
    """Environment steps/s on this machine, compared with JaxMARL's environments in the same run.

    Random legal actions, observations for all seats, auto-reset to fresh states. JaxMARL's coin_game and overcooked
    need `pip install 'hopplus[bench]'`.

    Args:
        games: Games by name; by default all named games, and a series over players and board sizes.
        batches: Numbers of parallel environments.
        rounds: Interleaved timings of each configuration; the best counts.
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
    """Training steps/s of PPO in self-play: time profile, share of the machine's peak, and a PyTorch baseline.

    The baseline is a PyTorch PPO on a NumPy version of the game, with the same network, batch and epochs. It needs
    `pip install 'hopplus[bench]'`.

    Args:
        game: Name of the game.
        parameters: One network for all seats, or one per seat.
        rounds: Timings of each part; the best counts.
        peer: Also time the PyTorch baseline.
        target: Also time a training to this mean return, with a cold and with a warm compilation cache.
    """
    from hopplus.algorithms import PPO
    from hopplus.benchmarks.ppo import measure

    with progress_bar("measuring", 1) as advance:
        figures = measure(game, PPO(parameters=parameters), rounds, peer, target, advance)
    table = Table("figure", "value", title=f"PPO on {game}, {parameters} parameters", caption=figures["machine"])
    torch, memory = figures["torch"], figures["peak_memory_bytes"]
    for name, value in {
        "training steps/s": f"{figures['steps_per_second']:,.0f}",
        "with the PyTorch network": "-" if torch is None else f"{figures['steps_per_second_with_its_network']:,.0f}",
        "PyTorch": "-" if torch is None else f"{torch['steps_per_second']:,.0f}",
        "ratio to PyTorch": "-" if torch is None else f"{figures['ratio_to_torch']:.1f}",
        "time in rollouts, in updates": f"{100 * figures['play_share']:.0f}%, {100 * figures['learn_share']:.0f}%",
        "GFLOP/s of the update": f"{figures['learn_gflops']:.1f}",
        "GFLOP/s of a matrix product": f"{figures['matmul_gflops']:.1f}",
        "share of the matrix product": f"{100 * figures['share_of_matmul']:.0f}%",
        "cost of eight seeds": f"{figures['eight_seeds_ratio']:.1f} times one",
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


def bench_planning(
    games: tuple[str, ...] = ("msh-4x4-4h1s", "msh-8x8-4h1s", "msg-4x4"),
    planners: tuple[str, ...] = ("rollouts", "tree"),
    batches: tuple[int, ...] = (1, 8, 32),
    rounds: int = 5,
    policy: str = "hopplus",
    world: Literal["rules", "learned"] = "rules",
    notes: bool = True,
    json: Json = None,
) -> None:
    """Decisions/s and simulated steps/s of planners, compared with plain mctx in the same run.

    Plans seat 0's first decision in fresh games, where simulations are longest. Also: shares of the time of a simulated
    step, compile seconds, simulated steps per decision with and without sequential halving, and environment steps/s
    while all seats plan (the original notes report 0.93). No training is needed. mctx needs
    `pip install 'hopplus[bench]'`. Takes ten minutes.

    Args:
        games: Games by name.
        planners: Planners by name, with settings in brackets: "rollouts(rollouts=32)".
        batches: Numbers of decisions planned at once; 1 is a person who waits for one agent.
        rounds: Interleaved timings of each configuration; the best counts.
        policy: Policy that plans: a pretrained one by name, a policy file or a run directory.
        world: Simulator: the game's rules, or a learned world model with random parameters.
        notes: Also time environments in which all seats plan, with the settings of the notes.
    """
    from hopplus.benchmarks.planning import measure
    from hopplus.benchmarks.step_parts import PARTS, REST

    with progress_bar("measuring", 1) as advance:
        figures = measure(games, planners, batches, rounds, policy, world, notes, advance)
    columns = ("game", "planner", "batch", "ms", "max ms", "decisions/s", "steps/s", "x tree", "x mctx", "compile s")
    table = Table(*columns, title="Planning: simulated steps", caption=figures["machine"])
    shares = Table("game", "planner", "batch", *(name.replace("_", " ") for name in (*PARTS, REST)))
    shares.title = "Shares of the time of a simulated step"
    for row in figures["rows"]:
        facts = (row["game"], row["planner"], str(row["batch"]))
        times = (f"{row['milliseconds']:,.1f}", f"{row['longest_milliseconds']:,.1f}")
        speeds = (f"{row['decisions_per_second']:,.0f}", _number(row["steps_per_second"], ",.0f"))
        ratios = (_number(row[name], ".2f") for name in ("ratio_to_tree", "ratio_to_mctx"))
        table.add_row(*facts, *times, *speeds, *ratios, f"{row['compile_seconds']:.1f}")
        if row["shares"] is not None:
            shares.add_row(*facts, *(f"{100 * row['shares'][name]:.0f}%" for name in (*PARTS, REST)))
    show(figures, table, json)
    if json != "-":
        console().print(shares)
        _print_planning_notes(figures)


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else f"{value:{form}}"


def _print_planning_notes(figures: dict[str, Any]) -> None:
    """Prints figures of planning that are not in the tables."""
    for row in figures["halving"]:
        halving, every = row["halving"], row["every"]
        print(
            f"{row['game']}: {halving['steps_per_decision']:,.0f} simulated steps per decision with sequential halving,"
            f" {every['steps_per_decision']:,.0f} with {every['planner']} ({row['ratio']:.1f} times)"
        )
    if (played := figures["all_seats"]) is not None:
        print(
            f"all seats planning on {played['game']}, {played['belief_samples']} x {played['simulations']} simulations:"
            f" {played['steps_per_second']:,.0f} environment steps/s, {played['ratio_to_notes']:,.0f} times the notes'"
        )
    if figures["note"]:
        print(figures["note"])


def bench_scale(rounds: int = 3, json: Json = None) -> None:
    """Cost of training as a function of players, board size, environments and simulations.

    Varies one factor at a time, for PPO, HOP+ and HOP (with search). Fits a cost model per algorithm to the measured
    points, and predicts every point from the others. Takes a quarter of an hour.

    Args:
        rounds: Interleaved timings of each point; the best counts.
    """
    from hopplus.benchmarks.scale import AHEAD, POINTS, measure

    with progress_bar("measuring", 1) as advance:
        figures = measure(POINTS, AHEAD, rounds, advance)
    columns = (
        "algorithm",
        "players",
        "side",
        "environments",
        "simulations",
        "us/step",
        "x base",
        "prediction error",
        "MB",
    )
    table = Table(*columns, "compile s", title="Cost of training", caption=figures["machine"])
    for row, error in zip(figures["rows"], figures["left_out"], strict=True):
        table.add_row(
            row["algorithm"],
            *(str(row[name] or "-") for name in ("players", "side", "environments", "simulations")),
            f"{1e6 * row['seconds_per_step']:,.1f}",
            "-" if row["ratio_to_base"] is None else f"{row['ratio_to_base']:.2f}",
            f"{100 * error['seconds']:+.0f}%",
            f"{row['memory_bytes'] / 1e6:,.0f}",
            f"{row['compile_seconds']:.1f}",
        )
    show(figures, table, json)
    if json != "-":
        print("prediction error: of the time, when the cost model is fitted to all other rows of the algorithm")


def bench_sweep(cells: int = 16, json: Json = None) -> None:
    """Speed of a sweep: cells one by one, with every split of the cores, and with shared cores.

    The cells, half PPO and half HOP+, are all different programs; every variant starts with a cold compilation cache.
    Takes a quarter of an hour on 2 cores.

    Args:
        cells: Number of cells, even.
    """
    from hopplus.benchmarks.sweep import measure

    with progress_bar("measuring", 1) as advance:
        figures = measure(cells, advance)
    columns = ("parallel cells", "cores each", "seconds", "cells/min", "sum of cells, s", "x one by one")
    speeds = (f"{algorithm} steps/s" for algorithm in figures["steps"])
    table = Table(*columns, *speeds, title=f"A sweep of {cells} cells", caption=figures["machine"])
    for row in figures["rows"]:
        table.add_row(
            str(row["workers"]),
            f"{row['cores']}, shared" if row["shared"] else str(row["cores"]),
            f"{row['seconds']:.0f}",
            f"{row['cells_per_minute']:.2f}",
            f"{row['cell_seconds']:.0f}",
            f"{row['ratio_to_one_by_one']:.2f}",
            *(f"{row['steps_per_second'][algorithm]:,.0f}" for algorithm in figures["steps"]),
        )
    show(figures, table, json)
    if json != "-":
        best = figures["best"]
        print(
            f"default sweep: {figures['ratio']:.2f} times as fast as its cells one by one;"
            f" best split: {best['workers']} parallel cells, cores each: {best['cores']}"
        )


def bench_play(turns: int = 40, at_once: int = 50, json: Json = None) -> None:
    """Response times of human play with each pretrained agent, for one game and for many concurrent games.

    Simulated clients, which always stay in place, play through hopplus serve in a process of its own on this machine.

    Args:
        turns: Turns per game.
        at_once: Concurrent games; each client sends its next turn as soon as the last one is answered.
    """
    from hopplus.benchmarks.play import measure

    with progress_bar("measuring", 1) as advance:
        figures = measure(turns, at_once, advance)
    columns = ("game", "co-players", "first start s", "next start s", "median ms", "p95 ms", "max ms")
    table = Table(*columns, title="Response times of human play", caption=figures["machine"])
    for row in figures["rows"]:
        starts = (f"{row['first_seconds']:.1f}", f"{row['again_seconds']:.2f}")
        table.add_row(row["game"], f"3 x {row['guest']}", *starts, *(f"{row[key]:.0f}" for key in TURN_KEYS))
    show(figures, table, json)
    if json != "-":
        many = figures["together"]
        times = ", ".join(f"{name} {many[key]:,.0f} ms" for name, key in zip(TURN_NAMES, TURN_KEYS, strict=True))
        print(f"{many['games']} concurrent games ({many['game']}, 3 x {many['guest']}): {times};", end=" ")
        print(f"{many['turns_per_second']:.0f} turns/s")


TURN_KEYS = ("median_ms", "p95_ms", "most_ms")
TURN_NAMES = ("median", "p95", "max")
