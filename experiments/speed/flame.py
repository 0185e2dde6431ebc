"""Where an episode's time goes: parts of an episode of CPD-PO or CPD-OPPO, each alone in a compiled loop.

Alone, a part reads its inputs from memory and is not fused with its neighbours, so parts do not add up to the whole.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from cpdpo_jax import kernels
from experiments.speed import internals
from experiments.speed.timing import WARM, Size

LEARNERS = ("cpdpo", "cpd_oppo")

Parts = dict[str, tuple[Callable, tuple]]  # a function and its arguments


def parts(block: internals.Block) -> Parts:
    """The parts of an episode in the block's state; all arrays are arguments, as in the simulator."""
    inputs, state, learner = block.lanes, block.state.learner, block.learner
    n_layers, m = inputs.problem.action_mask.shape[0], len(inputs.problem.threshold)

    def draw(keys, t):
        return internals.uniforms(keys, t, (n_layers, 3 + m))

    def play(model, policy, draws):
        return internals.rollout(model, policy, draws, block.noise)

    t = jnp.int32(block.episode)
    draws = draw(inputs.keys, t)
    policy = learner.policy(inputs.problem, inputs.hyper, state)
    trajectory = play(inputs.model, policy, draws)
    problem, estimates = inputs.problem, state.estimates
    common: Parts = {
        "random draws": (draw, (inputs.keys, t)),
        "policy": (learner.policy, (problem, inputs.hyper, state)),
        "rollout": (play, (inputs.model, policy, draws)),
        "exact values (metrics)": (kernels.root_value, (inputs.model.transition, policy, inputs.model.payoff)),
        "counts": (internals.observe, (estimates, trajectory)),
    }
    kinds = {"cpdpo": _of_cpdpo, "cpd_oppo": _of_cpd_oppo}
    return common | kinds[learner.name](problem, inputs.hyper, estimates, policy)


def _of_cpdpo(problem: Any, hyper: Any, estimates: Any, policy: jax.Array) -> Parts:
    def confidence_set(visits, transitions, log):
        real = problem.action_mask.any(axis=2)
        return kernels.confidence_set(visits[:-1], transitions, real[1:], log)

    def dual(policy, visits, transitions, payoff_sum):
        n = jnp.maximum(visits, 1).astype(policy.dtype)
        lower = payoff_sum[1:] / n - kernels.hoeffding_width(n, log)
        values = kernels.policy_value(transitions.astype(policy.dtype) / n[:-1, :, :, None], policy, lower)
        return kernels.dual_max(values[:, 0, 0], problem.threshold, hyper.dual_cap)

    def bonus(policy, low, up, lower, upper):
        plain = hyper.bonus_scale * kernels.exploration_bonus(policy, low, up, hyper.exploration)
        return kernels.dilated_bonus(policy, plain, lower, upper, hyper.dilation)

    log = jnp.log(problem.episodes * problem.n_states * problem.n_actions / problem.delta)
    box = confidence_set(estimates.visits, estimates.transitions, log)
    low, up = kernels.occupancy_bounds(policy, *box)
    return {
        "dual values": (dual, (policy, estimates.visits, estimates.transitions, estimates.payoff_sum)),
        "occupancy bounds": (kernels.occupancy_bounds, (policy, *box)),
        "dilated bonus": (bonus, (policy, low, up, *box)),
        "new epoch's set, when due": (confidence_set, (estimates.visits, estimates.transitions, log)),
    }


def _of_cpd_oppo(problem: Any, hyper: Any, estimates: Any, policy: jax.Array) -> Parts:
    def evaluate(policy, visits, transitions, payoff_sum):
        n = jnp.maximum(visits, 1).astype(policy.dtype)
        to_go = jnp.arange(len(policy), 0, -1, dtype=policy.dtype)[:, None]
        ceiling = jnp.broadcast_to(to_go, (len(payoff_sum), *to_go.shape))
        return kernels.truncated_evaluation(transitions, n, policy, payoff_sum / n, ceiling)

    arrays = policy, estimates.visits, estimates.transitions, estimates.payoff_sum
    return {"optimistic values, without widths": (evaluate, arrays)}


def flame(learner: str, size: Size, lanes: int, seconds: float) -> list[dict[str, Any]]:
    """Microseconds per episode and lane of each part and of the whole episode, on the cores of this process."""
    if learner not in LEARNERS:
        raise ValueError(f"learners = {learner!r} has no part 'flame'; choose from {', '.join(LEARNERS)}.")
    block = internals.start(size, lanes, learner).advanced(WARM)
    times = {name: seconds_alone(*part, seconds) for name, part in parts(block).items()}
    block, spent, n = block.advanced(1), 0.0, 1
    while spent < seconds:
        n *= 2
        started = time.perf_counter()
        block = block.advanced(n)
        spent = time.perf_counter() - started
    total = times["whole episode"] = spent / n
    return [
        {"learner": learner, "size": list(size), "part": name, "microseconds": 1e6 * t / lanes, "share": t / total}
        for name, t in times.items()
    ]


def seconds_alone(function: Callable, arrays: tuple, seconds: float) -> float:
    """Seconds of one evaluation in a compiled loop.

    The condition always has the same outcome, but the compiler does not know it and so cannot evaluate the function
    once before the loop. (An optimisation barrier does not prevent that.)
    """

    @jax.jit
    def loop(n, never, arrays, result):
        def turn(i, result):
            return jax.lax.cond(i != never, lambda arrays, _: function(*arrays), lambda _, old: old, arrays, result)

        return jax.lax.fori_loop(0, n, turn, result)

    result = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(function, *arrays))
    n, spent = 1, 0.0
    jax.block_until_ready(loop(n, -1, arrays, result))
    while spent < seconds:
        n *= 2
        started = time.perf_counter()
        jax.block_until_ready(loop(n, -1, arrays, result))
        spent = time.perf_counter() - started
    return spent / n
