"""What an ego knows of its co-players, from step to step and from episode to episode.

Within an episode: Bayes, with what a model of the co-players says of every action. Between episodes: how often each
goal was there at first, remembered for longer or shorter. Co-players [n-1] are in the ego's order; beliefs are
logarithms.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from hopplus.games import Observation
from hopplus.keys import Key
from hopplus.networks.subgoals import Gaussian
from hopplus.planning.beliefs import IMPOSSIBLE, learn, normalised, only_those_there, with_slips
from hopplus.planning.goals import Others, Params, prey_is_a_kind
from hopplus.planning.tastes import Taste, usual
from hopplus.struct import struct

Inter = Literal["off", "counts", "dirichlets"]
INTERS: tuple[str, ...] = get_args(Inter)
FORGETTING = (0.5, 0.8, 0.95, 0.995)
"""What remains of a count after an episode, of several counts that are kept side by side."""
TRUST = 0.9
"""To which power the weights of these counts are taken before each episode: how fast it can change which is right."""
PSEUDO_COUNTS, DISCOUNT, DISCOUNT_OF_NUMBERS = 100.0, 0.995, 0.98
"""HOP's counts begin at so many each; what remains of a count, and of one of how many things a player took."""


@struct
class Acquaintance:
    """Memory of an ego about its co-players."""

    base: Float[Array, "n-1 K"]
    """What is believed of players that are not known at all."""
    prior: Float[Array, "n-1 K"]
    """What was believed at the start of this episode."""
    paths: Float[Array, "n-1 K K"]
    """[j, first, now]: the probability of all that j did in this episode and of its goal now, had the first been
    its goal at the start."""
    counts: Float[Array, "n-1 F K"]
    weights: Float[Array, "n-1 F"]
    """Of each count, how far it is believed."""
    taken: Int[Array, " n-1"]
    """How many things each has taken in this episode."""
    numbers: Float[Array, "n-1 N"]
    """HOP's count of how many things a player takes in an episode; without entries where players leave with one."""
    expected: Float[Array, "n-1 K A"]
    """What each was expected to do in the step that is being played, under every goal."""
    there: Bool[Array, " K"]
    """Which goals could be had then."""
    present: Bool[Array, " n-1"]
    """Who was in the game then."""
    noise: Float[Array, "n-1 K Z"]
    """Where the particles lie within what is expected of anybody; without entries where goals are no particles."""
    spread: Gaussian
    """What is expected of anybody, at the start of the episode: [n-1, Z]."""
    taste: Taste
    """The ego's own."""


@struct
class Mind:
    """What an ego makes of its co-players in one situation."""

    belief: Float[Array, "n-1 K"]
    """About everybody's goal, among those that are there."""
    prior: Float[Array, "n-1 K"]
    expected: Float[Array, "n-1 K A"]
    """What each will do, under every goal."""
    particles: Any
    """The subgoals [n-1, K, Z] that are taken for possible; () where goals are no particles."""
    taste: Taste
    """The ego's own."""

    @property
    def predicted(self) -> Float[Array, "n-1 A"]:
        """What each will probably do."""
        return jnp.einsum("jk,jka->ja", jnp.exp(self.belief), self.expected)


@dataclass(frozen=True)
class Acquainting:
    """How a planner becomes acquainted with its co-players."""

    others: Others
    switch: float = 0.02
    """The chance that a goal is drawn anew in a step."""
    inter: Inter = "dirichlets"
    """What is kept from episode to episode: nothing, HOP's discounted counts, or several that forget at different
    rates, weighted by how well they foresaw."""
    intra: bool = True
    """Whether beliefs change within an episode."""
    distrust: bool = True
    """Whether the model of others is taken to be wrong now and then."""
    tastes: bool = False
    """Whether its own policy sees the ego's taste."""

    @property
    def co_players(self) -> int:
        return self.others.game.num_players - 1

    @property
    def _counts_numbers(self) -> bool:
        """Whether it is the number of things taken that tells players apart: where prey has no kinds, a goal is a place
        on one board and means nothing on the next."""
        return self.others.space == "prey" and not prey_is_a_kind(self.others.game)

    def meet(self, key: Key, params: Params) -> Acquaintance:
        """Nobody has been met yet."""
        n, goals, spread = self.co_players, self.others.number, self.others.dimensions
        gaussian = self.others.space == "gaussian"
        base = self._base(params)
        per = len(FORGETTING) if self.inter == "dirichlets" else 1
        first = jnp.full((n, per, goals), PSEUDO_COUNTS) if self.inter == "counts" else jnp.exp(base)[:, None]
        numbers = self.others.game.num_cells + 1 if self._counts_numbers else 0  # pyright: ignore[reportAttributeAccessIssue]
        memory = Acquaintance(
            base=base,
            prior=base,
            paths=jnp.zeros((n, goals, goals)),
            counts=jnp.broadcast_to(first, (n, per, goals)),
            weights=jnp.full((n, per), 1.0 / per),
            taken=jnp.zeros(n, jnp.int32),
            numbers=jnp.ones((n, numbers)),
            expected=jnp.ones((n, goals, self.others.game.num_actions)),
            there=jnp.ones(goals, bool),
            present=jnp.zeros(n, bool),
            noise=jax.random.normal(key, (n, goals, spread)) if gaussian else jnp.zeros((n, 0, 0)),
            spread=Gaussian(*jnp.zeros((2, n, spread if gaussian else 0))),
            taste=usual(self.others.game),
        )
        return self.begin(memory)

    def _base(self, params: Params) -> Float[Array, "n-1 K"]:
        if self.others.space == "gaussian":
            return jnp.full((self.co_players, self.others.number), -jnp.log(self.others.number))
        return jnp.broadcast_to(normalised(params["prior"]), (self.co_players, self.others.number))

    # -- an episode

    def begin(self, memory: Acquaintance) -> Acquaintance:
        """Before the first step: the prior is what the episodes before have taught."""
        goals = self.others.number
        known = jnp.log((memory.weights[..., None] * _means(memory.counts)).sum(1))
        # In terms of the memory, lest it be a constant that XLA takes seconds to work out beforehand.
        first = jnp.where(jnp.eye(goals, dtype=bool), 0.0, IMPOSSIBLE) + 0.0 * memory.base[..., None]
        return _with(
            memory,
            prior=memory.base if self.inter == "off" else known,
            paths=first,
            taken=jnp.zeros_like(memory.taken),
        )

    def expect(
        self, params: Params, memory: Acquaintance, seen: Observation, everybody: Observation, state: Any
    ) -> tuple[Acquaintance, Mind]:
        """The memory with what is expected of everybody in the step to come, and that itself; `seen` is what the ego
        sees, `everybody` what all see, ego first, and `state` the game's that they see."""
        if self.others.space == "gaussian":
            typical = self._typical(params, self.others.features(everybody))
            kept = jax.tree.map(lambda new, old: jnp.where(seen.time == 0, new, old), typical, memory.spread)
            memory = _with(memory, spread=kept)
        there = self.others.there(seen)
        prior = self._prior_now(memory, there)
        belief = normalised(jax.nn.logsumexp(prior[..., None] + memory.paths, axis=1)) if self.intra else prior
        particles = self._particles(memory)
        theirs = self.others.at_a_glance(everybody, state)
        expected = self.others.policies(params["network"], theirs, particles)
        present = seen.grid[..., 1 : self.co_players + 1].any((0, 1))
        memory = _with(memory, base=self._base(params), prior=prior, expected=expected, there=there, present=present)
        return memory, Mind(self.still_there(belief, prior, there), prior, expected, particles, memory.taste)

    def still_there(
        self, belief: Float[Array, "n-1 K"], prior: Float[Array, "n-1 K"], there: Bool[Array, " K"]
    ) -> Float[Array, "n-1 K"]:
        """The belief among the goals that are there."""
        if not self.others.may_go:
            return normalised(belief)
        return normalised(jax.vmap(only_those_there, (0, 0, None))(belief, prior, there))

    def _particles(self, memory: Acquaintance) -> Float[Array, "n-1 K Z"] | tuple[()]:
        """The subgoals that are taken for possible; () where goals are no particles."""
        if self.others.space != "gaussian":
            return ()
        return jax.tree.map(lambda leaf: leaf[:, None], memory.spread).at(memory.noise)

    def _typical(self, params: Params, features: Array) -> Gaussian:
        network, own = self.others.network, 0 if self.others.one_each else None
        nothing_done = jnp.zeros((self.co_players, network.memory))  # pyright: ignore[reportAttributeAccessIssue]
        infer = partial(network.apply, method="infer")
        each = jax.vmap(lambda params, *inputs: infer({"params": params}, *inputs), (own, 0, 0))
        return each(params["network"], features, nothing_done)  # pyright: ignore[reportReturnType]

    def _prior_now(self, memory: Acquaintance, there: Bool[Array, " K"]) -> Float[Array, "n-1 K"]:
        """Where the number of things taken counts, how likely another is; else the episode's prior."""
        if not self._counts_numbers or self.inter == "off":
            return memory.prior
        so_far = memory.taken[:, None]
        at_least = (jnp.arange(memory.numbers.shape[1]) >= so_far) * memory.numbers
        another = (jnp.arange(memory.numbers.shape[1]) > so_far) * memory.numbers
        chance = another.sum(-1, keepdims=True) / jnp.maximum(at_least.sum(-1, keepdims=True), 1e-6)
        each = chance / jnp.maximum(there[1:].sum(), 1)
        spread = jnp.where(there[1:], each, 0.0)
        return jnp.log(jnp.concatenate([1 - chance, spread], -1) + 1e-6)

    def likelihoods(self, expected: Float[Array, "n-1 K A"], actions: Int[Array, " n-1"]) -> Float[Array, "n-1 K"]:
        """The logarithm of how likely each goal made what was done."""
        chosen = jnp.take_along_axis(expected, actions[:, None, None], -1)[..., 0]
        if not self.distrust:
            return jnp.log(jnp.maximum(chosen, 1e-30))
        return jnp.log(with_slips(chosen, (expected[:, 0] > 0).sum(-1, keepdims=True)))

    def imagine(
        self, params: Params, mind: Mind, actions: Int[Array, " n-1"], everybody: Observation, state: Any
    ) -> Mind:
        """What the ego would make of everybody after these actions, seeing what all see then, and the state that they
        see: the same inference as in play."""
        seen = jax.tree.map(lambda leaf: leaf[0], everybody)
        belief = mind.belief
        if self.intra:
            likelihood = self.likelihoods(mind.expected, actions)
            belief = normalised(jax.vmap(partial(learn, switch=self.switch))(belief, mind.prior, likelihood))
        belief = self.still_there(belief, mind.prior, self.others.there(seen))
        theirs = self.others.at_a_glance(everybody, state)
        expected = self.others.policies(params["network"], theirs, mind.particles)
        return Mind(belief, mind.prior, expected, mind.particles, mind.taste)

    def watch(self, memory: Acquaintance, seen: Observation) -> Acquaintance:
        """The memory after everybody's action, as the observation that follows tells it."""
        actions = seen.last_actions[1:]
        likelihood = self.likelihoods(memory.expected, actions)

        def one(paths: Array, prior: Array, likelihood: Array) -> Array:
            return learn(only_those_there(paths, prior, memory.there), prior, likelihood, self.switch)

        paths = jax.vmap(one)(memory.paths, memory.prior, likelihood)
        # Only ratios matter: the largest is 0, so that long episodes do not run out of numbers.
        paths = paths - paths.max((-1, -2), keepdims=True)
        works = actions > self.others.game.idle_action
        return _with(
            memory,
            paths=jnp.where(memory.present[:, None, None], paths, memory.paths),
            taken=memory.taken + (memory.present & works),
        )

    def end(self, memory: Acquaintance) -> Acquaintance:
        """The memory after an episode: which goal was there at first is counted."""
        if self.inter == "off":
            return memory
        likelihood = jax.nn.logsumexp(memory.paths, axis=-1)
        likelihood = jnp.exp(likelihood - likelihood.max(-1, keepdims=True))
        first = jnp.exp(normalised(memory.prior + jnp.log(jnp.maximum(likelihood, 1e-30))))
        numbers = memory.numbers
        if numbers.size:
            taken = jax.nn.one_hot(memory.taken, numbers.shape[1])
            return _with(memory, numbers=DISCOUNT_OF_NUMBERS * numbers + taken)
        if self.inter == "counts":
            return _with(memory, counts=DISCOUNT * memory.counts + first[:, None])
        foreseen = (_means(memory.counts) * likelihood[:, None]).sum(-1)
        weights = memory.weights**TRUST * foreseen
        return _with(
            memory,
            counts=jnp.asarray(FORGETTING)[:, None] * memory.counts + first[:, None],
            weights=weights / weights.sum(-1, keepdims=True),
        )


def _means(counts: Float[Array, "... K"]) -> Float[Array, "... K"]:
    return counts / counts.sum(-1, keepdims=True)


def _with(memory: Acquaintance, **changes: Any) -> Acquaintance:
    return Acquaintance(**{**vars(memory), **changes})
