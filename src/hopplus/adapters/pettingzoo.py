"""Every game as a PettingZoo ParallelEnv (`pip install 'hopplus[pettingzoo]'`)."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

from hopplus.errors import InputError
from hopplus.games import Game, make
from hopplus.report import as_image, as_text, frame_of

AgentID = str


class HopplusParallelEnv(ParallelEnv[AgentID, dict[str, np.ndarray], int]):
    """A game with agents `player_0`, `player_1`, ...; whoever leaves the grid leaves `agents`.

    An agent's observation is a dictionary: `observation` (its ego-first grid [H, W, C]), `action_mask` (what it may
    do), `co_player_masks` (what the others may do, ego-first), `last_actions` (ego-first), `time` and `deadline`. The
    end at the last step is reported as a truncation, leaving and a finished game as a termination.
    """

    metadata = {"name": "hopplus", "render_modes": ["ansi", "rgb_array"], "is_parallelizable": True}  # noqa: RUF012

    def __init__(self, game: Game[Any] | str, render_mode: str | None = None) -> None:
        """A game, or the name of one with its settings: `msh-8x8-4h1s:T=50`."""
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise InputError(f"render_mode is one of {', '.join(self.metadata['render_modes'])}, not {render_mode!r}")
        self.game = make(game) if isinstance(game, str) else game
        self.render_mode = render_mode
        self.possible_agents = [f"player_{seat}" for seat in range(self.game.num_players)]
        self.agents: list[AgentID] = []
        self._key = jax.random.key(int(np.random.SeedSequence().generate_state(1)[0]))
        self._steps = 0
        self._observation_space, self._action_space = self._spaces()

    def _spaces(self) -> tuple[spaces.Dict, spaces.Discrete]:
        game = self.game
        seen = jax.eval_shape(game.observe, jax.eval_shape(game.init, jax.random.key(0)))
        n, actions = game.num_players, game.num_actions
        time = spaces.Box(0, game.last_step, (), np.int32)
        observation = spaces.Dict(
            {
                "observation": spaces.Box(0, 1, seen.grid.shape[1:], np.int8),
                "action_mask": spaces.Box(0, 1, (actions,), np.int8),
                "co_player_masks": spaces.Box(0, 1, (n - 1, actions), np.int8),
                "last_actions": spaces.MultiDiscrete([actions] * n, dtype=np.int32),
                "time": time,
                "deadline": time,
            }
        )
        return observation, spaces.Discrete(actions)

    def observation_space(self, agent: AgentID) -> spaces.Space[Any]:
        """The same for every agent."""
        return self._observation_space

    def action_space(self, agent: AgentID) -> spaces.Space[Any]:
        """The same for every agent."""
        return self._action_space

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[AgentID, dict[str, np.ndarray]], dict[AgentID, dict[str, Any]]]:
        """A fresh episode; a seed also fixes all episodes after it."""
        if seed is not None:
            self._key = jax.random.key(seed)
        self._key, key = jax.random.split(self._key)
        self._state, seen = _first(self.game, key)
        self._steps = 0
        self.agents = list(self.possible_agents)
        self._totals = np.zeros(self.game.num_players)
        self._rewards = np.zeros(self.game.num_players)
        return self._observations(seen), {agent: {} for agent in self.agents}

    def step(
        self, actions: dict[AgentID, int]
    ) -> tuple[
        dict[AgentID, dict[str, np.ndarray]],
        dict[AgentID, float],
        dict[AgentID, bool],
        dict[AgentID, bool],
        dict[AgentID, dict[str, Any]],
    ]:
        """One step of all who are there; an illegal action counts as the game's idle one."""
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
        self._state, outcome, seen = _next(self.game, key, self._state, joint)
        self._steps += 1
        return self._results(outcome, seen)

    def _results(self, outcome: Any, seen: Any) -> tuple[Any, Any, Any, Any, Any]:
        reward, left, over = np.asarray(outcome.reward), np.asarray(outcome.left), bool(outcome.over)
        self._rewards, self._totals = reward, self._totals + reward
        deadline = bool(self._steps >= int(seen.deadline[0]))
        seats = {agent: self.possible_agents.index(agent) for agent in self.agents}
        terminations = {agent: bool(left[seat]) or (over and not deadline) for agent, seat in seats.items()}
        truncations = {agent: over and not terminations[agent] for agent in seats}
        took = np.asarray(outcome.took)
        infos = {agent: {"took": self.game.taken_names[int(took[seat])]} for agent, seat in seats.items()}
        observations = self._observations(seen)
        rewards = {agent: float(reward[seat]) for agent, seat in seats.items()}
        self.agents = [agent for agent in self.agents if not (terminations[agent] or truncations[agent])]
        return observations, rewards, terminations, truncations, infos

    def _observations(self, seen: Any) -> dict[AgentID, dict[str, np.ndarray]]:
        seen = jax.tree.map(np.asarray, seen)
        return {
            agent: {
                "observation": seen.grid[seat],
                "action_mask": seen.legal[seat, 0].astype(np.int8),
                "co_player_masks": seen.legal[seat, 1:].astype(np.int8),
                "last_actions": seen.last_actions[seat],
                "time": np.asarray(seen.time[seat]),
                "deadline": np.asarray(seen.deadline[seat]),
            }
            for seat, agent in enumerate(self.possible_agents)
            if agent in self.agents
        }

    def render(self) -> str | np.ndarray | None:
        """The board as text (`ansi`) or as pixels [height, width, 3] (`rgb_array`)."""
        if self.render_mode is None:
            return None
        frame = frame_of(self.game, self._state, rewards=self._rewards, totals=self._totals)
        return as_text(frame) if self.render_mode == "ansi" else np.asarray(as_image(frame).convert("RGB"))

    def close(self) -> None:
        """Nothing is held open."""


def parallel_env(game: Game[Any] | str, render_mode: str | None = None) -> HopplusParallelEnv:
    """The ParallelEnv of a game, under the name that PettingZoo's users expect."""
    return HopplusParallelEnv(game, render_mode)


@partial(jax.jit, static_argnums=0)
def _first(game: Game[Any], key: jax.Array) -> tuple[Any, Any]:
    state = game.init(key)
    return state, game.observe(state)


@partial(jax.jit, static_argnums=0)
def _next(game: Game[Any], key: jax.Array, state: Any, actions: np.ndarray) -> tuple[Any, Any, Any]:
    after, outcome = game.step(key, state, jnp.asarray(actions))
    return after, outcome, game.observe(after)
