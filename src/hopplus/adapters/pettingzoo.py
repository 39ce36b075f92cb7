"""PettingZoo ParallelEnv for every game (`pip install 'hopplus[pettingzoo]'`)."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

from hopplus.core.errors import InputError
from hopplus.games import Game, GridObservation, board_shape, make, observation_shapes
from hopplus.visualization import as_image, as_text, frame_of

AgentID = str


class HopplusParallelEnv(ParallelEnv[AgentID, dict[str, np.ndarray], int]):
    """Parallel environment with agents `player_0`, `player_1`, ...; an agent that leaves the grid leaves `agents`.

    An agent's observation is a dictionary: `observation` (its ego-first grid [H, W, C]; without a board,
    its view [F]), `action_mask` (its legal actions), `co_player_masks` (the co-players' legal actions, ego-first),
    `last_actions` (ego-first), `time` and `deadline`. The end at the last
    step is a truncation; leaving the game and a finished game are terminations.
    """

    metadata = {"name": "hopplus", "render_modes": ["ansi", "rgb_array"], "is_parallelizable": True}  # noqa: RUF012

    def __init__(self, game: Game[Any] | str, render_mode: str | None = None) -> None:
        """Create the environment of a game, or of a game's name with settings: `msh-8x8-4h1s:T=50`."""
        if render_mode not in (None, *self.metadata["render_modes"]):
            modes = ", ".join(self.metadata["render_modes"])
            raise InputError(f"render_mode must be one of {modes}, not {render_mode!r}")
        self.game = make(game) if isinstance(game, str) else game
        self.render_mode = render_mode
        self.possible_agents = [f"player_{seat}" for seat in range(self.game.num_players)]
        self.agents: list[AgentID] = []
        self._key = jax.random.key(int(np.random.SeedSequence().generate_state(1)[0]))
        self._steps = 0
        self._observation_space, self._action_space = self._spaces()

    def _spaces(self) -> tuple[spaces.Dict, spaces.Discrete]:
        game = self.game
        shapes = observation_shapes(game)
        n, actions = game.num_players, game.num_actions
        time = spaces.Box(0, game.last_step, (), np.int32)
        view = spaces.Box(0, 255, board_shape(game)[2:], np.uint8)
        if isinstance(shapes, GridObservation):
            view = spaces.Box(0, 1, shapes.grid.shape[1:], np.int8)
        observation = spaces.Dict(
            {
                "observation": view,
                "action_mask": spaces.Box(0, 1, (actions,), np.int8),
                "co_player_masks": spaces.Box(0, 1, (n - 1, actions), np.int8),
                "last_actions": spaces.MultiDiscrete([actions] * n, dtype=np.int32),
                "time": time,
                "deadline": time,
            }
        )
        return observation, spaces.Discrete(actions)

    def observation_space(self, agent: AgentID) -> spaces.Space[Any]:
        """Observation space, the same for every agent."""
        return self._observation_space

    def action_space(self, agent: AgentID) -> spaces.Space[Any]:
        """Action space, the same for every agent."""
        return self._action_space

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[AgentID, dict[str, np.ndarray]], dict[AgentID, dict[str, Any]]]:
        """Start a new episode; a seed determines this and all later episodes."""
        if seed is not None:
            self._key = jax.random.key(seed)
        self._key, key = jax.random.split(self._key)
        self._state, observation = _init(self.game, key)
        self._steps = 0
        self.agents = list(self.possible_agents)
        self._totals = np.zeros(self.game.num_players)
        self._rewards = np.zeros(self.game.num_players)
        return self._observations(observation), {agent: {} for agent in self.agents}

    def step(
        self, actions: dict[AgentID, int]
    ) -> tuple[
        dict[AgentID, dict[str, np.ndarray]],
        dict[AgentID, float],
        dict[AgentID, bool],
        dict[AgentID, bool],
        dict[AgentID, dict[str, Any]],
    ]:
        """Step the environment with one action per agent; an illegal action counts as the game's idle action."""
        if not self.agents:
            return {}, {}, {}, {}, {}
        if set(actions) != set(self.agents):
            raise InputError(f"step needs one action for each of {', '.join(self.agents)}, not for {sorted(actions)}")
        joint = np.full(self.game.num_players, self.game.idle_action, np.int32)
        for agent, action in actions.items():
            if np.ndim(action) != 0:
                raise InputError(f"the action of {agent} must be one whole number, not {action!r}")
            joint[self.possible_agents.index(agent)] = action
        self._key, key = jax.random.split(self._key)
        self._state, outcome, observation = _step(self.game, key, self._state, joint)
        self._steps += 1
        return self._results(outcome, observation)

    def _results(self, outcome: Any, observation: Any) -> tuple[Any, Any, Any, Any, Any]:
        reward, left, over = np.asarray(outcome.reward), np.asarray(outcome.left), bool(outcome.over)
        self._rewards, self._totals = reward, self._totals + reward
        deadline = bool(self._steps >= int(observation.deadline[0]))
        seats = {agent: self.possible_agents.index(agent) for agent in self.agents}
        terminations = {agent: bool(left[seat]) or (over and not deadline) for agent, seat in seats.items()}
        truncations = {agent: over and not terminations[agent] for agent in seats}
        took = np.asarray(outcome.took)
        infos = {agent: {"took": self.game.taken_names[int(took[seat])]} for agent, seat in seats.items()}
        observations = self._observations(observation)
        rewards = {agent: float(reward[seat]) for agent, seat in seats.items()}
        self.agents = [agent for agent in self.agents if not (terminations[agent] or truncations[agent])]
        return observations, rewards, terminations, truncations, infos

    def _observations(self, observation: Any) -> dict[AgentID, dict[str, np.ndarray]]:
        arrays: Any = jax.tree.map(np.asarray, observation)
        has_board = isinstance(arrays, GridObservation)
        views = np.asarray(arrays.grid) if has_board else np.asarray(arrays.view, np.uint8)
        return {
            agent: {
                "observation": views[seat],
                "action_mask": arrays.legal[seat, 0].astype(np.int8),
                "co_player_masks": arrays.legal[seat, 1:].astype(np.int8),
                "last_actions": arrays.last_actions[seat],
                "time": np.asarray(arrays.time[seat]),
                "deadline": np.asarray(arrays.deadline[seat]),
            }
            for seat, agent in enumerate(self.possible_agents)
            if agent in self.agents
        }

    def render(self) -> str | np.ndarray | None:
        """Render the board as text (`ansi`) or as pixels [height, width, 3] (`rgb_array`)."""
        if self.render_mode is None:
            return None
        frame = frame_of(self.game, self._state, rewards=self._rewards, totals=self._totals)
        return as_text(frame) if self.render_mode == "ansi" else np.asarray(as_image(frame).convert("RGB"))

    def close(self) -> None:
        """Do nothing: the environment holds no resources."""


def parallel_env(game: Game[Any] | str, render_mode: str | None = None) -> HopplusParallelEnv:
    """Create the ParallelEnv of a game (PettingZoo's usual name for the constructor)."""
    return HopplusParallelEnv(game, render_mode)


@partial(jax.jit, static_argnums=0)
def _init(game: Game[Any], key: jax.Array) -> tuple[Any, Any]:
    state = game.init(key)
    return state, game.observe(state)


@partial(jax.jit, static_argnums=0)
def _step(game: Game[Any], key: jax.Array, state: Any, actions: np.ndarray) -> tuple[Any, Any, Any]:
    after, outcome = game.step(key, state, jnp.asarray(actions))
    return after, outcome, game.observe(after)
