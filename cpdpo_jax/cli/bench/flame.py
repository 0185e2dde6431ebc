"""Where an episode's time goes: each piece of an episode of CPD-PO or CPD-OPPO alone in a compiled loop, and the whole.

Alone, a piece reads its inputs from memory and is not fused with its neighbours, so pieces do not add up to the whole.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from cpdpo_jax.cli.bench import block as blocks
from cpdpo_jax.cli.bench.simulator import WARM, Size
from cpdpo_jax.kernels.bonus import dilated_bonus_in_box, exploration_bonus
from cpdpo_jax.kernels.dual import dual_max
from cpdpo_jax.kernels.extreme import make_box
from cpdpo_jax.kernels.lookup import at_pairs
from cpdpo_jax.kernels.occupancy import occupancy_bounds_in_box
from cpdpo_jax.kernels.sums import compensated_add
from cpdpo_jax.kernels.values import policy_value, root_value
from cpdpo_jax.kernels.widths import confidence_set, hoeffding_width
from cpdpo_jax.learners import base, cpd_oppo, cpd_oppo_evaluation, cpdpo, optimistic, podb
from cpdpo_jax.learners.estimates import observe, visited_pairs
from cpdpo_jax.simulation import compiled_loop
from cpdpo_jax.simulation.randomness import uniforms
from cpdpo_jax.simulation.rollout import rollout

RENEWAL = "new epoch's set, when due"

Pieces = dict[str, tuple[Callable, tuple]]  # a function and the arrays it is called with


def pieces(block: blocks.Block) -> Pieces:
    """The pieces of an episode in the block's state, in their order; all arrays are arguments, as in the engine."""
    given, state = block.lanes, block.state.learner
    draw = _draws(given, jnp.int32(block.episode))
    policy = block.learner.policy(given.problem, given.hyper, state)
    trajectory = rollout(given.model, policy, draw, block.noise)

    def softmax(given, state):
        return block.learner.policy(given.problem, given.hyper, state)

    def play(given, policy, draw):
        return rollout(given.model, policy, draw, block.noise)

    common: Pieces = {
        "random draws": (_draws, (given, jnp.int32(0))),
        "softmax policy": (softmax, (given, state)),
        "rollout": (play, (given, policy, draw)),
        "exact values (metrics)": (_metrics, (given, policy, block.state.sums, block.state.carry)),
        "counts": (observe, (state.estimates, trajectory)),
    }
    of_learner = _of_cpd_oppo if block.learner.name == "cpd_oppo" else _of_cpdpo
    return common | of_learner(given, state, policy, trajectory)


def _of_cpd_oppo(given: Any, state: cpd_oppo.State, policy: jax.Array, trajectory: Any) -> Pieces:
    seen = cpd_oppo_evaluation.evaluate(given.problem, given.hyper, state.estimates, policy)

    def widths(given, estimates):
        scale = cpd_oppo_evaluation.scales(given.problem, given.hyper, estimates.visits)
        return cpd_oppo_evaluation.widths(estimates.visits, scale)

    def evaluate(given, estimates, policy):
        return cpd_oppo_evaluation.evaluate(given.problem, given.hyper, estimates, policy)

    return {
        "widths": (widths, (given, state.estimates)),
        "optimistic values, with widths": (evaluate, (given, state.estimates, policy)),
        "dual max, weights": (_exponential_weights, (given, seen, state)),
    }


def _exponential_weights(given, seen, state):
    multipliers = dual_max(seen.values[1:], given.problem.threshold, state.cap)
    q = optimistic.lagrangian(seen.action_values, multipliers)
    return multipliers, base.recentred(state.advantage + q, given.problem.action_mask)


def _of_cpdpo(given: Any, state: cpdpo.State, policy: jax.Array, trajectory: Any) -> Pieces:
    estimates, primal = state.estimates, state.primal
    low, up = occupancy_bounds_in_box(policy, primal.box)
    return {
        "dual values": (_dual, (given, policy, estimates)),
        "occupancy bounds": (occupancy_bounds_in_box, (policy, primal.box)),
        "dilated bonus": (_bonus, (given, policy, low, up, primal.box)),
        "weights, re-centred": (_weights, (given, policy, up, primal.log_weights, trajectory)),
        "epoch rule": (_epoch, (trajectory, estimates.visits, primal.visits_at_epoch)),
        RENEWAL: (_renewal, (given, estimates)),
    }


def _draws(given, t):
    return uniforms(given.keys, t, (given.problem.action_mask.shape[0], 3 + given.problem.threshold.shape[0]))


def _metrics(given, policy, sums, carry):
    values = root_value(given.model.transition, policy, given.model.payoff)
    gaps = jnp.concatenate([given.optimum[None] - values[:1], values[1:] - given.problem.threshold])
    terms = compiled_loop.Sums(strong=jnp.maximum(gaps, 0), weak=gaps, multipliers=gaps[1:])
    return compensated_add(sums, carry, terms)


def _dual(given, policy, estimates):
    visits = jnp.maximum(estimates.visits, 1).astype(policy.dtype)
    lower = estimates.payoff_sum[1:] / visits - hoeffding_width(visits, podb.log_pairs(given.problem))
    transition = estimates.transitions.astype(policy.dtype) / visits[:-1, :, :, None]
    return dual_max(policy_value(transition, policy, lower)[:, 0, 0], given.problem.threshold, given.hyper.dual_cap)


def _bonus(given, policy, low, up, box):
    plain = given.hyper.bonus_scale * exploration_bonus(policy, low, up, given.hyper.exploration)
    return dilated_bonus_in_box(policy, plain, box, given.hyper.dilation)


def _weights(given, policy, up, weights, trajectory):
    visited = visited_pairs(trajectory.state, trajectory.action, *policy.shape[1:3])
    reached = policy * up[:, :, None] + given.hyper.exploration
    q_hat = jnp.where(visited, trajectory.reward[:, None, None] / reached, 0)
    return base.recentred(weights - given.hyper.learning_rate * q_hat, given.problem.action_mask)


def _epoch(trajectory, visits, at_epoch):
    now, before = (at_pairs(trajectory.state, trajectory.action, table) for table in (visits, at_epoch))
    return (now >= jnp.maximum(1, 2 * before)).any(axis=0)


def _renewal(given, estimates):
    real = given.problem.action_mask.any(axis=2)
    log = podb.log_pairs(given.problem)
    return make_box(*confidence_set(estimates.visits[:-1], estimates.transitions, real[1:], log))


def flame(learner: str, size: Size, lanes: int, seconds: float) -> dict[str, Any]:
    """Microseconds per episode and lane of each piece and of the whole, on the cores of this process."""
    block = blocks.start(size, lanes, learner).advanced(WARM)
    rows = [{"piece": name, "microseconds": _alone(*piece, seconds) / lanes} for name, piece in pieces(block).items()]
    block, spent, n = block.advanced(1), 0.0, 1
    while spent < seconds:
        n *= 2
        started = time.perf_counter()
        block = block.advanced(n)
        spent = time.perf_counter() - started
    about = {"learner": learner, "size": list(size), "lanes": lanes}
    return about | {"whole_microseconds": 1e6 * spent / n / lanes, "pieces": rows}


def _alone(function: Callable, arrays: tuple, seconds: float) -> float:
    """Microseconds of one evaluation in a compiled loop.

    The choice, which always falls on the same side, keeps the compiler from evaluating once before the loop; a barrier
    does not.
    """

    @jax.jit
    def loop(n, never, arrays, answer):
        def turn(i, answer):
            return jax.lax.cond(i != never, lambda arrays, _: function(*arrays), lambda _, old: old, arrays, answer)

        return jax.lax.fori_loop(0, n, turn, answer)

    answer = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(function, *arrays))
    n, spent = 1, 0.0
    jax.block_until_ready(loop(n, -1, arrays, answer))
    while spent < seconds:
        n *= 2
        started = time.perf_counter()
        jax.block_until_ready(loop(n, -1, arrays, answer))
        spent = time.perf_counter() - started
    return 1e6 * spent / n
