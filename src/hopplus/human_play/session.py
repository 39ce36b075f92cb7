"""Session with a person: consecutive episodes with the same co-players, turn by turn."""

import hashlib
import threading
from typing import Any

import jax
import numpy as np

from hopplus.core.errors import InputError
from hopplus.human_play.setup import SessionSetup
from hopplus.players.human import YOU
from hopplus.rollouts.session import (
    SessionPlayers,
    SessionState,
    Turn,
    begin_next_episode,
    begin_session,
    returns_of,
    take_turn,
)
from hopplus.visualization import Frame, frame_of


class Session:
    """Session in progress.

    Its turns depend only on the setup and the person's actions, so a recording needs only these.
    """

    def __init__(self, setup: SessionSetup, session_players: SessionPlayers) -> None:
        self.setup, self.session_players = setup, session_players
        self.episodes: list[list[Turn]] = [[]]
        """Turns of every episode, including the current one."""
        self.lasts: list[SessionState] = []
        """Final states of the finished episodes."""
        self.actions: list[str] = []
        """Actions of the person in all turns."""
        self.stopped = False
        self._compiling: threading.Thread | None = None
        self.moment = begin_session(session_players, self._key(0))

    # -- state

    @property
    def game(self) -> Any:
        """Game of the session."""
        return self.session_players.game

    @property
    def finished(self) -> bool:
        """True if all episodes are over or the person ended the session."""
        return self.stopped or len(self.lasts) == self.setup.episodes

    @property
    def has_left(self) -> bool:
        """True if the person has left the current episode, in which the co-players continue."""
        return bool(self.moment.left[self.setup.seat])

    @property
    def legal(self) -> tuple[str, ...]:
        """Legal actions of the person."""
        if self.finished:
            return ()
        mask = np.asarray(self.moment.observation.legal)[self.setup.seat, 0]
        return tuple(name for name, is_legal in zip(self.game.action_names, mask, strict=True) if is_legal)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the players by seat; hidden names only once the session is finished."""
        hidden = self.setup.hidden and not self.finished
        return tuple(
            name if name == YOU or not hidden else f"player {seat}" for seat, name in enumerate(self.setup.cast)
        )

    @property
    def returns(self) -> list[list[float]]:
        """Returns of all seats in every finished episode."""
        return [returns_of(turns).tolist() for turns in self.episodes[: len(self.lasts)]]

    # -- actions

    def act(self, action: str) -> Turn:
        """Takes a turn. Raises InputError and leaves the session unchanged if the action is illegal."""
        if self.finished:
            raise InputError("this session is over")
        if action not in self.legal:
            raise InputError(f"{action} is not legal here: choose one of {', '.join(self.legal)}")
        self.wait_until_ready()
        turn, self.moment = take_turn(self.session_players, self.moment, self.game.action_names.index(action))
        self.episodes[-1].append(turn)
        self.actions.append(action)
        if self.moment.over:
            self.lasts.append(self.moment)
            if not self.finished:
                self.moment = begin_next_episode(self.session_players, self._key(len(self.lasts)), self.moment)
                self.episodes.append([])
        return turn

    def stop(self) -> None:
        """Ends the session early; an unfinished episode does not count."""
        self.stopped = True

    def warm_up(self) -> None:
        """Compiles the programs of a turn in a background thread."""

        def compile_turn(moment: SessionState) -> None:
            _, after = take_turn(self.session_players, moment, self.game.idle_action)
            begin_next_episode(self.session_players, self._key(0), after)

        self._compiling = threading.Thread(target=compile_turn, args=(self.moment,))
        self._compiling.start()

    @property
    def is_compiling(self) -> bool:
        """True if a turn would have to wait for `warm_up`."""
        return self._compiling is not None and self._compiling.is_alive()

    def wait_until_ready(self) -> None:
        """Waits for `warm_up`."""
        if self._compiling:
            self._compiling.join()
            self._compiling = None

    # -- views

    def frame(self) -> Frame:
        """Returns the current board, without the reasoning of the co-players."""
        return self.frame_at(len(self.episodes) - 1, self.moment.clock)

    def frame_at(self, episode: int, step: int, **more: Any) -> Frame:
        """Returns the board after `step` steps of an episode; hidden names are shown only once the session is finished.

        Args:
            episode: Index of the episode.
            step: Steps played before the frame.
            **more: Further arguments of `frame_of`.
        """
        turns = self.episodes[episode]
        state = turns[step].before.state if step < len(turns) else self._final_state(episode).state
        zeros = np.zeros(self.game.num_players)
        return frame_of(
            self.game,
            state,
            title=self.game.name,
            rewards=turns[step - 1].outcome.reward if step else zeros,
            totals=returns_of(turns[:step]) if step else zeros,
            player_names=self.names,
            **more,
        )

    def digest(self) -> str:
        """Returns a hash of the game state, by which a replay is compared with its recording."""
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(self.moment.state)]
        return hashlib.sha256(b"".join(leaf.tobytes() for leaf in leaves)).hexdigest()[:12]

    def _final_state(self, episode: int) -> SessionState:
        return self.lasts[episode] if episode < len(self.lasts) else self.moment

    def _key(self, episode: int) -> jax.Array:
        key = jax.random.key(self.setup.seed)
        return jax.random.fold_in(key, episode) if episode else key
