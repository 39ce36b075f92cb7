"""Values of decisions: against dynamic programming, and in positions with answers known by hand."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest

from common import hopplus
from hopplus import games, players
from hopplus.algorithms import HopPlus
from hopplus.algorithms.base import initial_params
from hopplus.algorithms.hopplus.acting import make_moa
from hopplus.core.errors import InputError
from hopplus.core.specs import parse
from hopplus.evaluation import decisions, exact_best_response
from hopplus.evaluation.decisions import (
    DecisionPoint,
    JudgedDecision,
    judge_decisions,
    summarize,
    unbiased,
    without_search,
)
from hopplus.games import Game, StagHunt

HUNT, DRIFT = games.make("msh-4x4-4h1s"), games.make("msg-4x4")
PAIR = StagHunt(name="msh-4x4-2h1s", height=4, width=4, players=2, hares=2, blocks=0)


def decision(game: Game[Any], state: Any, action: str, memories: Sequence[Any] | None = None) -> DecisionPoint:
    return DecisionPoint(state, tuple(memories or [()] * game.num_players), game.action_names.index(action))


def judge(
    game: Game[Any], cast: str, points: Sequence[DecisionPoint], seat: int = 0, simulations: int = 32
) -> list[JudgedDecision]:
    seated = players.make_cast(cast, game).players
    params = [player.default_params() for player in seated]
    return judge_decisions(game, seated, params, seat, points, jax.random.key(0), simulations)


# ---------------------------------------------------------------------------------------------- dynamic programming

SWITCHING = "stay,switching(ns,nh,every=1)"
"""One program for ns and nh: the memory selects the active one."""
STEPS = 4
"""Steps left to play: not everything can be reached."""


def as_ns_or_nh(state: Any, which: str, action: str = "STAY") -> DecisionPoint:
    episode = np.int32(("ns", "nh").index(which))
    return decision(PAIR, state, action, ["ignored", (episode, (), ())])


def drawn(number: int) -> tuple[np.ndarray, np.ndarray, list[Any]]:
    """Returns random layouts of prey, cells of the players, and the states of both near the end."""
    generator = np.random.default_rng(0)
    layouts = np.stack([generator.permutation(PAIR.num_cells)[:3] for _ in range(number)])
    cells = generator.integers(PAIR.num_cells, size=(number, 2))
    positions = [[divmod(int(cell), PAIR.width) for cell in row] for row in np.concatenate([cells, layouts], 1)]
    return layouts, cells, [PAIR.from_layout(row[:2], row[2:3], row[3:], time=PAIR.T - STEPS) for row in positions]


@pytest.mark.parametrize(
    ("beside", "too_low", "too_high"), [("nh", 0.03, 0.15), ("ns", 0.001, 0.001), ("noisy(ns,0.3)", 0.15, 0.5)]
)
def test_the_best_action_against_dynamic_programming(beside: str, too_low: float, too_high: float) -> None:
    """The estimate is close to the value of the best response.

    With these seeds it is 0.01, 0 and 0.09 below it on average, and at most 0.08, 0 and 0.27 above it.
    """
    layouts, cells, states = drawn(32)
    co_player = players.make(beside, PAIR)
    values = exact_best_response.best_response(replace(PAIR, T=STEPS), (co_player,), layouts)[np.arange(32), *cells.T]
    if co_player.name in ("ns", "nh"):
        judged = judge(PAIR, SWITCHING, [as_ns_or_nh(state, beside) for state in states])
    else:
        judged = judge(PAIR, f"stay,{beside}", [decision(PAIR, state, "STAY") for state in states])
    estimates = np.array([max(point.values.values()) for point in judged])
    assert (estimates < values + too_high).all()
    assert -too_low < (estimates - values).mean() < 0.01
    assert len(np.unique(values.round(3))) > 2, "the positions must differ to test anything"


# ---------------------------------------------------------------------------------------------------- known by hand


def test_the_last_hare_is_taken_where_the_stag_is_hopeless() -> None:
    """Three co-players hunt hares, one of them the hare on the seat's cell: half of it is left, only now."""
    corners = [(3, 3), (0, 0), (0, 0), (3, 0)]
    state = HUNT.from_layout(corners, stags=[(1, 1)], hares=[(0, 0), (3, 3), (3, 0)])
    waits, takes = judge(HUNT, "nh,stay,nh,nh", [decision(HUNT, state, action) for action in ("STAY", "HARE")], seat=1)
    assert waits.values == takes.values == {"DOWN": 0.0, "RIGHT": 0.0, "STAY": 0.0, "HARE": 0.5}
    assert (waits.chosen, waits.best, waits.lost, waits.clear) == ("STAY", "HARE", 0.5, True)
    assert (takes.chosen, takes.best, takes.lost, takes.clear) == ("HARE", "HARE", 0.0, False)
    assert set(takes.errors.values()) == {0.0}


def test_a_stag_in_company_is_not_left_for_a_hare() -> None:
    """With two steps left: a joint hunt now or in the last step, or a hare on the next cell."""
    state = PAIR.from_layout([(1, 1), (1, 1)], stags=[(1, 1)], hares=[(1, 2), (3, 3)], time=PAIR.T - 2)
    leaves, hunts = judge(PAIR, SWITCHING, [as_ns_or_nh(state, "ns", action) for action in ("RIGHT", "STAG")])
    assert leaves.values == {"UP": 0.0, "DOWN": 0.0, "LEFT": 0.0, "RIGHT": 1.0, "STAY": 5.0, "STAG": 5.0}
    assert leaves.lost == 4.0
    assert leaves.clear
    assert (hunts.best, hunts.lost, hunts.clear) == ("STAG", 0.0, False), "of two equal actions, the chosen one"


def test_a_drift_is_removed_beside_exploiters() -> None:
    """Three steps for two adjacent drifts, worth 2 each: after an idle step only one can be removed."""
    state = DRIFT.from_layout([(0, 0), (3, 3), (3, 3), (3, 3)], drifts=[(0, 0), (0, 1)], time=DRIFT.last_step - 3)
    idle = judge(DRIFT, "stay,exploiter,exploiter,exploiter", [decision(DRIFT, state, "STAY")])[0]
    assert idle.best == "REMOVE"
    assert idle.values == {"DOWN": 2.0, "RIGHT": 2.0, "STAY": 2.0, "REMOVE": 4.0}
    assert (idle.lost, idle.clear) == (2.0, True)


def test_memories_of_co_players_matter() -> None:
    """The co-player at the stag hunts it in one episode, and hares in the other."""
    state = PAIR.from_layout([(0, 0), (1, 1)], stags=[(1, 1)], hares=[(0, 1), (3, 3)])
    helped, alone = judge(PAIR, SWITCHING, [as_ns_or_nh(state, which) for which in ("ns", "nh")])
    assert max(helped.values.values()) == 5.0
    assert max(alone.values.values()) == 1.0


def test_results_do_not_depend_on_other_decisions_or_on_batch_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    cast, points = "stay,noisy(ns,0.3)", [decision(PAIR, state, "STAY") for state in drawn(3)[2]]
    together = judge(PAIR, cast, points)
    assert judge(PAIR, cast, points[:1]) == together[:1]
    assert judge(PAIR, cast, []) == []
    monkeypatch.setattr(decisions, "BATCH", 2)
    monkeypatch.setattr(decisions, "LANES", 7)
    assert judge(PAIR, cast, points) == together


def test_illegal_actions_are_rejected() -> None:
    state = PAIR.from_layout([(0, 0), (1, 1)], stags=[(1, 1)], hares=[(0, 1), (3, 3)])
    with pytest.raises(InputError, match="decision 0 took action 5, which was not legal"):
        judge(PAIR, "stay,ns", [decision(PAIR, state, "STAG")])
    with pytest.raises(InputError, match="at least 2 simulations"):
        judge(PAIR, "stay,ns", [decision(PAIR, state, "STAY")], simulations=1)


# -------------------------------------------------------------------------------------------------------- figures


def test_the_better_of_two_scripts_is_not_biased_upwards() -> None:
    """Two scripts have a mean return of 0; the better of two noisy means is above 0."""
    noise = np.random.default_rng(0).normal(size=(4000, 2, 8))
    returns = unbiased(noise)
    assert returns.shape == (4000, 8)
    assert noise.mean(-1).max(-1).mean() > 0.15
    assert abs(returns.mean()) < 4 / np.sqrt(returns.size)
    clearly = noise + np.array([0.0, 9.0])[:, None]
    assert (unbiased(clearly) == clearly[:, 1]).all(), "the same simulation's, of the better script"


def test_summary_of_a_series() -> None:
    def made_up(lost: float, clear: bool) -> JudgedDecision:
        return JudgedDecision("UP", "DOWN", {}, {}, lost, clear)

    judged = [made_up(0.0, False), made_up(0.25, True), made_up(3.0, False), made_up(0.5, True)]
    assert summarize(judged) == {"decisions": 4, "as_the_oracle": 0.5, "lost": 0.75, "worst": 3}
    assert summarize(judged[:1]) == {"decisions": 1, "as_the_oracle": 1.0, "lost": 0, "worst": None}
    assert summarize([])["as_the_oracle"] == 1.0


# --------------------------------------------------------------------------------------------------------- search


def small_hopplus(planner: str) -> HopPlus:
    return hopplus(planner=planner, hidden=(8,), moa_hidden=(8,))


def test_simulated_players_do_not_plan() -> None:
    searches, policy = (small_hopplus(planner).player(PAIR, "somewhere") for planner in ("tree", "off"))
    assert searches != policy
    assert without_search(searches) == policy
    for name in ("noisy(planner,0.1)", "switching(ns,planner,every=2)", "pool(planner,nh)"):
        wrapped, plain = (
            players.build(parse(name), PAIR, {"planner": lambda game, player=player: player})
            for player in (searches, policy)
        )
        assert without_search(wrapped) == plain
    hunter = players.make("ns", PAIR)
    assert without_search(hunter) is hunter


def test_players_with_beliefs_are_simulated_by_their_policy() -> None:
    """A hare on the seat's cell in the last step: the beliefs of the co-player do not matter."""
    algorithm = small_hopplus("tree")
    searches = algorithm.player(PAIR, "somewhere")

    @jax.jit
    def begin(key: jax.Array) -> tuple[Any, Any]:
        policy, moa = initial_params(algorithm.network(PAIR), PAIR, key), make_moa(algorithm).init_params(key, PAIR)
        params = {"policy": policy, "moa": moa}
        return params, searches.begin(searches.init(key, params))

    params, memory = begin(jax.random.key(0))
    state = PAIR.from_layout([(0, 0), (3, 0)], stags=[(1, 1)], hares=[(0, 0), (3, 3)], time=PAIR.T - 1)
    points, cast = [decision(PAIR, state, "STAY", [(), memory])], (players.make("stay", PAIR), searches)
    (judged,) = judge_decisions(PAIR, cast, ((), params), 0, points, jax.random.key(0), 4)
    assert judged.values == {"DOWN": 0.0, "RIGHT": 0.0, "STAY": 0.0, "HARE": 1.0}
