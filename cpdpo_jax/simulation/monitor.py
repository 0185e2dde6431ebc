"""Monitors the analysis during a run: which events or inequalities of a proof fail, how often and by how much.

The learner defines the checks (`Learner.analysis`); this module provides the true model and its optimum. Learners
without an analysis run in the same call, unmonitored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cpdpo_jax.common.types import CMDP, Array
from cpdpo_jax.exact.lp import evaluate, occupancy
from cpdpo_jax.exact.optimum import Solution, least_multiplier_norm
from cpdpo_jax.kernels.sums import compensated_add
from cpdpo_jax.learners.base import Analysis, Info, Learner, Watched


class Truth(NamedTuple):
    """Quantities unknown to the learner that the monitor needs, in addition to the model."""

    slater_margin: Array  # [B] the true rho
    optimal_policy: Array  # [L,S,A,B] pi*
    optimal_reach: Array  # [L,S,B] reach probabilities under pi*
    optimal_cost: Array  # [M,B] V(g_i) of pi*
    multiplier_norm: Array  # [B] the smallest ||lambda||_inf of an optimal dual solution


class MonitorState(NamedTuple):
    """The monitor's results so far."""

    failures: jax.Array  # [events,B] int32, number of episodes in which the event failed
    slack: jax.Array  # [events,B] the smallest margin of the event (negative: it failed)
    sums: jax.Array  # [sums,B] over all episodes
    carry: jax.Array  # [sums,B] rounding errors of the sums


class ObservedEpisode(NamedTuple):
    """The quantities of an episode that the monitor reads."""

    policy: jax.Array  # [L,S,A,B]
    gaps: jax.Array  # [1+M,B]
    info: Info


def check(learners: Sequence[Learner]) -> None:
    """Raise unless at least one of the learners has an analysis."""
    if all(learner.analysis is None for learner in learners):
        names = ", ".join(learner.name for learner in learners)
        raise ValueError(
            f"monitor = True, but no learner has an analysis ({names}); add a learner that has one, such as cpdpo, or "
            "set monitor = False."
        )


def truth(learner: Learner, cmdp: CMDP, solution: Solution) -> Truth | None:
    """The true quantities needed to monitor a learner, [instances]; None for a learner without an analysis."""
    if learner.analysis is None:
        return None
    instances = [
        (cmdp.transition[..., b], solution.policy[..., b], cmdp.cost[..., b]) for b in range(cmdp.batch_shape[0])
    ]
    return Truth(
        slater_margin=np.asarray(solution.slater_margin),
        optimal_policy=np.asarray(solution.policy),
        optimal_reach=np.stack(
            [occupancy(transition, policy).sum(axis=2) for transition, policy, _ in instances], axis=-1
        ),
        optimal_cost=np.stack([evaluate(*instance) for instance in instances], axis=-1),
        multiplier_norm=least_multiplier_norm(cmdp, solution),
    )


def start(analysis: Analysis, n_lanes: int, dtype: Any) -> MonitorState:
    """The monitor before the first episode."""
    events, sums = jnp.zeros((len(analysis.events), n_lanes), dtype), jnp.zeros((len(analysis.sums), n_lanes), dtype)
    return MonitorState(events.astype(jnp.int32), events + jnp.inf, sums, sums)


def observe(watch: MonitorState, analysis: Analysis, lanes: Any, before: Any, after: Any, episode: Any) -> MonitorState:
    """Check one episode; `before` and `after` are the learner's states around its update."""
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
            sums=watch.sums,
            **lanes.truth._asdict(),
        )
    )
    sums, carry = compensated_add(watch.sums, watch.carry, terms)
    failed = ~(slack >= 0)  # NaN counts as failed
    return MonitorState(watch.failures + failed.astype(jnp.int32), jnp.minimum(watch.slack, slack), sums, carry)
