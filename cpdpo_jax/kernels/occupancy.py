"""Probabilities of reaching each state under one transition function, and their bounds over a confidence set.

COMP-UOB of Jin et al. (2020): for a target state x of layer h, f = 1{. = x} on layer h and, for k = h-1..0,
    f(y) = sum_a pi(a|y) max_{p in set(y,a)} p.f        (min for the lower bound);  the answer is f(x_0).
The targets of all layers move backwards together. The first step starts from a one-hot f, where
    max p_x = min(upper_x, lower_x + slack),   min p_x = max(lower_x, 1 - sum_{j != x} upper_j).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from cpdpo_jax.kernels.extreme import extreme
from cpdpo_jax.kernels.loops import layer, scan_layers, scan_layers_backwards, unrolled_sum, with_layer
from cpdpo_jax.kernels.machines.forms import jit, kernel
from cpdpo_jax.kernels.shapes import batch_shape


@jit()
def occupancy(transition: jax.Array, policy: jax.Array) -> jax.Array:
    """P_{pi,P}(x), the probability of visiting each state, by forward recursion.

    transition [L-1,S,A,S,*B], policy [L,S,A,*B] -> [L,S,*B].

    Episodes start in state 0 of layer 0.
    """
    n_layers, n_states, n_actions = policy.shape[:3]
    batch = batch_shape(
        policy.ndim - 3,
        transition=(transition, (n_layers - 1, n_states, n_actions, n_states)),
        policy=(policy, (n_layers, n_states, n_actions)),
    )
    reached = jnp.zeros((n_layers, n_states, *batch), jnp.result_type(transition, policy)).at[0, 0].set(1)

    def step(k: jax.Array, reached: jax.Array) -> jax.Array:
        occupied, pi, rows = layer(reached, k), layer(policy, k), layer(transition, k)

        def arriving(x: int) -> jax.Array:
            return occupied[x, None] * unrolled_sum(n_actions, lambda a: pi[x, a, None] * rows[x, a])

        return with_layer(reached, k + 1, unrolled_sum(n_states, arriving))

    return scan_layers(n_layers - 1, n_states, step, reached)


@kernel(sizes="policy")
def occupancy_bounds(policy: jax.Array, lower: jax.Array, upper: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Smallest and largest reach probability of every state over all P with lower <= P <= upper.

    policy [L,S,A,*B], lower and upper [L-1,S,A,S,*B] -> (low [L,S,*B], up [L,S,*B]).
    State 0 of layer 0 is x_0: both bounds are 1 there and 0 at the padded states of layer 0.
    """
    batch = check_batch(policy, lower, upper)
    return clip_bounds(*(_reach(policy, lower, upper, batch, maximize) for maximize in (False, True)))


def check_batch(policy: jax.Array, lower: jax.Array, upper: jax.Array) -> tuple[int, ...]:
    """The batch shape of the arguments of a recursion over a confidence set; ValueError if the shapes do not match."""
    n_layers, n_states, n_actions = policy.shape[:3]
    box = (n_layers - 1, n_states, n_actions, n_states)
    pairs = (n_layers, n_states, n_actions)
    return batch_shape(policy.ndim - 3, policy=(policy, pairs), lower=(lower, box), upper=(upper, box))


def clip_bounds(low: jax.Array, up: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The bounds clipped so that 0 <= low <= up <= 1 holds exactly.

    Deviation: occupancy-clip. The clips only remove rounding errors (a row that sums to 1 - 1e-7), because PO-DB
    divides by up + gamma with a gamma that may be as small as the rounding error.
    """
    up = jnp.clip(up, 0, 1)
    return jnp.clip(low, 0, up), up


def _reach(policy: jax.Array, lower: jax.Array, upper: jax.Array, batch: tuple[int, ...], maximize: bool) -> jax.Array:
    """The lower or the upper bound, [L,S,*B]: a scan over layers that carries the targets of all layers.

    The carry [S, (L-1) S, *B] has a fixed size: targets of layers that the scan has not reached are 0 and stay 0.
    """
    n_layers, n_states = policy.shape[:2]
    dtype = jnp.result_type(policy, lower, upper)
    reached = jnp.zeros((n_states, (n_layers - 1) * n_states, *batch), dtype)  # targets: layers 1..L-1, states

    def step(k: jax.Array, reached: jax.Array) -> jax.Array:
        pi, (least, spread, slack, excess) = layer(policy, k), make_box(layer(lower, k), layer(upper, k), axis=2)
        best = extreme(
            lambda j: least[:, :, j, None],
            lambda j: spread[:, :, j, None],
            slack[:, :, None],
            excess[:, :, None],
            reached[:, None, None],
            maximize,
        )
        nearest = one_hot_extreme(least, spread, slack[:, :, None], excess[:, :, None], maximize)
        moved, nearest = average(pi, best), average(pi, nearest)
        return jax.lax.dynamic_update_slice_in_dim(moved, nearest, k * n_states, axis=1)

    reached = scan_layers_backwards(n_layers - 1, n_states, step, reached, unroll=False)
    start = jnp.zeros((1, n_states, *batch), dtype).at[0, 0].set(1)
    return jnp.concatenate([start, reached[0].reshape(n_layers - 1, n_states, *batch)])


class Box(NamedTuple):
    """The set {p : lower <= p <= upper, sum p = 1} with the sums of the closed form (see `extreme`)."""

    lower: jax.Array  # [...,S',*B]
    spread: jax.Array  # [...,S',*B] upper - lower
    slack: jax.Array  # [...,*B] 1 - sum lower
    excess: jax.Array  # [...,*B] 1 - sum upper


def make_box(lower: jax.Array, upper: jax.Array, axis: int) -> Box:
    """The boxes between lower and upper; `axis` is the axis of the next state."""
    front = (slice(None),) * axis
    slack, excess = (1 - unrolled_sum(b.shape[axis], lambda j, b=b: b[*front, j]) for b in (lower, upper))
    return Box(lower, upper - lower, slack, excess)


def one_hot_extreme(
    lower: jax.Array, spread: jax.Array, slack: jax.Array, excess: jax.Array, maximize: bool
) -> jax.Array:
    """The extreme probability of each next state separately; all arguments broadcast."""
    if maximize:
        return lower + jnp.minimum(spread, slack)
    return lower + jnp.maximum(excess + spread, 0)


def average(pi: jax.Array, values: jax.Array) -> jax.Array:
    """sum_a pi(a|y) f(y,a): [S,A,*B], [S,A,targets,*B] -> [S,targets,*B]."""
    return unrolled_sum(pi.shape[1], lambda a: pi[:, a, None] * values[:, a])
