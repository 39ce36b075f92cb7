"""Sessions of a person with co-players: setups, turns and reviews."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from decisions import CHOICE_REASONING, HUNT, HUNT_WITH_CHOICE
from hopplus.cli.play import sentences
from hopplus.core.errors import InputError
from hopplus.games import make
from hopplus.human_play import SessionSetup, available_players, review_of, session_players
from hopplus.human_play.available_players import planning_text
from hopplus.human_play.review import beliefs_of, changes_of, episode_frames, plan_changes_of
from hopplus.human_play.setup import make_setup, resolve_run, setup_from
from hopplus.rollouts import session as rollout_session
from hopplus.training.run import FORMAT
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


def test_players_that_can_plan_are_offered_with_and_without_belief_rollouts(tmp_path: Path) -> None:
    training = dict.fromkeys(("seeds", "steps", "iterations_per_call", "curriculum"), 1)
    for name, planner in (("flat", "off"), ("hop", "tree"), ("plain", None)):
        (tmp_path / name / "checkpoints" / "1").mkdir(parents=True)
        config = {
            "format": FORMAT,
            "algorithm": name,
            "settings": {} if planner is None else {"planner": planner},
            "training": {**training, "game": GAME, "cast": "self-play"},
            "learners": [0],
            "seeds": [0],
        }
        (tmp_path / name / "config.json").write_text(json.dumps(config), encoding="utf-8")
    offered = {player.word: player.description for player in available_players(make(GAME), tmp_path)}
    by_rollouts, policy = "plans each action by belief rollouts; ", "acts by its policy; "
    assert next(iter(offered)) == "hopplus:planner=rollouts"
    starts = {
        "hopplus:planner=rollouts": by_rollouts,
        "hopplus": by_rollouts,
        "run(flat,planner=rollouts)": by_rollouts,
        "flat": policy,
        "run(hop,planner=rollouts)": by_rollouts,
        "hop": "plans each action by tree search; ",
        "plain": "plain, trained on",
    }
    assert {word: offered[word].startswith(start) for word, start in starts.items()} == dict.fromkeys(starts, True)
    assert "run(plain,planner=rollouts)" not in offered
    assert planning_text("one-step") == "plans each action by one-step"


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


def test_plan_changes_are_steps_at_which_another_plan_replaces_the_followed_one() -> None:
    kept = replace(CHOICE_REASONING, by_seat={2: CHOICE_REASONING.by_seat[2]})
    changes = plan_changes_of([[HUNT, HUNT_WITH_CHOICE], [replace(HUNT, reasoning=kept), HUNT, HUNT_WITH_CHOICE]])
    assert [(change.episode, change.step, change.by) for change in changes] == [(0, 1, 3), (1, 2, 3)]
    assert {(change.before, change.after) for change in changes} == {("neutral", "hares")}
    assert changes[0].text.startswith("plan: hares (replaced neutral: 1.00 ± 0.00 against 0.20 ± 0.10")


def test_beliefs_have_the_rationality_at_the_end() -> None:
    rationality = {(row["by"], row["about"]): row["rationality"] for row in beliefs_of([[HUNT, HUNT_WITH_CHOICE]])}
    assert rationality[3, 0] == "random 93%"
    assert rationality[3, 1] == "tremble 0.25: 71%"
    assert rationality[3, 2] == "", "no hypothesis is likelier than the others together"


def test_the_terminal_review_tells_beliefs_and_plan_changes() -> None:
    session = start_session("you,nh,nh,nh")
    episodes = [[HUNT_WITH_CHOICE]]
    review = {
        "returns": [[1.0]],
        "beliefs": beliefs_of(episodes),
        "changes": [],
        "plan_changes": [asdict(change) for change in plan_changes_of(episodes)],
        "summary": {"decisions": 0},
    }
    texts = sentences(session, review)
    assert any(text.endswith("that your goal was: hare 70%; rationality at the end: random 93%") for text in texts)
    assert texts[-1].startswith("episode 1, step 0: seat 3: plan: hares (replaced neutral: ")
    assert not any("plan:" in text for text in sentences(session, {**review, "plan_changes": None}))


def test_a_review_has_beliefs_plans_and_the_oracles_decisions() -> None:
    session = start_session("you,hopplus:planner=off,hopplus,nh")
    play_to_end(session, "HARE")
    review = review_of(session)
    assert {(belief["by"], belief["about"]) for belief in review["beliefs"]} == {
        (by, about) for by in (1, 2) for about in range(4) if by != about
    }
    first = review["episodes"][0]
    assert [player["name"] for player in first["players"]] == ["you", "hopplus:planner=off", "hopplus", "nh"]
    reasoning = {entry["seat"]: entry for entry in first["steps"][0]["reasoning"]}
    assert reasoning[1]["plan"] is None
    assert set(reasoning[2]["plan"]["values"]) == set(reasoning[2]["policy"])
    assert set(first["steps"][0]["plan_texts"]) == {2}
    assert all(change["by"] == 2 for change in review["plan_changes"])
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
