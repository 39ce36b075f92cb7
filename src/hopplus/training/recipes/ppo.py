"""PPO, in self-play or beside any co-players, from rollouts or from a buffer of episodes."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from hopplus.errors import InputError
from hopplus.games import Game
from hopplus.keys import Key, fast
from hopplus.learning import ppo
from hopplus.learning.advantages import advantages
from hopplus.networks import ENCODERS, PolicyValue
from hopplus.play import Episode, Table, play_episodes, rollout, start
from hopplus.players import Params
from hopplus.players.cast import observation_of
from hopplus.players.network import evaluate_features
from hopplus.settings import PPOOptions
from hopplus.struct import struct
from hopplus.training.modules import INIT
from hopplus.training.recipe import Mean, Metrics, Recipe, Stage, State, initial_params

LEARNER, TABLE, UPDATE, EPISODES = range(4)
"""Purposes of a seed's key."""


@struct
class PPOState:
    """One seed's training."""

    key: Key
    iteration: Int[Array, ""]
    steps: Int[Array, ""]
    learner: ppo.Learner
    table: Table | tuple[()]
    """Environments in the middle of play; () where whole episodes are played."""
    buffer: ppo.Rows | tuple[()]
    """Rows [T, B, L] of the last B episodes; () where nothing is kept."""


@dataclass(frozen=True)
class PPO(PPOOptions, Recipe):
    """Proximal policy optimisation."""

    name: ClassVar[str] = "ppo"
    traced: ClassVar[tuple[str, ...]] = (
        "learning_rate",
        "anneal",
        "discount",
        "trace",
        "clip",
        "entropy_weight",
        "value_weight",
        "gradient_norm",
    )

    @property
    def shares_params(self) -> bool:
        return self.parameters == "shared"

    @property
    def stays_together(self) -> bool:
        return self.acquaintance > 0

    @property
    def chance_of_parting(self) -> float:
        """How likely it is after an episode that those at a table have not met before."""
        return 1.0 / self.acquaintance if self.acquaintance else 0.0

    def network(self, game: Game[Any]) -> nn.Module:
        return PolicyValue(game.num_actions, game.last_step, value_scale(game), self.hidden, self.encoder)

    def check(self, games: Sequence[Game[Any]]) -> None:
        for field in ("environments", "rollout_steps", "epochs", "minibatch"):
            if getattr(self, field) is not None and getattr(self, field) < 1:
                raise InputError(f"{field} must be at least 1, not {getattr(self, field)}")
        for field in ("learning_rate", "gradient_norm", "clip"):
            if not 0 < getattr(self, field) < float("inf"):
                raise InputError(f"{field} must be more than 0, not {getattr(self, field)}")
        for field in ("discount", "trace"):
            if not 0 <= getattr(self, field) <= 1:
                raise InputError(f"{field} must be from 0 to 1, not {getattr(self, field)}")
        if not self.hidden or min(self.hidden) < 1:
            raise InputError(f"hidden must be the widths of at least one layer, not {self.hidden}")
        if self.encoder not in ENCODERS or self.parameters not in ("shared", "independent"):
            raise InputError(f"there is no encoder {self.encoder!r} or no parameters {self.parameters!r}")
        if self.acquaintance < 0 or (self.acquaintance and self.buffer_episodes):
            raise InputError("acquaintance must be at least 0, and 0 where whole episodes are kept in a buffer")
        if self.buffer_episodes and len({game.last_step for game in games}) > 1:
            raise InputError("a buffer of episodes cannot hold episodes of different T: until must not change it")
        if self.buffer_episodes < 0 or self.buffer_episodes % self.environments:
            raise InputError(
                f"buffer_episodes must be a multiple of the {self.environments} environments, whose episodes come into"
                f" it together, not {self.buffer_episodes}"
            )

    # -- the stages of an iteration

    def at_one_table(self, game: Game[Any]) -> Self:
        """One update after as many steps as an episode may have, as careful as those that ended the training."""
        ended = float(ppo.annealed(self, 1.0, jnp.float32(1)))
        return dataclasses.replace(
            self,
            environments=1,
            rollout_steps=game.last_step,
            minibatch=game.last_step * game.num_players,
            buffer_episodes=0,
            acquaintance=0,
            learning_rate=ended * self.learning_rate,
            entropy_weight=ended * self.entropy_weight,
            anneal=False,
        )

    def init(self, key: Key, stage: Stage, frozen: Mapping[str, Params], learnt: Params | None = None) -> State:
        key = fast(key)
        learner = self.first_learner(key, stage, frozen.get(INIT + "policy") if learnt is None else learnt)
        state = PPOState(key, jnp.int32(0), jnp.int32(0), learner, (), ())
        if self.buffer_episodes:
            _, rows, _ = jax.eval_shape(partial(self.play, stage=stage, frozen=frozen), state)
            shape = (stage.game.last_step, self.buffer_episodes)
            empty = jax.tree.map(lambda leaf: jnp.zeros((*shape, *leaf.shape[2:]), leaf.dtype), rows)
            return dataclasses.replace(state, buffer=empty)
        params = stage.seats.params(learner.params, frozen)
        table = start(jax.random.fold_in(key, TABLE), stage.game, stage.seats.cast, self.environments, params)
        return dataclasses.replace(state, table=table)

    def set_keys(self, key: Key, stage: Stage) -> Key:
        """A key for every parameter set [P]: the same for a seat's, whoever else learns."""
        sets = 1 if self.shares_params else len(stage.seats.learners)
        return jax.vmap(lambda number: jax.random.fold_in(key, number))(np.array(stage.seats.learners[:sets]))

    def first_learner(self, key: Key, stage: Stage, learnt: Params | None) -> ppo.Learner:
        """Policy and value before the first iteration; with parameter sets that have learnt something, from there."""
        keys = self.set_keys(jax.random.fold_in(key, LEARNER), stage)
        learner = ppo.first_learner(keys, partial(initial_params, self.network(stage.final_game), stage.game), self)
        return learner if learnt is None else dataclasses.replace(learner, params=given(learnt, learner.params))

    def play(self, state: State, stage: Stage, frozen: Mapping[str, Params]) -> tuple[Any, ...]:
        """Play one iteration's steps or episodes, and what can be learnt from them: rows [T, E, L]."""
        params = stage.seats.params(state.learner.params, frozen, stage.share_of_guests(state.steps))
        if self.buffer_episodes:
            key = jax.random.fold_in(jax.random.fold_in(state.key, EPISODES), state.iteration)
            table = ()
            _, episode = play_episodes(key, stage.game, stage.seats.cast, self.environments, params)
        else:
            table, episode = rollout(
                state.table, stage.game, stage.seats.cast, self.rollout_steps, params, self.chance_of_parting
            )
        return table, self.rows(state, stage, table, episode), episode

    def rows(self, state: State, stage: Stage, table: Table | tuple[()], episode: Episode) -> ppo.Rows:
        """The rows [T, E, L] of the seats that learn, with advantages from the values said when they were played."""
        seats = np.array(stage.seats.learners)
        choice, acted = stage.seats.choices(episode)
        ended = (episode.left | episode.over[..., None])[..., seats]
        alive = episode.alive[..., seats]
        last_value = self.last_values(state, stage, table, episode)
        advantage, target = advantages(
            episode.reward[..., seats], choice.value, last_value, ended, alive, self.discount, self.trace
        )
        return ppo.Rows(
            features=choice.features,
            seat=jnp.broadcast_to(seats, alive.shape),
            action=episode.actions[..., seats],
            log_probability=choice.log_probability,
            value=choice.value,
            advantage=advantage,
            target=target,
            learns=alive & acted,
            written=jnp.full(alive.shape, state.iteration),
        )

    def last_values(
        self, state: State, stage: Stage, table: Table | tuple[()], episode: Episode
    ) -> Float[Array, "E L"]:
        """What the learner expects at each of its seats where the play was cut, with all that it remembers there."""
        player, seats = self.player(stage.final_game, "", learns=True), np.array(stage.seats.learners)
        params, axis = self.learnt(state), None if self.shares_params else 0
        own = jax.tree.map(lambda leaf: leaf[0], params) if self.shares_params else params
        remembered = stage.seats.remembered(table.memories) if isinstance(table, Table) else ()
        value = jax.vmap(player.value, (axis, 0, 0))

        def one(last_state: Any, memories: Any) -> Array:
            return value(own, memories, observation_of(stage.game.observe(last_state), seats))

        return jax.vmap(one)(episode.last_state, remembered)

    def advance(self, state: State, stage: Stage, frozen: Mapping[str, Params]) -> tuple[State, Episode, Metrics]:
        table, rows, episode = self.play(state, stage, frozen)
        buffer = ()
        if self.buffer_episodes:
            place = (state.iteration * self.environments) % self.buffer_episodes
            insert = partial(jax.lax.dynamic_update_slice_in_dim, start_index=place, axis=1)
            rows = buffer = jax.tree.map(insert, state.buffer, rows)
        batch, learner, said = self.update(state, stage, rows)
        metrics = self._learning_metrics(stage, state, batch, said)
        steps = state.steps + episode.alive.any(-1).sum()
        return PPOState(state.key, state.iteration + 1, steps, learner, table, buffer), episode, metrics

    def update_key(self, state: State) -> Key:
        """The key of an iteration's update."""
        return jax.random.fold_in(jax.random.fold_in(state.key, UPDATE), state.iteration)

    def update(self, state: State, stage: Stage, rows: ppo.Rows) -> tuple[ppo.Rows, ppo.Learner, ppo.Metrics]:
        """One update from rows [T, E, L]: these as batches [P, M], the learner after it, and what it has to tell."""
        batch = ppo.arrange(self.dealt(rows), self.shares_params)
        learner, said = ppo.update(
            self.update_key(state),
            partial(self.said_again, self.network(stage.final_game)),
            state.learner,
            batch,
            self,
            value_scale(stage.final_game),
            stage.progress(state.steps),
            stage.game.num_players,
            self.loss(),
            self.told,
        )
        return batch, learner, said

    told: ClassVar[tuple[str, ...]] = ppo.MEASURED
    """What an update tells of its rows."""

    def loss(self) -> Any:
        """What an update makes small."""
        return ppo.loss

    def dealt(self, rows: ppo.Rows) -> ppo.Rows:
        """Rows [T, E, L] as they are dealt into minibatches: [N, L, ...]."""
        return jax.tree.map(lambda field: field.reshape(-1, *field.shape[2:]), rows)

    def said_again(self, network: nn.Module, params: Params, features: Any) -> Any:
        """What the network says of rows as they were dealt."""
        return evaluate_features(network, params, features)

    def _learning_metrics(
        self, stage: Stage, state: State, batch: ppo.Rows, said: ppo.Metrics, told: tuple[str, ...] = ppo.MEASURED
    ) -> Metrics:
        seats = stage.game.num_players
        count = said["rows"].sum(0)
        metrics = {name: Mean(said[name].sum(0), count) for name in told}
        if "taught" in said:
            metrics["teacher_loss"] = Mean(said["teacher_loss"].sum(0), said["taught"].sum(0))
        learnt = (count > 0).astype(jnp.float32)
        metrics["explained_variance"] = Mean(ppo.explained_variance(batch, seats) * learnt, learnt)
        age = ppo.by_seat((state.iteration - batch.written).astype(jnp.float32), batch, seats)
        metrics["staleness"] = Mean(age * learnt, learnt)
        metrics["trained_on"] = Mean(said["rows"] / self.epochs, jnp.ones_like(said["rows"]))
        return metrics

    def learnt(self, state: Any) -> Params:
        return state["learner"]["params"] if isinstance(state, Mapping) else state.learner.params


def given(learnt: Params, fresh: Params) -> Params:
    """Parameters [P, ...] as they were given: for every set by itself, or one for all of them."""
    return jax.tree.map(lambda own, other: jnp.broadcast_to(own, other.shape), learnt, fresh)


def value_scale(game: Game[Any]) -> float:
    """What one player can earn, as the unit of values."""
    return float(game.ceilings["player"]) or 1.0
