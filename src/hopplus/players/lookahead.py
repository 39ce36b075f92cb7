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
SEARCH, TEST, BASE_ACTION, BASE_MEMORY = range(4)
"""Purposes of a decision's key."""


MARGIN = 1.0
"""Standard errors by which a plan must beat the current one to replace it."""


@dataclass(frozen=True)
class Lookahead(Player):
    """Chooses between plans by simulation. A plan is an action now, and one of several base policies afterwards.

    The current plan is the base policy that was chosen at the step before (at first, the first one), with its own
    action. All plans are simulated, and the best one challenges the current plan in further simulations: it replaces
    it if it is better there by `MARGIN` standard errors. A maximum over noisy means alone would deviate on noise.

    Simulations sample all players' actions independently of the real game, so lookahead is not clairvoyant. All plans
    have common random numbers. Simulations last until the end of the game; if the base policy has a value, it replaces
    the return after `depth` steps. Params are those of the base policies and of the co-players. No player may need a
    memory.
    """

    game: Game[Any]
    bases: tuple[Player, ...]
    co_players: tuple[Player, ...]
    simulations: int = 16
    """Simulations of every plan, and of the two that are compared again."""
    depth: int = 12
    """Steps of a simulation before the base policy's value is used."""
    name: str = "lookahead"

    def default_params(self) -> Params:
        return tuple(player.default_params() for player in (*self.bases, *self.co_players))

    def init(self, key: Key, params: Params) -> Memory:
        return jnp.int32(0)

    def begin(self, memory: Memory) -> Memory:
        return jnp.zeros_like(memory)

    def act(
        self, key: Key, params: Params, memory: Memory, observation: Observation
    ) -> tuple[Int[Array, ""], Memory, Info]:
        key, state = fast(key), self.game.restore(observation)
        keys = [jax.random.fold_in(key, purpose) for purpose in range(4)]
        base_action = self._base_actions(keys[BASE_ACTION], keys[BASE_MEMORY], params, observation)[memory]
        means = self._returns(keys[SEARCH], params, state, jnp.arange(self.game.num_actions)).mean(-1)
        means = jnp.where(own_mask(observation), means, -jnp.inf)
        base, action = jnp.unravel_index(jnp.argmax(means), means.shape)
        again = self._returns(keys[TEST], params, state, jnp.stack([action, base_action]))
        advantage = again[base, 0] - again[memory, 1]
        is_better = advantage.mean() > MARGIN * advantage.std(ddof=1) / self.simulations**0.5
        return as_action(jnp.where(is_better, action, base_action)), jnp.where(is_better, base, memory), None

    def _base_actions(self, key: Key, memory_key: Key, params: Params, observation: Observation) -> Int[Array, " B"]:
        """Returns the action of every base policy."""
        actions = [
            base.act(key, own, base.init(memory_key, own), observation)[0]
            for base, own in zip(self.bases, params, strict=False)
        ]
        return jnp.stack(actions)

    def _returns(
        self, key: Key, params: Params, state: Any, actions: Int[Array, " A"]
    ) -> Float[Array, "B A simulations"]:
        """Returns the ego's simulated returns by base policy and action."""
        keys = jax.vmap(lambda number: jax.random.fold_in(key, number))(jnp.arange(self.simulations))

        def by_action(number: int) -> Float[Array, "A simulations"]:
            base, rest = self.bases[number], (params[number], *params[len(self.bases) :])
            one_action = jax.vmap(lambda action, key: self._simulate(key, base, rest, state, action), (None, 0))
            return jax.vmap(one_action, (0, None))(actions, keys)

        return jnp.stack([by_action(number) for number in range(len(self.bases))])

    def _simulate(self, key: Key, base: Player, params: Params, state: Any, action: Int[Array, ""]) -> Float[Array, ""]:
        """Returns the ego's return from a state after an action, with the base policy's value after `depth` steps."""
        cast = Cast((base, *self.co_players))
        group_params, has_value = cast.stack(params), isinstance(base, PolicyPlayer)
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
        return total_reward + jnp.where(self._is_alive(state), self._value(base, params[0], state), 0.0)

    def _is_alive(self, state: Any) -> Bool[Array, ""]:
        return ~self.game.over(state) & ~self.game.left(state)[0]

    def _value(self, base: Player, params: Params, state: Any) -> Float[Array, ""]:
        if not isinstance(base, PolicyPlayer):
            return jnp.float32(0)
        memory = base.init(jax.random.key(0), params)
        return base.value(params, memory, one_seat(self.game.observe(state), 0))
