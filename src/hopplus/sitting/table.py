"""A table at which a person sits: a series of episodes, turn by turn."""

import hashlib
import threading
from typing import Any

import jax
import numpy as np

from hopplus.errors import InputError
from hopplus.play.live import Company, Moment, Turn, first_moment, next_moment, returns_of, take_turn
from hopplus.players.person import YOU
from hopplus.report import Frame, frame_of
from hopplus.sitting.setup import Setup


class Table:
    """A series in progress. Its turns depend on the setup and on the person's actions alone, so that these are all
    that has to be kept of it."""

    def __init__(self, setup: Setup, company: Company) -> None:
        self.setup, self.company = setup, company
        self.episodes: list[list[Turn]] = [[]]
        """The turns of every episode that was begun."""
        self.lasts: list[Moment] = []
        """The last moments of those that have ended."""
        self.actions: list[str] = []
        """What the person has done in all turns."""
        self.stopped = False
        self._compiling: threading.Thread | None = None
        self.moment = first_moment(company, self._key(0))

    # -- how it stands

    @property
    def game(self) -> Any:
        return self.company.game

    @property
    def finished(self) -> bool:
        """Whether all episodes are over, or the person got up."""
        return self.stopped or len(self.lasts) == self.setup.episodes

    @property
    def has_left(self) -> bool:
        """Whether the person has left the episode, in which the others play on."""
        return bool(self.moment.left[self.setup.seat])

    @property
    def legal(self) -> tuple[str, ...]:
        """What the person may do now."""
        if self.finished:
            return ()
        mask = np.asarray(self.moment.observation.legal)[self.setup.seat, 0]
        return tuple(name for name, may in zip(self.game.action_names, mask, strict=True) if may)

    @property
    def names(self) -> tuple[str, ...]:
        """What the players are called: those who are hidden only once it is finished."""
        hidden = self.setup.hidden and not self.finished
        return tuple(
            word if word == YOU or not hidden else f"player {seat}" for seat, word in enumerate(self.setup.cast)
        )

    @property
    def returns(self) -> list[list[float]]:
        """What each player got in every episode that is over."""
        return [returns_of(turns).tolist() for turns in self.episodes[: len(self.lasts)]]

    # -- what happens

    def act(self, action: str) -> Turn:
        """Take a turn; InputError, and nothing has happened, where the action is not legal."""
        if self.finished:
            raise InputError("this series is over")
        if action not in self.legal:
            raise InputError(f"{action} is not legal here: {', '.join(self.legal)} would be")
        self.wait_until_ready()
        turn, self.moment = take_turn(self.company, self.moment, self.game.action_names.index(action))
        self.episodes[-1].append(turn)
        self.actions.append(action)
        if self.moment.over:
            self.lasts.append(self.moment)
            if not self.finished:
                self.moment = next_moment(self.company, self._key(len(self.lasts)), self.moment)
                self.episodes.append([])
        return turn

    def get_up(self) -> None:
        """End the series before its time; an episode that is not over does not count."""
        self.stopped = True

    def warm_up(self) -> None:
        """Compile the programs of a turn in the background, while the person looks at the first board."""

        def compile_turn(moment: Moment) -> None:
            _, after = take_turn(self.company, moment, self.game.idle_action)
            next_moment(self.company, self._key(0), after)

        self._compiling = threading.Thread(target=compile_turn, args=(self.moment,))
        self._compiling.start()

    @property
    def is_compiling(self) -> bool:
        """Whether a turn would have to wait for `warm_up`."""
        return self._compiling is not None and self._compiling.is_alive()

    def wait_until_ready(self) -> None:
        """Wait until `warm_up` has ended."""
        if self._compiling:
            self._compiling.join()
            self._compiling = None

    # -- what is to be seen

    def frame(self) -> Frame:
        """The table now, without what anybody thinks."""
        return self.frame_at(len(self.episodes) - 1, self.moment.clock)

    def frame_at(self, episode: int, step: int, **more: Any) -> Frame:
        """The table after some steps of an episode; as long as it is hidden who is who, nobody is named."""
        turns = self.episodes[episode]
        state = turns[step].before.state if step < len(turns) else self._end(episode).state
        got = np.zeros(self.game.num_players)
        said = {
            "rewards": turns[step - 1].outcome.reward if step else got,
            "totals": returns_of(turns[:step]) if step else got,
            "player_names": self.names,
        }
        return frame_of(self.game, state, title=self.game.name, **said, **more)

    def digest(self) -> str:
        """A sign of the state of the table, by which it is told whether play that is repeated comes out the same."""
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(self.moment.state)]
        return hashlib.sha256(b"".join(leaf.tobytes() for leaf in leaves)).hexdigest()[:12]

    def _end(self, episode: int) -> Moment:
        return self.lasts[episode] if episode < len(self.lasts) else self.moment

    def _key(self, episode: int) -> jax.Array:
        key = jax.random.key(self.setup.seed)
        return jax.random.fold_in(key, episode) if episode else key
