"""Payoffs of an episode: those of the CMDP, or losses that change with the episode (adversarial runs)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from cpdpo_jax.common.types import Array
from cpdpo_jax.envs.adversarial import AdaptiveLosses, Losses
from cpdpo_jax.simulation.rollout import Model, Noise


@dataclass(frozen=True)
class NoisyCosts:
    """Losses that are observed without noise, and costs that are sampled."""

    losses: Losses | AdaptiveLosses
    noise: str  # of the costs


Environment = str | Losses | AdaptiveLosses | NoisyCosts  # the noise of a CMDP's payoffs, or losses


class Adversary(NamedTuple):
    """The state of adversarial losses during a run; on the host, NumPy arrays without B."""

    memory: Any  # of losses that depend on earlier policies, else None
    tables: Array  # [L,S,A,B] sum of the losses so far
    carry: Array  # [L,S,A,B] rounding error of the sum


def begin_losses(environment: Losses | AdaptiveLosses | NoisyCosts, policy: Any) -> Adversary:
    """The state before the first episode, whose policy is `policy` [L,S,A,*B]."""
    losses = environment.losses if isinstance(environment, NoisyCosts) else environment
    memory = losses.start(policy) if isinstance(losses, AdaptiveLosses) else None
    return Adversary(memory, 0 * policy, 0 * policy)


def next_losses(
    environment: Losses | AdaptiveLosses | NoisyCosts, model: Model, adversary: Adversary, t: Any, policy: Any
) -> tuple[Noise, Model, Adversary]:
    """The noise and the model of episode t, whose reward is 1 - loss, and the adversary after `policy` [L,S,A,*B]."""
    numpy: Any = np if isinstance(policy, np.ndarray) else jnp
    noisy = isinstance(environment, NoisyCosts)
    losses = environment.losses if noisy else environment
    noise: Noise = ("deterministic", environment.noise) if noisy else "deterministic"
    if isinstance(losses, AdaptiveLosses):
        table, memory = losses(t, adversary.memory), losses.remember(adversary.memory, policy)
    else:
        table = losses(t)
        table, memory = table.reshape(*table.shape, *(1,) * (policy.ndim - 3)), None
    table = numpy.broadcast_to(table, policy.shape).astype(policy.dtype)
    costs = numpy.broadcast_to(model.payoff[1:], (len(model.payoff) - 1, *policy.shape))
    payoff = numpy.concatenate([1 - table[None], costs])
    added = table - adversary.carry  # Kahan summation
    total = adversary.tables + added
    after = Adversary(memory, total, (total - adversary.tables) - added)
    return noise, model._replace(payoff=payoff), after
