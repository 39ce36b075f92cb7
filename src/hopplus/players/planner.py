"""A player that has beliefs about the others' goals, and may plan with them: HOP and HOP+."""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from hopplus.errors import InputError
from hopplus.games import Game, Observation
from hopplus.keys import Key, fast
from hopplus.networks.encoding import ILLEGAL
from hopplus.planning.acquaintance import Acquaintance, Acquainting, Mind
from hopplus.planning.goals import Others, prey_is_a_kind
from hopplus.planning.search import Plan, Planning, Search
from hopplus.planning.simulator import Simulator
from hopplus.planning.tastes import slipping, tastes
from hopplus.players.network import NetworkPlayer, encode, evaluate_features
from hopplus.players.player import Info, Memory, Params, as_action, own_mask
from hopplus.players.pool import draw_member, even_weights
from hopplus.struct import struct

ACTION, SEARCH, SLIP = range(3)
"""Purposes of an action's key."""
MEMORY, TASTE = range(2)
"""Purposes of the key of a first memory."""


@struct
class Thought:
    """What a planner made of a situation when it acted; the fields of `Choice` among it."""

    meant: Int[Array, ""]
    """The action that it chose, whether or not its hand slipped."""
    log_probability: Float[Array, ""]
    """Of that action, by the policy, whether or not a search chose it."""
    value: Float[Array, ""]
    features: Any
    """What its network's first layer took; () where nobody will learn from it."""
    belief: Float[Array, "n-1 K"]
    """The probability of every co-player's goals."""
    expected: Float[Array, "n-1 A"]
    """The probability of every co-player's next actions."""
    policy: Float[Array, " A"]
    """What it would do without a search."""
    plan: Plan | tuple[()]
    """What the search found; () where there was none."""
    mind: Mind | tuple[()]
    """What it made of the others, whole; () where nobody will learn from it."""
    goals: Any
    """Beliefs about what each player, ego-first, will take, where goals are prey [n, kinds]; else ()."""


@struct
class Look:
    """A situation as a planner sees it, before it acts."""

    memory: Acquaintance
    mind: Mind
    features: Any
    logits: Float[Array, " A"]
    value: Float[Array, ""]


@dataclass(frozen=True)
class Planner(NetworkPlayer):
    """Follows its co-players' goals, and acts by its policy or by a search. Params: `policy`, `moa` and, where the
    world is learnt, `world`. Its memory is what it knows of the others, over all episodes with them."""

    acquainting: Acquainting | None = None
    simulator: Simulator | None = None
    search: Search | None = None
    """How it searches before it acts; None: the policy acts."""
    draws_taste: bool = False
    """Whether it has a taste of its own at every table, such that all mixtures of tastes there are equally likely; else
    it has the usual one."""

    def init(self, key: Key, params: Params) -> Acquaintance:
        memory = self.knows.meet(jax.random.fold_in(key, MEMORY), params["moa"])
        if not self.draws_taste:
            return memory
        luck = jax.random.uniform(fast(jax.random.fold_in(key, TASTE)))
        return replace(memory, taste=replace(memory.taste, slips=luck))

    def meet(self, key: Key, memory: Memory) -> Acquaintance:
        if not self.draws_taste:
            return memory
        every = tastes(self.knows.others.game)
        weights = even_weights(jax.random.fold_in(key, TASTE), len(every.slips))
        chosen = draw_member(memory.taste.slips, weights)
        return replace(memory, taste=jax.tree.map(lambda leaf: leaf[chosen], every))

    def begin(self, memory: Memory) -> Acquaintance:
        return self.knows.begin(memory)

    def act(
        self, key: Key, params: Params, memory: Memory, observation: Observation
    ) -> tuple[Int[Array, ""], Acquaintance, Info]:
        key, look = fast(key), self.look(params, memory, observation)
        policy, plan = jax.nn.softmax(look.logits), ()
        if self.search is not None:
            planning = self.planning(self.search)
            plan = planning.plan(jax.random.fold_in(key, SEARCH), params, look.mind, observation)
        chosen = policy if isinstance(plan, tuple) else plan.policy
        drawn = draw_action(jax.random.fold_in(key, ACTION), chosen)
        action = meant = as_action(jnp.argmax(chosen) if self.greedy else drawn)
        if self.draws_taste:
            action = slipping(jax.random.fold_in(key, SLIP), look.mind.taste, meant, own_mask(observation))
        thought = Thought(
            meant=meant,
            log_probability=jax.nn.log_softmax(look.logits)[meant],
            value=look.value,
            features=look.features if self.keeps_features else (),
            belief=jnp.exp(look.mind.belief),
            expected=look.mind.predicted,
            policy=policy,
            plan=plan,
            mind=look.mind if self.keeps_features else (),
            goals=self._prey(jnp.exp(look.mind.belief)),
        )
        return action, look.memory, thought

    def value(self, params: Params, memory: Memory, observation: Observation) -> Float[Array, ""]:
        return self.look(params, memory, observation).value

    def probabilities(self, params: Params, memory: Memory, observation: Observation) -> Float[Array, " A"]:
        if self.search is not None:
            raise InputError(f"the action probabilities of {self.name!r}, which searches, are not known")
        logits = self.look(params, memory, observation).logits
        return jax.nn.one_hot(jnp.argmax(logits), logits.shape[-1]) if self.greedy else jax.nn.softmax(logits)

    def watch(self, params: Params, memory: Memory, observation: Observation) -> Acquaintance:
        return self.knows.watch(memory, observation)

    def end(self, memory: Memory) -> Acquaintance:
        return self.knows.end(memory)

    # -- thinking

    def look(self, params: Params, memory: Acquaintance, observation: Observation) -> Look:
        """The situation as it is seen: what is believed of everybody, what policy and value say."""
        situation = self._world.at(observation)
        everybody = self._world.observe(situation)
        memory, mind = self.knows.expect(params["moa"], memory, observation, everybody, situation.state)
        features = features_of(self.network, self.knows, observation, mind)
        logits, value = evaluate_features(self.network, params["policy"], features)
        return Look(memory, mind, features, logits, value)

    def planning(self, search: Search) -> Planning:
        """A search with this player's policy, value and knowledge."""

        def evaluate(params: Params, observation: Observation, mind: Mind) -> tuple[Array, Array]:
            features = features_of(self.network, self.knows, observation, mind)
            return evaluate_features(self.network, params, features)

        return Planning(search, self._world, self.knows, evaluate)

    @property
    def knows(self) -> Acquainting:
        """How it becomes acquainted with the others."""
        assert self.acquainting is not None
        return self.acquainting

    @property
    def _world(self) -> Simulator:
        assert self.simulator is not None
        return self.simulator

    def _prey(self, belief: Float[Array, "n-1 K"]) -> Any:
        if self.knows.others.space != "prey":
            return ()
        game: Game[Any] = self.knows.others.game
        kinds = belief[:, 1:] if prey_is_a_kind(game) else belief[:, 1:].sum(-1, keepdims=True)
        return jnp.concatenate([jnp.zeros((1, kinds.shape[1])), kinds])


def social_width(acquainting: Acquainting) -> int:
    """How many figures tell a policy of all co-players, and of its own taste."""
    others, game = acquainting.others, acquainting.others.game
    own = game.num_actions - game.idle_action if acquainting.tastes else 0
    return acquainting.co_players * (others.dimensions + game.num_actions) + own


def social_features(acquainting: Acquainting, mind: Mind) -> Float[Array, " S"]:
    """What a policy sees of the co-players: what each may be after, and what it will probably do, which keeps its
    meaning when goals are renamed; and, where there are tastes, which work it likes and how often its hand slips."""
    probability, space = jnp.exp(mind.belief), acquainting.others.space
    if space == "gaussian":
        goals = jnp.einsum("jk,jkz->jz", probability, mind.particles)
    elif space in ("none", "zero"):
        goals = jnp.zeros((probability.shape[0], acquainting.others.dimensions))
    else:
        goals = probability
    of_others = jnp.concatenate([goals, mind.predicted], -1).reshape(-1)
    if not acquainting.tastes:
        return of_others
    likes = mind.taste.likes[acquainting.others.game.idle_action + 1 :]
    return jnp.concatenate([of_others, likes, mind.taste.slips[None]])


def features_of(network: Any, acquainting: Acquainting, observation: Observation, mind: Mind) -> Any:
    """What a network takes of what is seen and of what is made of the others."""
    return encode(network, observation), social_features(acquainting, mind)


@dataclass(frozen=True)
class Optimist(NetworkPlayer):
    """Acts as a planner's model of others would, were it after the goal that has paid best so far: a guest who is no
    script, but what the learner itself has seen others do. Params are the planner's."""

    others: Others | None = None

    def act(
        self, key: Key, params: Params, memory: Memory, observation: Observation
    ) -> tuple[Int[Array, ""], Memory, Info]:
        policy = self.probabilities(params, memory, observation)
        return draw_action(fast(key), policy), memory, ()

    def probabilities(self, params: Params, memory: Memory, observation: Observation) -> Float[Array, " A"]:
        """By the goal that has paid best of those that can be had."""
        there = self._models.there(observation)
        best = jnp.argmax(jnp.where(there, params["moa"]["worth"], -jnp.inf))
        return self._models.own_policies(params["moa"]["network"], observation)[best]

    @property
    def _models(self) -> Others:
        assert self.others is not None
        return self.others


def draw_action(key: Key, policy: Float[Array, " A"]) -> Int[Array, ""]:
    """An action of a policy; one of probability 0 is never drawn."""
    weights = jnp.where(policy > 0, jnp.log(jnp.maximum(policy, 1e-30)), ILLEGAL)
    return as_action(jax.random.categorical(key, weights))
