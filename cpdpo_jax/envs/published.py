"""The random CMDPs of two papers' experiments, drawn by key."""

from __future__ import annotations

import numpy as np

from cpdpo_jax.common.types import CMDP
from cpdpo_jax.envs.episodic import from_episodic
from cpdpo_jax.envs.parameters import integer, number
from cpdpo_jax.envs.streams import drawn
from cpdpo_jax.exact.lp import plan


def random_uniform_pac(
    *,
    horizon: int = 10,
    states: int = 30,
    actions: int = 3,
    threshold: float = 0.5,
    concentration: float = 0.1,
    chance: float = 0.5,
    noise: str = "bernoulli",
    key: int = 0,
    instances: int | None = None,
) -> CMDP:
    """Random CMDP of the Uniform-PAC paper (2024): pairs with reward have no utility.

    30 states, 3 actions, H = 10. Drawn by `key` in this order, for every step: P ~ Dirichlet(.1) `[H, S, A, S]`,
    reward ~ Bernoulli(.5) `[H, S, A]`; utility 1 - reward; start 0. The utility is at least `threshold` = .5 times the
    largest that a policy can have. `instances=n` gives a batch of n.
    """

    def payoffs(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        reward = (rng.random(shape) < number("chance", chance, 0, 1)).astype(float)
        return reward, 1 - reward

    sizes = _sizes(horizon, states, actions)
    return _drawn("random_uniform_pac", sizes, concentration, threshold, payoffs, noise, key, instances)


def random_episode_wise(
    *,
    horizon: int = 4,
    states: int = 5,
    actions: int = 3,
    threshold: float = 0.6,
    concentration: float = 0.1,
    chance: float = 0.1,
    noise: str = "bernoulli",
    key: int = 0,
    instances: int | None = None,
) -> CMDP:
    """Random CMDP of the Episode-Wise paper (2025): rare rewards, rare utilities.

    5 states, 3 actions, H = 4. Drawn by `key` in this order, for every step: P ~ Dirichlet(.1) `[H, S, A, S]`, reward
    and then utility ~ Bernoulli(.1) `[H, S, A]`; start 0. The utility is at least `threshold` = .6 times the largest
    that a policy can have. `instances=n` gives a batch of n.
    Deviation: the paper does not state whether transitions differ between steps, nor the initial state; as in the
    Uniform-PAC paper, they differ, and it is state 0. If no policy has utility, the threshold is 0 and rho = 0 (rare;
    such draws are kept).
    """

    def payoffs(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        p = number("chance", chance, 0, 1)
        return (rng.random(shape) < p).astype(float), (rng.random(shape) < p).astype(float)

    sizes = _sizes(horizon, states, actions)
    return _drawn("random_episode_wise", sizes, concentration, threshold, payoffs, noise, key, instances)


def _sizes(horizon: int, states: int, actions: int) -> tuple[int, int, int]:
    return integer("horizon", horizon, 1), integer("states", states, 1), integer("actions", actions, 1)


def _drawn(name, sizes, concentration, threshold, payoffs, noise, key, instances) -> CMDP:
    """Instances with one utility constraint, at least a share of the largest utility."""
    horizon, n, a = sizes
    alpha = number("concentration", concentration, 0, np.inf, open_low=True)
    share = number("threshold", threshold, 0, 1)

    def draw(rng: np.random.Generator, label: str) -> CMDP:
        transition = rng.dirichlet(np.full(n, alpha), size=(horizon, n, a))
        reward, utility = payoffs(rng, (horizon, n, a))
        most, _ = plan(transition[:-1], utility, np.ones((horizon, n, a), bool))
        limit = [share * most]
        return from_episodic(
            transition, reward, utility[None], limit, horizon=horizon, sense=">=", noise=noise, name=label
        )

    return drawn(draw, name, key, instances)
