"""Seats of a training: which of them learn, and the parameters of every player."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from hopplus.core.errors import InputError
from hopplus.games.preferences import RegretSampling
from hopplus.players import Cast, Params, Player, PolicyPlayer, Pool, PoolParams
from hopplus.players.cast import info_of
from hopplus.players.player import Memory
from hopplus.players.preferences import REGRET_SAMPLING
from hopplus.rollouts import Trajectory

LEARNER = "learner"
OPTIMIST = "optimist"
OWN_PARTNERS = (OPTIMIST,)
"""Curriculum partners made of the learner's own opponent model."""
NO_PARTNER = "none"
"""Written for a training without curriculum partner."""
PARTNER_SHARE = "partner share"
"""Source of the share of episodes in which a curriculum partner sits in a learner's seat."""


@dataclass(frozen=True)
class PartnerPool(Pool):
    """The learner, or in a share of episodes a curriculum partner in its place."""

    def bind(self, sources: Mapping[str, Params]) -> PoolParams:
        share = jnp.asarray(sources[PARTNER_SHARE])
        return PoolParams(jnp.stack([1.0 - share, share]), tuple(member.bind(sources) for member in self.members))


@dataclass(frozen=True)
class Seats:
    """A cast in which some seats learn."""

    cast: Cast
    learners: tuple[int, ...]
    """Seats that learn, also those of the learner in some episodes only."""
    shared: bool
    """One parameter set for all learning seats, or one each."""

    def params(
        self,
        learner_params: Params,
        frozen: Mapping[str, Params],
        partner_share: Array | float = 0.0,
        regret: RegretSampling | None = None,
    ) -> list[Params]:
        """Returns the params by seat.

        Args:
            learner_params: The learner's parameter sets [P, ...].
            frozen: Params of frozen players by source.
            partner_share: Share of episodes in which a curriculum partner sits in a learner's seat.
            regret: Regret sampling of the learners' preferences; None without it.
        """
        training = {PARTNER_SHARE: partner_share, REGRET_SAMPLING: regret}
        return [
            player.bind(self._sources(seat, learner_params, {**frozen, **training}))
            for seat, player in enumerate(self.cast.players)
        ]

    def _sources(self, seat: int, learner_params: Params, common: Mapping[str, Params]) -> dict[str, Params]:
        """Params by source, as the player in a seat sees them: those common to all seats, and the learner's."""
        sources = dict(common)
        if seat in self.learners:
            index = 0 if self.shared else self.learners.index(seat)
            own_params = jax.tree.map(lambda leaf: leaf[index], learner_params)
            sources |= dict.fromkeys((LEARNER, *OWN_PARTNERS), own_params)
        return sources

    def infos(self, trajectory: Trajectory) -> tuple[Any, Bool[Array, "T E L"]]:
        """Infos (`PolicyInfo` or `Decision`) of the learner at each of its seats [T, E, L], and where it acted."""
        infos, acted = [], []
        for seat in self.learners:
            info, player = info_of(self.cast, trajectory.info, seat), self.cast.players[seat]
            if isinstance(player, Pool):
                member = _learner_index(player)
                infos.append(info.members[member])
                acted.append(info.member == member)
            else:
                infos.append(info)
                acted.append(jnp.ones(trajectory.over.shape, bool))
        return jax.tree.map(lambda *leaves: jnp.stack(leaves, 2), *infos), jnp.stack(acted, -1)

    def learner_memories(self, memories: tuple[Memory, ...]) -> Memory:
        """Memories of the learner at each of its seats [E, L, ...], from those by group [E, seats, ...]."""
        by_seat = []
        for seat in self.learners:
            number, group = next((n, group) for n, group in enumerate(self.cast.groups) if seat in group.seats)
            place = group.seats.index(seat)
            memory = jax.tree.map(lambda leaf, place=place: leaf[:, place], memories[number])
            player = self.cast.players[seat]
            by_seat.append(memory.members[_learner_index(player)] if isinstance(player, Pool) else memory)
        return jax.tree.map(lambda *leaves: jnp.stack(leaves, 1), *by_seat)


def is_learner(player: Player) -> bool:
    """Returns whether the learner sits in this player's seat, in some episodes at least."""
    if isinstance(player, PolicyPlayer):
        return player.source == LEARNER
    inner = player.members if isinstance(player, Pool) else [getattr(player, name, None) for name in WRAPPED]
    learners = [member for member in inner if isinstance(member, Player) and is_learner(member)]
    if learners and not (isinstance(player, Pool) and learners[0] in player.members and len(learners) == 1):
        raise InputError(f"{player.name!r}: the learner may sit in a seat itself or in a pool, not in another player")
    if learners and not isinstance(learners[0], PolicyPlayer):
        raise InputError(f"{player.name!r}: the learner may sit in a pool, not in a pool in a pool")
    return bool(learners)


WRAPPED = ("player", "first", "second")
"""Fields of wrappers that hold the wrapped players."""


def _learner_index(pool: Pool) -> int:
    """Index of the learner among the members of a pool."""
    return next(number for number, member in enumerate(pool.members) if is_learner(member))
