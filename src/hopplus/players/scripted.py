"""Scripted players: fixed rules without learning, the cast of characters that everything is measured against."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, UInt32

from hopplus.bits import pack, single, unpack
from hopplus.errors import InputError
from hopplus.games import Game, GridGame, Observation
from hopplus.games.grid import DOWN, LEFT, MOVES, RIGHT, STAY, UP
from hopplus.keys import Key, choose
from hopplus.players.player import Info, Memory, Params, Player, action_number, as_action, own_mask
from hopplus.specs import nearest

SHORTEST, BLIND = "shortest", "blind"
PATHS = (SHORTEST, BLIND)


@dataclass(frozen=True)
class Random(Player):
    """Uniform over the legal actions."""

    name: str = "random"

    def act(
        self, key: Key, params: Params, memory: Memory, observation: Observation
    ) -> tuple[Int[Array, ""], Memory, Info]:
        return as_action(choose(jax.random.bits(key), own_mask(observation))), memory, ()


@dataclass(frozen=True)
class Idle(Player):
    """Always the idle action."""

    action: int
    name: str = "stay"

    def act(
        self, key: Key, params: Params, memory: Memory, observation: Observation
    ) -> tuple[Int[Array, ""], Memory, Info]:
        return as_action(self.action), memory, ()


@dataclass(frozen=True)
class Wanderer(Player):
    """Uniform over legal moves and STAY; never works on anything."""

    name: str = "exploiter"

    def act(
        self, key: Key, params: Params, memory: Memory, observation: Observation
    ) -> tuple[Int[Array, ""], Memory, Info]:
        walking = own_mask(observation) & (jnp.arange(observation.legal.shape[-1]) <= STAY)
        return as_action(choose(jax.random.bits(key), walking)), memory, ()


@dataclass(frozen=True)
class Seeker(Player):
    """Goes to the nearest thing of the kind it seeks and works on it; the next kind in line once there is none left.

    A target is drawn uniformly among the nearest, then a move uniformly among those that bring it nearer. Both are
    drawn anew at every step.
    """

    game: GridGame
    kinds: tuple[int, ...]
    """Kinds of things (indices into `game.item_names`) in the order in which it seeks them."""
    then: str = "random"
    """What it does when nothing that it seeks is left: `random` or `stay`."""
    paths: str = SHORTEST
    """`shortest`: distances on foot around blocks; `blind`: as the crow walks, so that it jams against blocks."""
    name: str = "seeker"

    def act(
        self, key: Key, params: Params, memory: Memory, observation: Observation
    ) -> tuple[Int[Array, ""], Memory, Info]:
        words = jax.random.bits(key, (3,))
        planes = jnp.moveaxis(observation.grid, -1, 0).reshape(-1, self.game.num_cells) > 0
        me, blocks, items = planes[0], planes[self.game.players], planes[self.game.players + 1 :]
        targets, work = self._sought(items)
        legal = own_mask(observation)
        moves = (self._moves_on_foot if self.paths == SHORTEST else self._moves_as_the_crow)(
            words[0], me, blocks, targets
        )
        step = jnp.where(moves.any(), choose(words[1], moves | ~moves.any()), STAY)
        here = jnp.where(legal[work], work, STAY)
        action = jnp.where((me & targets).any(), here, step)
        without = choose(words[2], legal) if self.then == "random" else STAY
        action = jnp.where(targets.any(), action, without)
        return as_action(jnp.where(me.any(), action, STAY)), memory, ()

    def _sought(self, items: Bool[Array, "kinds cells"]) -> tuple[Bool[Array, " cells"], Int[Array, ""]]:
        """The things of the first kind of which there are any, and the action that works on them."""
        order = jnp.asarray(self.kinds)
        present = items[order].any(-1)
        kind = order[jnp.argmax(present)]
        return items[kind], STAY + 1 + kind

    def _moves_on_foot(
        self, word: Array, me: Bool[Array, " cells"], blocks: Bool[Array, " cells"], targets: Bool[Array, " cells"]
    ) -> Bool[Array, " 4"]:
        game, free = self.game, pack(~blocks)
        here, goals = pack(me), pack(targets)
        reached = self._spread_until(here, goals, free)[0]
        nearest_targets = unpack(reached & goals, game.num_cells)
        target = single(choose(word, nearest_targets | ~nearest_targets.any()), game.words)
        meeting, before = self._spread_until(target & reached, here, free)
        nearer = (game.open_moves(before) & here).any(-1)
        return nearer & (meeting & here).any() & ~(target & here).any()

    def _spread_until(
        self, start: UInt32[Array, " words"], goal: UInt32[Array, " words"], free: UInt32[Array, " words"]
    ) -> tuple[UInt32[Array, " words"], UInt32[Array, " words"]]:
        """The cells within the distance of the nearest goal, and those one step less far; all cells in reach where no
        goal is."""

        def grow(carry: tuple[Array, Array]) -> tuple[Array, Array]:
            return self.game.spread(carry[0], free), carry[0]

        def goes_on(carry: tuple[Array, Array]) -> Array:
            return ~(carry[0] & goal).any() & (carry[0] != carry[1]).any()

        return jax.lax.while_loop(goes_on, grow, (start, jnp.zeros_like(start)))

    def _moves_as_the_crow(
        self, word: Array, me: Bool[Array, " cells"], blocks: Bool[Array, " cells"], targets: Bool[Array, " cells"]
    ) -> Bool[Array, " 4"]:
        rows, columns = jnp.divmod(jnp.arange(self.game.num_cells), self.game.width)
        row, column = jnp.divmod(jnp.argmax(me), self.game.width)
        distance = jnp.abs(rows - row) + jnp.abs(columns - column)
        closest = targets & (distance == jnp.where(targets, distance, self.game.num_cells).min())
        goal_row, goal_column = jnp.divmod(choose(word, closest | ~targets.any()), self.game.width)
        by_move = {UP: goal_row < row, DOWN: goal_row > row, LEFT: goal_column < column, RIGHT: goal_column > column}
        return jnp.stack([by_move[move] for move in MOVES])


@dataclass(frozen=True)
class Noisy(Player):
    """Another player that takes a random legal action instead of its own with probability eps."""

    player: Player
    eps: float
    name: str = "noisy"

    def default_params(self) -> Params:
        return self.player.default_params()

    def init(self, key: Key, params: Params) -> Memory:
        return self.player.init(key, params)

    def begin(self, memory: Memory) -> Memory:
        return self.player.begin(memory)

    def act(
        self, key: Key, params: Params, memory: Memory, observation: Observation
    ) -> tuple[Int[Array, ""], Memory, Info]:
        action, memory, info = self.player.act(jax.random.fold_in(key, 0), params, memory, observation)
        words = jax.random.bits(jax.random.fold_in(key, 1))
        slips = jax.random.uniform(jax.random.fold_in(key, 2)) < self.eps
        return jnp.where(slips, as_action(choose(words, own_mask(observation))), action), memory, info

    def watch(self, params: Params, memory: Memory, observation: Observation) -> Memory:
        return self.player.watch(params, memory, observation)

    def end(self, memory: Memory) -> Memory:
        return self.player.end(memory)


@dataclass(frozen=True)
class Switching(Player):
    """Player a for `every` episodes, then b for as many, then a again. Both watch all the time; params are a pair."""

    first: Player
    second: Player
    every: int
    name: str = "switching"

    def default_params(self) -> Params:
        return self.first.default_params(), self.second.default_params()

    def init(self, key: Key, params: Params) -> Memory:
        memories = (
            self.first.init(jax.random.fold_in(key, 0), params[0]),
            self.second.init(jax.random.fold_in(key, 1), params[1]),
        )
        return jnp.int32(0), *memories

    def begin(self, memory: Memory) -> Memory:
        episode, first, second = memory
        return episode, self.first.begin(first), self.second.begin(second)

    def act(
        self, key: Key, params: Params, memory: Memory, observation: Observation
    ) -> tuple[Int[Array, ""], Memory, Info]:
        episode, first, second = memory
        choice, first, _ = self.first.act(jax.random.fold_in(key, 0), params[0], first, observation)
        other_choice, second, _ = self.second.act(jax.random.fold_in(key, 1), params[1], second, observation)
        second_plays = (episode // self.every) % 2 == 1
        return jnp.where(second_plays, other_choice, choice), (episode, first, second), ()

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
    """Nearest stag ("cooperator"); with none left, `then` random, stay or hare."""
    return _hunter(game, "ns", "stag", "hare", then, paths)


def nearest_hare(game: Game[Any], *, then: str = "random", paths: str = SHORTEST) -> Player:
    """Nearest hare ("defector"); with none left, `then` random, stay or stag."""
    return _hunter(game, "nh", "hare", "stag", then, paths)


def cleaner(game: Game[Any], *, paths: str = SHORTEST) -> Player:
    """Nearest drift, then REMOVE."""
    return Seeker(_grid_game("cleaner", game, "REMOVE"), (0,), "random", _one_of("paths", paths, PATHS), "cleaner")


def exploiter(game: Game[Any]) -> Player:
    """Wanders and leaves the drifts to others."""
    action_number(game, "REMOVE")
    return Wanderer()


def noisy(game: Game[Any], player: Player, eps: float) -> Player:
    """`player`, but with probability eps a random legal action."""
    if isinstance(eps, bool) or not isinstance(eps, int | float) or not 0 <= eps <= 1:
        raise InputError(f"noisy needs a probability from 0 to 1, as in 'noisy(ns,0.2)', not {eps!r}")
    return Noisy(player, float(eps), f"noisy({player.name},{eps})")


def switching(game: Game[Any], first: Player, second: Player, *, every: int) -> Player:
    """`first` for `every` episodes, then `second`, and so on."""
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
        raise InputError(f"player {name!r} needs a game with the action {action}, and {game.name} has none")
    return game


def _one_of(option: str, value: str, known: tuple[str, ...]) -> str:
    if value not in known:
        raise InputError(f"{option} cannot be {value!r}{nearest(str(value), known)}")
    return value
