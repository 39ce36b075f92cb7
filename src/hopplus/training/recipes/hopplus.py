"""HOP+: beliefs about learnt goals, a policy and value that see them, planning, and learning from all of it."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from hopplus.devices import divided
from hopplus.errors import InputError
from hopplus.games import Game, GridGame, Observation
from hopplus.keys import Key, fast
from hopplus.learning import expert_iteration, online, ppo
from hopplus.learning import world_model as world_learning
from hopplus.learning.advantages import advantages
from hopplus.learning.expert_iteration import Lessons
from hopplus.learning.lives import Lives, lives_in_play
from hopplus.networks.policy_value import SocialPolicyValue
from hopplus.planning.acquaintance import Acquainting, Mind
from hopplus.planning.goals import SPACES, Others, prey_names
from hopplus.planning.imagination import Imagined, imagine
from hopplus.planning.search import Search
from hopplus.planning.simulator import Simulator
from hopplus.play import Episode, Table, rollout, start, step_keys
from hopplus.players import Params
from hopplus.players.cast import observation_of
from hopplus.players.network import evaluate_features
from hopplus.players.planner import Planner, features_of, social_width
from hopplus.settings import HopPlusOptions
from hopplus.struct import struct
from hopplus.training.fits.others import MOA
from hopplus.training.fits.world_model import WorldModel
from hopplus.training.modules import INIT
from hopplus.training.recipe import Mean, Metrics, Stage, State
from hopplus.training.recipes.ppo import PPO, TABLE, given, value_scale

MODEL, WORLD, TEACH, IMAGINE = range(10, 14)
"""Purposes of a seed's key, beside those of PPO."""


EXPLORATION = 0.4
"""PUCT's constant per what one player can earn."""


@struct
class HopState:
    """One seed's training."""

    key: Key
    iteration: Int[Array, ""]
    steps: Int[Array, ""]
    learner: ppo.Learner
    """Policy and value."""
    moa: ppo.Learner
    """The model of other agents as it learns."""
    acting_moa: Params
    """The copy of it by which players act and plan, refreshed every few iterations."""
    world: ppo.Learner | tuple[()]
    """The model of the world; () where there is none, or the rules."""
    table: Table | tuple[()]


@dataclass(frozen=True)
class HopPlus(HopPlusOptions, PPO):
    """HOP+: learnt goals, a model of other agents, beliefs, planning and PPO."""

    name: ClassVar[str] = "hopplus"
    traced: ClassVar[tuple[str, ...]] = (*PPO.traced, "moa_learning_rate", "teacher_weight")

    # -- what it is made of

    @property
    def remembers(self) -> bool:
        return self.inter and self.goals not in ("none", "zero")

    def network(self, game: Game[Any]) -> nn.Module:
        return SocialPolicyValue(
            game.num_actions,
            game.last_step,
            value_scale(game),
            self.hidden,
            self.encoder,
            social=social_width(self.acquainting(game)),
        )

    def moa(self) -> MOA:
        """The model of another player."""
        return MOA(
            goals="none" if self.goals == "zero" else self.goals,
            hidden=self.moa_hidden,
            codes=self.codes,
            switch=self.switch,
            dimensions=self.dimensions,
            loss=self.subgoal_loss,
            learning_rate=self.moa_learning_rate,
        )

    def world_model(self) -> WorldModel:
        """The model of the world."""
        return WorldModel()

    def acquainting(self, game: Game[Any]) -> Acquainting:
        """How beliefs are made."""
        moa = self.moa()
        number = self.particles if self.goals == "gaussian" else moa.number_of_goals(game)
        others = Others(game, self.goals, moa.network(game), number, self.moa_networks == "each")
        switch = self.switch if self.goals in ("codes", "prey") else 0.0
        inter = self.memory if self.inter and number > 1 else "off"
        return Acquainting(others, switch, inter, self.intra, self.distrust, self.tastes)

    def simulator(self, game: Game[Any]) -> Simulator:
        """What plans are tried in."""
        return Simulator(game, self.world_model().network(game) if self.world == "learned" else None)

    def search_settings(self, game: Game[Any]) -> Search:
        """How it searches in a game."""
        return Search(
            self.draws,
            self.simulations,
            self.replies,
            EXPLORATION * value_scale(game) if self.exploration is None else self.exploration,
            self.sharpness,
            self.temperature,
            self.discount,
        )

    def player(
        self, game: Game[Any], source: str, greedy: bool = False, shares: bool = True, learns: bool = False
    ) -> Planner:
        searches = self.learn == "expert" if learns else self.search == "on"
        return Planner(
            self.network(game),
            source,
            greedy,
            shares,
            learns,
            self.name,
            acquainting=self.acquainting(game),
            simulator=self.simulator(game),
            search=self.search_settings(game) if searches else None,
            draws_taste=learns and self.tastes and self.stays_together,
        )

    def check(self, games: Sequence[Game[Any]]) -> None:
        super().check(games)
        game = games[-1]
        if self.buffer_episodes:
            raise InputError(f"{self.name} learns from what was just played: buffer_episodes must be 0")
        if self.goals not in SPACES:
            raise InputError(f"there are no goals {self.goals!r}: they are {', '.join(SPACES)}")
        if self.goals == "prey":
            prey_names(game)
        if not isinstance(game, GridGame) or game.reseat([*range(1, game.players), 0]) != game:
            raise InputError(f"{self.name} plans from its own seat, and the seats of {game.name} are not alike")
        for field in ("draws", "simulations", "replies", "refresh", "moa_batches", "imagined_steps", "particles"):
            if getattr(self, field) < 1:
                raise InputError(f"{field} must be at least 1, not {getattr(self, field)}")
        if self.environments % self.moa_batches:
            raise InputError(f"moa_batches must divide the {self.environments} environments, not {self.moa_batches}")
        if not 0 < self.real_ratio <= 1 or not 0 <= self.switch < 1 or self.codes < 2:
            raise InputError(
                "real_ratio must be more than 0 and at most 1, switch from 0 to less than 1, codes 2 or more"
            )
        needs_world = self.search == "on" or self.learn != "ppo" or self.real_ratio < 1
        if self.world == "none" and needs_world:
            raise InputError("world none: a search or imagination needs the rules or a learned world to simulate by")
        if self.tastes and not self.stays_together:
            raise InputError("tastes are drawn when players meet: acquaintance must be more than 0 with them")
        if self.temperature is not None and not self.temperature > 0:
            raise InputError(f"temperature must be more than 0, not {self.temperature}")

    def at_one_table(self, game: Game[Any]) -> Self:
        return dataclasses.replace(super().at_one_table(game), moa_batches=1)

    # -- the stages of an iteration

    def init(self, key: Key, stage: Stage, frozen: Mapping[str, Params], learnt: Params | None = None) -> State:
        key = fast(key)
        begun = (
            dict(learnt)
            if learnt
            else {
                "policy": frozen.get(INIT + "policy"),
                "moa": frozen.get(INIT + "moa"),
                "world": frozen.get(INIT + "world-model"),
            }
        )
        moa = self._begin(begun["moa"], self.first_moa, key, MODEL, stage)
        world: Any = ()
        if self.world == "learned":
            world = online.first(self._begin(begun["world"], self.first_world, key, WORLD, stage))
        learner = self.first_learner(key, stage, begun["policy"])
        state = HopState(key, jnp.int32(0), jnp.int32(0), learner, online.first(self._flat(moa)), moa, world, ())
        params = stage.seats.params(self.learnt(state), frozen)
        table = start(jax.random.fold_in(key, TABLE), stage.game, stage.seats.cast, self.environments, params)
        return dataclasses.replace(state, table=table)

    def _begin(self, learnt: Params | None, first: Any, key: Key, purpose: int, stage: Stage) -> Params:
        """A module's parameter sets [P, ...], fresh or as they were given."""
        keys = self.set_keys(jax.random.fold_in(key, purpose), stage)
        fresh = jax.vmap(partial(first, stage=stage))(keys)
        return fresh if learnt is None else given(learnt, fresh)

    def first_moa(self, key: Key, stage: Stage) -> Params:
        """One set's model of others, or models: one for each co-player."""
        model, game = self.moa(), stage.final_game
        if self.moa_networks == "shared":
            return self._with_worth(model.fresh(key, game))
        keys = jax.vmap(lambda number: jax.random.fold_in(key, number))(jnp.arange(game.num_players - 1))
        models = jax.vmap(lambda key: model.fresh(key, game))(keys)
        models = models if self.goals == "gaussian" else {**models, "prior": models["prior"][0]}
        return self._with_worth(models)

    def _with_worth(self, models: Params) -> Params:
        """Where goals are prey, it is followed what those earn who have each."""
        return {**models, "worth": jnp.zeros_like(models["prior"])} if self.goals == "prey" else models

    def first_world(self, key: Key, stage: Stage) -> Params:
        """One set's model of the world."""
        game = _grid(stage.game)
        return world_learning.params_before_play(key, self.world_model().network(game), game)

    def advance(self, state: State, stage: Stage, frozen: Mapping[str, Params]) -> tuple[State, Episode, Metrics]:
        table, episode = self.play(state, stage, frozen)
        lessons, came = self.lessons(state, stage, table, episode)
        lives = lives_in_play(stage.game, episode, boards=self.goals == "gaussian", prey=self.goals == "prey")
        moa = self.learn_moa(state, stage, episode, lives)
        world, world_metrics = self.learn_world(state, stage, episode)
        params = self.learnt(state)
        if self.learn == "both":
            lessons = self.teach(state, stage, params, lessons, episode)
        batch: Any = ppo.arrange(jax.tree.map(_rows_first, lessons), self.shares_params)
        if self.real_ratio < 1:
            batch = self.with_imagined(state, stage, params, batch, episode)
        learner, said = self.learn_policy(state, stage, batch)
        refreshed = (state.iteration + 1) % self.refresh == 0
        fresh = self._nested(moa.params, stage)
        acting = jax.tree.map(lambda new, old: jnp.where(refreshed, new, old), fresh, state.acting_moa)
        metrics = {
            **self._learning_metrics(stage, state, batch, said, expert_iteration.TOLD),
            **self.thought_metrics(stage, episode, lives, came),
            **world_metrics,
        }
        steps = state.steps + episode.alive.any(-1).sum()
        state = HopState(state.key, state.iteration + 1, steps, learner, moa, acting, world, table)
        return state, episode, metrics

    def play(self, state: State, stage: Stage, frozen: Mapping[str, Params]) -> tuple[Table, Episode]:
        """One iteration's steps."""
        params = stage.seats.params(self.learnt(state), frozen, stage.share_of_guests(state.steps))
        return rollout(state.table, stage.game, stage.seats.cast, self.rollout_steps, params, self.chance_of_parting)

    def lessons(
        self, state: State, stage: Stage, table: Table, episode: Episode
    ) -> tuple[Lessons, Float[Array, "T E L"]]:
        """What can be learnt of play [T, E, L], and what came of each step."""
        rows = self.rows(state, stage, table, episode)
        shape, searched = rows.learns.shape, self.learn == "expert"
        found = stage.seats.choices(episode)[0].plan.policy if searched else None
        lessons = Lessons(
            **vars(rows),
            acted=jnp.full(shape, not searched),
            valued=jnp.ones(shape, bool),
            taught=jnp.full(shape, searched),
            teacher=jnp.zeros((*shape, stage.game.num_actions)) if found is None else found,
        )
        return lessons, rows.target

    def rows(self, state: State, stage: Stage, table: Table | tuple[()], episode: Episode) -> ppo.Rows:
        thought, seats = stage.seats.choices(episode)[0], np.array(stage.seats.learners)
        if self.tastes:
            liked = jnp.take_along_axis(thought.mind.taste.likes, episode.actions[..., seats, None], -1)[..., 0]
            episode = dataclasses.replace(episode, reward=episode.reward.at[..., seats].multiply(liked))
        return dataclasses.replace(super().rows(state, stage, table, episode), action=thought.meant)

    # -- models

    def learn_moa(self, state: State, stage: Stage, episode: Episode, lives: Lives) -> ppo.Learner:
        """The model of others after what was just played."""
        model, game = self.moa(), stage.game
        if self.only_earning:
            lives = Lives(**{**vars(lives), "alive": lives.alive & (lives.value > 0)})
        about = self._about(stage)
        progress = stage.progress(state.steps)
        rate = ppo.annealed(self, self.moa_learning_rate, progress)
        key = jax.random.fold_in(jax.random.fold_in(state.key, MODEL), state.iteration)

        def objective(params: Params, key: Key, lives: Lives) -> Any:
            varied = model.vary(jax.random.fold_in(key, 0), (lives,), game)
            return model.objective(params, jax.random.fold_in(key, 1), varied, game, progress)

        weights = online.rare_goals_first(lives, len(prey_names(game))) if self.goals == "prey" else None
        learner, _ = online.fit(
            key, objective, state.moa, lives, self.moa_batches, rate, online.of_seats, about, weights
        )
        if self.goals != "prey":
            return learner
        begins = jnp.repeat((episode.total_steps == 1).any(-1).T, game.num_players, 0)
        follow = jax.vmap(lambda prior, seats: online.followed_prior(prior, lives, seats, begins))
        priors = follow(learner.params["prior"], jnp.asarray(about))
        worth = jax.vmap(lambda worth: online.followed_worth(worth, lives))(learner.params["worth"])
        return ppo.Learner({**learner.params, "prior": priors, "worth": worth}, learner.optimiser)

    def _about(self, stage: Stage) -> Bool[np.ndarray, "sets n"]:
        """Whose rows each model of others learns from: the co-players of those who use it."""
        n, learners = stage.game.num_players, stage.seats.learners
        users = [learners] if self.shares_params else [(seat,) for seat in learners]
        offsets = [range(1, n)] if self.moa_networks == "shared" else [(offset,) for offset in range(1, n)]
        return np.array(
            [
                [any((seat - user) % n in some for user in group) for seat in range(n)]
                for group in users
                for some in offsets
            ]
        )

    def _flat(self, moa: Params) -> Params:
        """Models [P, ...] or [P, n-1, ...] as one row of them."""
        if self.moa_networks == "shared":
            return moa
        n = jax.tree.leaves(moa["network"])[0].shape[1]
        whole = {name: jnp.repeat(moa[name][:, None], n, 1) for name in ("prior", "worth") if name in moa}
        spread = {**moa, **whole}
        return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), spread)

    def _nested(self, moa: Params, stage: Stage) -> Params:
        """The inverse of `_flat`; the prior of a set's models is that of the first."""
        if self.moa_networks == "shared":
            return moa
        n = stage.game.num_players - 1
        nested = jax.tree.map(lambda leaf: leaf.reshape(-1, n, *leaf.shape[1:]), moa)
        return {**nested, **{name: nested[name][:, 0] for name in ("prior", "worth") if name in nested}}

    def learn_world(self, state: State, stage: Stage, episode: Episode) -> tuple[Any, Metrics]:
        """The model of the world after what was just played, and how well it foresaw that."""
        if self.world != "learned":
            return (), {}
        game, model = _grid(stage.game), self.world_model()
        network = model.network(game)
        windows = self.windows(game, state.table, episode)
        key = jax.random.fold_in(jax.random.fold_in(state.key, WORLD), state.iteration)
        chosen = jax.random.randint(jax.random.fold_in(key, 0), (self.world_rows,), 0, windows.over.shape[0])
        some = jax.tree.map(lambda leaf: leaf[chosen], windows)
        first = jax.tree.map(lambda leaf: leaf[0], state.world.params)
        told = jax.tree.map(lambda leaf: leaf[0], world_learning.tally_windows(network, first, game, some))
        learnt = jax.vmap(lambda params: world_learning.with_vocabulary(params, windows))(state.world.params)
        learner = ppo.Learner(learnt, state.world.optimiser)
        weights = jnp.ones(len(game.channel_names))

        def objective(params: Params, key: Key, rows: Any) -> Any:
            return world_learning.mean_loss(network, params, world_learning.seen_at_random(key, game, rows), weights)

        sets = jax.tree.leaves(learnt)[0].shape[0]
        rate = ppo.annealed(self, model.learning_rate, stage.progress(state.steps))
        learner, _ = online.fit(
            jax.random.fold_in(key, 1), objective, learner, some, 4, rate, lambda batch, about: batch, jnp.zeros(sets)
        )
        every = jnp.ones(game.num_players)
        return learner, {
            "world_exact": Mean(told.right["state"] * every, told.count * every),
            "world_reward_error": Mean(told.reward_error * every, told.rewards * every),
        }

    def windows(self, game: Game[Any], table: Table, episode: Episode) -> world_learning.Windows:
        """Every step just played, with the states around it: [T E, 1, ...]. A state before a reset is what the same
        step, with the same key, led to."""
        steps = episode.over.shape[0]

        def following(number: Array, states: Any, actions: Array) -> Any:
            return jax.vmap(game.step)(step_keys(game, table, number), states, actions)[0]

        after = jax.vmap(following)(jnp.arange(steps), episode.state, episode.actions)

        def flat(values: Array) -> Array:
            return values.reshape(-1, 1, *values.shape[2:])

        both = jax.tree.map(lambda one, other: jnp.concatenate([flat(one), flat(other)], 1), episode.state, after)
        fields = {name: flat(getattr(episode, name)) for name in ("actions", "alive", "reward", "left", "over")}
        return world_learning.Windows(state=both, **fields, played=flat(episode.alive.any(-1)))

    # -- what a search says, what is imagined

    def teach(self, state: State, stage: Stage, params: Params, lessons: Lessons, episode: Episode) -> Lessons:
        """The lessons with what a search says of some of them, drawn at random among those that count."""
        shape = lessons.learns.shape
        key = jax.random.fold_in(jax.random.fold_in(state.key, TEACH), state.iteration)
        chosen = ppo.living_first(jax.random.fold_in(key, 0), lessons.learns.reshape(1, -1))[0, : self.taught]
        chosen = divided(chosen, 0)
        keys = jax.vmap(lambda number: jax.random.fold_in(jax.random.fold_in(key, 1), number))(chosen)
        own, mind, seen = self._situations(stage, params, episode, chosen, shape)
        planning = self.player(stage.final_game, "", learns=True).planning(self.search_settings(stage.final_game))
        plans = jax.vmap(planning.plan)(keys, own, mind, seen)
        teacher = jnp.zeros((np.prod(shape), stage.game.num_actions)).at[chosen].set(plans.policy)
        taught = jnp.zeros(np.prod(shape), bool).at[chosen].set(True) & lessons.learns.reshape(-1)
        return dataclasses.replace(lessons, teacher=teacher.reshape(*shape, -1), taught=taught.reshape(shape))

    def _situations(
        self, stage: Stage, params: Params, episode: Episode, chosen: Int[Array, " B"], shape: tuple[int, ...]
    ) -> tuple[Params, Mind, Observation]:
        """For rows of [T, E, L]: the params of whoever was there, what it made of the others, and what it saw."""
        thought, _ = stage.seats.choices(episode)
        time, environment, place = jnp.unravel_index(chosen, shape)
        mind = jax.tree.map(lambda leaf: leaf[time, environment, place], thought.mind)
        states = jax.tree.map(lambda leaf: leaf[time, environment], episode.state)
        seats = jnp.asarray(stage.seats.learners)[place]
        seen = jax.vmap(lambda state, seat: observation_of(stage.game.observe(state), seat))(states, seats)
        own = jax.tree.map(lambda leaf: leaf[jnp.zeros_like(place) if self.shares_params else place], params)
        return own, mind, seen

    def with_imagined(self, state: State, stage: Stage, params: Params, batch: Lessons, episode: Episode) -> Lessons:
        """The lessons [P, M] with as many imagined ones as make real ones the share that was asked for."""
        sets = batch.learns.shape[0]
        number = round(batch.learns.shape[1] * (1 / self.real_ratio - 1) / self.imagined_steps)
        shape = (*episode.over.shape, len(stage.seats.learners))
        learners = np.arange(len(stage.seats.learners))
        acted = stage.seats.choices(episode)[1]
        counts = episode.alive[..., np.array(stage.seats.learners)] & acted

        def for_set(own: Array) -> Lessons:
            mine = counts if self.shares_params else counts & (learners == own)
            key = jax.random.fold_in(jax.random.fold_in(state.key, IMAGINE), state.iteration)
            order = ppo.living_first(jax.random.fold_in(key, 0), mine.reshape(1, -1))[0]
            chosen = divided(order[jnp.arange(number) % jnp.maximum(mine.sum(), 1)], 0)
            keys = jax.vmap(lambda place: jax.random.fold_in(jax.random.fold_in(key, 1), place))(jnp.arange(number))
            situations = self._situations(stage, params, episode, chosen, shape)
            planning = self.player(stage.final_game, "", learns=True).planning(self.search_settings(stage.final_game))
            play = jax.vmap(lambda key, own, mind, seen: imagine(planning, key, own, mind, seen, self.imagined_steps))
            imagined = play(keys, *situations)
            seats = jnp.asarray(stage.seats.learners)[jnp.unravel_index(chosen, shape)[2]]
            return self._imagined_lessons(state, stage, imagined, seats)

        imagined = jax.vmap(for_set)(jnp.arange(sets))
        return jax.tree.map(lambda real, other: jnp.concatenate([real, other], 1), batch, imagined)

    def _imagined_lessons(self, state: State, stage: Stage, imagined: Imagined, seats: Int[Array, " B"]) -> Lessons:
        """Lessons [B H] of imagined play [B, H]."""
        game = stage.final_game
        network, knows = self.network(game), self.acquainting(game)

        def by_time(values: Array) -> Array:
            return values.T[..., None]

        advantage, target = advantages(
            by_time(imagined.reward),
            by_time(imagined.value),
            imagined.last_value[:, None],
            by_time(imagined.ended),
            by_time(imagined.alive),
            self.discount,
            self.trace,
        )
        features = jax.vmap(jax.vmap(partial(features_of, network, knows)))(imagined.seen, imagined.mind)
        alive = imagined.alive

        def flat(values: Array) -> Array:
            return values.reshape(-1, *values.shape[2:])

        return jax.tree.map(
            flat,
            Lessons(
                features=features,
                seat=jnp.broadcast_to(seats[:, None], alive.shape),
                action=imagined.action,
                log_probability=imagined.log_probability,
                value=imagined.value,
                advantage=advantage[..., 0].T,
                target=target[..., 0].T,
                learns=alive,
                written=jnp.full(alive.shape, state.iteration),
                acted=jnp.ones(alive.shape, bool),
                valued=jnp.full(alive.shape, self.imagined_values),
                taught=jnp.zeros(alive.shape, bool),
                teacher=jnp.zeros((*alive.shape, game.num_actions)),
            ),
        )

    def learn_policy(self, state: State, stage: Stage, batch: Lessons) -> tuple[ppo.Learner, ppo.Metrics]:
        """Policy and value after an update from lessons [P, M]."""
        return ppo.update(
            self.update_key(state),
            partial(evaluate_features, self.network(stage.final_game)),
            state.learner,
            batch,
            self,
            value_scale(stage.final_game),
            stage.progress(state.steps),
            stage.game.num_players,
            partial(expert_iteration.loss, teacher_weight=self.teacher_weight),
            expert_iteration.TOLD,
        )

    # -- what there is to tell

    def thought_metrics(self, stage: Stage, episode: Episode, lives: Lives, came: Float[Array, "T E L"]) -> Metrics:
        """By ego's seat: how well others' actions were foreseen, all and each kind of them; how sure beliefs were and,
        where goals are prey, whether they came true; what searches looked like."""
        game, learners = stage.game, stage.seats.learners
        thought, acted = stage.seats.choices(episode)
        n, names = game.num_players, game.action_names
        found: dict[str, list[Array]] = {}
        for place, seat in enumerate(learners):
            others = (seat + 1 + np.arange(n - 1)) % n
            counts = (episode.alive[..., seat] & acted[..., place])[..., None] & episode.alive[..., others]
            done = episode.actions[..., others]
            told = thought.expected[:, :, place]
            right = told.argmax(-1) == done
            likelihood = jnp.take_along_axis(told, done[..., None], -1)[..., 0]
            belief = thought.belief[:, :, place]
            entropy = -(belief * jnp.log(jnp.maximum(belief, 1e-9))).sum(-1)
            unlikely = -jnp.log(jnp.maximum(likelihood, 1e-9))
            rows = {
                "moa_top1": (right, counts),
                "moa_cross_entropy": (unlikely, counts),
                "belief_entropy": (entropy, counts),
            }
            rows |= {f"moa_recall_{name}": (right, counts & (done == number)) for number, name in enumerate(names)}
            if self.goals == "prey":
                known, goal = _by_seat(lives.alive, n)[..., others], _by_seat(lives.goal, n)[..., others]
                guess = belief[..., 1:].argmax(-1) + 1
                rows["belief_accuracy"] = (guess == goal, counts & known & (goal > 0))
            if not isinstance(thought.plan, tuple):
                own = episode.alive[..., seat] & acted[..., place]
                rows["search_depth"] = (thought.plan.depth[:, :, place], own)
                rows["search_value_error"] = (jnp.abs(thought.plan.value[:, :, place] - came[..., place]), own)
            if self.tastes:
                taste = jax.tree.map(lambda leaf, place=place: leaf[:, :, place], thought.mind.taste)
                is_usual = (taste.likes == 1).all(-1) & (taste.slips == 0)
                at_the_end = episode.over & acted[..., place] & is_usual
                rows["own_return"] = (episode.total_reward[..., seat], at_the_end)
            for name, (value, mask) in rows.items():
                total = jnp.where(mask, value, 0).sum().astype(jnp.float32)
                found.setdefault(name, []).append(jnp.stack([total, mask.sum().astype(jnp.float32)]))
        places = np.array(learners)
        return {
            name: Mean(*(jnp.zeros(n).at[places].set(column) for column in jnp.stack(values).T))
            for name, values in found.items()
        }

    def stages(
        self, stage: Stage, frozen: Mapping[str, Params]
    ) -> dict[str, Callable[[State, Mapping[str, Any]], Any]]:
        def lives(episode: Episode) -> Lives:
            return lives_in_play(stage.game, episode, boards=self.goals == "gaussian", prey=self.goals == "prey")

        def rows(state: State, done: Mapping[str, Any]) -> Any:
            table, episode = done["play"]
            lessons = self.lessons(state, stage, table, episode)[0]
            return ppo.arrange(jax.tree.map(_rows_first, lessons), self.shares_params)

        found: dict[str, Callable[[State, Mapping[str, Any]], Any]] = {
            "play": lambda state, done: self.play(state, stage, frozen),
            "moa_and_goals": lambda state, done: self.learn_moa(state, stage, done["play"][1], lives(done["play"][1])),
            "policy": lambda state, done: self.learn_policy(state, stage, rows(state, done)),
        }
        if self.world == "learned":
            found["world_model"] = lambda state, done: self.learn_world(state, stage, done["play"][1])
        if self.learn == "both":
            found["search"] = lambda state, done: self.teach(
                state,
                stage,
                self.learnt(state),
                self.lessons(state, stage, *done["play"])[0],
                done["play"][1],
            )
        if self.real_ratio < 1:
            found["imagination"] = lambda state, done: self.with_imagined(
                state, stage, self.learnt(state), rows(state, done), done["play"][1]
            )
        return found

    def modules(self, learnt: Params) -> dict[str, Params]:
        named = {"policy": learnt["policy"], "moa": learnt["moa"]}
        return {**named, "world-model": learnt["world"]} if "world" in learnt else named

    def learnt(self, state: State) -> Params:
        if isinstance(state, Mapping):
            found = {"policy": state["learner"]["params"], "moa": state["acting_moa"]}
            return {**found, "world": state["world"]["params"]} if self.world == "learned" else found
        found = {"policy": state.learner.params, "moa": state.acting_moa}
        return {**found, "world": state.world.params} if self.world == "learned" else found


def omg(game: Game[Any]) -> dict[str, Any]:
    """OMG: subgoals from an autoencoder, inferred anew in every episode, and no search."""
    return {"goals": "gaussian", "inter": False, "search": "off"}


def direct_om(game: Game[Any]) -> dict[str, Any]:
    """Direct opponent modelling: what others will do, without goals."""
    return {"goals": "none"}


def _rows_first(values: Array) -> Array:
    """Of values [T, E, ...] one row a step and environment."""
    return values.reshape(-1, *values.shape[2:])


def _by_seat(values: Array, players: int) -> Array:
    """Values [E n, T] of lives in play as [T, E, n]."""
    return jnp.moveaxis(values.reshape(-1, players, values.shape[-1]), -1, 0)


def _grid(game: Game[Any]) -> GridGame:
    """The game as what `check` has found it to be."""
    assert isinstance(game, GridGame)
    return game
