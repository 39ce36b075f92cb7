"""Markov Stag Hunt in NumPy, for the PyTorch peer of the PPO benchmark; vectorised over environments and seats."""

import numpy as np
from jaxtyping import Bool, Float32, Int

from hopplus.core.errors import InputError
from hopplus.games.grid import DOWN, LEFT, RIGHT, STAY, UP
from hopplus.games.stag_hunt import HARE, STAG

ACTIONS = 7


class NumpyStagHunt:
    """E environments of the Markov Stag Hunt without blocks, with automatic reset.

    Attributes (read-only): `cells` int [E, n] (row * width + column, -1 for a player that has left), `stags` and
    `hares` bool [E, H * W + 1] (prey by cell; the last column is always False, for players that have left), `time`
    int [E].
    """

    def __init__(
        self,
        environments: int,
        seed: int,
        height: int = 4,
        width: int = 4,
        players: int = 4,
        stags: int = 1,
        hares: int = 4,
        T: int = 35,  # noqa: N803
        stag_reward: float = 10.0,
        hare_reward: float = 1.0,
    ) -> None:
        if stags + hares > height * width:
            raise InputError(f"{stags} stags and {hares} hares do not fit on {height * width} cells")
        self.environments, self.players, self.num_cells, self.T = environments, players, height * width, T
        self.num_stags, self.num_prey = stags, stags + hares
        self.channels = players + 3
        self.num_features = self.num_cells * self.channels + 1 + ACTIONS
        self._generator = np.random.default_rng(seed)
        self._shift = np.zeros(ACTIONS, np.int64)
        self._shift[[UP, DOWN, LEFT, RIGHT]] = -width, width, -1, 1
        self._value = np.zeros(ACTIONS, np.float32)
        self._value[[STAG, HARE]] = stag_reward, hare_reward
        self._open_moves = _open_moves(height, width)
        self._rows = np.arange(environments)[:, None]
        seats = np.arange(players)
        self._ego_channel = (seats - seats[:, None]) % players  # [observer, player]

        self.cells = np.zeros((environments, players), np.int64)
        self.stags = np.zeros((environments, self.num_cells + 1), bool)
        self.hares = np.zeros((environments, self.num_cells + 1), bool)
        self.time = np.zeros(environments, np.int64)
        self._reset(np.arange(environments))
        self._legal = self._find_legal()

    def alive(self) -> Bool[np.ndarray, "E n"]:
        """Returns the players that have not left."""
        return self.cells >= 0

    def legal(self) -> Bool[np.ndarray, "E n 7"]:
        """Returns the legal actions; STAG only in company, and only STAY for players that have left."""
        return self._legal

    def features(self) -> Float32[np.ndarray, "E n F"]:
        """Returns the observation of each seat as a vector.

        It holds the ego-first grid [H, W, n + 3] (players, blocks, stags, hares), the time as a share of T, and the
        seat's action mask: F = H * W * (n + 3) + 1 + 7.
        """
        n, grid_size = self.players, self.num_cells * self.channels
        features = np.zeros((self.environments, n, self.num_features), np.float32)
        grid = features[..., :grid_size].reshape(self.environments, n, self.num_cells, self.channels)  # a view
        alive = self.alive()
        places = np.where(alive, self.cells, 0)[:, None, :] * self.channels + self._ego_channel  # [E, observer, player]
        np.put_along_axis(features, places, np.broadcast_to(alive[:, None, :], places.shape), axis=-1)
        grid[..., n + 1] = self.stags[:, None, :-1]
        grid[..., n + 2] = self.hares[:, None, :-1]
        features[..., grid_size] = (self.time / self.T)[:, None]
        features[..., grid_size + 1 :] = self._legal
        return features

    def step(
        self, actions: Int[np.ndarray, "E n"]
    ) -> tuple[Float32[np.ndarray, "E n"], Bool[np.ndarray, "E n"], Bool[np.ndarray, " E"]]:
        """Plays one step; an illegal action counts as STAY.

        Returns:
            Rewards; done by player (it has left, or the game is over); over by environment, which is reset.
        """
        permitted = (self._legal & (actions[..., None] == np.arange(ACTIONS))).any(-1)
        executed = np.where(permitted, actions, STAY)
        hunting = executed > STAY
        same_hunt = (self.cells[:, :, None] == self.cells[:, None, :]) & (executed[:, :, None] == executed[:, None, :])
        party = same_hunt.sum(-1)
        caught = hunting & ((executed == HARE) | (party >= 2))
        reward = np.where(caught, self._value[executed] / party.astype(np.float32), np.float32(0))

        environment, player = np.nonzero(caught)
        emptied = self.cells[environment, player]
        self.stags[environment, emptied] = False
        self.hares[environment, emptied] = False
        self.cells += self._shift[executed]
        self.cells[environment, player] = -1
        self.time += 1

        left = self.cells < 0
        over = left.all(-1) | (self.time >= self.T)
        done = left | over[:, None]
        self._reset(np.flatnonzero(over))
        self._legal = self._find_legal()
        return reward, done, over

    def _reset(self, environments: Int[np.ndarray, " k"]) -> None:
        """Draws first states: players anywhere, each prey on a different cell."""
        if not len(environments):
            return
        self.cells[environments] = self._generator.integers(self.num_cells, size=(len(environments), self.players))
        prey = self._generator.random((len(environments), self.num_cells)).argsort(axis=-1)[:, : self.num_prey]
        for board, cells in ((self.stags, prey[:, : self.num_stags]), (self.hares, prey[:, self.num_stags :])):
            board[environments] = False
            board[environments[:, None], cells] = True
        self.time[environments] = 0

    def _find_legal(self) -> Bool[np.ndarray, "E n 7"]:
        """Computes legal actions; cell -1 refers to the last row or column of each table, which allows nothing."""
        legal = np.empty((self.environments, self.players, ACTIONS), bool)
        legal[..., :STAY] = self._open_moves[self.cells]
        legal[..., STAY] = True
        company = (self.cells[:, :, None] == self.cells[:, None, :]).sum(-1) >= 2
        legal[..., STAG] = self.stags[self._rows, self.cells] & company
        legal[..., HARE] = self.hares[self._rows, self.cells]
        return legal


def _open_moves(height: int, width: int) -> Bool[np.ndarray, "cells 4"]:
    """Returns the moves by cell that stay on the board; the last row, for players that have left, has none."""
    rows, columns = np.divmod(np.arange(height * width), width)
    moves = np.zeros((height * width + 1, STAY), bool)
    moves[:-1, UP], moves[:-1, DOWN] = rows > 0, rows < height - 1
    moves[:-1, LEFT], moves[:-1, RIGHT] = columns > 0, columns < width - 1
    return moves
