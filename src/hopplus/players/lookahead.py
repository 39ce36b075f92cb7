"""Lookahead player for oracles: rollouts with the true rules and the co-players' true policies."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from hopplus.core.keys import Key, fast
from hopplus.games import Game, Observation, one_seat
from hopplus.players.cast import Cast
from hopplus.players.player import Info, Memory, Params, Player, as_action, own_mask
from hopplus.players.policy import PolicyPlayer

SEATS, STEP = range(2)
"""Purposes of a simulated step's key."""


MARGIN = 1.0
"""Standard errors by which an action must beat the base policy's action to replace it."""


@dataclass(frozen=True)
class Lookahead(Player):
    """Evaluates every action by rollouts of the base policy, and takes the action with the best mean return.

    Keeps the base policy's action unless another is better by `MARGIN` standard errors.

    Rollouts sample all players' actions independently of the real game, so lookahead is not clairvoyant. All actions
    are evaluated with common random numbers. Rollouts last until the end of the game; if the base policy has a value,
    it replaces the return after `depth` steps. Params are those of the base policy and of the co-players, ego first. No
    player may need a memory.
    """

    game: Game[Any]
    base: Player
    co_players: tuple[Player, ...]
    simulations: int = 16
    """Rollouts per action."""
    depth: int = 12
    """Steps of a rollout before the base policy's value is used."""
    name: str = "lookahead"

    def default_params(self) -> Params:
        return tuple(player.default_params() for player in (self.base, *self.co_players))

    def act(
        self, key: Key, params: Params, memory: Memory, observation: Observation
    ) -> tuple[Int[Array, ""], Memory, Info]:
        key, state = fast(key), self.game.restore(observation)
        act_key, memory_key = (jax.random.fold_in(key, self.simulations + purpose) for purpose in range(2))
        base_action, _, _ = self.base.act(act_key, params[0], self.base.init(memory_key, params[0]), observation)
        keys = jax.vmap(lambda number: jax.random.fold_in(key, number))(jnp.arange(self.simulations))
        one_action = jax.vmap(lambda action, key: self._simulate(key, params, state, action), in_axes=(None, 0))
        values = jax.vmap(one_action, in_axes=(0, None))(jnp.arange(self.game.num_actions), keys)
        advantages = values - values[base_action]
        error = advantages.std(-1, ddof=1) / self.simulations**0.5
        is_better = own_mask(observation) & (advantages.mean(-1) > MARGIN * error)
        advantage = jnp.where(is_better, advantages.mean(-1), 0.0)
        return as_action(jnp.where(advantage.max() > 0, jnp.argmax(advantage), base_action)), memory, None

    def _simulate(self, key: Key, params: Params, state: Any, action: Int[Array, ""]) -> Float[Array, ""]:
        """Returns the ego's return from a state after an action, with the base policy's value after `depth` steps."""
        cast = Cast((self.base, *self.co_players))
        group_params, has_value = cast.stack(params), isinstance(self.base, PolicyPlayer)
        seats = jnp.arange(self.game.num_players)

        def seat_keys(number: Array, purpose: int) -> Key:
            step_key = jax.random.fold_in(jax.random.fold_in(key, number), purpose)
            return jax.vmap(lambda seat: jax.random.fold_in(step_key, seat))(seats)

        def is_running(carry: Any) -> Array:
            number, state, _, _ = carry
            return (number < (self.depth if has_value else self.game.last_step)) & self._is_alive(state)

        def step(carry: Any) -> Any:
            number, state, memories, total_reward = carry
            actions, memories, _ = cast.act(seat_keys(number, SEATS), group_params, memories, self.game.observe(state))
            actions = actions.at[0].set(jnp.where(number == 0, action, actions[0]))
            step_key = jax.random.fold_in(jax.random.fold_in(key, number), STEP)
            state, outcome = self.game.step(step_key, state, actions)
            memories = cast.watch(group_params, memories, self.game.observe(state))
            return number + 1, state, memories, total_reward + outcome.reward[0]

        before = jnp.int32(self.game.last_step + 1)
        common = jax.random.fold_in(jax.random.fold_in(key, before), STEP)
        memories = cast.begin(cast.init(seat_keys(before, SEATS), common, group_params))
        first = (jnp.int32(0), state, memories, jnp.float32(0))
        _, state, _, total_reward = jax.lax.while_loop(is_running, step, first)
        return total_reward + jnp.where(self._is_alive(state), self._base_value(params[0], state), 0.0)

    def _is_alive(self, state: Any) -> Bool[Array, ""]:
        return ~self.game.over(state) & ~self.game.left(state)[0]

    def _base_value(self, params: Params, state: Any) -> Float[Array, ""]:
        if not isinstance(self.base, PolicyPlayer):
            return jnp.float32(0)
        memory = self.base.init(jax.random.key(0), params)
        return self.base.value(params, memory, one_seat(self.game.observe(state), 0))
