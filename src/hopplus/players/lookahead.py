"""A player that looks ahead with the true rules and its co-players' true policies: what an oracle plays by."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from hopplus.games import Game, Observation, one_seat
from hopplus.keys import Key, fast
from hopplus.players.cast import Cast
from hopplus.players.network import NetworkPlayer, evaluate
from hopplus.players.player import Info, Memory, Params, Player, as_action, own_mask

SEATS, STEP = range(2)
"""Purposes of a simulated step's key."""


MARGIN = 1.0
"""Standard errors by which an action must do better than the base's own to be taken instead."""


@dataclass(frozen=True)
class Lookahead(Player):
    """Tries every action in fresh simulations, in which it goes on by its base policy, and takes the best on average;
    that of the base itself, unless another does better by more than chance.

    Every simulation draws what everybody does anew, so that no luck is taken for foresight; all actions are tried with
    the same draws. Simulations go on to the end; but if the base has a value, that stands for what comes after `depth`
    steps. Params are those of the base and of the co-players, who are ego-first; nobody may need a memory.
    """

    game: Game[Any]
    base: Player
    co_players: tuple[Player, ...]
    simulations: int = 16
    depth: int = 12
    name: str = "lookahead"

    def default_params(self) -> Params:
        return tuple(player.default_params() for player in (self.base, *self.co_players))

    def act(
        self, key: Key, params: Params, memory: Memory, observation: Observation
    ) -> tuple[Int[Array, ""], Memory, Info]:
        key, state = fast(key), self.game.restore(observation)
        act_key, memory_key = (jax.random.fold_in(key, self.simulations + purpose) for purpose in range(2))
        base, _, _ = self.base.act(act_key, params[0], self.base.init(memory_key, params[0]), observation)
        keys = jax.vmap(lambda number: jax.random.fold_in(key, number))(jnp.arange(self.simulations))
        one_action = jax.vmap(lambda action, key: self._simulate(key, params, state, action), in_axes=(None, 0))
        values = jax.vmap(one_action, in_axes=(0, None))(jnp.arange(self.game.num_actions), keys)
        better = values - values[base]
        error = better.std(-1, ddof=1) / self.simulations**0.5
        worth = jnp.where(own_mask(observation) & (better.mean(-1) > MARGIN * error), better.mean(-1), 0.0)
        return as_action(jnp.where(worth.max() > 0, jnp.argmax(worth), base)), memory, ()

    def _simulate(self, key: Key, params: Params, state: Any, action: Int[Array, ""]) -> Float[Array, ""]:
        """What the ego earns from a state on, after an action, and what is then expected of the rest."""
        cast = Cast((self.base, *self.co_players))
        learnt, has_value = cast.stack(params), isinstance(self.base, NetworkPlayer)
        seats = jnp.arange(self.game.num_players)

        def seat_keys(number: Array, purpose: int) -> Key:
            own = jax.random.fold_in(jax.random.fold_in(key, number), purpose)
            return jax.vmap(lambda seat: jax.random.fold_in(own, seat))(seats)

        def goes_on(carry: Any) -> Array:
            number, state, _, _ = carry
            return (number < (self.depth if has_value else self.game.last_step)) & self._is_in(state)

        def step(carry: Any) -> Any:
            number, state, memories, earned = carry
            actions, memories, _ = cast.act(seat_keys(number, SEATS), learnt, memories, self.game.observe(state))
            actions = actions.at[0].set(jnp.where(number == 0, action, actions[0]))
            step_key = jax.random.fold_in(jax.random.fold_in(key, number), STEP)
            state, outcome = self.game.step(step_key, state, actions)
            memories = cast.watch(learnt, memories, self.game.observe(state))
            return number + 1, state, memories, earned + outcome.reward[0]

        before = jnp.int32(self.game.last_step + 1)
        common = jax.random.fold_in(jax.random.fold_in(key, before), STEP)
        memories = cast.begin(cast.init(seat_keys(before, SEATS), common, learnt))
        first = (jnp.int32(0), state, memories, jnp.float32(0))
        _, state, _, earned = jax.lax.while_loop(goes_on, step, first)
        return earned + jnp.where(self._is_in(state), self._expected(params[0], state), 0.0)

    def _is_in(self, state: Any) -> Bool[Array, ""]:
        return ~self.game.over(state) & ~self.game.left(state)[0]

    def _expected(self, params: Params, state: Any) -> Float[Array, ""]:
        if not isinstance(self.base, NetworkPlayer):
            return jnp.float32(0)
        return evaluate(self.base.network, params, one_seat(self.game.observe(state), 0))[1]
