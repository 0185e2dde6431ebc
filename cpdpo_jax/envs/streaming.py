"""Media streaming: a buffer filled by a fast or a slow server."""

from __future__ import annotations

import numpy as np

from cpdpo_jax.common.types import CMDP
from cpdpo_jax.envs.episodic import from_episodic
from cpdpo_jax.envs.parameters import integer, interval, number, thresholds
from cpdpo_jax.envs.streams import drawn

FAST, SLOW = 0, 1


def media_streaming(
    *,
    horizon: int = 10,
    threshold: float = 5.0,
    buffer: int = 9,
    fast: float = 0.9,
    slow: float = 0.1,
    leave: float = 0.8,
    noise: str = "bernoulli",
) -> CMDP:
    """Media streaming (DOPE, Bura et al. 2022): keep the buffer from running empty, with little fast service.

    10 states, 2 actions, H = 10. State s is the buffer's filling 0..9, start 0. Action 0 is fast (mu = .9), 1 slow
    (mu = .1); the buffer rises by 1 with probability mu (1 - lambda) and falls by 1 with (1 - mu) lambda, lambda =
    `leave`, and is clipped to its ends. The objective, 1 in s = 0, is MINIMISED; the constraint's cost is 1 for fast,
    at most 5. Original units count the steps with an empty buffer: an objective to be minimised.
    """
    horizon, buffer = integer("horizon", horizon, 1), integer("buffer", buffer, 1)
    rates = number("fast", fast, 0, 1), number("slow", slow, 0, 1)
    empty, fast_cost = np.zeros((buffer + 1, 2)), np.zeros((1, buffer + 1, 2))
    empty[0], fast_cost[:, :, FAST] = 1.0, 1.0
    return from_episodic(
        buffer_walk(buffer, rates, number("leave", leave, 0, 1)),
        empty,
        fast_cost,
        thresholds("threshold", threshold, 1),
        horizon=horizon,
        minimize=True,
        noise=noise,
        name="media_streaming",
    )


def streaming_episode_wise(
    *,
    horizon: int = 4,
    threshold: float = 0.6,
    buffer: int = 5,
    fast: tuple[float, float] = (0.5, 0.9),
    leave: tuple[float, float] = (0.1, 0.4),
    noise: str = "bernoulli",
    key: int = 0,
    instances: int | None = None,
) -> CMDP:
    """Streaming of the Episode-Wise paper (2025): random rates; play while the buffer is filled, with slow service.

    6 states, 2 actions, H = 4. The walk of `media_streaming` with mu_1 ~ U(.5, .9), mu_2 = 1 - mu_1 and
    lambda ~ U(.1, .4), drawn in this order; start 0. Reward 1 for s >= 1, utility 1 if slow; the utility is at least
    `threshold` = .6 times the largest that a policy can have. Drawn by `key`; `instances=n` gives a batch of n.
    Deviation: the page does not give the start; it is the empty buffer, as in media streaming.
    """
    horizon, buffer = integer("horizon", horizon, 1), integer("buffer", buffer, 1)
    share = number("threshold", threshold, 0, 1)
    fast, leave = interval("fast", fast, 0, 1), interval("leave", leave, 0, 1)
    filled, utility = np.zeros((buffer + 1, 2)), np.zeros((1, buffer + 1, 2))
    filled[1:], utility[:, :, SLOW] = 1.0, 1.0

    def draw(rng: np.random.Generator, name: str) -> CMDP:
        mu = rng.uniform(*fast)
        walk = buffer_walk(buffer, (mu, 1 - mu), rng.uniform(*leave))
        most = float(horizon)  # always slow
        return from_episodic(walk, filled, utility, [share * most], horizon=horizon, sense=">=", noise=noise, name=name)

    return drawn(draw, "streaming_episode_wise", key, instances)


def buffer_walk(buffer: int, rates: tuple[float, float], leave: float) -> np.ndarray:
    """P `[S, 2, S]`: up with mu (1 - lambda), down with (1 - mu) lambda, clipped to 0..buffer, else stay."""
    walk = np.zeros((buffer + 1, 2, buffer + 1))
    for s in range(buffer + 1):
        for a, mu in enumerate(rates):
            up, down = mu * (1 - leave), (1 - mu) * leave
            walk[s, a, min(s + 1, buffer)] += up
            walk[s, a, max(s - 1, 0)] += down
            walk[s, a, s] += 1 - up - down
    return walk
