"""A peer for our PPO: the same learner in PyTorch on the CPU, on a NumPy version of the Markov Stag Hunt.

It is written to be fast in its own way. The game is vectorised over environments and seats, one batched pass of the
network acts for all of them, and networks of their own for the seats are stacked along a leading axis. PyTorch is
optional: it is imported when training starts, and the game alone does without.
"""

import itertools
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float32, Int

from hopplus.errors import InputError, require
from hopplus.games.grid import DOWN, LEFT, RIGHT, STAY, UP
from hopplus.games.stag_hunt import HARE, STAG

ACTIONS = 7
REWARD_SCALE = 5.0
"""Rewards are divided by this for learning."""
GRADIENT_NORM = 0.5
ADAM_EPSILON = 1e-5
NEVER = -1e9
"""The logit of an action that is not legal: far enough for a probability of exactly 0, and finite."""
SMALL = 1e-8


# --------------------------------------------------------------------------------------------------------- the game


class NumpyStagHunt:
    """E environments of the Markov Stag Hunt without blocks; one that is over starts anew by itself.

    The state, to be read: `cells` int [E, n] (row * width + column, -1 for a player who has left), `stags` and `hares`
    bool [E, H * W + 1] (whether one is on the cell; the last column is nowhere, where those who have left look it up),
    `time` int [E].
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
        T: int = 35,
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
        """Who has not left."""
        return self.cells >= 0

    def legal(self) -> Bool[np.ndarray, "E n 7"]:
        """What each player may do; STAG only in company, and STAY alone for those who have left."""
        return self._legal

    def features(self) -> Float32[np.ndarray, "E n F"]:
        """What each seat sees: the ego-first grid [H, W, n + 3] (players, blocks, stags, hares) laid flat, the time as
        a share of T, and its own legal mask. F = H * W * (n + 3) + 1 + 7."""
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
        """Play one step, an action that is not legal counting as STAY.

        Returns the rewards, for whom the episode has ended (left, or the game is over), and which games are over; those
        stand at a fresh first state afterwards.
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

    def _reset(self, where: Int[np.ndarray, " k"]) -> None:
        """Fresh first states: players anywhere, each prey on a cell of its own."""
        if not len(where):
            return
        self.cells[where] = self._generator.integers(self.num_cells, size=(len(where), self.players))
        prey = self._generator.random((len(where), self.num_cells)).argsort(axis=-1)[:, : self.num_prey]
        for board, cells in ((self.stags, prey[:, : self.num_stags]), (self.hares, prey[:, self.num_stags :])):
            board[where] = False
            board[where[:, None], cells] = True
        self.time[where] = 0

    def _find_legal(self) -> Bool[np.ndarray, "E n 7"]:
        """Cell -1 looks up the last row or column of each table, which allows nothing."""
        legal = np.empty((self.environments, self.players, ACTIONS), bool)
        legal[..., :STAY] = self._open_moves[self.cells]
        legal[..., STAY] = True
        company = (self.cells[:, :, None] == self.cells[:, None, :]).sum(-1) >= 2
        legal[..., STAG] = self.stags[self._rows, self.cells] & company
        legal[..., HARE] = self.hares[self._rows, self.cells]
        return legal


def _open_moves(height: int, width: int) -> Bool[np.ndarray, "cells 4"]:
    """By cell, which moves stay on the board; a last row without any for players who have left."""
    rows, columns = np.divmod(np.arange(height * width), width)
    moves = np.zeros((height * width + 1, STAY), bool)
    moves[:-1, UP], moves[:-1, DOWN] = rows > 0, rows < height - 1
    moves[:-1, LEFT], moves[:-1, RIGHT] = columns > 0, columns < width - 1
    return moves


# ------------------------------------------------------------------------------------------------------ the learner


class _Rows(NamedTuple):
    """What PPO learns from: tensors [G, R, ...], R rows for each of G networks."""

    features: Any
    legal: Any
    alive: Any
    """1.0 for the rows that count, 0.0 for those of players who had left."""
    action: Any
    log_probability: Any
    value: Any
    advantage: Any
    target: Any

    def take(self, index: Any) -> "_Rows":
        """The rows of the given numbers, of every network."""
        return _Rows(*(values.index_select(1, index) for values in self))

    def living(self) -> "_Rows":
        """Only the rows that count, as many for every network as the one with most has; others fill the difference."""
        groups, number = self.alive.shape
        most = max(1, int(self.alive.sum(-1).max()))
        order = self.alive.argsort(dim=1, descending=True, stable=True)[:, :most]
        places = (order + number * order.new_tensor(range(groups))[:, None]).flatten()
        return _Rows(*(values.flatten(0, 1)[places].unflatten(0, (groups, most)) for values in self))


def _narrow_product(torch: Any) -> Any:
    """A function of a bias [G, k, 1], weights [G, k, d] and a layer [G, R, d] that gives bias + weights layer^T
    [G, k, R], for few outputs k.

    That way round the product is several times as fast as the usual one, forwards and for the weights' gradient; but
    autograd would then give the layer's gradient column by column, on which the ReLU before it is ten times as slow.
    """

    class NarrowProduct(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, bias: Any, weights: Any, layer: Any) -> Any:
            context.save_for_backward(weights, layer)
            return bias.baddbmm(weights, layer.mT)

        @staticmethod
        def backward(context: Any, gradient: Any) -> tuple[Any, Any, Any]:
            weights, layer = context.saved_tensors
            return gradient.sum(-1, keepdim=True), gradient.bmm(layer), gradient.mT.bmm(weights)

    return NarrowProduct.apply


class _Learner:
    """G stacked networks, each a ReLU trunk with 7 logits and a value on its last layer, and PPO's update of them."""

    def __init__(
        self,
        torch: Any,
        groups: int,
        sizes: Sequence[int],
        learning_rate: float,
        clip: float,
        entropy_weight: float,
        value_weight: float,
        seed: int,
    ) -> None:
        self._torch = torch
        self._clip, self._entropy_weight, self._value_weight = clip, entropy_weight, value_weight
        self._generator = torch.Generator().manual_seed(seed)
        self.weights = [self._orthogonal(groups, *pair, gain=2**0.5) for pair in itertools.pairwise(sizes)]
        self.biases = [torch.zeros(groups, 1, size) for size in sizes[1:]]
        heads = [self._orthogonal(groups, ACTIONS, sizes[-1], 0.01), self._orthogonal(groups, 1, sizes[-1], 1.0)]
        self.head_weights = torch.cat(heads, dim=1)
        self.head_biases = torch.zeros(groups, ACTIONS + 1, 1)
        self._heads = _narrow_product(torch)
        everything = (*self.weights, *self.biases, self.head_weights, self.head_biases)
        self.parameters = [values.requires_grad_() for values in everything]
        self._optimizer = torch.optim.Adam(self.parameters, lr=learning_rate, eps=ADAM_EPSILON, fused=True)

    def _orthogonal(self, groups: int, rows: int, columns: int, gain: float) -> Any:
        """Weights [G, rows, columns], orthogonal for each network."""
        weights = self._torch.empty(groups, rows, columns)
        for group in range(groups):
            self._torch.nn.init.orthogonal_(weights[group], gain, generator=self._generator)
        return weights

    def outputs(self, features: Any, legal: Any) -> tuple[Any, Any]:
        """Log-probabilities [G, 7, R] and values [G, R] for features [G, R, F] and legal masks [G, R, 7]."""
        layer = features
        for weight, bias in zip(self.weights, self.biases, strict=True):
            layer = bias.baddbmm(layer, weight).relu_()
        heads = self._heads(self.head_biases, self.head_weights, layer)
        logits = heads[:, :ACTIONS].masked_fill(~legal.mT, NEVER)
        return logits.log_softmax(1), heads[:, ACTIONS]

    def act(self, features: Any, legal: Any) -> tuple[Any, Any, Any]:
        """Drawn actions, their log-probabilities and the values, all [G, R]."""
        log_probabilities, value = self.outputs(features, legal)
        race = self._torch.empty_like(log_probabilities).exponential_(generator=self._generator)
        action = (log_probabilities.exp() / race).argmax(1, keepdim=True)
        return action[:, 0], log_probabilities.gather(1, action)[:, 0], value

    def update(self, rows: _Rows, epochs: int, minibatches: int) -> None:
        """Adam's steps over all living rows, `epochs` times, in `minibatches` fresh minibatches."""
        rows = rows.living()
        for _ in range(epochs):
            order = self._torch.randperm(rows.action.shape[1], generator=self._generator)
            for index in order.tensor_split(minibatches):
                self._optimizer.zero_grad()
                self._loss(rows.take(index)).backward()
                self._clip_gradients()
                self._optimizer.step()

    def _loss(self, rows: _Rows) -> Any:
        """PPO's loss, a masked mean for each network, summed over them: no network's gradient meets another's."""
        living = rows.alive.sum(-1, keepdim=True).clamp(min=1.0)

        def mean(values: Any) -> Any:
            return (values * rows.alive).sum(-1, keepdim=True) / living

        log_probabilities, value = self.outputs(rows.features, rows.legal)
        deviation = rows.advantage - mean(rows.advantage)
        advantage = deviation / (mean(deviation**2).sqrt() + SMALL)
        log_probability = log_probabilities.gather(1, rows.action[:, None])[:, 0]
        ratio = (log_probability - rows.log_probability).exp()
        clipped_ratio = ratio.clamp(1 - self._clip, 1 + self._clip)
        policy_loss = mean(-(ratio * advantage).minimum(clipped_ratio * advantage))

        near = rows.value + (value - rows.value).clamp(-self._clip, self._clip)
        value_loss = 0.5 * mean(((value - rows.target) ** 2).maximum((near - rows.target) ** 2))
        entropy = mean(-(log_probabilities.exp() * log_probabilities).sum(1))
        return (policy_loss + self._value_weight * value_loss - self._entropy_weight * entropy).sum()

    def _clip_gradients(self) -> None:
        """Scale each network's gradient, over all its layers, to a norm of at most GRADIENT_NORM."""
        gradients = [values.grad for values in self.parameters]
        norms = [gradient.norm(dim=(1, 2), keepdim=True) for gradient in gradients]
        norm = self._torch.cat(norms, dim=2).norm(dim=2, keepdim=True)
        scale = (GRADIENT_NORM / (norm + SMALL)).clamp(max=1.0)
        for gradient in gradients:
            gradient.mul_(scale)


# --------------------------------------------------------------------------------------------------------- training


class _Rollout:
    """The memory of one rollout, seats first: the rows of one network are then contiguous, shared or not.

    Everything is [n, T, E, ...]; the same memory serves every iteration.
    """

    def __init__(self, game: NumpyStagHunt, steps: int) -> None:
        shape = (game.players, steps, game.environments)
        self.features = np.zeros((*shape, game.num_features), np.float32)
        self.legal = np.zeros((*shape, ACTIONS), bool)
        self.alive, self.value, self.log_probability, self.reward, self.going_on = np.zeros((5, *shape), np.float32)
        self.action = np.zeros(shape, np.int64)

    def rows(
        self, torch: Any, groups: int, last_value: Float32[np.ndarray, "n E"], discount: float, trace: float
    ) -> _Rows:
        """The rollout as rows for `groups` networks, with advantages by GAE; `last_value` follows the last step."""
        advantage = np.empty_like(self.value)
        following, next_value = np.zeros_like(last_value), last_value
        for step in reversed(range(advantage.shape[1])):
            kept, value = discount * self.going_on[:, step], self.value[:, step]
            surprise = self.reward[:, step] + kept * next_value - value
            following = surprise + trace * kept * following
            advantage[:, step], next_value = following, value
        parts = (self.features, self.legal, self.alive, self.action, self.log_probability, self.value)
        tensors = (torch.from_numpy(part) for part in (*parts, advantage, advantage + self.value))
        return _Rows(*(tensor.reshape(groups, -1, *tensor.shape[3:]) for tensor in tensors))


class _Table:
    """The game, the networks that play it, and the returns of the episodes that they finish."""

    def __init__(self, torch: Any, game: NumpyStagHunt, learner: _Learner, groups: int) -> None:
        self._torch, self._game, self._learner, self._groups = torch, game, learner, groups
        self._earned = np.zeros((game.environments, game.players), np.float32)

    def play(self, rollout: _Rollout) -> tuple[Float32[np.ndarray, "n E"], list[np.ndarray]]:
        """Fill the rollout. Returns the values of what is seen after it, and the returns [finished, n] of episodes."""
        finished = []
        game = self._game
        with self._torch.inference_mode():
            for step in range(rollout.action.shape[1]):
                features, legal = game.features().swapaxes(0, 1), game.legal().swapaxes(0, 1)
                rollout.features[:, step], rollout.legal[:, step] = features, legal
                rollout.alive[:, step] = game.alive().T
                action, log_probability, value = self._act(rollout.features[:, step], rollout.legal[:, step])
                rollout.action[:, step], rollout.log_probability[:, step] = action, log_probability
                rollout.value[:, step] = value
                reward, done, over = game.step(action.T)
                rollout.reward[:, step] = reward.T / REWARD_SCALE
                rollout.going_on[:, step] = ~done.T
                self._earned += reward
                if over.any():
                    finished.append(self._earned[over])
                    self._earned[over] = 0.0
            last_value = self._act(game.features().swapaxes(0, 1), game.legal().swapaxes(0, 1))[2]
        return last_value, finished

    def _act(self, features: Float32[np.ndarray, "n E F"], legal: Bool[np.ndarray, "n E 7"]) -> tuple[np.ndarray, ...]:
        """Actions, their log-probabilities and values, all [n, E]."""
        inputs = (self._torch.from_numpy(part).reshape(self._groups, -1, part.shape[-1]) for part in (features, legal))
        return tuple(output.reshape(features.shape[:2]).numpy() for output in self._learner.act(*inputs))


def train(
    environments: int,
    steps: int,
    iterations: int,
    epochs: int,
    minibatches: int,
    hidden: tuple[int, ...],
    independent: bool,
    learning_rate: float,
    discount: float,
    trace: float,
    clip: float,
    entropy_weight: float,
    value_weight: float,
    seed: int = 0,
    threads: int | None = None,
) -> dict[str, Any]:
    """PPO in self-play on msh-4x4-4h1s, `steps` steps of all environments an iteration.

    With `independent`, each seat has a network of its own and learns from its own rows only; else one plays all seats.
    `threads` is PyTorch's number of threads, its own choice if None.

    Returns `steps_per_second` (environment steps, the first iteration not counted), `play_seconds` and `learn_seconds`
    (of those same iterations), `mean_return` (over seats and the episodes finished in the last quarter of the
    iterations; nan if there were none) and `torch_version`.
    """
    if iterations < 2:
        raise InputError(f"the first iteration is not timed, so there must be at least 2 of them, not {iterations}")
    torch = require("torch", "bench")
    threads_before = torch.get_num_threads()
    torch.set_num_threads(threads or threads_before)
    try:
        game = NumpyStagHunt(environments, seed)
        groups = game.players if independent else 1
        sizes = (game.num_features, *hidden)
        learner = _Learner(torch, groups, sizes, learning_rate, clip, entropy_weight, value_weight, seed)
        table, rollout = _Table(torch, game, learner, groups), _Rollout(game, steps)
        play_seconds = learn_seconds = 0.0
        returns: list[np.ndarray] = []
        for iteration in range(iterations):
            started = time.perf_counter()
            last_value, finished = table.play(rollout)
            played = time.perf_counter()
            learner.update(rollout.rows(torch, groups, last_value, discount, trace), epochs, minibatches)
            learned = time.perf_counter()
            if iteration:
                play_seconds += played - started
                learn_seconds += learned - played
            if 4 * iteration >= 3 * iterations:
                returns += finished
    finally:
        torch.set_num_threads(threads_before)
    return {
        "steps_per_second": environments * steps * (iterations - 1) / (play_seconds + learn_seconds),
        "play_seconds": play_seconds,
        "learn_seconds": learn_seconds,
        "mean_return": float(np.concatenate(returns).mean()) if returns else float("nan"),
        "torch_version": str(torch.__version__),
    }
