"""Scripted players: fixed rules without learning, used as co-players and baselines."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, UInt32

from hopplus.core.bits import pack, ranked, single, unpack
from hopplus.core.errors import InputError
from hopplus.core.keys import Key, choose
from hopplus.core.specs import nearest
from hopplus.games import Game, GridGame, Observation
from hopplus.games.board import DOWN, LEFT, MOVES, RIGHT, STAY, UP
from hopplus.players.player import Info, Memory, Params, Player, action_number, as_action, own_mask, uniform

SHORTEST, BLIND = "shortest", "blind"
PATHS = (SHORTEST, BLIND)


@dataclass(frozen=True)
class Random(Player):
    """Uniform over the legal actions."""

    name: str = "random"

    def act(
        self, key: Key, params: Params, memory: Memory, observation: Observation
    ) -> tuple[Int[Array, ""], Memory, Info]:
        return as_action(choose(jax.random.bits(key), own_mask(observation))), memory, None

    def probabilities(self, params: Params, memory: Memory, observation: Observation) -> Float[Array, " A"]:
        return uniform(own_mask(observation))


@dataclass(frozen=True)
class Idle(Player):
    """Always the idle action."""

    action: int
    name: str = "stay"

    def act(
        self, key: Key, params: Params, memory: Memory, observation: Observation
    ) -> tuple[Int[Array, ""], Memory, Info]:
        return as_action(self.action), memory, None

    def probabilities(self, params: Params, memory: Memory, observation: Observation) -> Float[Array, " A"]:
        return jax.nn.one_hot(self.action, observation.legal.shape[-1])


@dataclass(frozen=True)
class Wanderer(Player):
    """Uniform over legal moves and STAY; never takes a work action."""

    name: str = "exploiter"

    def act(
        self, key: Key, params: Params, memory: Memory, observation: Observation
    ) -> tuple[Int[Array, ""], Memory, Info]:
        return as_action(choose(jax.random.bits(key), self._moves(observation))), memory, None

    def probabilities(self, params: Params, memory: Memory, observation: Observation) -> Float[Array, " A"]:
        return uniform(self._moves(observation))

    def _moves(self, observation: Observation) -> Bool[Array, " A"]:
        return own_mask(observation) & (jnp.arange(observation.legal.shape[-1]) <= STAY)


@dataclass(frozen=True)
class Seeker(Player):
    """Goes to the nearest item of the first of its kinds that is on the board, and works on it.

    A target is sampled uniformly among the nearest items, then a move uniformly among the moves towards it. Both are
    sampled at every step.
    """

    game: GridGame
    kinds: tuple[int, ...]
    """Kinds of items (indices into `game.item_names`), most preferred first."""
    then: str = "random"
    """Behaviour when no item of these kinds is left: `random` or `stay`."""
    paths: str = SHORTEST
    """`shortest`: walking distances around blocks; `blind`: Manhattan distances, so that blocks may stop it."""
    name: str = "seeker"

    def act(
        self, key: Key, params: Params, memory: Memory, observation: Observation
    ) -> tuple[Int[Array, ""], Memory, Info]:
        bits = jax.random.bits(key, (3,))
        ego, blocks, targets, work = self._parse(observation)
        legal = own_mask(observation)
        nearest_targets = self._nearest(ego, blocks, targets)
        target = choose(bits[0], nearest_targets | ~nearest_targets.any())
        moves = self._moves_towards(target, ego, blocks) & nearest_targets.any()
        step = jnp.where(moves.any(), choose(bits[1], moves | ~moves.any()), STAY)
        here = jnp.where(legal[work], work, STAY)
        action = jnp.where((ego & targets).any(), here, step)
        no_target = choose(bits[2], legal) if self.then == "random" else STAY
        action = jnp.where(targets.any(), action, no_target)
        return as_action(jnp.where(ego.any(), action, STAY)), memory, None

    def probabilities(self, params: Params, memory: Memory, observation: Observation) -> Float[Array, " A"]:
        ego, blocks, targets, work = self._parse(observation)
        legal, actions = own_mask(observation), jnp.arange(observation.legal.shape[-1])
        nearest_targets = self._nearest(ego, blocks, targets)
        max_targets = max(self.game.item_counts[kind] for kind in self.kinds)
        cells = ranked(pack(nearest_targets), jnp.arange(max_targets), self.game.num_cells)
        moves = uniform(jax.vmap(lambda cell: self._moves_towards(cell, ego, blocks))(cells))
        step = (moves * (cells < self.game.num_cells)[:, None]).sum(0) / jnp.maximum(nearest_targets.sum(), 1)
        walking = jnp.concatenate([step, 1 - step.sum(keepdims=True), jnp.zeros(len(actions) - 1 - len(MOVES))])
        here = actions == jnp.where(legal[work], work, STAY)
        chosen = jnp.where((ego & targets).any(), here, walking)
        no_target = uniform(legal) if self.then == "random" else actions == STAY
        return jnp.where(ego.any(), jnp.where(targets.any(), chosen, no_target), actions == STAY)

    def steps_to_take(self, observation: Observation) -> Int[Array, ""]:
        """Returns the steps until the ego has taken a nearest target, around blocks; 0 if it cannot reach any."""
        ego, blocks, targets, _ = self._parse(observation)
        goals, free = pack(targets), pack(~blocks)

        def grow(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            steps, reached, _ = carry
            return steps + 1, self.game.spread(reached, free), reached

        def not_reached(carry: tuple[Array, Array, Array]) -> Array:
            _, reached, before = carry
            return ~(reached & goals).any() & (reached != before).any()

        here = pack(ego)
        steps, reached, _ = jax.lax.while_loop(not_reached, grow, (jnp.int32(1), here, jnp.zeros_like(here)))
        return jnp.where((reached & goals).any(), steps, 0)

    def _parse(
        self, observation: Observation
    ) -> tuple[Bool[Array, " cells"], Bool[Array, " cells"], Bool[Array, " cells"], Int[Array, ""]]:
        """Returns the ego's cell, the blocks, the current target items, and the work action for them."""
        planes = jnp.moveaxis(observation.board, -1, 0).reshape(-1, self.game.num_cells) > 0
        ego, blocks, items = planes[0], planes[self.game.players], planes[self.game.players + 1 :]
        return ego, blocks, *self._targets(items)

    def _targets(self, items: Bool[Array, "kinds cells"]) -> tuple[Bool[Array, " cells"], Int[Array, ""]]:
        """Returns the items of the first kind that is on the board, and the work action for them."""
        order = jnp.asarray(self.kinds)
        present = items[order].any(-1)
        kind = order[jnp.argmax(present)]
        return items[kind], STAY + 1 + kind

    def _nearest(
        self, ego: Bool[Array, " cells"], blocks: Bool[Array, " cells"], targets: Bool[Array, " cells"]
    ) -> Bool[Array, " cells"]:
        """Returns the nearest targets; none if no target can be reached."""
        if self.paths == SHORTEST:
            goals = pack(targets)
            reached = self._spread_until(pack(ego), goals, pack(~blocks))[0]
            return unpack(reached & goals, self.game.num_cells)
        distance = self._manhattan_distances(jnp.argmax(ego))
        return targets & (distance == jnp.where(targets, distance, self.game.num_cells).min())

    def _moves_towards(
        self, target: Int[Array, ""], ego: Bool[Array, " cells"], blocks: Bool[Array, " cells"]
    ) -> Bool[Array, " 4"]:
        """Returns the moves towards a cell; none if the ego is on the cell or cannot reach it."""
        if self.paths == SHORTEST:
            here, goal = pack(ego), single(target, self.game.words)
            meeting, before = self._spread_until(goal, here, pack(~blocks))
            nearer = (self.game.open_moves(before) & here).any(-1)
            return nearer & (meeting & here).any() & ~(goal & here).any()
        row, column = jnp.divmod(jnp.argmax(ego), self.game.width)
        goal_row, goal_column = jnp.divmod(target, self.game.width)
        by_move = {UP: goal_row < row, DOWN: goal_row > row, LEFT: goal_column < column, RIGHT: goal_column > column}
        return jnp.stack([by_move[move] for move in MOVES])

    def _manhattan_distances(self, cell: Int[Array, ""]) -> Int[Array, " cells"]:
        """Returns the distances from a cell, blocks ignored."""
        rows, columns = jnp.divmod(jnp.arange(self.game.num_cells), self.game.width)
        return jnp.abs(rows - cell // self.game.width) + jnp.abs(columns - cell % self.game.width)

    def _spread_until(
        self, start: UInt32[Array, " words"], goal: UInt32[Array, " words"], free: UInt32[Array, " words"]
    ) -> tuple[UInt32[Array, " words"], UInt32[Array, " words"]]:
        """Returns the cells within the distance of the nearest goal, and the cells within one step less.

        All reachable cells if there is no goal.
        """

        def grow(carry: tuple[Array, Array]) -> tuple[Array, Array]:
            return self.game.spread(carry[0], free), carry[0]

        def not_reached(carry: tuple[Array, Array]) -> Array:
            return ~(carry[0] & goal).any() & (carry[0] != carry[1]).any()

        return jax.lax.while_loop(not_reached, grow, (start, jnp.zeros_like(start)))


@dataclass(frozen=True)
class Noisy(Player):
    """Wraps a player: with probability eps, a random legal action replaces the player's action."""

    player: Player
    eps: float
    name: str = "noisy"

    def default_params(self) -> Params:
        return self.player.default_params()

    def bind(self, sources: Mapping[str, Params]) -> Params:
        return self.player.bind(sources)

    def init(self, key: Key, params: Params) -> Memory:
        return self.player.init(key, params)

    def meet(self, key: Key, memory: Memory) -> Memory:
        return self.player.meet(key, memory)

    def begin(self, memory: Memory) -> Memory:
        return self.player.begin(memory)

    def act(
        self, key: Key, params: Params, memory: Memory, observation: Observation
    ) -> tuple[Int[Array, ""], Memory, Info]:
        action, memory, info = self.player.act(jax.random.fold_in(key, 0), params, memory, observation)
        bits = jax.random.bits(jax.random.fold_in(key, 1))
        is_random = jax.random.uniform(jax.random.fold_in(key, 2)) < self.eps
        return jnp.where(is_random, as_action(choose(bits, own_mask(observation))), action), memory, info

    def probabilities(self, params: Params, memory: Memory, observation: Observation) -> Float[Array, " A"]:
        policy = self.player.probabilities(params, memory, observation)
        return (1 - self.eps) * policy + self.eps * uniform(own_mask(observation))

    def watch(self, params: Params, memory: Memory, observation: Observation) -> Memory:
        return self.player.watch(params, memory, observation)

    def end(self, memory: Memory) -> Memory:
        return self.player.end(memory)


@dataclass(frozen=True)
class Switching(Player):
    """Alternates between two players every `every` episodes. Both watch all steps; params are a pair."""

    first: Player
    second: Player
    every: int
    name: str = "switching"

    def default_params(self) -> Params:
        return self.first.default_params(), self.second.default_params()

    def bind(self, sources: Mapping[str, Params]) -> Params:
        return self.first.bind(sources), self.second.bind(sources)

    def init(self, key: Key, params: Params) -> Memory:
        memories = (
            self.first.init(jax.random.fold_in(key, 0), params[0]),
            self.second.init(jax.random.fold_in(key, 1), params[1]),
        )
        return jnp.int32(0), *memories

    def meet(self, key: Key, memory: Memory) -> Memory:
        episode, first, second = memory
        keys = jax.random.fold_in(key, 0), jax.random.fold_in(key, 1)
        return episode, self.first.meet(keys[0], first), self.second.meet(keys[1], second)

    def begin(self, memory: Memory) -> Memory:
        episode, first, second = memory
        return episode, self.first.begin(first), self.second.begin(second)

    def act(
        self, key: Key, params: Params, memory: Memory, observation: Observation
    ) -> tuple[Int[Array, ""], Memory, Info]:
        episode, first, second = memory
        first_action, first, _ = self.first.act(jax.random.fold_in(key, 0), params[0], first, observation)
        second_action, second, _ = self.second.act(jax.random.fold_in(key, 1), params[1], second, observation)
        return jnp.where(self._second_plays(episode), second_action, first_action), (episode, first, second), None

    def probabilities(self, params: Params, memory: Memory, observation: Observation) -> Float[Array, " A"]:
        episode, first, second = memory
        return jnp.where(
            self._second_plays(episode),
            self.second.probabilities(params[1], second, observation),
            self.first.probabilities(params[0], first, observation),
        )

    def _second_plays(self, episode: Int[Array, ""]) -> Bool[Array, ""]:
        return (episode // self.every) % 2 == 1

    def watch(self, params: Params, memory: Memory, observation: Observation) -> Memory:
        episode, first, second = memory
        first = self.first.watch(params[0], first, observation)
        return episode, first, self.second.watch(params[1], second, observation)

    def end(self, memory: Memory) -> Memory:
        episode, first, second = memory
        return episode + 1, self.first.end(first), self.second.end(second)


# ------------------------------------------------------------------------------------------ by name, for the catalog


def random(game: Game[Any]) -> Player:
    """Uniform over legal actions."""
    return Random()


def stay(game: Game[Any]) -> Player:
    """Always STAY."""
    return Idle(game.idle_action)


def nearest_stag(game: Game[Any], *, then: str = "random", paths: str = SHORTEST) -> Player:
    """Hunts the nearest stag ("cooperator"); with none left, `then` random, stay or hare."""
    return _hunter(game, "ns", "stag", "hare", then, paths)


def nearest_hare(game: Game[Any], *, then: str = "random", paths: str = SHORTEST) -> Player:
    """Hunts the nearest hare ("defector"); with none left, `then` random, stay or stag."""
    return _hunter(game, "nh", "hare", "stag", then, paths)


def cleaner(game: Game[Any], *, paths: str = SHORTEST) -> Player:
    """Goes to the nearest drift and removes it."""
    return Seeker(_grid_game("cleaner", game, "REMOVE"), (0,), "random", _one_of("paths", paths, PATHS), "cleaner")


def exploiter(game: Game[Any]) -> Player:
    """Moves at random and never removes drifts."""
    action_number(game, "REMOVE")
    return Wanderer()


def noisy(game: Game[Any], player: Player, eps: float) -> Player:
    """`player` with a random legal action with probability eps."""
    if isinstance(eps, bool) or not isinstance(eps, int | float) or not 0 <= eps <= 1:
        raise InputError(f"the eps of noisy must be a probability from 0 to 1, as in 'noisy(ns,0.2)', not {eps!r}")
    return Noisy(player, float(eps), f"noisy({player.name},{eps})")


def switching(game: Game[Any], first: Player, second: Player, every: int) -> Player:
    """`first` for `every` episodes, then `second` for as many, in alternation."""
    if isinstance(every, bool) or not isinstance(every, int) or every < 1:
        raise InputError(f"switching needs a whole number of episodes, as in 'switching(ns,nh,every=5)', not {every!r}")
    return Switching(first, second, every, f"switching({first.name},{second.name},every={every})")


def _hunter(game: Game[Any], name: str, prey: str, other_prey: str, then: str, paths: str) -> Player:
    grid = _grid_game(name, game, prey.upper())
    _one_of("then", then, ("random", "stay", other_prey))
    _one_of("paths", paths, PATHS)
    kind, other_kind = grid.item_names.index(prey), grid.item_names.index(other_prey)
    kinds = (kind, other_kind) if then == other_prey else (kind,)
    options = [f"then={then}"] * (then != "random") + [f"paths={paths}"] * (paths != SHORTEST)
    return Seeker(grid, kinds, "stay" if then == "stay" else "random", paths, ":".join([name, *options]))


def _grid_game(name: str, game: Game[Any], action: str) -> GridGame:
    if not isinstance(game, GridGame) or action not in game.action_names:
        raise InputError(f"player {name!r} needs a game with the action {action}, which {game.name} does not have")
    return game


def _one_of(option: str, value: str, known: tuple[str, ...]) -> str:
    if value not in known:
        raise InputError(f"{option} cannot be {value!r}{nearest(str(value), known)}")
    return value
