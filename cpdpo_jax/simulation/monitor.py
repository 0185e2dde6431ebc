"""Watching the analysis while it runs: which event or inequality of a proof fails, how often, by how much.

What is checked belongs to the learner (`Learner.analysis`); what it is checked against, the true model and its optimum,
is handed over here.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cpdpo_jax.common.types import CMDP, Array
from cpdpo_jax.exact.lp import evaluate, occupancy
from cpdpo_jax.exact.optimum import Solution
from cpdpo_jax.kernels.sums import compensated_add
from cpdpo_jax.learners.base import Analysis, Info, Learner, Watched


class Truth(NamedTuple):
    """What the learner does not know and the monitor needs, beside the model."""

    slater_margin: Array  # [B] the true rho
    optimal_policy: Array  # [L,S,A,B] pi*
    optimal_reach: Array  # [L,S,B] the probability of every state under pi*
    optimal_cost: Array  # [M,B] V(g_i) of pi*


class Watch(NamedTuple):
    """What was seen so far."""

    failures: jax.Array  # [events,B] int32, episodes in which the event failed
    slack: jax.Array  # [events,B] the least margin by which it held (negative: failed)
    sums: jax.Array  # [sums,B] over all episodes
    carry: jax.Array  # [sums,B] what they lost to rounding


class Seen(NamedTuple):
    """What of an episode is looked at."""

    policy: jax.Array  # [L,S,A,B]
    gaps: jax.Array  # [1+M,B]
    info: Info


def truth(learner: Learner, cmdp: CMDP, solution: Solution) -> Truth:
    """What is to be known of the optimum to watch a learner, [instances]."""
    if learner.analysis is None:
        raise ValueError(f"monitor = True: learner {learner.name!r} has no analysis to watch; leave the monitor off.")
    each = [(cmdp.transition[..., b], solution.policy[..., b], cmdp.cost[..., b]) for b in range(cmdp.batch_shape[0])]
    return Truth(
        slater_margin=np.asarray(solution.slater_margin),
        optimal_policy=np.asarray(solution.policy),
        optimal_reach=np.stack([occupancy(transition, policy).sum(axis=2) for transition, policy, _ in each], axis=-1),
        optimal_cost=np.stack([evaluate(*one) for one in each], axis=-1),
    )


def start(analysis: Analysis, n_lanes: int, dtype: Any) -> Watch:
    """Nothing seen."""
    events, sums = jnp.zeros((len(analysis.events), n_lanes), dtype), jnp.zeros((len(analysis.sums), n_lanes), dtype)
    return Watch(events.astype(jnp.int32), events + jnp.inf, sums, sums)


def observe(watch: Watch, analysis: Analysis, lanes: Any, before: Any, after: Any, episode: Any) -> Watch:
    """Check one episode: `before` and `after` are the learner's states around its update."""
    slack, terms = analysis.observe(
        Watched(
            problem=lanes.problem,
            hyper=lanes.hyper,
            before=before,
            after=after,
            policy=episode.policy,
            info=episode.info,
            gaps=episode.gaps,
            transition=lanes.model.transition,
            payoff=lanes.model.payoff,
            optimum=lanes.optimum,
            **lanes.truth._asdict(),
        )
    )
    sums, carry = compensated_add(watch.sums, watch.carry, terms)
    failed = ~(slack >= 0)  # what is not a number has failed
    return Watch(watch.failures + failed.astype(jnp.int32), jnp.minimum(watch.slack, slack), sums, carry)
