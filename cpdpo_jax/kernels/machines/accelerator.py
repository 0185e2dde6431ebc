"""Forms of the kernels for accelerators, where launching a kernel costs more than its computation.

The formulas are those of the paper's forms, divided into few launches with one thread per state, target and lane.
`materialise` marks the boundaries: XLA fuses everything between two of them. Sums and maxima are reductions (a loop
inside a thread), and slices are rare, because each slice that several launches read is another launch.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from cpdpo_jax.kernels.lookup import at_pairs
from cpdpo_jax.kernels.loops import unrolled_reduce, unrolled_sum
from cpdpo_jax.kernels.machines.materialise import materialise
from cpdpo_jax.kernels.machines.sizes import MAX_PATH_TERMS, MAX_UNROLLED_STATES, MAX_VALUE_TERMS
from cpdpo_jax.kernels.occupancy import check_batch, clip_bounds
from cpdpo_jax.kernels.optimistic import scaled_widths, steps_to_go
from cpdpo_jax.kernels.shapes import per_lane


def policy_value(transition: jax.Array, policy: jax.Array, payoff: jax.Array) -> jax.Array:
    """`kernels.policy_value`: V_k(x) = R_k(x) + sum_y M_k(x,y) V_{k+1}(y) with the policy averaged out first.

    One launch computes M and R. Then one thread per payoff and lane processes as many layers as fit one launch; each
    state's value is a separate array [K,*B], so that all are computed at the same index.
    """
    batch = jnp.broadcast_shapes(transition.shape[4:], policy.shape[3:], payoff.shape[4:])
    n_layers, n_states, _ = policy.shape[:3]
    none = [(0, 0)] * (transition.ndim - 1)
    ahead = jnp.pad(transition, [(0, 1), *none])  # the last layer has no next states
    tables = [jnp.broadcast_to(table, (*table.shape[:4], *batch)) for table in (ahead, jnp.moveaxis(payoff, 0, 3))]
    averaged = materialise((policy[:, :, :, None] * jnp.concatenate(tables, axis=3)).sum(axis=2))  # [L,S,S+K,*B]
    step, reward = averaged[:, :, :n_states], jnp.moveaxis(averaged[:, :, n_states:], 2, 0)
    per_kernel = max(1, MAX_VALUE_TERMS // n_states**2)
    layers = [[reward[:, -1, x] for x in range(n_states)]]
    for k in reversed(range(n_layers - 1)):
        after = layers[-1]
        if len(layers) % per_kernel == 0:
            stacked = materialise(jnp.stack(after))
            after = [stacked[y] for y in range(n_states)]
        layers.append(
            [
                reward[:, k, x]
                + unrolled_sum(n_states, lambda y, k=k, x=x, after=after: step[k, x, y][None] * after[y])
                for x in range(n_states)
            ]
        )
    return jnp.stack([jnp.stack(values, axis=1) for values in layers[::-1]], axis=1)


def root_value(transition: jax.Array, policy: jax.Array, payoff: jax.Array) -> jax.Array:
    """`kernels.root_value`."""
    return policy_value(transition, policy, payoff)[:, 0, 0]


def _largest_expectation_unrolled(lower: jax.Array, spread: jax.Array, f: jax.Array, axis: int) -> jax.Array:
    """`_largest_expectation` with unrolled breakpoints, which is better if f has no targets."""
    front = (slice(None),) * axis

    def at_breakpoint(i: int) -> jax.Array:
        f_i = f[*front, i : i + 1]
        return f_i[*front, 0] + (lower * f - lower * f_i + jnp.maximum(spread * f - spread * f_i, 0)).sum(axis=axis)

    return unrolled_reduce(f.shape[axis], at_breakpoint, jnp.minimum)


def _largest_expectation(lower: jax.Array, spread: jax.Array, f: jax.Array, axis: int) -> jax.Array:
    """max p.f of each pair by breakpoints (see `extreme`); `axis` is the next state in lower, spread and f."""
    f_i, f_j = jnp.expand_dims(f, axis + 1), jnp.expand_dims(f, axis)
    lower, spread = jnp.expand_dims(lower, axis), jnp.expand_dims(spread, axis)
    gained = lower * f_j - lower * f_i + jnp.maximum(spread * f_j - spread * f_i, 0)  # f_j - f_i would be a launch
    return (f + gained.sum(axis=axis + 1)).min(axis=axis)


def occupancy_bounds(policy: jax.Array, lower: jax.Array, upper: jax.Array) -> tuple[jax.Array, jax.Array]:
    """`kernels.occupancy_bounds`, both bounds in one recursion.

    Because min p.f = -max p.(-f), the lower bound is the upper bound of the negated targets: an axis of two signs.
    """
    batch = check_batch(policy, lower, upper)
    n_layers, n_states, _ = policy.shape[:3]
    sign = jnp.asarray([1, -1], policy.dtype).reshape(1, 1, 1, 2, 1, *(1,) * len(batch))
    pi = policy[:-1, :, :, None, None]
    spread = materialise(upper - lower)
    box = lower[:, :, :, None], spread[:, :, :, None]  # [L-1,S,A,1,S',*B]
    others = (1 - jnp.eye(n_states, dtype=policy.dtype)).reshape(1, 1, 1, 1, n_states, n_states, *(1,) * len(batch))
    extreme = box[0] + jnp.where(sign > 0, 0, box[1])  # the smallest or the largest
    rest = 1 - (others * extreme[:, :, :, :, None]).sum(axis=5)
    single = jnp.where(sign > 0, jnp.minimum(box[0] + box[1], rest), jnp.maximum(box[0], rest))
    nearest = materialise((pi * (sign * single)).sum(axis=2))  # targets one step ahead: [L-1,S,2,S',*B]
    reached = nearest[-1]  # [S of layer k, 2, targets, *B]
    for k in reversed(range(n_layers - 2)):
        layer_box = lower[k][:, :, :, None, None], spread[k][:, :, :, None, None]
        moved = (pi[k] * _largest_expectation(*layer_box, reached[None, None], axis=2)).sum(axis=1)
        targets = jnp.concatenate([nearest[k], moved], axis=2)
        reached = materialise(targets if k > 0 else targets[:1])  # layer 0 has one state
    shape = (n_layers - 1, n_states, *batch)
    low, up = (-reached[0, 1]).reshape(shape), reached[0, 0].reshape(shape)
    first = jnp.zeros((1, *up.shape[1:]), up.dtype).at[0, 0].set(1)
    return clip_bounds(jnp.concatenate([first, low]), jnp.concatenate([first, up]))


def dilated_bonus(
    policy: jax.Array, bonus: jax.Array, lower: jax.Array, upper: jax.Array, dilation: jax.Array
) -> jax.Array:
    """`kernels.dilated_bonus`: one launch per layer averages over actions, then all pairs of all layers at once."""
    n_layers, batch = policy.shape[0], check_batch(policy, lower, upper)
    bonus = jnp.broadcast_to(bonus, (*bonus.shape[:2], *batch))
    spread = materialise(upper - lower)
    aheads = [bonus[-1]]  # sum_a pi(a|x) B(x,a) of layers L-1, ..., 1
    for k in reversed(range(1, n_layers - 1)):

        def at_action(a: int, k: int = k) -> jax.Array:
            best = _largest_expectation_unrolled(lower[k, :, a], spread[k, :, a], aheads[-1][None], axis=1)
            return policy[k, :, a] * (bonus[k] + per_lane(dilation, best.ndim) * best)

        if policy.shape[1] <= MAX_UNROLLED_STATES:  # unrolled: otherwise two launches, one for the sum
            aheads.append(materialise(unrolled_sum(policy.shape[2], at_action)))
        else:
            best = _largest_expectation_unrolled(lower[k], spread[k], aheads[-1][None, None], axis=2)
            dilated = bonus[k][:, None] + per_lane(dilation, best.ndim) * best
            aheads.append(materialise((policy[k] * dilated).sum(axis=1)))
    ahead = jnp.stack(aheads[::-1])  # [L-1,S,*B]
    best = _largest_expectation(lower, spread, ahead[:, None, None], axis=3)
    best = jnp.pad(best, [(0, 1), *[(0, 0)] * (best.ndim - 1)])  # B = b in the last layer
    return bonus[:, :, None] + per_lane(dilation, best.ndim) * best


def optimistic_evaluation(
    counts: jax.Array, visits: jax.Array, policy: jax.Array, payoff_sum: jax.Array, scale: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """`kernels.optimistic_evaluation` with all payoffs in one launch."""
    beta, w = scaled_widths(visits, materialise(scale))  # otherwise each of its slices is a launch
    n = jnp.maximum(visits, 1).astype(policy.dtype)
    to_go = jnp.arange(len(w), 0, -1, dtype=w.dtype).reshape(-1, *(1,) * (w.ndim - 1))
    mean, beta, reach = payoff_sum * (1 / n)[None], beta[None], ((to_go - 1) * w / 2)[None]
    is_reward = (jnp.arange(len(mean)) == 0).reshape(-1, *(1,) * w.ndim)
    payoffs = jnp.where(is_reward, jnp.minimum(1, mean + beta) + reach, jnp.maximum(0, mean - beta) - reach)
    return truncated_evaluation(counts, n, policy, materialise(payoffs), steps_to_go(payoffs))


def truncated_evaluation(
    counts: jax.Array, visits: jax.Array, policy: jax.Array, payoff: jax.Array, ceiling: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """`kernels.truncated_evaluation`: one launch per layer for the values, then all action values at once."""
    n_layers = policy.shape[0]
    aheads: list[jax.Array] = []  # V of layers L-1, ..., 1

    def average(k: int, q: jax.Array) -> jax.Array:
        return (policy[k][None] * jnp.clip(q, 0, ceiling[:, k, None, None])).sum(axis=2)

    def one_step(k: int) -> jax.Array:
        if k + 1 == n_layers:
            return payoff[:, k]
        total = (counts[k].astype(payoff.dtype)[None] * aheads[-1][:, None, None]).sum(axis=3)  # [K,S,A,*B]
        return payoff[:, k] + (1 / visits[k])[None] * total

    for k in reversed(range(1, n_layers)):
        aheads.append(materialise(average(k, one_step(k))))
    values = average(0, one_step(0))[:, 0]
    if not aheads:
        return jnp.clip(payoff, 0, ceiling[:, :, None, None]), values
    ahead = jnp.stack(aheads[::-1], axis=1)[:, :, None, None]  # [K,L-1,1,1,S,*B]
    total = (counts.astype(payoff.dtype)[None] * ahead).sum(axis=4)
    total = jnp.pad((1 / visits[:-1])[None] * total, [(0, 0), (0, 1), *[(0, 0)] * (total.ndim - 2)])
    return jnp.clip(payoff + total, 0, ceiling[:, :, None, None]), values


def sample_path(
    policy: jax.Array, last_action: jax.Array, arrival: jax.Array, payoff: jax.Array, uniforms: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """`kernels.sample_path`: the same comparisons of the same numbers."""
    small = math.prod(arrival.shape[:4]) <= MAX_PATH_TERMS
    states, actions = (_path_in_one_launch if small else _path_of_all_states)(policy, last_action, arrival, uniforms)
    if payoff.ndim == 5 and payoff.shape[-1] == 1:  # one instance: a gather does not transpose the table
        layers = jnp.arange(payoff.shape[1])[:, None]
        return states, actions, payoff[:, layers, states, actions, 0]
    return states, actions, at_pairs(states, actions, payoff)


def _path_in_one_launch(
    policy: jax.Array, last_action: jax.Array, arrival: jax.Array, uniforms: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """One thread per lane: every number is a separate array [B], so that one launch computes all of them."""
    n_layers, n_states, n_actions, *lanes = policy.shape
    states, actions = [jnp.zeros(lanes, jnp.int32)], []

    def passed(bound: jax.Array, draw: jax.Array) -> jax.Array:
        return (jnp.broadcast_to(bound, lanes) <= draw).astype(jnp.int32)

    for k in range(n_layers):
        at_state = [states[-1] == x for x in range(n_states)]
        probability = [_selected(at_state, policy[k, :, a]) for a in range(n_actions)]
        is_last = [_selected(at_state, last_action[k, :, a]) for a in range(n_actions)]
        sums = [sum(probability[1 : a + 1], start=probability[0]) for a in range(n_actions)]
        sums = [jnp.where(is_last[a], 2, sums[a]) for a in range(n_actions)]
        actions.append(unrolled_sum(n_actions, lambda a, k=k, sums=sums: passed(sums[a], uniforms[k, 0])))
        if k + 1 < n_layers:
            at_pair = [at & (actions[-1] == a) for at in at_state for a in range(n_actions)]
            table = arrival[k].reshape(-1, *arrival.shape[3:])  # [S A,S',B]
            rows = [_selected(at_pair, table[:, y]) for y in range(n_states)]
            states.append(unrolled_sum(n_states, lambda y, k=k, rows=rows: passed(rows[y], uniforms[k, 1])))
    both = materialise(jnp.stack(states + actions))
    return both[:n_layers], both[n_layers:]


def _path_of_all_states(
    policy: jax.Array, last_action: jax.Array, arrival: jax.Array, uniforms: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """For wide layers: first the successor of every state of every layer, then the path."""
    n_layers, _, n_actions, *lanes = policy.shape
    sums = [unrolled_sum(a + 1, lambda i: policy[:, :, i]) for a in range(n_actions)]
    cumulative = jnp.where(last_action, 2, jnp.stack(sums, axis=2))
    action = (cumulative <= uniforms[:, 0, None, None]).sum(axis=2, dtype=jnp.int32)  # [L,S,B] the action in each state
    successor = (arrival <= uniforms[:-1, 1, None, None, None]).sum(axis=3, dtype=jnp.int32)  # [L-1,S,A,B]
    is_drawn = action[:-1, :, None] == jnp.arange(n_actions, dtype=jnp.int32)[None, None, :, None]
    following = jnp.where(is_drawn, successor, 0).sum(axis=2, dtype=jnp.int32)  # [L-1,S,B] the next state of each state
    action, following = materialise((action, following))
    states = [jnp.zeros(lanes, jnp.int32)]
    for k in range(n_layers - 1):
        states.append(_selected([states[-1] == x for x in range(following.shape[1])], following[k]))
    actions = [_selected([state == x for x in range(action.shape[1])], action[k]) for k, state in enumerate(states)]
    both = materialise(jnp.stack(states + actions))
    return both[:n_layers], both[n_layers:]


def _selected(conditions: list[jax.Array], entries: jax.Array) -> jax.Array:
    """The entry whose condition is true: entries [N,B]."""
    chosen = entries[0]
    for i, condition in enumerate(conditions[1:], start=1):
        chosen = jnp.where(condition, entries[i], chosen)
    return chosen
