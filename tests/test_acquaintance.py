"""What a planner comes to know of its co-players: by hand, and against an exact filter where their laws are known."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hopplus.games import make
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


def after(knows: Acquainting, memory: Acquaintance, expected: list[list[float]], action: int) -> Acquaintance:
    """The memory after all co-players were expected to do [K, A] and did an action."""
    told = jnp.broadcast_to(jnp.asarray(expected), (3, *np.shape(expected)))
    there = replace(memory, expected=told, present=jnp.ones(3, bool))
    seen = one_seat(GAME.observe(GAME.init(jax.random.key(0))), 0)
    return knows.watch(there, replace(seen, last_actions=jnp.full(4, action)))


def belief_of(knows: Acquainting, memory: Acquaintance) -> np.ndarray:
    posterior = jax.nn.logsumexp(memory.prior[..., None] + memory.paths, axis=1)
    return np.exp(np.asarray(posterior - jax.nn.logsumexp(posterior, axis=-1, keepdims=True)))


def test_bayes_within_an_episode_by_hand() -> None:
    plain = replace(KNOWS, distrust=False)
    memory = plain.begin(plain.meet(jax.random.key(0), params_of(2)["moa"]))
    memory = after(plain, memory, [[0.8, 0.2], [0.4, 0.6]], 0)
    np.testing.assert_allclose(belief_of(plain, memory)[0], [2 / 3, 1 / 3], rtol=1e-5)
    memory = after(plain, memory, [[0.5, 0.5], [0.1, 0.9]], 1)
    np.testing.assert_allclose(belief_of(plain, memory)[0], [2 * 0.5, 0.9] / np.sum([2 * 0.5, 0.9]), rtol=1e-5)


def test_the_model_is_distrusted_a_little_and_goals_may_change() -> None:
    switching = replace(KNOWS, switch=0.1)
    memory = switching.begin(switching.meet(jax.random.key(0), params_of(2)["moa"]))
    memory = after(switching, memory, [[1.0, 0.0], [0.5, 0.5]], 1)
    # The first goal cannot have done it but by a slip: 0.02 / legal, of which the first goal's law shows one.
    slip, other = 0.02 / 1, 0.98 * 0.5 + 0.02 / 1
    posterior = np.array([slip, other]) / (slip + other)
    np.testing.assert_allclose(belief_of(switching, memory)[0], 0.9 * posterior + 0.1 * 0.5, rtol=1e-4)


def test_nothing_is_learnt_of_one_who_has_left() -> None:
    memory = KNOWS.begin(KNOWS.meet(jax.random.key(0), params_of(2)["moa"]))
    told = jnp.broadcast_to(jnp.array([[0.8, 0.2], [0.4, 0.6]]), (3, 2, 2))
    there = replace(memory, expected=told, present=jnp.array([True, False, True]))
    seen = one_seat(GAME.observe(GAME.init(jax.random.key(0))), 0)
    belief = belief_of(KNOWS, KNOWS.watch(there, replace(seen, last_actions=jnp.zeros(4, jnp.int32))))
    assert belief[0, 0] > 0.6
    np.testing.assert_allclose(belief[1], 0.5)


def test_dirichlets_between_episodes_by_hand() -> None:
    plain = replace(KNOWS, distrust=False)
    memory = plain.meet(jax.random.key(0), params_of(2)["moa"])
    memory = plain.begin(plain.end(after(plain, memory, [[0.8, 0.2], [0.4, 0.6]], 0)))
    posterior = np.array([2 / 3, 1 / 3])
    counts = np.array([[f * 0.5, f * 0.5] for f in FORGETTING]) + posterior
    np.testing.assert_allclose(memory.counts[0], counts, rtol=1e-5)
    weights = np.full(4, 0.25) ** TRUST  # all foresaw the same
    means = counts / counts.sum(1, keepdims=True)
    np.testing.assert_allclose(np.exp(memory.prior[0]), weights / weights.sum() @ means, rtol=1e-5)
    # A player that stays the same is soon known; one that has changed, too.
    for _ in range(5):
        memory = plain.begin(plain.end(after(plain, memory, [[0.8, 0.2], [0.4, 0.6]], 0)))
    known = float(np.exp(memory.prior[0, 0]))
    assert known > 0.75
    for _ in range(4):
        memory = plain.begin(plain.end(after(plain, memory, [[0.9, 0.1], [0.1, 0.9]], 1)))
    assert float(np.exp(memory.prior[0, 0])) < 0.5


def test_counts_of_hop_hardly_move_in_ten_episodes() -> None:
    hop = replace(KNOWS, inter="counts", distrust=False)
    memory = hop.meet(jax.random.key(0), params_of(2)["moa"])
    counts = np.array([PSEUDO_COUNTS, PSEUDO_COUNTS])
    for _ in range(10):
        prior = counts / counts.sum()
        posterior = prior * [1.0, 1e-30] / (prior @ [1.0, 1e-30])
        counts = 0.995 * counts + posterior
        memory = hop.begin(hop.end(after(hop, memory, [[1.0, 0.0], [0.0, 1.0]], 0)))
        np.testing.assert_allclose(np.exp(memory.prior[0]), counts / counts.sum(), rtol=1e-4)
    assert 0.51 < float(np.exp(memory.prior[0, 0])) < 0.53


@pytest.mark.parametrize(("inter", "intra"), [("off", True), ("dirichlets", False), ("off", False)])
def test_ablations_of_beliefs(inter: str, intra: bool) -> None:
    knows = replace(KNOWS, inter=inter, intra=intra, distrust=False)
    memory = knows.begin(knows.meet(jax.random.key(0), params_of(2)["moa"]))
    first = after(knows, memory, [[0.8, 0.2], [0.4, 0.6]], 0)
    seen = one_seat(GAME.observe(GAME.init(jax.random.key(0))), 0)
    state = GAME.restore(seen)
    _, mind = knows.expect(params_of(2)["moa"], first, seen, GAME.observe(state), state)
    assert (abs(float(jnp.exp(mind.belief[0, 0])) - 0.5) > 0.1) == intra
    following = knows.begin(knows.end(first))
    assert (abs(float(jnp.exp(following.prior[0, 0])) - 0.5) > 0.05) == (inter != "off")


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

    found = np.asarray(jax.jit(jax.vmap(follow, (1, 0), 1))(episode.state, episode.last_state))  # [T, E, 3, K]
    seen = jax.jit(jax.vmap(jax.vmap(GAME.observe)))(episode.state)
    laws = jax.jit(jax.vmap(jax.vmap(lambda one: others.policies((), jax.tree.map(lambda leaf: leaf[1:], one)))))(seen)
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
    numbers = jnp.zeros((3, 17)).at[:, 2].set(8.0).at[:, 5].set(2.0)
    memory = replace(_blank(knows), numbers=numbers, taken=jnp.array([0, 2, 5]))
    there = jnp.ones(17, bool).at[3:].set(False)
    prior = np.exp(np.asarray(knows._prior_now(memory, there)))
    np.testing.assert_allclose(prior[:, 0], [0.0, 0.8, 1.0], atol=1e-4)
    np.testing.assert_allclose(prior[0, 1:3], 0.5, atol=1e-4)


def _blank(knows: Acquainting) -> Acquaintance:
    return knows.meet(jax.random.key(0), {"prior": jnp.zeros(knows.others.number)})


def test_particles_stay_within_an_episode_and_are_weighed_by_what_is_done() -> None:
    recipe = make_recipe("hopplus", {"goals": "gaussian", "particles": 5, "dimensions": 3, "moa_hidden": (8,)})
    knows: Acquainting = recipe.acquainting(GAME)  # pyright: ignore[reportAttributeAccessIssue]
    params = recipe.moa().fresh(jax.random.key(0), GAME)  # pyright: ignore[reportAttributeAccessIssue]
    memory = knows.begin(knows.meet(jax.random.key(1), params))
    state = GAME.init(jax.random.key(2))
    seen = one_seat(GAME.observe(state), 0)
    memory, mind = knows.expect(params, memory, seen, GAME.observe(GAME.restore(seen)), GAME.restore(seen))
    assert mind.particles.shape == (3, 5, 3)
    later, _ = GAME.step(jax.random.key(0), state, jnp.array([4, 4, 4, 4]))
    seen_later = one_seat(GAME.observe(later), 0)
    memory = knows.watch(memory, seen_later)
    _, mind_later = knows.expect(
        params, memory, seen_later, GAME.observe(GAME.restore(seen_later)), GAME.restore(seen_later)
    )
    np.testing.assert_array_equal(mind.particles, mind_later.particles)
    chosen = np.asarray(mind.expected)[:, :, 4]
    expected = 0.98 * chosen + 0.02 / (np.asarray(mind.expected)[:, :1] > 0).sum(-1)
    np.testing.assert_allclose(jnp.exp(mind_later.belief), expected / expected.sum(-1, keepdims=True), rtol=1e-4)
    assert isinstance(memory.spread, Gaussian)


def test_zero_goals_are_zero_and_no_goals_are_not_there() -> None:
    from hopplus.players.planner import social_features, social_width

    for goals, width in (("zero", 4), ("none", 0), ("codes", 4)):
        recipe = make_recipe("hopplus", {"goals": goals, "moa_hidden": (8,)})
        player = recipe.player(GAME, "test")
        params = {"moa": recipe.moa().fresh(jax.random.key(0), GAME)}  # pyright: ignore[reportAttributeAccessIssue]
        seen = one_seat(GAME.observe(GAME.init(jax.random.key(2))), 0)
        knows = player.knows  # pyright: ignore[reportAttributeAccessIssue]
        memory = knows.begin(knows.meet(jax.random.key(1), params["moa"]))
        _, mind = knows.expect(params["moa"], memory, seen, GAME.observe(GAME.restore(seen)), GAME.restore(seen))
        social = np.asarray(social_features(knows, mind)).reshape(3, -1)
        assert social.size == social_width(knows) == 3 * (width + GAME.num_actions)
        assert (social[:, :width] == 0).all() == (goals != "codes" or not width)


def test_every_co_player_may_have_a_network_of_its_own() -> None:
    shared = make_recipe("hopplus", {"moa_hidden": (8,)})
    each = make_recipe("hopplus", {"moa_hidden": (8,), "moa_networks": "each"})
    one: Others = shared.acquainting(GAME).others  # pyright: ignore[reportAttributeAccessIssue]
    many: Others = each.acquainting(GAME).others  # pyright: ignore[reportAttributeAccessIssue]
    models = [shared.moa().fresh(jax.random.key(seed), GAME)["network"] for seed in range(3)]  # pyright: ignore[reportAttributeAccessIssue]
    features = one.features(GAME.observe(GAME.init(jax.random.key(0))))
    together = many.policies(jax.tree.map(lambda *leaves: jnp.stack(leaves), *models), features)
    for place, model in enumerate(models):
        np.testing.assert_allclose(together[place], one.policies(model, features)[place], rtol=1e-5)
