"""Pretrained policies: their returns, their names in casts and commands, and the script that selects them."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from experiment_scripts import EXPERIMENTS, RESULTS, imported
from hopplus.cli.main import main
from hopplus.cli.sweep import check_cells
from hopplus.core.errors import InputError
from hopplus.evaluation import match
from hopplus.evaluation.co_player_sets import make_sets
from hopplus.evaluation.crossplay import _players_of
from hopplus.evaluation.policies import evaluate
from hopplus.evaluation.protocol import Focal
from hopplus.games import make
from hopplus.players import CastSpec, register
from hopplus.players.planner import Planner
from hopplus.players.scripted import stay
from hopplus.sweeps.directory import Sweep
from hopplus.sweeps.plan import Cell, read_plan
from hopplus.training import pretrained
from hopplus.training.casting import parse_cast, parse_player, seat_cast
from hopplus.training.policies import Policy, load_policy, same_shape, save_policy
from hopplus.training.pretrained import (
    is_pretrained,
    load_pretrained,
    pretrained_figures,
    pretrained_names,
    pretrained_path,
    read_figures,
)
from hopplus.training.run import Run

MOST_BYTES = 1_000_000
EPISODES = 64
TOLERANCE = 0.1
"""Largest difference between the mean return of `EPISODES` and of 2,000 episodes, as a share of the ceiling."""
SMALL = "msh-4x4-4h1s"
PRETRAINED = sorted((file.parent.name, file.stem) for file in pretrained.DIRECTORY.glob("*/*.safetensors"))


def test_every_file_has_its_figures_and_all_are_small() -> None:
    listed = {
        (game, name): figures for game, by_algorithm in read_figures().items() for name, figures in by_algorithm.items()
    }
    assert sorted(listed) == PRETRAINED
    assert {name for game, name in PRETRAINED if game == SMALL} == {"hopplus", "ppo"}
    sizes = {
        (game, name): (pretrained.DIRECTORY / game / f"{name}.safetensors").stat().st_size for game, name in PRETRAINED
    }
    assert {where: figures["bytes"] for where, figures in listed.items()} == sizes
    assert sum(sizes.values()) < MOST_BYTES


def test_no_two_games_have_the_same_shape() -> None:
    games = [make(game) for game in dict.fromkeys(game for game, _ in PRETRAINED)]
    assert not any(same_shape(game, other) for game in games for other in games if game is not other)


@pytest.mark.parametrize(("game", "name"), PRETRAINED)
def test_a_policy_reaches_the_return_in_its_figures(game: str, name: str) -> None:
    the_game, figures = make(game), read_figures()[game][name]
    player = f"{name}:planner=off" if name == "hopplus" else name
    seated = seat_cast(CastSpec((parse_player(player),) * the_game.num_players), the_game)
    policy = seated.policies[player]
    assert (policy.algorithm, policy.game, policy.seed) == (name, game, figures["seed"])
    assert len(seated.cast.groups) == 1, "equal players are computed together"
    played = match(the_game, seated.cast, EPISODES, seed=1, params=seated.params())
    expected = figures["self_play"]["mean_return"]
    assert abs(played.mean_return - expected) < TOLERANCE * the_game.ceilings["mean"]


@pytest.mark.parametrize("game", [game for game, name in PRETRAINED if name == "hopplus" and game.startswith("msh")])
def test_the_goals_of_hopplus_in_the_stag_hunt_have_names(game: str) -> None:
    player = seat_cast(parse_cast(f"hopplus{',random' * 3}"), make(game)).cast.players[0]
    assert isinstance(player, Planner)
    goals = player.tracker.opponent_model.goal_names
    assert goals[0] == "nothing"
    assert list(goals) == read_figures()[game]["hopplus"]["goals"]


def test_hopplus_notices_hare_hunters_and_ppo_does_not() -> None:
    by_algorithm = read_figures()[SMALL]
    hopplus, ppo = (by_algorithm[name]["held_out"]["sets"] for name in ("hopplus", "ppo"))
    assert hopplus["defectors"]["share_of_oracle"] > 0.9 > 0.2 > ppo["defectors"]["share_of_oracle"]
    assert hopplus["cooperators"]["share_of_oracle"] > 0.95
    assert hopplus["defectors"]["belief"][1] > 0.9
    assert ppo["defectors"]["belief"] is None


# ------------------------------------------------------------------------------------------------ in casts and commands


def test_names_in_a_cast_are_resolved_by_the_shape_of_the_game() -> None:
    shorter = make(SMALL, T=20)
    assert pretrained_names(shorter) == ["hopplus", "ppo"]
    assert pretrained_path("hopplus", shorter) == pretrained.DIRECTORY / SMALL / "hopplus.safetensors"
    assert pretrained_figures(shorter, "ppo")["game"] == SMALL
    assert pretrained_path("nobody", shorter) is None
    seated = seat_cast(parse_cast("ppo,pool(ppo,nh),hopplus,noisy(ppo,0.5)"), shorter)
    assert list(seated.policies) == ["ppo", "hopplus"]
    assert len(seated.params()) == 4


def test_a_command_accepts_pretrained_policies(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(f"match {SMALL} --cast ppo,ppo,ppo,ppo --episodes {EPISODES} --json".split()) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["cast"] == ["ppo"] * 4
    assert result["mean_return"] > 2


def test_a_game_without_a_pretrained_policy_is_rejected() -> None:
    other = make("msh-4x4-2h1s")
    assert pretrained_names(other) == []
    sentence = rf"there is no pretrained hopplus for msh-4x4-2h1s, only for games like .*{SMALL}.*: train one \(.*\)"
    with pytest.raises(InputError, match=sentence):
        seat_cast(parse_cast("hopplus,random"), other)
    with pytest.raises(InputError, match="there is no pretrained ppo"):
        pretrained_figures(other, "ppo")


def test_the_planner_is_an_option_of_hopplus() -> None:
    seated = seat_cast(parse_cast("hopplus,hopplus:planner=tree,hopplus:planner=tree,hopplus:planner=off"), make(SMALL))
    plans = [player.planning is not None for player in seated.cast.players if isinstance(player, Planner)]
    assert plans == [True, True, True, False], "by belief rollouts unless told otherwise"
    assert len(seated.cast.groups) == 3
    with pytest.raises(InputError, match="planner=tree is for runs of hop and hopplus, not for one of ppo"):
        seat_cast(parse_cast("ppo:planner=tree,nh,nh,nh"), make(SMALL))


@pytest.mark.parametrize(
    ("planner", "word"), [("tree", "hopplus"), ("off", "hopplus"), (None, "hopplus"), ("tree", "FILE")]
)
def test_adapt_sets_the_planner_of_a_pretrained_policy(
    planner: str | None, word: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inspects the players and plays no game: a search takes long to compile."""
    casts: list[Any] = []

    def start(key: Any, game: Any, cast: Any, *more: Any) -> Any:
        casts.append(cast)
        raise InputError("nobody plays here")

    monkeypatch.setattr("hopplus.evaluation.trials.init_rollout", start)
    named = shutil.copy(pretrained.DIRECTORY / SMALL / "hopplus.safetensors", tmp_path) if word == "FILE" else word
    options = [] if planner is None else ["--planner", planner]
    assert main(["adapt", str(named), "--game", SMALL, "--against", "defectors", "--seating", "three", *options]) == 2
    assert "nobody plays here" in capsys.readouterr().err
    focal = casts[0].players[:3]
    names = [player.planning and player.planning.name for player in focal]
    assert names == [{None: "rollouts", "off": None}.get(planner, planner)] * 3


def test_crossplay_sets_the_planner_of_pretrained_policies_and_not_of_scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    columns: list[Focal] = []

    def stop(rows: Any, others: list[Focal], *more: Any) -> Any:
        columns.extend(others)
        raise InputError("nobody plays here")

    row = Focal(SMALL, None, (0,))
    monkeypatch.setattr("hopplus.training.run.open_run", lambda path: None)
    monkeypatch.setattr("hopplus.evaluation.crossplay.common_game", lambda focals, game: make(SMALL))
    monkeypatch.setattr("hopplus.evaluation.crossplay.crossplay", stop)
    make_focal = Focal.of
    monkeypatch.setattr(Focal, "of", lambda text, *more: row if text == "RUN" else make_focal(text, *more))
    assert main(["crossplay", "RUN", "--with", "hopplus,nh", "--planner", "tree"]) == 2
    assert [(focal.name, focal.planner) for focal in columns[1:]] == [("hopplus:planner=tree", "tree"), ("nh", None)]
    (player,), _ = _players_of(columns[1], 0, [0], "column", make(SMALL), False)
    assert isinstance(player, Planner)
    assert player.planning is not None


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("ppo", "planner=tree is for runs of hop and hopplus, not for one of ppo"),
        ("nh", "'nh' cannot plan: --planner is for runs of hop and hopplus, and the pretrained hopplus"),
        ("noisy(hopplus,0.2)", "'noisy(hopplus,0.2)' cannot plan"),
        ("hopplus:planner=off", "'hopplus:planner=off' sets planner already"),
        ("hopplus --update-weights", "--planner and --update-weights exclude each other"),
    ],
)
def test_a_planner_without_effect_is_rejected(
    arguments: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["adapt", *arguments.split(), "--game", SMALL, "--against", "defectors", "--planner", "tree"]) == 2
    answer = capsys.readouterr().err
    assert sentence in answer
    assert answer.count("\n") == 1


def test_evaluate_rejects_a_planner_if_the_run_has_no_seat(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(Path("run"), {"seeds": [0], "learners": [0], "training": {"game": SMALL}})
    monkeypatch.setattr(Run, "policies", lambda run, seed: [load_pretrained("hopplus", make(SMALL))])
    with pytest.raises(InputError, match="the cast 'nh,nh,nh,nh' has no seat 'self'"):
        evaluate(run, parse_cast("nh,nh,nh,nh"), planner="tree")


def test_a_policy_file_of_another_format_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy, path = load_pretrained("ppo", make(SMALL)), tmp_path / "policy.safetensors"
    save_policy(path, policy)
    assert load_policy(str(path)).settings == policy.settings
    monkeypatch.setattr("hopplus.training.policies.FORMAT", 2)
    with pytest.raises(InputError, match="has format 1, and this version of hopplus reads format 2"):
        load_policy(str(path))


@pytest.mark.parametrize(
    "argv", ["adapt hopplus --game GAME --against defectors", "watch GAME --cast hopplus,nh,nh,nh"]
)
def test_an_unknown_planner_is_one_sentence(argv: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = argv.replace("GAME", SMALL).split()
    words = [*words, "--planner", "tre"] if words[0] == "adapt" else [*words[:-1], "hopplus:planner=tre,nh,nh,nh"]
    assert main(words) == 2
    assert capsys.readouterr().err == "hopplus: there is no planner 'tre' (did you mean 'tree'?)\n"


def test_a_registered_or_saved_player_of_the_same_name_takes_precedence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hopplus").mkdir()
    assert is_pretrained("hopplus:planner=tree"), "a directory that is not a run is not a player"
    assert Focal.of("hopplus").run is None
    register("ppo", stay)
    assert not seat_cast(parse_cast("ppo,nh,nh,nh"), make(SMALL)).policies
    (tmp_path / "hopplus" / "config.json").write_text("{}", encoding="utf-8")
    assert not is_pretrained("hopplus")


def test_pretrained_policies_are_accepted_wherever_players_are_named() -> None:
    game = make(SMALL)
    assert make_sets("hopplus,hopplus,ppo", game)[0].players == parse_cast("hopplus,hopplus,ppo").players
    with pytest.raises(InputError, match="the set 'hopplus' has 1 players"):
        make_sets("hopplus", game)
    assert Focal.of("hopplus").regime(make_sets("defectors", game)[0]) == ("self", ())


def test_half_precision_numbers_are_loaded_in_single_precision(tmp_path: Path) -> None:
    params = {"layer": {"kernel": np.linspace(-1, 1, 7, dtype=np.float32), "count": np.arange(3, dtype=np.int32)}}
    policy = Policy("ppo", {}, SMALL, 3, 0, params)
    save_policy(tmp_path / "long.safetensors", policy)
    save_policy(tmp_path / "short.safetensors", policy, short=True)
    long, short = (load_policy(str(tmp_path / f"{name}.safetensors")) for name in ("long", "short"))
    np.testing.assert_array_equal(long.params["layer"]["kernel"], params["layer"]["kernel"])
    np.testing.assert_allclose(short.params["layer"]["kernel"], params["layer"]["kernel"], atol=5e-4)
    assert short.params["layer"]["kernel"].dtype == np.float32
    assert not np.array_equal(short.params["layer"]["kernel"], params["layer"]["kernel"])
    np.testing.assert_array_equal(short.params["layer"]["count"], params["layer"]["count"])


# ------------------------------------------------------------------------------------------------------------ selection


@pytest.fixture
def script() -> Iterator[ModuleType]:
    with imported("pretrained") as module:
        yield module


def test_every_policy_comes_from_a_sweep_cell_trained_in_self_play() -> None:
    plan, trainings = read_plan(EXPERIMENTS / "pretrained.toml"), {}
    check_cells(plan)
    for cell in plan.cells:
        assert cell.settings["cast"] == "self-play", "players of these names are reported with the regime `self`"
        assert any(judge.name.startswith("validation") for judge in plan.judges if judge.judges(cell)), cell.name
        trainings[" ".join(sorted(["hopplus", *cell.argv()]))] = cell
    for game, name in PRETRAINED:
        figures = read_figures()[game][name]
        cell = trainings[" ".join(sorted(figures["training"].split()))]
        assert (cell.settings["game"], cell.settings["algorithm"]) == (game, name)
        assert figures["seed"] in cell.seeds


def test_the_page_is_made_from_the_stored_figures(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "RESULTS", tmp_path)
    script.page()
    written = (tmp_path / "pretrained.md").read_text(encoding="utf-8")
    assert written == (RESULTS / "pretrained.md").read_text(encoding="utf-8")
    assert written.count("\n| HOP+, policy alone |") == sum(name == "hopplus" for _, name in PRETRAINED)


def test_the_best_seed_has_the_largest_mean_share(script: ModuleType) -> None:
    first, second = {"rich": [100.0, 90.0], "poor": [0.1, 1.0]}, {"rich": [50.0], "poor": [2.0]}
    best = script.best_scores([first, second])
    assert best == {"rich": 100.0, "poor": 2.0}
    assert script.best_seed(first, best, (5, 7)) == 7
    assert script.best_seed({"rich": [100.0, 90.0], "poor": [0.9, 1.0]}, best, (5, 7)) == 5


def judged_run(sweep: Sweep, cell: Cell) -> None:
    """Writes the files of a trained and judged cell that `keep` reads."""
    for inner in ("evaluation", "judged"):
        (sweep.run_path(cell) / inner).mkdir(parents=True)
    about = {
        "format": 1,
        "machine": "one",
        "versions": {"jax": "0"},
        "commit": "c",
        "started": "now",
        "seeds": list(cell.seeds),
    }
    rows = [{"set": "noisy", "score": {"per_seed": [1.0, 3.0, 2.0, 0.5, 0.2][: len(cell.seeds)]}}]
    sampled = [{"seed": seed, "mean_return": seed + 0.5} for seed in cell.seeds]
    written: dict[Path, Any] = {
        sweep.run_path(cell) / "config.json": about,
        sweep.run_path(cell) / "evaluation" / "final.json": {"format": 1},
        **{
            sweep.judged_path(cell, judge): {"rows": rows} if judge.command == "adapt" else {"per_seed": sampled}
            for judge in sweep.judges(cell)
        },
    }
    for path, content in written.items():
        path.write_text(json.dumps(content), encoding="utf-8")
    (sweep.run_path(cell) / "metrics.jsonl").write_text("", encoding="utf-8")


def test_the_best_seed_of_a_finished_game_is_stored(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = read_plan(EXPERIMENTS / "pretrained.toml")
    sweep = Sweep(tmp_path / "sweep", plan, "")
    sweep.path.mkdir()
    (sweep.path / "sweep.json").write_text(
        json.dumps({"format": 1, "identity": "", "plan": plan.described()}), encoding="utf-8"
    )
    for cell in plan.cells:
        if cell.settings["game"] == SMALL:
            judged_run(sweep, cell)
    monkeypatch.setattr(script, "SWEEP", sweep.path)
    monkeypatch.setattr(pretrained, "DIRECTORY", tmp_path / "package")
    point = {"goal_belief": 0.5}
    row = {"set": "defectors", "curve": [point] * 10}
    row["score"] = {"mean": 1.0, "standard_error": 0.1, "oracle": 2.0, "share_of_oracle": 0.5}
    result = {"mean_return": 2.0, "standard_error": 0.1, "share_of_ceiling": 0.5, "rows": [row]}
    monkeypatch.setattr(script, "figures_from", lambda directory, *argv: result)

    class Opened:
        def __init__(self, path: Path) -> None:
            self.algorithm = path.name.partition("-")[2]

        def policies(self, seed: int) -> list[Policy]:
            return [Policy(self.algorithm, {}, SMALL, seed, 0, {"kernel": np.ones(2, np.float32)})]

    monkeypatch.setattr(script, "open_run", Opened)
    script.keep([])
    output = capsys.readouterr().out
    assert f"{SMALL}: hopplus, seed 1" in output
    assert "msg-4x4: unfinished: msg-ppo, msg-hopplus" in output
    figures = read_figures()[SMALL]["hopplus"]
    assert figures["bytes"] == pretrained_path("hopplus", make(SMALL)).stat().st_size  # pyright: ignore[reportOptionalMemberAccess]
    assert figures["seeds"]["1"] == {"self-play": 1.5, "noisy": 3.0}
    assert figures["held_out"]["sets"]["defectors"]["belief"] == [0.5, 0.5]
    assert "hopplus:planner=off" in figures["held_out"]["command"]
    assert "planner" not in figures["planning"]["command"]
    monkeypatch.setattr(script, "RESULTS", tmp_path)
    script.page()
    assert "| HOP+, policy alone | 1 | 0, 1, 2, 3, 4 | 1 M | 2.00 | 0.50 | 0.50 |" in (
        tmp_path / "pretrained.md"
    ).read_text(encoding="utf-8")


def test_an_unknown_cell_name_is_rejected(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = read_plan(EXPERIMENTS / "pretrained.toml")
    monkeypatch.setattr(script, "sweep_in", lambda directory: Sweep(directory, plan, ""))
    with pytest.raises(SystemExit, match=r"no cell of .* is called 'nobody'"):
        script.keep(["nobody"])
