"""The public API on one screen: make, make_player, rollout, train, load, evaluate, adapt.

`import hopplus` offers these functions; JAX is imported when one of them is called.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from hopplus.games import Game
    from hopplus.players import Player
    from hopplus.rollouts import Trajectory
    from hopplus.training.run import Run


def make(name: str, **settings: Any) -> "Game[Any]":
    """Returns a game by name.

    Args:
        name: Name, optionally with settings: `msh-8x8-4h1s:T=50`. `hopplus games` lists the names.
        settings: Further settings, such as `hares=3`.

    Returns:
        The game: `init`, `step`, `observe`, `legal`, ... as pure functions.

    Example:
        >>> import hopplus
        >>> hopplus.make("msh-4x4-4h1s", hares=3).num_players
        4
    """
    from hopplus.games import make

    return make(name, **settings)


def make_player(name: str, game: "Game[Any]") -> "Player":
    """Returns a scripted or registered player by name.

    Args:
        name: Name, optionally with options: `nh`, `nh:then=stay`, `noisy(ns,0.2)`.
        game: Game to play.

    Returns:
        The player.

    Example:
        >>> import hopplus
        >>> hopplus.make_player("nh", hopplus.make("msh-4x4-4h1s")).name
        'nh'
    """
    from hopplus.players import make

    return make(name, game)


def rollout(game: "Game[Any] | str", cast: str, episodes: int = 1, seed: int = 0) -> "Trajectory":
    """Plays whole episodes in parallel environments.

    Args:
        game: Game or its name.
        cast: One player per seat: scripted players, pretrained policies (`hopplus`, `ppo`), paths of runs.
        episodes: Number of environments, one episode each.
        seed: Random seed.

    Returns:
        The trajectory, arrays [T, episodes, n, ...]; `trajectory.returns` is [episodes, n].

    Example:
        >>> import hopplus
        >>> hopplus.rollout("msh-4x4-4h1s", "ns,ns,nh,random", episodes=8).returns.shape
        (8, 4)
    """
    import jax

    from hopplus.rollouts import play_episodes
    from hopplus.training.casting import parse_cast, seat_cast

    game = make(game) if isinstance(game, str) else game
    seated = seat_cast(parse_cast(cast), game)
    params = tuple(seated.params())
    return play_episodes(jax.random.key(seed), game, seated.cast, episodes, params)[1]


def train(
    algorithm: str = "hopplus",
    *,
    game: str = "msh-4x4-4h1s",
    steps: int = 1_000_000,
    cast: str = "self-play",
    seeds: str = "0",
    out: str | Path | None = None,
    **settings: Any,
) -> "Run":
    """Trains an algorithm; the same as `hopplus train`, without progress bar and report.

    Args:
        algorithm: hopplus, hop, ppo, recurrent, liam, prosocial, or a registered one.
        game: Game by name.
        steps: Environment steps per seed.
        cast: `self-play`, or one player per seat with `learner` in some: `learner,ns,nh,random`.
        seeds: Training seeds: 0, 0-7 or 0,3,5.
        out: New run directory; default: `runs/ALGORITHM-GAME-TIME`.
        settings: Further settings of the training (`target=2.8`) or of the algorithm (`num_envs=64`, `goals="prey"`).

    Returns:
        The run, as `load` returns it.

    Example:
        >>> import hopplus
        >>> run = hopplus.train("ppo", steps=2_000, num_envs=16, out="runs/example")
        >>> run.seeds
        [0]
    """
    from hopplus.algorithms import make_algorithm
    from hopplus.configs import TrainingConfig
    from hopplus.core.settings import flatten, replace_settings
    from hopplus.training.experiment import describe, prepare
    from hopplus.training.policies import save_policies
    from hopplus.training.run import default_path, new_run
    from hopplus.training.trainer import train as run_training

    common = TrainingConfig(game=game, steps=steps, cast=cast, seeds=seeds)
    of_training = {name: value for name, value in settings.items() if name in flatten(common)}
    of_algorithm = {name: value for name, value in settings.items() if name not in of_training}
    experiment = prepare(replace_settings(common, of_training), make_algorithm(algorithm, of_algorithm))
    path = Path(out) if out else default_path(algorithm, experiment.game.name)
    with new_run(path, describe(experiment)) as run:
        save_policies(run.co_players, experiment.frozen)
        run_training(run, experiment)
    return load(path)


def load(path: str | Path) -> "Run":
    """Returns the run in a directory.

    Args:
        path: Run directory.

    Returns:
        The run: `policies()`, `metrics()` and `curve(name)`, `evaluations()`, and `beliefs(co_players)` of an episode.

    Example:
        >>> import hopplus
        >>> run = hopplus.load("runs/example")
        >>> steps, returns = run.curve("return")  # [lines], [lines, n]
    """
    from hopplus.training.run import open_run

    return open_run(Path(path))


def evaluate(
    run: "Run | str | Path",
    cast: str | None = None,
    *,
    game: str | None = None,
    episodes: int = 2000,
    greedy: bool = False,
    seed: int = 0,
) -> dict[str, Any]:
    """Returns of a run with frozen weights; the same as `hopplus evaluate`.

    Args:
        run: Run or its directory.
        cast: One player per seat, `self` for the run's own policy; default: the cast of the training.
        game: Another game than the run's own, with the same board and actions.
        episodes: Episodes per training seed.
        greedy: Take the most probable action instead of sampling.
        seed: Random seed.

    Returns:
        The figures of `hopplus evaluate --json`: `own_return`, `per_seat`, ...

    Example:
        >>> import hopplus
        >>> figures = hopplus.evaluate("runs/example", cast="self,nh,nh,nh", episodes=100)
    """
    from hopplus.evaluation.policies import evaluate
    from hopplus.training.casting import parse_cast

    return evaluate(_opened(run), None if cast is None else parse_cast(cast), game, episodes, greedy, seed)


def adapt(
    player: "Run | str | Path",
    against: str = "held-out",
    *,
    game: str | None = None,
    episodes: int = 10,
    trials: int = 8,
    seating: Literal["one", "three"] = "one",
    greedy: bool = False,
    seed: int = 0,
) -> list[dict[str, Any]]:
    """Few-shot adaptation with frozen weights; the same as `hopplus adapt`.

    Args:
        player: Run, its directory, or a player by name (`hopplus`, `nh`).
        against: Co-players: a named set (`cooperators`), `held-out`, `validation`, or players (`nh,nh,nh`).
        game: Game; default: that of the run.
        episodes: Episodes per trial.
        trials: Trials per focal seat.
        seating: One focal player with the whole set, or three with one member of it.
        greedy: Take the most probable action instead of sampling.
        seed: Random seed.

    Returns:
        One row per set: `set`, `curve` by episode, `score` (mean, interval, `share_of_oracle`), ...

    Example:
        >>> import hopplus
        >>> rows = hopplus.adapt("hopplus", "nh,nh,nh", game="msh-4x4-4h1s", trials=2)
    """
    from hopplus.evaluation.adaptation import adapt as run_trials
    from hopplus.evaluation.co_player_sets import distinct_players, make_sets
    from hopplus.evaluation.protocol import Focal, few_shot, game_of

    focal = Focal.of(str(getattr(player, "path", player)), None, None)
    rules, protocol = game_of([focal], game), few_shot(episodes)
    sets = make_sets(against, rules)
    among = distinct_players(sets)
    return [
        run_trials(focal, rules, co_players, seating, protocol, False, trials, greedy, seed, among=among)
        for co_players in sets
    ]


def _opened(run: "Run | str | Path") -> "Run":
    return load(run) if isinstance(run, str | Path) else run
