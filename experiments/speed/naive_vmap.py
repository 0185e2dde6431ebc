"""A straightforward CPD-PO in JAX: one seed, sorting, gathers, scatters, `lax.scan`; `jax.vmap` over seeds.

Only timed, not a learner of the package. The same conventions and constants as `naive_numpy`.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from experiments.speed.naive_numpy import Constants, Model


class State(NamedTuple):
    """Of one seed."""

    weights: jax.Array  # [L,S,A]
    visits: jax.Array  # [L,S,A] int32
    at_epoch: jax.Array  # [L,S,A] int32
    moves: jax.Array  # [L-1,S,A,S] int32
    sums: jax.Array  # [1+M,L,S,A]
    lower: jax.Array  # [L-1,S,A,S]
    upper: jax.Array  # [L-1,S,A,S]
    epochs: jax.Array  # [] int32
    strong: jax.Array  # [1+M] strong regret and violations so far


def start(model: Model) -> State:
    """Nothing seen."""
    n_layers, n_states, n_actions = model.payoff.shape[1:]
    counts = jnp.zeros((n_layers, n_states, n_actions), jnp.int32)
    moves = jnp.zeros((n_layers - 1, n_states, n_actions, n_states), jnp.int32)
    dtype = model.payoff.dtype
    box = jnp.zeros(moves.shape, dtype)
    return State(
        weights=counts.astype(dtype), visits=counts, at_epoch=counts, moves=moves, sums=0 * model.payoff,
        lower=box, upper=box + 1, epochs=jnp.int32(1), strong=0 * model.payoff[:, 0, 0, 0],
    )  # fmt: skip


@partial(jax.jit, static_argnames="episodes")
def advance(model: Model, c: Constants, keys: jax.Array, states: State, first: jax.Array, episodes: int) -> State:
    """Episodes first..first+episodes-1 of every seed: keys [seeds], states with the seeds leading."""
    n_layers, m = model.payoff.shape[1], len(model.threshold)

    def step(key: jax.Array, state: State) -> State:
        def step(state: State, t: jax.Array) -> tuple[State, None]:
            draws = jax.random.uniform(jax.random.fold_in(key, t), (n_layers, 3 + m), model.payoff.dtype)
            return episode(model, c, state, draws)[0], None

        return jax.lax.scan(step, state, first + jnp.arange(episodes, dtype=jnp.int32))[0]

    return jax.vmap(step)(keys, states)


def episode(model: Model, c: Constants, state: State, u: jax.Array) -> tuple[State, tuple]:
    """One episode on the uniforms [L,3+M]: the state after it; policy, states, actions, multipliers."""
    n_layers, m = model.payoff.shape[1], len(model.threshold)
    policy = jax.nn.softmax(state.weights, axis=2)
    values = jax.vmap(lambda payoff: value(model.transition, policy, payoff))(model.payoff)
    gaps = jnp.concatenate([model.optimum - values[:1], values[1:] - model.threshold])

    def walk(x: jax.Array, inputs: tuple) -> tuple[jax.Array, tuple]:
        pi, rows, draw = inputs
        a = _draw(pi[x], draw[0])
        return _draw(rows[x, a], draw[1]), (x, a)

    rows = jnp.concatenate([model.transition, model.transition[:1]])  # the last layer's is not used
    _, (xs, actions) = jax.lax.scan(walk, jnp.int32(0), (policy, rows, u))
    at = jnp.arange(n_layers), xs, actions
    visits = state.visits.at[at].add(1)
    moves = state.moves.at[at[0][:-1], xs[:-1], actions[:-1], xs[1:]].add(1)
    sums = state.sums.at[:, *at].add((model.payoff[:, *at] > u[:, 2:].T).astype(state.sums.dtype))
    n = jnp.maximum(visits, 1).astype(policy.dtype)
    reward = sums[0] / n + jnp.minimum(1, jnp.sqrt(4 * c.log_reward / n))
    cost = sums[1:] / n - jnp.minimum(1, jnp.sqrt(4 * c.log_cost / n))
    estimate = moves.astype(n.dtype) / n[:-1, :, :, None]
    optimistic = jax.vmap(lambda payoff: value(estimate, policy, payoff))(cost)
    multipliers = jnp.where(optimistic > model.threshold, c.cap, 0)
    penalty = multipliers @ (cost[:, *at] - model.threshold[:, None] / n_layers)
    loss = (c.cap * m - reward[at] + penalty) / c.scale

    low, up = (_reach(policy, state.lower, state.upper, sign) for sign in (-1, 1))
    to_go = jnp.cumsum(loss[::-1])[::-1]
    q_hat = to_go / (up[at[:2]] * policy[at] + c.exploration)
    weights = state.weights + c.learning_rate * _bonus(policy, low, up, state, c)
    weights = weights.at[at].add(-c.learning_rate * q_hat)
    fresh = (visits[at] >= jnp.maximum(1, 2 * state.at_epoch[at])).any()
    width = 4 * jnp.sqrt(estimate * c.log_transition / n[:-1, :, :, None])
    width = width + 28 * c.log_transition / (3 * n[:-1, :, :, None])
    unseen = visits[:-1, :, :, None] == 0
    lower = jnp.where(unseen, 0, jnp.maximum(estimate - width, 0))
    upper = jnp.where(unseen, 1, jnp.minimum(estimate + width, 1))
    after = State(
        weights=weights - weights.max(axis=2, keepdims=True),
        visits=visits,
        at_epoch=jnp.where(fresh, visits, state.at_epoch),
        moves=moves,
        sums=sums,
        lower=jnp.where(fresh, lower, state.lower),
        upper=jnp.where(fresh, upper, state.upper),
        epochs=state.epochs + fresh.astype(jnp.int32),
        strong=state.strong + jnp.maximum(gaps, 0),
    )
    return after, (policy, xs, actions, multipliers)


def value(transition: jax.Array, policy: jax.Array, payoff: jax.Array) -> jax.Array:
    """V(x_0) by backward recursion."""
    ahead = (policy[-1] * payoff[-1]).sum(axis=1)
    for k in reversed(range(len(transition))):
        ahead = (policy[k] * (payoff[k] + transition[k] @ ahead)).sum(axis=1)
    return ahead[0]


def extreme(lower: jax.Array, upper: jax.Array, f: jax.Array, sign: int) -> jax.Array:
    """The largest (sign 1) or smallest (-1) p.f in the box: hand out what is left in the order of f."""
    order = jnp.argsort(-sign * f)
    room = (upper - lower)[order]
    given = jnp.clip(1 - lower.sum() - (jnp.cumsum(room) - room), 0, room)
    return lower @ f + given @ f[order]


def _of_pairs(lower: jax.Array, upper: jax.Array, f: jax.Array, sign: int) -> jax.Array:
    """`extreme` of every state and action of a layer, [S,A]."""
    return jax.vmap(jax.vmap(lambda lo, hi: extreme(lo, hi, f, sign)))(lower, upper)


def _reach(policy: jax.Array, lower: jax.Array, upper: jax.Array, sign: int) -> jax.Array:
    """The largest (sign 1) or smallest (-1) probability of reaching each state, [L,S]: one recursion per state."""
    n_layers, n_states = policy.shape[:2]

    def target(f: jax.Array, h: int) -> jax.Array:
        for k in reversed(range(h)):
            f = (policy[k] * _of_pairs(lower[k], upper[k], f, sign)).sum(axis=1)
        return f[0]

    one_hot = jnp.eye(n_states, dtype=policy.dtype)
    return jnp.stack([one_hot[0], *(jax.vmap(partial(target, h=h))(one_hot) for h in range(1, n_layers))])


def _bonus(policy: jax.Array, low: jax.Array, up: jax.Array, state: State, c: Constants) -> jax.Array:
    """The dilated bonus, [L,S,A]."""
    n_layers = policy.shape[0]
    q_up, q_low = up[:, :, None] * policy, low[:, :, None] * policy
    ratio = (3 * c.exploration * n_layers + n_layers * (q_up - q_low)) / (q_up + c.exploration)
    plain = (policy * ratio).sum(axis=2)
    layers = [jnp.broadcast_to(plain[-1][:, None], policy.shape[1:])]
    for k in reversed(range(n_layers - 1)):
        ahead = (policy[k + 1] * layers[0]).sum(axis=1)
        best = _of_pairs(state.lower[k], state.upper[k], ahead, 1)
        layers.insert(0, plain[k][:, None] + (1 + 1 / n_layers) * best)
    return jnp.stack(layers)


def _draw(probabilities: jax.Array, u: jax.Array) -> jax.Array:
    return jnp.minimum((jnp.cumsum(probabilities) <= u).sum(), len(probabilities) - 1).astype(jnp.int32)
