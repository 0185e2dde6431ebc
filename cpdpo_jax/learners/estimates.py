"""Visit counts and empirical means (Section 4)."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from cpdpo_jax.common.types import Trajectory
from cpdpo_jax.kernels.counting import count_episode
from cpdpo_jax.learners.base import Problem


class Estimates(NamedTuple):
    """Counters N and M and sums of samples. Counts are integers: float32 stops counting at 2^24."""

    visits: jax.Array  # [L,S,A,B] int32, N(x,a)
    transitions: jax.Array  # [L-1,S,A,S,B] int32, M(x,a,x')
    payoff_sum: jax.Array  # [1+M,L,S,A,B] sampled rewards, then costs, summed
    payoff_carry: jax.Array | None  # [1+M,L,S,A,B] rounding error of the sums; None where they are exact


def empty(problem: Problem, *, as_sampled: bool = False) -> Estimates:
    """Estimates before the first episode.

    as_sampled: the learner sums raw samples, so sums of 0 and 1 are exact and need no carry.
    """
    shape = problem.action_mask.shape
    n_layers, n_states, n_actions, *batch = shape
    payoff = jnp.zeros((1 + problem.threshold.shape[0], *shape), problem.threshold.dtype)
    return Estimates(
        visits=jnp.zeros(shape, jnp.int32),
        transitions=jnp.zeros((n_layers - 1, n_states, n_actions, n_states, *batch), jnp.int32),
        payoff_sum=payoff,
        payoff_carry=None if as_sampled and problem.payoffs.exact_sums else payoff,
    )


def observe(estimates: Estimates, trajectory: Trajectory) -> Estimates:
    """The estimates after counting one more episode."""
    payoff = jnp.concatenate([trajectory.reward[None], trajectory.cost])  # [1+M,L,*B]
    return Estimates(*count_episode(trajectory.state, trajectory.action, payoff, *estimates))


def empirical_transition(estimates: Estimates) -> jax.Array:
    """P_hat = M / max(1, N), [L-1,S,A,S,B]; a pair that was never visited has a row of zeros."""
    per_visit = 1 / jnp.maximum(estimates.visits[:-1], 1).astype(estimates.payoff_sum.dtype)
    return estimates.transitions.astype(per_visit.dtype) * per_visit[:, :, :, None]
