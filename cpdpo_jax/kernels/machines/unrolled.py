"""Occupancy bounds of narrow layers on a CPU, unrolled in Python: constant indices, and no carry of fixed size."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from cpdpo_jax.kernels.extreme import extreme
from cpdpo_jax.kernels.loops import unrolled_sum
from cpdpo_jax.kernels.machines.materialise import materialise
from cpdpo_jax.kernels.occupancy import Box, average, check_batch, clip_bounds, make_box, one_hot_extreme


def occupancy_bounds(policy: jax.Array, lower: jax.Array, upper: jax.Array) -> tuple[jax.Array, jax.Array]:
    """`kernels.occupancy_bounds` with an array of targets that grows layer by layer, both bounds in one recursion.

    min p.f = -max p.(-f) holds exactly in floating point, so the lower bounds are negated targets; a single recursion
    halves the code.
    """
    batch = check_batch(policy, lower, upper)
    n_layers, n_states, n_actions = policy.shape[:3]
    start = jnp.zeros((1, n_states, *batch), jnp.result_type(policy, lower, upper)).at[0, 0].set(1)
    box = make_box(lower, upper, axis=3)
    box = Box(lower, *materialise(box[1:]))
    reached = None  # [S of layer k, targets, *B]: for each layer its upper bounds, then its lower bounds
    for k in reversed(range(n_layers - 1)):
        sources = slice(0, 1 if k == 0 else n_states)  # layer 0 has one state
        pi = policy[k, sources]
        least, spread, slack, excess = (part[k, sources] for part in box)
        highest, lowest = (
            one_hot_extreme(least, spread, slack[:, :, None], excess[:, :, None], maximize)
            for maximize in (True, False)
        )
        targets = [average(pi, highest), -average(pi, lowest)]
        if reached is not None:
            moved = []
            for a in range(n_actions):
                rows = [
                    [part[k, sources, a, j] for j in range(n_states)] for part in box[:2]
                ]  # does not copy the layer
                moved.append(_largest(*rows, slack[:, a], excess[:, a], reached))
            targets.append(unrolled_sum(n_actions, lambda a, pi=pi, moved=moved: pi[:, a, None] * moved[a]))
        reached = materialise(jnp.concatenate(targets, axis=1))
    if reached is None:
        return start, start
    both = reached[0].reshape(n_layers - 1, 2, n_states, *batch)
    return clip_bounds(jnp.concatenate([start, -both[:, 1]]), jnp.concatenate([start, both[:, 0]]))


@jax.jit  # traced once for all actions
def _largest(
    lower: list[jax.Array], spread: list[jax.Array], slack: jax.Array, excess: jax.Array, f: jax.Array
) -> jax.Array:
    """max p.f for one action: S arrays lower and spread [S,*B], slack and excess [S,*B] -> [S, targets, *B]."""
    return extreme(
        lambda j: lower[j][:, None], lambda j: spread[j][:, None], slack[:, None], excess[:, None], f[:, None], True
    )
