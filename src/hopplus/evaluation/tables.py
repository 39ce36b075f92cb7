"""Tables at which a focal player meets the same others for many episodes, and what it got in each of them.

A table is a game with the same players in the same seats for all its episodes; at its start nobody has met anybody.
Weights are frozen, or the focal player goes on learning at each table by itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from hopplus.errors import InputError
from hopplus.evaluation.sets import CoPlayers, regime
from hopplus.games import Game
from hopplus.keys import Key, environment_keys
from hopplus.play import Episode, Table, rollout, start
from hopplus.players import Cast, Params
from hopplus.players.cast import info_of
from hopplus.players.movable import Movable
from hopplus.players.player import Memory, Player
from hopplus.players.pool import Assigned, Pool
from hopplus.specs import parse
from hopplus.struct import struct
from hopplus.training.policies import Policy, checksum, is_policy
from hopplus.training.recipe import Recipe, Stage
from hopplus.training.recipes import make_recipe
from hopplus.training.run import Run, open_run
from hopplus.training.seats import LEARNER, SAVED_RUN, Seats, make_seats, seat_cast
from hopplus.training.shipped import is_shipped, shipped_words

Seating = Literal["one", "three"]
"""One focal player with the whole set, or as many as the set has with one of it."""
BLOCK = 5
"""Episodes of which a mean is told."""
SCORED = 2
"""The block whose mean is the score: episodes 6 to 10."""


@dataclass(frozen=True)
class Protocol:
    """For how long a table plays, and what counts."""

    name: str
    episodes: int | None = None
    """Episodes of every table, told in blocks of five; the score is the mean of the second."""
    steps: int | None = None
    """Or environment steps, told in blocks of `block` of them; the score is the mean of the episodes that ended in the
    last."""
    block: int = BLOCK

    def check(self, game: Game[Any]) -> None:
        """InputError for one that gives no score."""
        if self.episodes is not None and self.episodes < SCORED * BLOCK:
            raise InputError(
                f"adaptation is scored on episodes 6 to 10: episodes must be at least 10, not {self.episodes}"
            )
        if self.steps is not None and game.last_step > self.block:
            raise InputError(f"an episode of {game.name} may last longer than the {self.block} steps that are scored")

    def budget(self, game: Game[Any]) -> int:
        """Environment steps that are enough for it, whatever happens; those for which a learner learns."""
        return self.steps or (self.episodes or 0) * game.last_step


def few_shot(episodes: int) -> Protocol:
    """So many episodes; the score is the mean of episodes 6 to 10."""
    return Protocol("few-shot", episodes=episodes)


HOP = Protocol("hop", steps=2_400, block=600)
"""HOP's: 2,400 steps, of which the last 600 are scored."""


# --------------------------------------------------------------------------------------------------- the focal player


@dataclass(frozen=True, eq=False)
class Focal:
    """Who is judged: what a run has learnt, seed by seed, or a player by name."""

    name: str
    run: Run | None
    seeds: tuple[int, ...]
    """Training seeds; a player that has learnt nothing has the one seed 0."""
    search: str | None = None
    """Whether it searches before it acts, on or off; None: as it was trained to."""

    @classmethod
    def of(cls, text: str, seeds: Sequence[int] | None = None, search: str | None = None) -> "Focal":
        """A finished run by its directory, or a player by name; InputError for a `search` that would have no effect."""
        if not Path(text).is_dir() or is_shipped(text):
            if seeds is not None:
                raise InputError(f"{text!r} is no run directory: only runs have training seeds to choose from")
            return cls(text if search is None else _with_search(text, search), None, (0,), search)
        run = open_run(Path(text))
        if "final" not in run.evaluations():
            raise InputError(f"{text} is unfinished: go on with it first (hopplus train --resume {text})")
        for seed in seeds or ():
            if seed not in run.seeds:
                raise InputError(f"{text} has no seed {seed}: its seeds are {', '.join(map(str, run.seeds))}")
        return cls(text, run, tuple(run.seeds if seeds is None else seeds), search)

    def check(self, game: Game[Any], update_weights: bool) -> None:
        """InputError where it cannot play the game, or has nothing to learn with, or cannot search as it is told to."""
        seat_cast(",".join([self.name, *["stay"] * (game.num_players - 1)]), game)
        if update_weights and self.search is not None:
            raise InputError("--search and --update-weights exclude each other: a run learns as it was trained to")
        if update_weights:
            self.recipe()

    def policies(self, seed: int) -> list[Policy]:
        """The parameter sets of a training seed; none of a player by name."""
        return [policy.searching(self.search) for policy in self.run.policies(seed)] if self.run else []

    def recipe(self) -> Recipe:
        """How it learns."""
        if self.run is None:
            raise InputError(f"{self.name!r} has no weights to update: only runs have")
        return make_recipe(self.run.config["recipe"], self.run.config["settings"])

    @property
    def remembers(self) -> bool:
        """Whether it keeps anything from episode to episode, as far as one can know of a player by name."""
        return self.run is None or self.recipe().remembers

    def regime(self, against: CoPlayers) -> tuple[str, tuple[str, ...]]:
        """Under which regime it was trained, and whom of a set it has met before."""
        if self.run:
            return regime(self.run, against)
        return ("self" if is_shipped(self.name) else "script"), ()


def can_have_learnt(text: str) -> bool:
    """Whether a player as people type it is a saved run or policy or comes pretrained, rather than a script."""
    return Path(text).is_dir() or is_policy(text) or parse(text).name in (SAVED_RUN, *shipped_words())


def _with_search(text: str, search: str) -> str:
    """A saved policy or a pretrained one by name, told to search or not; InputError for others, and for one whose name
    says it already. Whether it has learnt to search is checked when it is loaded."""
    if not can_have_learnt(text):
        raise InputError(f"{text!r} cannot search: --search is for runs of hop and hopplus, and the pretrained hopplus")
    if is_policy(text):
        return f"{SAVED_RUN}({text},search={search})"
    spec = parse(text)
    if "search" in dict(spec.options):
        raise InputError(f"{text!r} says already whether it searches: leave that or --search out")
    return replace(spec, options=(*spec.options, ("search", search))).text()


def check_distinct(focals: Sequence[Focal]) -> None:
    """InputError where two of them are one and the same training seed: it would be counted twice."""
    seen: dict[str, str] = {}
    for focal in focals:
        for seed in focal.seeds:
            unit = f"seed {seed} of {focal.name}"
            weights = checksum([policy.params for policy in focal.policies(seed)]) if focal.run else focal.name
            if weights in seen:
                raise InputError(f"{unit} is the same as {seen[weights]}, and must not be counted twice")
            seen[weights] = unit


# ----------------------------------------------------------------------------------------------------------- the tables


@dataclass(frozen=True)
class Places:
    """Players in order, focal ones first, and where each of them sits."""

    focal: int
    others: tuple[str, ...]
    seats: tuple[int, ...]
    """By player."""


def places(against: CoPlayers, seating: Seating, players: int) -> list[Places]:
    """All tables of a seating: the odd one out, the focal player or the other, in every seat in turn."""
    if seating == "one":
        return [Places(1, against.players, (odd, *_rest(odd, players))) for odd in range(players)]
    return [
        Places(players - 1, (other,), (*_rest(odd, players), odd))
        for other in dict.fromkeys(against.players)
        for odd in range(players)
    ]


def _rest(odd: int, players: int) -> tuple[int, ...]:
    return tuple(seat for seat in range(players) if seat != odd)


@dataclass(frozen=True)
class Weights:
    """Checksums of what the focal players had learnt."""

    before: str
    after: str


@struct
class Played:
    """What is kept of play: steps [T] at tables [E]."""

    over: Bool[Array, "T E"]
    total_reward: Float[Array, "T E n"]
    """By seat, since the episode began."""
    took: Int[Array, "T E n"]
    alive: Bool[Array, "T E n"]
    goals: Any
    """What the focal players believe: [T, E, focal, n ego-first, kinds]; () where they have no beliefs."""


def _kept(cast: Cast, episode: Episode, focal: tuple[int, ...]) -> Played:
    """Of an episode by a cast in which those are focal."""
    said = [info_of(cast, episode.info, player) for player in focal]
    has_beliefs = all(not isinstance(getattr(info, "goals", ()), tuple) for info in said)
    goals = jnp.stack([info.goals for info in said], 2) if has_beliefs else ()
    return Played(episode.over, episode.total_reward, episode.took, episode.alive, goals)


@partial(jax.jit, static_argnames=("game", "cast", "steps", "focal"))
def _play_on(
    table: Table, game: Game[Any], cast: Movable, steps: int, params: tuple[Params, ...], focal: int
) -> tuple[Table, Played]:
    table, episode = rollout(table, game, cast, steps, params)
    return table, _kept(cast, episode, tuple(range(focal)))


def play_frozen(
    key: Key,
    game: Game[Any],
    focal: Focal,
    policies: Sequence[Policy],
    where: Places,
    tables: int,
    protocol: Protocol,
    greedy: bool = False,
    among: Sequence[str] = (),
) -> tuple[Played, Weights]:
    """Tables with a training seed's policies frozen, until each has had its episodes or steps.

    Where the others are said to be `among` several kinds of players, all tables of such players are one program, which
    is compiled once, whoever of them sits where.
    """
    own = "self" if policies else focal.name

    def policy_at(player: int) -> Policy:
        assert focal.run is not None
        found = focal.run.seated(policies, where.seats[player])
        return found if len(policies) == 1 else replace(found, seat=player)  # one program wherever they sit

    others = [f"pool({','.join(among)})"] * len(where.others) if among else where.others
    seated = seat_cast(",".join([*[own] * where.focal, *others]), game, policy_at if policies else None, greedy)
    cast, params = Movable(seated.cast.players), tuple(seated.params())
    if among:
        cast = Movable((*cast.players[: where.focal], *map(_assignable, cast.players[where.focal :])))
    before = checksum(params[: where.focal])
    table = start(key, game, cast, tables, params)
    _, remembered = table.memories
    if among:
        remembered = _assign(cast, remembered, where, among)
    seats = jnp.broadcast_to(jnp.array(where.seats), (tables, len(where.seats)))
    table = replace(table, memories=(seats, remembered))
    rounds, ended, steps = [], np.zeros(tables, int), 0
    while steps < protocol.budget(game) and (protocol.episodes is None or ended.min() < protocol.episodes):
        table, played = _play_on(table, game, cast, game.last_step, params, where.focal)
        rounds.append(played)
        steps += game.last_step
        ended += np.asarray(played.over).sum(0)
    return jax.tree.map(lambda *parts: np.concatenate(parts), *rounds), Weights(before, checksum(params[: where.focal]))


def _assignable(player: Player) -> Player:
    """A pool as a player who is one of its members for good."""
    assert isinstance(player, Pool)
    return Assigned(player.members)


def _assign(cast: Cast, remembered: tuple[Memory, ...], where: Places, among: Sequence[str]) -> tuple[Memory, ...]:
    """Memories of tables [E], by group of the cast, in which those who are not focal are whom the tables have."""
    found = list(remembered)
    for number, group in enumerate(cast.groups):
        if min(group.seats) >= where.focal:
            members = jnp.array([among.index(where.others[player - where.focal]) for player in group.seats])
            found[number] = replace(found[number], member=jnp.broadcast_to(members, found[number].member.shape))
    return tuple(found)


def play_updating(
    key: Key,
    game: Game[Any],
    focal: Focal,
    policies: Sequence[Policy],
    where: Places,
    tables: int,
    protocol: Protocol,
) -> tuple[Played, Weights]:
    """Tables at which the focal player goes on learning from a training seed's policies, each table by itself."""
    recipe = focal.recipe().at_one_table(game)
    seats, frozen = _learning_seats(game, recipe, where)
    stage = Stage(game, game, seats, protocol.budget(game))
    assert focal.run is not None
    chosen = [focal.run.seated(policies, seat) for seat in (seats.learners[:1] if seats.shared else seats.learners)]
    learnt = jax.tree.map(lambda *leaves: np.stack(leaves), *(policy.params for policy in chosen))
    states = _first_states(key, recipe, stage, frozen, learnt, tables)
    before, rounds = checksum(recipe.learnt(states)), []
    for _ in range(-(-protocol.budget(game) // game.last_step)):
        states, played = _learn_on(states, recipe, stage, frozen)
        rounds.append(jax.tree.map(np.asarray, played))
    after = checksum(recipe.learnt(states))
    return jax.tree.map(lambda *parts: np.concatenate(parts), *rounds), Weights(before, after)


@partial(jax.jit, static_argnames=("recipe", "stage", "tables"))
def _first_states(key: Key, recipe: Recipe, stage: Stage, frozen: Any, learnt: Params, tables: int) -> Any:
    return jax.vmap(lambda key: recipe.init(key, stage, frozen, learnt))(environment_keys(key, tables))


@partial(jax.jit, static_argnames=("recipe", "stage"))
def _learn_on(states: Any, recipe: Recipe, stage: Stage, frozen: Any) -> tuple[Any, Played]:
    def one(state: Any) -> tuple[Any, Played]:
        state, episode, _ = recipe.advance(state, stage, frozen)
        return state, jax.tree.map(lambda leaf: leaf[:, 0], _kept(stage.seats.cast, episode, stage.seats.learners))

    return jax.vmap(one, out_axes=(0, 1))(states)


def _learning_seats(game: Game[Any], recipe: Recipe, where: Places) -> tuple[Seats, dict[str, Params]]:
    by_player = [*[LEARNER] * where.focal, *where.others]
    by_seat = [by_player[where.seats.index(seat)] for seat in range(game.num_players)]
    learner = recipe.player(game, LEARNER, shares=recipe.shares_params, learns=True)
    seats, policies = make_seats(",".join(by_seat), game, learner)
    return seats, {source: policy.params for source, policy in policies.items()}


# -------------------------------------------------------------------------------------------------------- what they got


@dataclass(frozen=True, eq=False)
class Told:
    """What tables [E] got in their episodes [K]; nan where a table had fewer."""

    returns: Float[np.ndarray, "E K"]
    """The mean over the focal players at a table."""
    ended_at: Float[np.ndarray, "E K"]
    """After how many steps of the table."""
    goal_hits: Float[np.ndarray, "E K"]
    """How often the likeliest goal of another was the one it had: what it took at last."""
    goal_belief: Float[np.ndarray, "E K"]
    """The probability given to that goal."""


def tell(played: Played, seats: Sequence[int], protocol: Protocol) -> Told:
    """Play as episodes; focal players sit in `seats`. Steps beyond the protocol's do not count."""
    played = jax.tree.map(lambda leaf: leaf[: protocol.steps] if protocol.steps else leaf, played)
    over, tables = np.asarray(played.over), played.over.shape[1]
    most = int(over.sum(0).max()) if protocol.episodes is None else protocol.episodes
    number = np.cumsum(over, 0) - over  # which episode of its table a step belongs to
    step, table = np.nonzero(over & (number < most))
    returns, ended_at = np.full((2, tables, most), np.nan)
    own = np.asarray(played.total_reward, np.float64)[..., list(seats)].mean(-1)
    returns[table, number[step, table]] = own[step, table]
    ended_at[table, number[step, table]] = step + 1
    hits, belief = _judge_beliefs(played, seats, number, most)
    return Told(returns, ended_at, hits, belief)


def _judge_beliefs(
    played: Played, seats: Sequence[int], number: Int[np.ndarray, "T E"], most: int
) -> tuple[Float[np.ndarray, "E K"], Float[np.ndarray, "E K"]]:
    """By table and episode, over the steps in which the ego and another are in the game who takes something later."""
    tables = number.shape[1]
    nothing = np.full((tables, most), np.nan)
    if isinstance(played.goals, tuple):
        return nothing, nothing
    goals, alive = np.asarray(played.goals, np.float64), np.asarray(played.alive)
    taken = _next_taken(np.asarray(played.took), np.asarray(played.over))
    sums = np.zeros((3, tables, most))
    for focal, ego in enumerate(seats):
        for other in range(1, alive.shape[-1]):
            seat = (ego + other) % alive.shape[-1]
            counts = alive[..., ego] & alive[..., seat] & (taken[..., seat] > 0) & (number < most)
            step, table = np.nonzero(counts)
            said, truth = goals[step, table, focal, other], taken[step, table, seat] - 1
            place = (table, number[step, table])
            np.add.at(sums[0], place, said.argmax(-1) == truth)
            np.add.at(sums[1], place, said[np.arange(len(truth)), truth])
            np.add.at(sums[2], place, 1)
    hits, belief = (np.divide(total, sums[2], out=nothing.copy(), where=sums[2] > 0) for total in sums[:2])
    return hits, belief


def _next_taken(took: Int[np.ndarray, "T E n"], over: Bool[np.ndarray, "T E"]) -> Int[np.ndarray, "T E n"]:
    """What every seat takes at this step or later in the episode, first; 0 for nothing."""
    found = np.zeros_like(took)
    later = np.zeros_like(took[0])
    for step in reversed(range(len(took))):
        later = np.where(over[step][:, None], 0, later)
        later = np.where(took[step] > 0, took[step], later)
        found[step] = later
    return found
