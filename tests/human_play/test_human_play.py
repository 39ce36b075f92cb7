"""Sessions of a person with co-players: setups, turns and reviews."""

import json
from pathlib import Path
from typing import Any

import pytest

from hopplus.core.errors import InputError
from hopplus.games import make
from hopplus.human_play import SessionSetup, available_players, review_of, session_players
from hopplus.human_play.review import beliefs_of, changes_of, episode_frames
from hopplus.human_play.setup import make_setup, resolve_run, setup_from
from hopplus.rollouts import session as rollout_session
from hopplus.visualization import Frame
from hopplus.visualization.reasoning import Belief, FrameReasoning, Reasoning
from sessions import GAME, play_to_end, start_session

# ----------------------------------------------------------------------------------------------------------- setups


@pytest.mark.parametrize(
    ("cast", "episodes", "seed", "message"),
    [
        ("ns,ns,nh,nh", 2, 0, "one seat of the cast must be 'you', not 0"),
        ("you,you,nh,nh", 2, 0, "one seat of the cast must be 'you', not 2"),
        ("you,ns,nh", 2, 0, "has 4 seats"),
        ("you,ns,nh,nobody", 2, 0, "there is no player 'nobody'"),
        ("you,ns,nh,nh", 0, 0, "1 to 100 episodes, not 0"),
        ("you,ns,nh,nh", 2, -1, "seed must be"),
    ],
)
def test_an_invalid_setup_is_one_sentence(cast: str, episodes: int, seed: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        session_players(make_setup(GAME, cast, episodes, seed, False), Path())


def test_a_setup_survives_json_and_other_json_is_refused() -> None:
    setup = SessionSetup(GAME, ("you", "ns", "nh", "nh"), 2, 3, True)
    written = json.loads(json.dumps(setup.as_dict()))
    assert setup_from(written) == setup
    for wrong in ({**written, "episodes": "2"}, {**written, "more": 1}, {**written, "cast": [1, 2]}, {}, []):
        with pytest.raises(InputError):
            setup_from(wrong)  # type: ignore[arg-type]


def test_runs_are_looked_up_below_the_directory(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text("{}", encoding="utf-8")
    assert resolve_run("run", tmp_path) == str(tmp_path / "run")
    assert resolve_run("run(run,planner=tree)", tmp_path) == f"run({tmp_path / 'run'},planner=tree)"
    assert resolve_run("nh", tmp_path) == "nh"


def test_all_available_players_can_play() -> None:
    for name in (GAME, "msg-4x4"):
        game = make(name)
        for player in available_players(game, None):
            session_players(make_setup(name, ",".join(["you", *[player.word] * 3]), 1, 0, False), Path())
    kinds = {player.word: player.kind for player in available_players(make(GAME), None)}
    assert {"hopplus": "pretrained", "ppo": "pretrained", "nh": "script"}.items() <= kinds.items()
    assert "cleaner" not in kinds


# --------------------------------------------------------------------------------------------------------- sessions


def test_an_illegal_action_is_refused_and_changes_nothing() -> None:
    session = start_session("you,ns,nh,nh")
    before = session.digest()
    illegal = next(name for name in session.game.action_names if name not in session.legal)
    with pytest.raises(InputError, match="is not legal here"):
        session.act(illegal)
    assert (session.digest(), session.actions) == (before, [])


def test_nothing_is_compiled_after_the_warm_up() -> None:
    programs: tuple[Any, ...] = (
        rollout_session._act,
        rollout_session._watch,
        rollout_session._advance,
        rollout_session._meet,
        rollout_session._start,
        rollout_session._fresh,
    )
    session = start_session("you,hopplus,ppo,switching(ns,nh,every=1)")
    session.warm_up()
    session.wait_until_ready()
    before = [program._cache_size() for program in programs]
    play_to_end(session, "HARE")
    assert [program._cache_size() for program in programs] == before


def test_a_session_that_is_stopped_early_counts_only_finished_episodes() -> None:
    session = start_session("you,nh,nh,nh", episodes=3)
    while not session.lasts:
        session.act("HARE" if "HARE" in session.legal else session.legal[0])
    session.act(session.legal[0])
    session.stop()
    assert session.finished
    review = review_of(session)
    assert (len(review["returns"]), len(review["episodes"]), len(review["choices"])) == (1, 1, 1)
    with pytest.raises(InputError, match="is over"):
        session.act("STAY")


# ---------------------------------------------------------------------------------------------------------- reviews


def frames(*probabilities: float) -> list[Frame]:
    """Returns an episode in which seat 1 believes, with these probabilities, that seat 0 hunts a hare."""
    result = []
    for probability in probabilities:
        belief = Belief(0, {"stag": 1 - probability, "hare": probability}, {"STAY": 1.0})
        reasoning = FrameReasoning(("stag", "hare"), ("STAY",), {1: Reasoning({"STAY": 1.0}, 0.0, (belief,))})
        result.append(Frame(1, 1, ((0, 0), (0, 0)), {}, None, None, None, 0, 1, ("you", "it"), reasoning=reasoning))
    return result


def test_a_belief_change_needs_confidence_and_not_only_a_lead() -> None:
    changes = changes_of([frames(0.5, 0.55, 0.3, 0.45), frames(0.55, 0.7, 0.5, 0.45, 0.2)])
    summary = [(change.episode, change.step, change.before, change.after) for change in changes]
    assert summary == [(0, 2, None, "stag"), (1, 1, "stag", "hare"), (1, 4, "hare", "stag")]


def test_a_review_has_beliefs_plans_and_the_oracles_decisions() -> None:
    session = start_session("you,hopplus,hopplus:planner=tree,nh")
    play_to_end(session, "HARE")
    review = review_of(session)
    assert {(belief["by"], belief["about"]) for belief in review["beliefs"]} == {
        (by, about) for by in (1, 2) for about in range(4) if by != about
    }
    first = review["episodes"][0]
    assert [player["name"] for player in first["players"]] == ["you", "hopplus", "hopplus:planner=tree", "nh"]
    reasoning = {entry["seat"]: entry for entry in first["steps"][0]["reasoning"]}
    assert reasoning[1]["search"] is None
    assert set(reasoning[2]["search"]["values"]) == set(reasoning[2]["policy"])
    for decisions, episode in zip(review["choices"], review["episodes"], strict=True):
        assert 0 < len(decisions) < len(episode["steps"])
        assert all(decision["chosen"] in decision["values"] for decision in decisions)
    assert review["summary"]["decisions"] == sum(map(len, review["choices"]))
    json.dumps(review)


def test_a_person_that_always_hunts_hares_is_soon_believed_to() -> None:
    session = start_session("you,hopplus,nh,nh", episodes=4)
    play_to_end(session, "HARE")
    beliefs = beliefs_of([episode_frames(session, number) for number in range(len(session.lasts))])
    (about_you,) = [belief for belief in beliefs if (belief["by"], belief["about"]) == (1, 0)]
    last = [point["goals"] for point in about_you["points"] if point["episode"] == 3]
    assert last[0]["hare"] > 0.6, "before the first step of the fourth episode"
