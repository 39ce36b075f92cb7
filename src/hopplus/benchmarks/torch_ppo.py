"""Peer of the PPO benchmark: the same algorithm in PyTorch on the CPU, on a NumPy version of the Markov Stag Hunt.

It is written to be fast. One batched pass of the network acts for all environments and seats, and the networks of
independent seats are stacked along a leading axis. PyTorch is optional: it is imported when training starts.
"""

import itertools
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float32

from hopplus.benchmarks.numpy_stag_hunt import ACTIONS, NumpyStagHunt
from hopplus.core.errors import InputError, require

REWARD_SCALE = 5.0
"""Rewards are divided by this for learning."""
GRADIENT_NORM = 0.5
ADAM_EPSILON = 1e-5
NEVER = -1e9
"""Logit of an illegal action: low enough for a probability of exactly 0, and finite."""
SMALL = 1e-8


class _Transitions(NamedTuple):
    """Training data of PPO: tensors [G, R, ...], R rows for each of G networks."""

    features: Any
    legal: Any
    alive: Any
    """1.0 for valid rows, 0.0 for those of players that have left."""
    action: Any
    log_probability: Any
    value: Any
    advantage: Any
    target: Any

    def take(self, index: Any) -> "_Transitions":
        """Returns rows by index, the same for every network."""
        return _Transitions(*(values.index_select(1, index) for values in self))

    def valid(self) -> "_Transitions":
        """Returns the valid rows, padded with invalid ones to the largest number of a network."""
        groups, number = self.alive.shape
        most = max(1, int(self.alive.sum(-1).max()))
        order = self.alive.argsort(dim=1, descending=True, stable=True)[:, :most]
        places = (order + number * order.new_tensor(range(groups))[:, None]).flatten()
        return _Transitions(*(values.flatten(0, 1)[places].unflatten(0, (groups, most)) for values in self))


def _narrow_product(torch: Any) -> Any:
    """Returns a function that computes bias + weights layer^T [G, k, R], for few outputs k.

    Its arguments are a bias [G, k, 1], weights [G, k, d] and a layer [G, R, d]. In this order the product is several
    times faster than the usual one, forwards and for the gradient of the weights. Autograd would, however, return the
    gradient of the layer in column order, on which the ReLU before it is ten times slower.
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
    """G stacked networks, each a ReLU trunk with 7 logits and a value head, and their PPO update."""

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
        parameters = (*self.weights, *self.biases, self.head_weights, self.head_biases)
        self.parameters = [values.requires_grad_() for values in parameters]
        self._optimizer = torch.optim.Adam(self.parameters, lr=learning_rate, eps=ADAM_EPSILON, fused=True)

    def _orthogonal(self, groups: int, rows: int, columns: int, gain: float) -> Any:
        """Returns weights [G, rows, columns], orthogonal for each network."""
        weights = self._torch.empty(groups, rows, columns)
        for group in range(groups):
            self._torch.nn.init.orthogonal_(weights[group], gain, generator=self._generator)
        return weights

    def outputs(self, features: Any, legal: Any) -> tuple[Any, Any]:
        """Returns log-probabilities [G, 7, R] and values [G, R] for features [G, R, F] and action masks [G, R, 7]."""
        layer = features
        for weight, bias in zip(self.weights, self.biases, strict=True):
            layer = bias.baddbmm(layer, weight).relu_()
        heads = self._heads(self.head_biases, self.head_weights, layer)
        logits = heads[:, :ACTIONS].masked_fill(~legal.mT, NEVER)
        return logits.log_softmax(1), heads[:, ACTIONS]

    def act(self, features: Any, legal: Any) -> tuple[Any, Any, Any]:
        """Returns sampled actions, their log-probabilities and the values, all [G, R]."""
        log_probabilities, value = self.outputs(features, legal)
        race = self._torch.empty_like(log_probabilities).exponential_(generator=self._generator)
        action = (log_probabilities.exp() / race).argmax(1, keepdim=True)
        return action[:, 0], log_probabilities.gather(1, action)[:, 0], value

    def update(self, rows: _Transitions, epochs: int, minibatches: int) -> None:
        """Runs Adam over all valid rows for a number of epochs, each in shuffled minibatches."""
        rows = rows.valid()
        for _ in range(epochs):
            order = self._torch.randperm(rows.action.shape[1], generator=self._generator)
            for index in order.tensor_split(minibatches):
                self._optimizer.zero_grad()
                self._loss(rows.take(index)).backward()
                self._clip_gradients()
                self._optimizer.step()

    def _loss(self, rows: _Transitions) -> Any:
        """Returns the PPO loss: a masked mean for each network, summed; gradients of networks are independent."""
        count = rows.alive.sum(-1, keepdim=True).clamp(min=1.0)

        def mean(values: Any) -> Any:
            return (values * rows.alive).sum(-1, keepdim=True) / count

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
        """Clips the global gradient norm of each network to GRADIENT_NORM."""
        gradients = [values.grad for values in self.parameters]
        norms = [gradient.norm(dim=(1, 2), keepdim=True) for gradient in gradients]
        norm = self._torch.cat(norms, dim=2).norm(dim=2, keepdim=True)
        scale = (GRADIENT_NORM / (norm + SMALL)).clamp(max=1.0)
        for gradient in gradients:
            gradient.mul_(scale)


# --------------------------------------------------------------------------------------------------------- training


class _Rollout:
    """Buffer of one rollout, reused by all iterations: arrays [n, T, E, ...].

    Seats come first, so that the rows of one network are contiguous, whether networks are shared or not.
    """

    def __init__(self, game: NumpyStagHunt, steps: int) -> None:
        shape = (game.players, steps, game.environments)
        self.features = np.zeros((*shape, game.num_features), np.float32)
        self.legal = np.zeros((*shape, ACTIONS), bool)
        self.alive, self.value, self.log_probability, self.reward, self.not_done = np.zeros((5, *shape), np.float32)
        self.action = np.zeros(shape, np.int64)

    def transitions(
        self, torch: Any, groups: int, last_value: Float32[np.ndarray, "n E"], gamma: float, gae_lambda: float
    ) -> _Transitions:
        """Returns the rows of `groups` networks, with GAE advantages; `last_value` is the value after the last step."""
        advantage = np.empty_like(self.value)
        following, next_value = np.zeros_like(last_value), last_value
        for step in reversed(range(advantage.shape[1])):
            discount, value = gamma * self.not_done[:, step], self.value[:, step]
            delta = self.reward[:, step] + discount * next_value - value
            following = delta + gae_lambda * discount * following
            advantage[:, step], next_value = following, value
        parts = (self.features, self.legal, self.alive, self.action, self.log_probability, self.value)
        tensors = (torch.from_numpy(part) for part in (*parts, advantage, advantage + self.value))
        return _Transitions(*(tensor.reshape(groups, -1, *tensor.shape[3:]) for tensor in tensors))


class _Environments:
    """Environments, the networks that act in them, and the returns of finished episodes."""

    def __init__(self, torch: Any, game: NumpyStagHunt, learner: _Learner, groups: int) -> None:
        self._torch, self._game, self._learner, self._groups = torch, game, learner, groups
        self._earned = np.zeros((game.environments, game.players), np.float32)

    def play(self, rollout: _Rollout) -> tuple[Float32[np.ndarray, "n E"], list[np.ndarray]]:
        """Fills the rollout. Returns the values after its last step, and the returns [finished, n] of episodes."""
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
                rollout.not_done[:, step] = ~done.T
                self._earned += reward
                if over.any():
                    finished.append(self._earned[over])
                    self._earned[over] = 0.0
            last_value = self._act(game.features().swapaxes(0, 1), game.legal().swapaxes(0, 1))[2]
        return last_value, finished

    def _act(self, features: Float32[np.ndarray, "n E F"], legal: Bool[np.ndarray, "n E 7"]) -> tuple[np.ndarray, ...]:
        """Returns actions, their log-probabilities and values, all [n, E]."""
        inputs = (self._torch.from_numpy(part).reshape(self._groups, -1, part.shape[-1]) for part in (features, legal))
        return tuple(output.reshape(features.shape[:2]).numpy() for output in self._learner.act(*inputs))


def train(
    num_envs: int,
    steps: int,
    iterations: int,
    update_epochs: int,
    minibatches: int,
    hidden: tuple[int, ...],
    independent: bool,
    learning_rate: float,
    gamma: float,
    gae_lambda: float,
    clip_coef: float,
    ent_coef: float,
    vf_coef: float,
    seed: int = 0,
    threads: int | None = None,
) -> dict[str, Any]:
    """Trains PPO in self-play on msh-4x4-4h1s, with `steps` steps of all environments per iteration.

    With `independent`, each seat has its own network and learns from its own rows; else one network plays all seats.
    `threads` is the number of PyTorch threads; None for PyTorch's default.

    Returns:
        `steps_per_second`, `play_seconds` and `learn_seconds` (without the first iteration), `mean_return` (over seats
        and episodes finished in the last quarter of the iterations; nan without any) and `torch_version`.
    """
    if iterations < 2:
        raise InputError(f"the first iteration is not timed, so there must be at least 2 of them, not {iterations}")
    torch = require("torch", "bench")
    threads_before = torch.get_num_threads()
    torch.set_num_threads(threads or threads_before)
    try:
        game = NumpyStagHunt(num_envs, seed)
        groups = game.players if independent else 1
        sizes = (game.num_features, *hidden)
        learner = _Learner(torch, groups, sizes, learning_rate, clip_coef, ent_coef, vf_coef, seed)
        environments, rollout = _Environments(torch, game, learner, groups), _Rollout(game, steps)
        play_seconds = learn_seconds = 0.0
        returns: list[np.ndarray] = []
        for iteration in range(iterations):
            started = time.perf_counter()
            last_value, finished = environments.play(rollout)
            played = time.perf_counter()
            transitions = rollout.transitions(torch, groups, last_value, gamma, gae_lambda)
            learner.update(transitions, update_epochs, minibatches)
            learned = time.perf_counter()
            if iteration:
                play_seconds += played - started
                learn_seconds += learned - played
            if 4 * iteration >= 3 * iterations:
                returns += finished
    finally:
        torch.set_num_threads(threads_before)
    return {
        "steps_per_second": num_envs * steps * (iterations - 1) / (play_seconds + learn_seconds),
        "play_seconds": play_seconds,
        "learn_seconds": learn_seconds,
        "mean_return": float(np.concatenate(returns).mean()) if returns else float("nan"),
        "torch_version": str(torch.__version__),
    }
