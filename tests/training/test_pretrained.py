"""Policies that come with the package: they play their games as their figures say, by their names in a cast."""

import importlib
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from hopplus.cli.main import main
from hopplus.cli.sweep import check_cells
from hopplus.core.errors import InputError
from hopplus.evaluation import match
from hopplus.evaluation.co_player_sets import make_sets
from hopplus.evaluation.crossplay import _players_of
from hopplus.evaluation.policies import evaluate
from hopplus.evaluation.protocol import Focal
from hopplus.games import make
from hopplus.players import register
from hopplus.players.planner import Planner
from hopplus.players.scripted import stay
from hopplus.sweeps.directory import Sweep
from hopplus.sweeps.plan import Cell, read_plan
from hopplus.training import pretrained
from hopplus.training.casting import seat_cast
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

EXPERIMENTS = Path(__file__).parent.parent.parent / "experiments"
RESULTS = EXPERIMENTS.parent / "docs" / "results"
MOST_BYTES = 1_000_000
EPISODES = 64
TOLERANCE = 0.1
"""Of the ceiling: by how much the mean of so few episodes may differ from that of 2,000."""
SMALL = "msh-4x4-4h1s"
EVERY = sorted((file.parent.name, file.stem) for file in pretrained.DIRECTORY.glob("*/*.safetensors"))


def test_every_file_has_its_figures_and_all_are_small() -> None:
    listed = {(game, name): kept for game, by_recipe in read_figures().items() for name, kept in by_recipe.items()}
    assert sorted(listed) == EVERY
    assert {name for game, name in EVERY if game == SMALL} == {"hopplus", "ppo"}
    sizes = {(game, name): (pretrained.DIRECTORY / game / f"{name}.safetensors").stat().st_size for game, name in EVERY}
    assert {where: kept["bytes"] for where, kept in listed.items()} == sizes
    assert sum(sizes.values()) < MOST_BYTES


def test_no_two_games_have_the_same_form() -> None:
    games = [make(game) for game in dict.fromkeys(game for game, _ in EVERY)]
    assert not any(same_shape(one, other) for one in games for other in games if one is not other)


@pytest.mark.parametrize(("game", "name"), EVERY)
def test_a_policy_plays_as_its_figures_say(game: str, name: str) -> None:
    the_game, kept = make(game), read_figures()[game][name]
    seated = seat_cast(",".join([name] * the_game.num_players), the_game)
    policy = seated.policies[name]
    assert (policy.algorithm, policy.game, policy.seed) == (name, game, kept["seed"])
    assert len(seated.cast.groups) == 1, "equal players are computed together"
    played = match(the_game, seated.cast, EPISODES, seed=1, params=seated.params())
    said = kept["self_play"]["mean_return"]
    assert abs(played.mean_return - said) < TOLERANCE * the_game.ceilings["mean"]


@pytest.mark.parametrize("game", sorted({game for game, name in EVERY if name == "hopplus"}))
def test_the_goals_that_hopplus_takes_others_to_have_are_words(game: str) -> None:
    player = seat_cast(f"hopplus{',random' * 3}", make(game)).cast.players[0]
    assert isinstance(player, Planner)
    goals = player.tracker.opponent_model.goal_names
    assert goals[0] == "nothing"
    assert list(goals) == read_figures()[game]["hopplus"]["goals"]


def test_hopplus_notices_hare_hunters_and_ppo_does_not() -> None:
    by_recipe = read_figures()[SMALL]
    hopplus, ppo = (by_recipe[name]["held_out"]["sets"] for name in ("hopplus", "ppo"))
    assert hopplus["defectors"]["share_of_oracle"] > 0.9 > 0.2 > ppo["defectors"]["share_of_oracle"]
    assert hopplus["cooperators"]["share_of_oracle"] > 0.95
    assert hopplus["defectors"]["belief"][1] > 0.9
    assert ppo["defectors"]["belief"] is None


# ----------------------------------------------------------------------------------------------------------- in a cast


def test_words_of_a_cast_are_found_by_the_form_of_the_game() -> None:
    shorter = make(SMALL, T=20)
    assert pretrained_names(shorter) == ["hopplus", "ppo"]
    assert pretrained_path("hopplus", shorter) == pretrained.DIRECTORY / SMALL / "hopplus.safetensors"
    assert pretrained_figures(shorter, "ppo")["game"] == SMALL
    assert pretrained_path("nobody", shorter) is None
    seated = seat_cast("ppo,pool(ppo,nh),hopplus,noisy(ppo,0.5)", shorter)
    assert list(seated.policies) == ["ppo", "hopplus"]
    assert len(seated.params()) == 4


def test_a_command_takes_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(f"match {SMALL} --cast ppo,ppo,ppo,ppo --episodes {EPISODES} --json".split()) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["cast"] == ["ppo"] * 4
    assert told["mean_return"] > 2


def test_a_game_without_one_is_one_sentence() -> None:
    other = make("msh-4x4-2h1s")
    assert pretrained_names(other) == []
    sentence = rf"there is no pretrained hopplus for msh-4x4-2h1s, only for games like .*{SMALL}.*: train one \(.*\)"
    with pytest.raises(InputError, match=sentence):
        seat_cast("hopplus,random", other)
    with pytest.raises(InputError, match="there is no pretrained ppo"):
        pretrained_figures(other, "ppo")


def test_search_is_an_option_of_those_that_can() -> None:
    seated = seat_cast("hopplus,hopplus:search=on,hopplus:search=on,hopplus:search=off", make(SMALL))
    searches = [player.search is not None for player in seated.cast.players if isinstance(player, Planner)]
    assert searches == [False, True, True, False]
    assert len(seated.cast.groups) == 3
    with pytest.raises(InputError, match="search is on or off, for runs of hop and hopplus"):
        seat_cast("ppo:search=on,nh,nh,nh", make(SMALL))


@pytest.mark.parametrize(("search", "word"), [("on", "hopplus"), ("off", "hopplus"), (None, "hopplus"), ("on", "FILE")])
def test_adapt_has_a_pretrained_policy_search_or_not(
    search: str | None, word: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its players, without a game: a search takes long to compile."""
    casts: list[Any] = []

    def start(key: Any, game: Any, cast: Any, *more: Any) -> Any:
        casts.append(cast)
        raise InputError("nobody plays here")

    monkeypatch.setattr("hopplus.evaluation.trials.init_rollout", start)
    named = shutil.copy(pretrained.DIRECTORY / SMALL / "hopplus.safetensors", tmp_path) if word == "FILE" else word
    options = [] if search is None else ["--search", search]
    assert main(["adapt", str(named), "--game", SMALL, "--against", "defectors", "--seating", "three", *options]) == 2
    assert "nobody plays here" in capsys.readouterr().err
    focal = casts[0].players[:3]
    assert [player.search is not None for player in focal] == [search == "on"] * 3


def test_crossplay_has_pretrained_policies_search_and_scripts_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    columns: list[Focal] = []

    def stop(rows: Any, others: list[Focal], *more: Any) -> Any:
        columns.extend(others)
        raise InputError("nobody plays here")

    row = Focal(SMALL, None, (0,))
    monkeypatch.setattr("hopplus.training.run.open_run", lambda path: None)
    monkeypatch.setattr("hopplus.evaluation.crossplay.game_of", lambda focals, game: make(SMALL))
    monkeypatch.setattr("hopplus.evaluation.crossplay.crossplay", stop)
    own = Focal.of
    monkeypatch.setattr(Focal, "of", lambda text, *more: row if text == "RUN" else own(text, *more))
    assert main(["crossplay", "RUN", "--with", "hopplus,nh", "--search", "on"]) == 2
    assert [(focal.name, focal.search) for focal in columns[1:]] == [("hopplus:search=on", "on"), ("nh", None)]
    (player,), _ = _players_of(columns[1], 0, [0], "column", make(SMALL), False)
    assert isinstance(player, Planner)
    assert player.search is not None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("ppo", "search is on or off, for runs of hop and hopplus: not 'on' for one of ppo"),
        ("nh", "'nh' cannot search: --search is for runs of hop and hopplus, and the pretrained hopplus"),
        ("noisy(hopplus,0.2)", "'noisy(hopplus,0.2)' cannot search"),
        ("hopplus:search=off", "'hopplus:search=off' sets search already"),
        ("hopplus --update-weights", "--search and --update-weights exclude each other"),
    ],
)
def test_a_search_that_would_have_no_effect_is_refused(
    words: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["adapt", *words.split(), "--game", SMALL, "--against", "defectors", "--search", "on"]) == 2
    answer = capsys.readouterr().err
    assert said in answer
    assert answer.count("\n") == 1


def test_evaluate_refuses_a_search_where_the_run_does_not_play(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(Path("run"), {"seeds": [0], "learners": [0], "training": {"game": SMALL}})
    monkeypatch.setattr(Run, "policies", lambda run, seed: [load_pretrained("hopplus", make(SMALL))])
    with pytest.raises(InputError, match="the cast 'nh,nh,nh,nh' has no seat 'self'"):
        evaluate(run, "nh,nh,nh,nh", search="on")


def test_somebody_who_is_registered_or_saved_by_the_same_name_goes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hopplus").mkdir()
    assert is_pretrained("hopplus:search=on"), "a directory that is no run is nobody"
    assert Focal.of("hopplus").run is None
    register("ppo", stay)
    assert not seat_cast("ppo,nh,nh,nh", make(SMALL)).policies
    (tmp_path / "hopplus" / "config.json").write_text("{}", encoding="utf-8")
    assert not is_pretrained("hopplus")


def test_they_are_known_wherever_players_are_named() -> None:
    game = make(SMALL)
    assert make_sets("hopplus,hopplus,ppo", game)[0].players == ("hopplus", "hopplus", "ppo")
    with pytest.raises(InputError, match="the set 'hopplus' has 1 players"):
        make_sets("hopplus", game)
    assert Focal.of("hopplus").regime(make_sets("defectors", game)[0]) == ("self", ())


def test_numbers_that_were_written_short_are_read_long(tmp_path: Path) -> None:
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


# ---------------------------------------------------------------------------------------------------- how they are made


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(EXPERIMENTS))
    yield importlib.import_module("pretrained")
    for name in ("pretrained", "pages"):
        sys.modules.pop(name, None)


def test_every_policy_is_of_a_cell_that_is_trained_like_it_in_self_play() -> None:
    plan = read_plan(EXPERIMENTS / "pretrained.toml")
    check_cells(plan)
    cells = {(cell.settings["game"], cell.settings["algorithm"]): cell for cell in plan.cells}
    assert set(EVERY) <= set(cells)
    for (game, name), cell in cells.items():
        assert cell.settings["cast"] == "self-play", "players by these names are said to be of the regime `self`"
        assert any(judge.name.startswith("validation") for judge in plan.judges if judge.judges(cell)), cell.name
        if (game, name) in EVERY:
            kept = read_figures()[game][name]
            assert sorted(kept["training"].split()) == sorted(["hopplus", *cell.argv()])
            assert kept["seed"] in cell.seeds


def test_the_page_is_of_the_figures_that_are_kept(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "RESULTS", tmp_path)
    script.page()
    written = (tmp_path / "pretrained.md").read_text(encoding="utf-8")
    assert written == (RESULTS / "pretrained.md").read_text(encoding="utf-8")
    assert written.count("\n| HOP+ |") == sum(name == "hopplus" for _, name in EVERY)


def test_the_best_seed_is_that_of_the_largest_shares(script: ModuleType) -> None:
    ours, theirs = {"rich": [100.0, 90.0], "poor": [0.1, 1.0]}, {"rich": [50.0], "poor": [2.0]}
    best = script.best_scores([ours, theirs])
    assert best == {"rich": 100.0, "poor": 2.0}
    assert script.best_seed(ours, best, (5, 7)) == 7
    assert script.best_seed({"rich": [100.0, 90.0], "poor": [0.9, 1.0]}, best, (5, 7)) == 5


def judged_run(sweep: Sweep, cell: Cell) -> None:
    """A run of a cell that is trained and judged, by hand: as much as `keep` looks at."""
    for inner in ("evaluation", "judged"):
        (sweep.run_path(cell) / inner).mkdir(parents=True)
    about = {"machine": "one", "versions": {"jax": "0"}, "commit": "c", "started": "now", "seeds": list(cell.seeds)}
    rows = [{"set": "noisy", "score": {"per_seed": [1.0, 3.0, 2.0]}}]
    sampled = [{"seed": seed, "mean_return": seed + 0.5} for seed in cell.seeds]
    written: dict[Path, Any] = {
        sweep.run_path(cell) / "config.json": about,
        sweep.run_path(cell) / "evaluation" / "final.json": {},
        **{
            sweep.judged_path(cell, judge): {"rows": rows} if judge.command == "adapt" else {"per_seed": sampled}
            for judge in sweep.judges(cell)
        },
    }
    for path, content in written.items():
        path.write_text(json.dumps(content), encoding="utf-8")
    (sweep.run_path(cell) / "metrics.jsonl").write_text("", encoding="utf-8")


def test_the_best_seed_of_a_game_that_is_done_is_kept(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = read_plan(EXPERIMENTS / "pretrained.toml")
    sweep = Sweep(tmp_path / "sweep", plan, "")
    sweep.path.mkdir()
    (sweep.path / "sweep.json").write_text(json.dumps({"identity": "", "plan": plan.described()}), encoding="utf-8")
    for cell in plan.cells:
        if cell.settings["game"] == SMALL:
            judged_run(sweep, cell)
    monkeypatch.setattr(script, "SWEEP", sweep.path)
    monkeypatch.setattr(pretrained, "DIRECTORY", tmp_path / "package")
    point = {"goal_belief": 0.5}
    row = {"set": "defectors", "curve": [point] * 10}
    row["score"] = {"mean": 1.0, "standard_error": 0.1, "oracle": 2.0, "share_of_oracle": 0.5}
    told = {"mean_return": 2.0, "standard_error": 0.1, "share_of_ceiling": 0.5, "rows": [row]}
    monkeypatch.setattr(script, "figures_from", lambda directory, *words: told)

    class Opened:
        def __init__(self, path: Path) -> None:
            self.recipe = path.name.partition("-")[2]

        def policies(self, seed: int) -> list[Policy]:
            return [Policy(self.recipe, {}, SMALL, seed, 0, {"kernel": np.ones(2, np.float32)})]

    monkeypatch.setattr(script, "open_run", Opened)
    script.keep([])
    said = capsys.readouterr().out
    assert f"{SMALL}: hopplus, seed 1" in said
    assert "msg-4x4: unfinished: msg-ppo, msg-hopplus" in said
    kept = read_figures()[SMALL]["hopplus"]
    assert kept["bytes"] == pretrained_path("hopplus", make(SMALL)).stat().st_size  # pyright: ignore[reportOptionalMemberAccess]
    assert kept["seeds"]["1"] == {"self-play": 1.5, "noisy": 3.0}
    assert kept["held_out"]["sets"]["defectors"]["belief"] == [0.5, 0.5]
    monkeypatch.setattr(script, "RESULTS", tmp_path)
    script.page()
    assert "| HOP+ | 1 | 0, 1, 2 | 0.5 M | 2.00 | 0.50 | 0.50 |" in (tmp_path / "pretrained.md").read_text(
        encoding="utf-8"
    )


def test_a_name_that_no_cell_has_is_not_kept(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = read_plan(EXPERIMENTS / "pretrained.toml")
    monkeypatch.setattr(script, "sweep_in", lambda directory: Sweep(directory, plan, ""))
    with pytest.raises(SystemExit, match=r"no cell of .* is called 'nobody'"):
        script.keep(["nobody"])
