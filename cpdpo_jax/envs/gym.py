"""Export to Gymnasium (extra `gym`): a CMDP as an environment whose `info["cost"]` is a vector."""

from __future__ import annotations

from typing import Any

import numpy as np

try:
    import gymnasium
except ImportError as error:
    raise ImportError("to_gymnasium needs gymnasium; install it with: pip install 'cpdpo_jax[gym]'") from error

from cpdpo_jax.common.types import CMDP

OBSERVATIONS: tuple[str, ...] = ("index", "tuple")


def to_gymnasium(cmdp: CMDP, *, observation: str = "index") -> CMDPEnv:
    """One CMDP as a Gymnasium environment.

    Args:
        cmdp: a single instance (see `unstack` for a batch).
        observation: "index", `Discrete(L*S + 1)`, number k*S + x of state x of layer k, the last one for x_L; or
            "tuple", `Tuple(Discrete(L + 1), Discrete(S))`, (k, x), with (L, 0) for x_L.

    Returns:
        An environment whose episodes take L steps and then terminate. Rewards and costs are sampled around their means
        by the CMDP's noise, in [0, 1] (sums in the units of the source: `original_units`). `info["cost"]` is `[M]`
        after every step, zeros after a reset; `info["action_mask"]`, int8 `[A]`, are the actions allowed next (for
        `action_space.sample(mask)`); `info["threshold"]` is `[M]`. An action that is not allowed is replaced by the
        first allowed action; `info["replaced"]` is then True.
    """
    return CMDPEnv(cmdp, observation)


class CMDPEnv(gymnasium.Env[Any, Any]):
    """See `to_gymnasium`."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 (Gymnasium's own convention)

    def __init__(self, cmdp: CMDP, observation: str = "index"):
        if not isinstance(cmdp, CMDP):
            raise ValueError(f"cmdp is a {type(cmdp).__name__}; give a CMDP, such as cp.envs.make('factored').")
        if cmdp.batch_shape:
            raise ValueError(
                f"cmdp is a batch of shape {cmdp.batch_shape}; give one instance, such as unstack(cmdp)[0]."
            )
        if observation not in OBSERVATIONS:
            raise ValueError(f"observation = {observation!r}; choose one of {', '.join(OBSERVATIONS)}.")
        self.cmdp: CMDP = cmdp
        self._as_tuple = observation == "tuple"
        layers, states, actions = cmdp.reward.shape
        discrete = gymnasium.spaces.Discrete
        self.observation_space: gymnasium.Space[Any] = (
            gymnasium.spaces.Tuple((discrete(layers + 1), discrete(states)))
            if self._as_tuple
            else discrete(layers * states + 1)
        )
        self.action_space: gymnasium.Space[Any] = discrete(actions)
        self._layer = self._state = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Back to x_0."""
        super().reset(seed=seed)
        self._layer = self._state = 0
        return self._observation(), self._info(np.zeros(self.cmdp.n_constraints), False)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take the action; terminated after L steps, never truncated."""
        cmdp, k, x, a = self.cmdp, self._layer, self._state, int(action)
        if k == cmdp.n_layers:
            raise RuntimeError("the episode is over; call reset first.")
        if not 0 <= a < cmdp.n_actions:
            raise ValueError(f"action = {action!r}; give a whole number from 0 to {cmdp.n_actions - 1}.")
        replaced = not cmdp.action_mask[k, x, a]
        if replaced:
            a = int(np.argmax(cmdp.action_mask[k, x]))
        payoffs = self._sample(np.append(cmdp.cost[:, k, x, a], cmdp.reward[k, x, a]))
        self._layer += 1
        self._state = 0
        if self._layer < cmdp.n_layers:
            self._state = int(self.np_random.choice(cmdp.n_states, p=cmdp.transition[k, x, a]))
        over = self._layer == cmdp.n_layers
        return self._observation(), float(payoffs[-1]), over, False, self._info(payoffs[:-1], replaced)

    def _sample(self, means: np.ndarray) -> np.ndarray:
        """Independent samples around the means, as the simulator's."""
        if self.cmdp.noise == "deterministic":
            return means
        if self.cmdp.noise == "bernoulli":
            return (self.np_random.random(len(means)) < means).astype(float)
        c, inner = float(self.cmdp.concentration), (means > 0) & (means < 1)
        safe = np.where(inner, means, 0.5)  # Beta with mean 0 or 1 is a point, which the generator refuses
        return np.where(inner, self.np_random.beta(c * safe, c * (1 - safe)), means)

    def _observation(self) -> Any:
        if self._as_tuple:
            return np.int64(self._layer), np.int64(self._state)
        return self._layer * self.cmdp.n_states + self._state

    def _info(self, cost: np.ndarray, replaced: bool) -> dict[str, Any]:
        done = self._layer == self.cmdp.n_layers
        mask = np.zeros(self.cmdp.n_actions, bool) if done else self.cmdp.action_mask[self._layer, self._state]
        return {
            "cost": cost,
            "action_mask": mask.astype(np.int8),
            "threshold": np.array(self.cmdp.threshold),
            "replaced": bool(replaced),
        }
