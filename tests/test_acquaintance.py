"""What a planner comes to know of its co-players: by hand, and against an exact filter where their laws are known."""

import functools
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from common import first_state, observe
from hopplus.games import Observation, make
from hopplus.games.game import one_seat
from hopplus.networks.subgoals import Gaussian
from hopplus.planning.acquaintance import FORGETTING, PSEUDO_COUNTS, TRUST, Acquaintance, Acquainting, Mind
from hopplus.planning.goals import Others
from hopplus.play import play_episodes
from hopplus.players import Cast
from hopplus.players import make as make_player
from hopplus.training.recipes import make_recipe
from thinking import known_others, params_of

GAME = make("msh-4x4-4h1s")
KNOWS = Acquainting(known_others(GAME, "ns", "nh"), switch=0.0)


UNKNOWN = params_of(2)["moa"]


@functools.cache
def first_seen() -> Observation:
    """What seat 0 sees in a first state."""
    return jax.tree.map(lambda leaf: np.asarray(leaf)[0], observe(GAME, first_state(GAME)))


@partial(jax.jit, static_argnames="knows")
def met(knows: Acquainting) -> Acquaintance:
    """The memory of one who has met nobody."""
    return knows.meet(jax.random.key(0), UNKNOWN)


@partial(jax.jit, static_argnames="knows")
def episode_after(knows: Acquainting, memory: Acquaintance) -> Acquaintance:
    """The memory when another episode begins."""
    return knows.begin(knows.end(memory))


@partial(jax.jit, static_argnames="knows")
def _watched(knows: Acquainting, memory: Acquaintance, expected: Any, present: Any, seen: Observation) -> Acquaintance:
    told = jnp.broadcast_to(expected, (3, *expected.shape))
    return knows.watch(replace(memory, expected=told, present=present), seen)


def after(
    knows: Acquainting,
    memory: Acquaintance,
    expected: list[list[float]],
    action: int,
    present: tuple[bool, ...] = (True, True, True),
) -> Acquaintance:
    """The memory after all co-players were expected to do [K, A] and did an action, as far as they were present."""
    seen = replace(first_seen(), last_actions=np.full(4, action, np.int32))
    watched = _watched(knows, memory, np.array(expected, np.float32), np.array(present), seen)
    return jax.tree.map(np.asarray, watched)


def belief_of(memory: Acquaintance) -> np.ndarray:
    joint = np.asarray(memory.prior)[..., None] + np.asarray(memory.paths)
    weights = np.exp(joint - joint.max((1, 2), keepdims=True)).sum(1)
    return weights / weights.sum(-1, keepdims=True)


@partial(jax.jit, static_argnames="knows")
def expected_by(knows: Acquainting, params: Any, memory: Acquaintance, seen: Observation) -> tuple[Acquaintance, Mind]:
    """The memory and mind of seat 0, which sees this."""
    state = GAME.restore(seen)
    return knows.expect(params, memory, seen, GAME.observe(state), state)


def test_bayes_within_an_episode_by_hand() -> None:
    plain = replace(KNOWS, distrust=False)
    memory = met(plain)
    memory = after(plain, memory, [[0.8, 0.2], [0.4, 0.6]], 0)
    np.testing.assert_allclose(belief_of(memory)[0], [2 / 3, 1 / 3], rtol=1e-5)
    memory = after(plain, memory, [[0.5, 0.5], [0.1, 0.9]], 1)
    np.testing.assert_allclose(belief_of(memory)[0], [2 * 0.5, 0.9] / np.sum([2 * 0.5, 0.9]), rtol=1e-5)


def test_the_model_is_distrusted_a_little_and_goals_may_change() -> None:
    switching = replace(KNOWS, switch=0.1)
    memory = met(switching)
    memory = after(switching, memory, [[1.0, 0.0], [0.5, 0.5]], 1)
    # The first goal cannot have done it but by a slip: 0.02 / legal, of which the first goal's law shows one.
    slip, other = 0.02 / 1, 0.98 * 0.5 + 0.02 / 1
    posterior = np.array([slip, other]) / (slip + other)
    np.testing.assert_allclose(belief_of(memory)[0], 0.9 * posterior + 0.1 * 0.5, rtol=1e-4)


def test_nothing_is_learnt_of_one_who_has_left() -> None:
    belief = belief_of(after(KNOWS, met(KNOWS), [[0.8, 0.2], [0.4, 0.6]], 0, present=(True, False, True)))
    assert belief[0, 0] > 0.6
    np.testing.assert_allclose(belief[1], 0.5)


def test_dirichlets_between_episodes_by_hand() -> None:
    plain = replace(KNOWS, distrust=False)
    memory = episode_after(plain, after(plain, met(plain), [[0.8, 0.2], [0.4, 0.6]], 0))
    posterior = np.array([2 / 3, 1 / 3])
    counts = np.array([[f * 0.5, f * 0.5] for f in FORGETTING]) + posterior
    np.testing.assert_allclose(np.asarray(memory.counts)[0], counts, rtol=1e-5)
    weights = np.full(4, 0.25) ** TRUST  # all foresaw the same
    means = counts / counts.sum(1, keepdims=True)
    np.testing.assert_allclose(np.exp(np.asarray(memory.prior)[0]), weights / weights.sum() @ means, rtol=1e-5)
    # A player that stays the same is soon known; one that has changed, too.
    for _ in range(5):
        memory = episode_after(plain, after(plain, memory, [[0.8, 0.2], [0.4, 0.6]], 0))
    known = float(np.exp(np.asarray(memory.prior)[0, 0]))
    assert known > 0.75
    for _ in range(4):
        memory = episode_after(plain, after(plain, memory, [[0.9, 0.1], [0.1, 0.9]], 1))
    assert float(np.exp(np.asarray(memory.prior)[0, 0])) < 0.5


def test_counts_of_hop_hardly_move_in_ten_episodes() -> None:
    hop, found = replace(KNOWS, inter="counts", distrust=False), np.zeros(2)
    memory = met(hop)
    counts = np.array([PSEUDO_COUNTS, PSEUDO_COUNTS])
    for _ in range(10):
        prior = counts / counts.sum()
        posterior = prior * [1.0, 1e-30] / (prior @ [1.0, 1e-30])
        counts = 0.995 * counts + posterior
        memory = episode_after(hop, after(hop, memory, [[1.0, 0.0], [0.0, 1.0]], 0))
        found = np.exp(np.asarray(memory.prior)[0])
        np.testing.assert_allclose(found, counts / counts.sum(), rtol=1e-4)
    assert 0.51 < found[0] < 0.53


@pytest.mark.parametrize(("inter", "intra"), [("off", True), ("dirichlets", False), ("off", False)])
def test_ablations_of_beliefs(inter: str, intra: bool) -> None:
    knows = replace(KNOWS, inter=inter, intra=intra, distrust=False)
    first = after(knows, met(knows), [[0.8, 0.2], [0.4, 0.6]], 0)
    _, mind = expected_by(knows, UNKNOWN, first, first_seen())
    assert (abs(float(np.exp(np.asarray(mind.belief)[0, 0])) - 0.5) > 0.1) == intra
    following = episode_after(knows, first)
    assert (abs(float(np.exp(np.asarray(following.prior)[0, 0])) - 0.5) > 0.05) == (inter != "off")


def test_beliefs_in_play_are_the_exact_filter_of_the_true_players() -> None:
    """Three players of unknown kind, their true laws for a model: beliefs are Bayes' rule over whole histories."""
    others = known_others(GAME, "ns", "nh", "random")
    knows = Acquainting(others, switch=0.0, inter="off", distrust=False)
    cast = Cast(tuple(make_player(name, GAME) for name in ("random", "ns", "nh", "random")))
    _, episode = play_episodes(jax.random.key(3), GAME, cast, 16)
    params = params_of(3)["moa"]

    def follow(states: object, last: object) -> jax.Array:
        def step(memory: Acquaintance, states: tuple) -> tuple[Acquaintance, jax.Array]:
            before, later = states
            seen = one_seat(GAME.observe(before), 0)
            memory, mind = knows.expect(params, memory, seen, GAME.observe(GAME.restore(seen)), GAME.restore(seen))
            return knows.watch(memory, one_seat(GAME.observe(later), 0)), jnp.exp(mind.belief)

        later = jax.tree.map(lambda rows, end: jnp.concatenate([rows[1:], end[None]]), states, last)
        first = knows.begin(knows.meet(jax.random.key(0), params))
        return jax.lax.scan(step, first, (states, later))[1]

    def law(state: object) -> jax.Array:
        return others.policies((), jax.tree.map(lambda leaf: leaf[1:], GAME.observe(state)))

    @jax.jit
    def beliefs_and_laws(states: object, last: object) -> tuple[jax.Array, jax.Array]:
        return jax.vmap(follow, (1, 0), 1)(states, last), jax.vmap(jax.vmap(law))(states)  # [T, E, 3, K], [..., A]

    found, laws = jax.tree.map(np.asarray, beliefs_and_laws(episode.state, episode.last_state))
    alive, actions = np.asarray(episode.alive)[..., 1:], np.asarray(episode.actions)[..., 1:]
    chosen = np.take_along_axis(np.asarray(laws), actions[..., None, None], -1)[..., 0]
    likelihood = np.log(np.maximum(np.where(alive[..., None], chosen, 1.0), 1e-30))
    history = np.cumsum(likelihood, 0) - likelihood
    exact = np.exp(history - history.max(-1, keepdims=True))
    exact /= exact.sum(-1, keepdims=True)
    np.testing.assert_allclose(found[alive], exact[alive], atol=2e-4)
    assert found[8, :, 0, 0][alive[8, :, 0]].mean() > 0.9  # the stag hunter is known by then


def test_imagined_actions_change_beliefs_as_real_ones_do() -> None:
    knows, params = replace(KNOWS, switch=0.1), params_of(2)["moa"]

    @jax.jit
    def both(key: jax.Array, actions: jax.Array) -> tuple[Mind, Mind, Mind]:
        state = GAME.init(key)
        memory = knows.begin(knows.meet(jax.random.key(0), params))
        memory, before = knows.expect(params, memory, one_seat(GAME.observe(state), 0), GAME.observe(state), state)
        later, _ = GAME.step(jax.random.key(0), state, actions)
        everybody = GAME.observe(later)
        memory = knows.watch(memory, one_seat(everybody, 0))
        imagined = knows.imagine(params, before, later.last_actions[1:], everybody, later)
        return before, knows.expect(params, memory, one_seat(everybody, 0), everybody, later)[1], imagined

    before, real, imagined = both(jax.random.key(2), jnp.array([4, 1, 4, 0]))
    np.testing.assert_allclose(imagined.belief, real.belief, atol=1e-5)
    np.testing.assert_allclose(imagined.expected, real.expected, atol=1e-6)
    assert np.abs(np.asarray(real.belief - before.belief)).max() > 0.1


def test_the_number_of_drifts_taken_tells_how_likely_another_is() -> None:
    game = make("msg-4x4")
    knows = make_recipe("hop").acquainting(game)  # pyright: ignore[reportAttributeAccessIssue]
    numbers = np.zeros((3, 17), np.float32)
    numbers[:, [2, 5]] = 8.0, 2.0

    @jax.jit
    def prior_now(numbers: Any, taken: Any, there: Any) -> jax.Array:
        memory = knows.meet(jax.random.key(0), {"prior": jnp.zeros(knows.others.number)})
        return knows._prior_now(replace(memory, numbers=numbers, taken=taken), there)

    prior = np.exp(np.asarray(prior_now(numbers, np.array([0, 2, 5]), np.arange(17) < 3)))
    np.testing.assert_allclose(prior[:, 0], [0.0, 0.8, 1.0], atol=1e-4)
    np.testing.assert_allclose(prior[0, 1:3], 0.5, atol=1e-4)


def test_particles_stay_within_an_episode_and_are_weighed_by_what_is_done() -> None:
    recipe = make_recipe("hopplus", {"goals": "gaussian", "particles": 5, "dimensions": 3, "moa_hidden": (8,)})
    knows: Acquainting = recipe.acquainting(GAME)  # pyright: ignore[reportAttributeAccessIssue]

    @jax.jit
    def two_steps(key: jax.Array) -> tuple[Mind, Mind, Acquaintance]:
        params = recipe.moa().fresh(key, GAME)  # pyright: ignore[reportAttributeAccessIssue]
        state = GAME.init(jax.random.key(2))
        memory, mind = expected_by(
            knows, params, knows.meet(jax.random.key(1), params), one_seat(GAME.observe(state), 0)
        )
        later, _ = GAME.step(jax.random.key(0), state, jnp.array([4, 4, 4, 4]))
        seen = one_seat(GAME.observe(later), 0)
        memory, mind_later = expected_by(knows, params, knows.watch(memory, seen), seen)
        return mind, mind_later, memory

    mind, mind_later, memory = jax.tree.map(np.asarray, two_steps(jax.random.key(0)))
    assert mind.particles.shape == (3, 5, 3)
    np.testing.assert_allclose(mind.particles, mind_later.particles, rtol=1e-6)  # computed twice in one program
    chosen = np.asarray(mind.expected)[:, :, 4]
    expected = 0.98 * chosen + 0.02 / (np.asarray(mind.expected)[:, :1] > 0).sum(-1)
    np.testing.assert_allclose(np.exp(mind_later.belief), expected / expected.sum(-1, keepdims=True), rtol=1e-4)
    assert isinstance(memory.spread, Gaussian)


def test_zero_goals_are_zero_and_no_goals_are_not_there() -> None:
    from hopplus.players.planner import social_features, social_width

    for goals, width in (("zero", 4), ("none", 0), ("codes", 4)):
        recipe = make_recipe("hopplus", {"goals": goals, "moa_hidden": (8,)})
        player = recipe.player(GAME, "test")
        knows = player.knows  # pyright: ignore[reportAttributeAccessIssue]

        @jax.jit
        def seen_of_others(key: jax.Array, seen: Observation, recipe: Any = recipe, knows: Any = knows) -> jax.Array:
            moa = recipe.moa().fresh(key, GAME)
            return social_features(knows, expected_by(knows, moa, knows.meet(key, moa), seen)[1])

        social = np.asarray(seen_of_others(jax.random.key(0), first_seen())).reshape(3, -1)
        assert social.size == social_width(knows) == 3 * (width + GAME.num_actions)
        assert (social[:, :width] == 0).all() == (goals != "codes" or not width)


def test_every_co_player_may_have_a_network_of_its_own() -> None:
    shared = make_recipe("hopplus", {"moa_hidden": (8,)})
    each = make_recipe("hopplus", {"moa_hidden": (8,), "moa_networks": "each"})
    one: Others = shared.acquainting(GAME).others  # pyright: ignore[reportAttributeAccessIssue]
    many: Others = each.acquainting(GAME).others  # pyright: ignore[reportAttributeAccessIssue]

    @jax.jit
    def both(keys: jax.Array) -> tuple[jax.Array, list[jax.Array]]:
        models = jax.vmap(lambda key: shared.moa().fresh(key, GAME)["network"])(keys)  # pyright: ignore[reportAttributeAccessIssue]
        features = one.features(GAME.observe(GAME.init(jax.random.key(0))))
        alone = [one.policies(jax.tree.map(lambda leaf, own=own: leaf[own], models), features)[own] for own in range(3)]
        return many.policies(models, features), alone

    together, alone = jax.tree.map(np.asarray, both(jax.random.split(jax.random.key(0), 3)))
    assert np.abs(together[0] - together[1]).max() > 1e-4
    for place in range(3):
        np.testing.assert_allclose(together[place], alone[place], rtol=1e-5)
