"""Playing an episode (Algorithm 1): the true model as tables for sampling, and the rollout itself."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cpdpo_jax.common.types import CMDP, Trajectory
from cpdpo_jax.kernels.cpu.choice import replaced_by
from cpdpo_jax.kernels.lookup import at_index, at_pairs
from cpdpo_jax.kernels.loops import MAX_UNROLLED_STATES, unrolled_sum
from cpdpo_jax.kernels.target import for_accelerator


class Model(NamedTuple):
    """The environment's side of a CMDP. No learner is handed it. Trailing axis: lanes, or 1 for all of them."""

    transition: jax.Array  # [L-1,S,A,S,B]
    arrival: jax.Array  # [L-1,S,A,S,B] cumulative transition, 2 from the last possible state on
    payoff: jax.Array  # [1+M,L,S,A,B] mean reward, then mean costs
    last_action: jax.Array  # [L,S,A,B] bool, from the last allowed action on
    concentration: jax.Array  # [B] of the "beta" noise


def make_model(cmdp: CMDP, lanes: np.ndarray | None, dtype) -> Model:
    """The model of each lane's instance; `lanes` None keeps one instance with a trailing axis of size 1."""

    def spread(array) -> np.ndarray:
        array = np.asarray(array)
        if cmdp.batch_shape:
            return array[..., lanes] if lanes is not None else array
        return array[..., None]

    transition = np.asarray(cmdp.transition)
    possible = np.flip(np.cumsum(np.flip(transition, 3), axis=3), 3)  # mass of this and later states
    after = np.concatenate([possible[:, :, :, 1:], np.zeros_like(possible[:, :, :, :1])], axis=3)
    arrival = np.where(after > 0, np.cumsum(transition, axis=3), 2.0)
    mask = np.asarray(cmdp.action_mask)
    later = np.flip(np.cumsum(np.flip(mask, 2), axis=2), 2) - mask  # allowed actions after this one
    payoff = np.concatenate([np.asarray(cmdp.reward)[None], np.asarray(cmdp.cost)])
    return Model(
        transition=jnp.asarray(spread(transition), dtype),
        arrival=jnp.asarray(spread(arrival), dtype),
        payoff=jnp.asarray(spread(payoff), dtype),
        last_action=jnp.asarray(spread(later == 0)),
        concentration=jnp.asarray(spread(cmdp.concentration), dtype),
    )


def rollout(model: Model, policy: jax.Array, uniforms: jax.Array, noise: str) -> Trajectory:
    """One episode of `policy` [L,S,A,B], by inversion of the uniforms [L,3+M,B].

    Column 0 draws the action and column 1 the next state (the first whose cumulative probability exceeds the
    uniform), column 2 the reward and column 3+i cost i.
    """
    by_hand = for_accelerator() and policy.shape[1] <= MAX_UNROLLED_STATES
    go = _walk_all_at_once if by_hand else replaced_by("walk", _walk, policy.shape[1], policy.shape[3:], policy.dtype)
    states, actions, mean = go(policy, model.last_action, model.arrival, model.payoff, uniforms)
    drawn = sample(mean, jnp.moveaxis(uniforms[:, 2:], 1, 0), model.concentration, noise)
    return Trajectory(state=states, action=actions, reward=drawn[0], cost=drawn[1:])


def _until(policy: jax.Array, last_action: jax.Array) -> jax.Array:
    """Cumulative probabilities of the actions, 2 from the last allowed one on: [L,S,A,B]."""
    until = [policy[:, :, 0]]
    for a in range(1, policy.shape[2]):
        until.append(until[-1] + policy[:, :, a])
    return jnp.where(last_action, 2, jnp.stack(until, axis=2))


def _walk(
    policy: jax.Array, last_action: jax.Array, arrivals: jax.Array, payoff: jax.Array, uniforms: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """States and actions [L,B] int32, layer by layer, and the mean payoffs there [1+M,L,B]."""
    until = _until(policy, last_action)
    n_layers, n_states, n_actions, *_ = until.shape
    lanes = uniforms.shape[2:]
    states = jnp.zeros((n_layers, *lanes), jnp.int32)
    actions = jnp.zeros((n_layers, *lanes), jnp.int32)
    for k in range(n_layers):
        passed = (at_index(states[k], until[k]) <= uniforms[k, 0]).astype(jnp.int32)  # [A,B]
        actions = actions.at[k].set(unrolled_sum(n_actions, lambda a, passed=passed: passed[a]))
        if k + 1 == n_layers:
            break
        arrival = arrivals[k]
        if n_states > MAX_UNROLLED_STATES:
            row = at_index(states[k] * n_actions + actions[k], arrival.reshape(-1, *arrival.shape[2:]))  # [S,B]
        else:
            row = at_index(actions[k], at_index(states[k], arrival))
        passed = (row <= uniforms[k, 1]).astype(jnp.int32)
        states = states.at[k + 1].set(unrolled_sum(n_states, lambda y, passed=passed: passed[y]))
    return states, actions, at_pairs(states, actions, payoff)


def _walk_all_at_once(
    policy: jax.Array, last_action: jax.Array, arrivals: jax.Array, payoff: jax.Array, uniforms: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """`_walk` for an accelerator: where every state of every layer would lead, then the path through that.

    S times the draws, but two kernels where the walk takes two a layer; the same comparisons of the same numbers.
    """
    until = _until(policy, last_action)
    n_layers, n_states, n_actions, *_ = until.shape
    passed = (until <= uniforms[:, 0, None, None]).astype(jnp.int32)
    action = unrolled_sum(n_actions, lambda a: passed[:, :, a])  # [L,S,B] the action that every state would draw
    rows = jnp.broadcast_to(arrivals[:, :, 0], (n_layers - 1, n_states, n_states, *action.shape[2:]))
    for a in range(1, n_actions):
        rows = jnp.where((action[:-1] == a)[:, :, None], arrivals[:, :, a], rows)
    passed = (rows <= uniforms[:-1, 1, None, None]).astype(jnp.int32)
    follows = unrolled_sum(n_states, lambda y: passed[:, :, y])  # [L-1,S,B] the state that every state would lead to
    states = [jnp.zeros(action.shape[2:], jnp.int32)]
    for k in range(n_layers - 1):
        states.append(at_index(states[-1], follows[k]))
    actions = [at_index(state, action[k]) for k, state in enumerate(states)]
    states, actions = jnp.stack(states), jnp.stack(actions)
    return states, actions, at_pairs(states, actions, payoff)


def sample(mean: jax.Array, uniform: jax.Array, concentration: jax.Array, noise: str) -> jax.Array:
    """A sample in [0, 1] with the given mean from one uniform each; all [1+M,L,B]."""
    if noise == "bernoulli":
        return (uniform < mean).astype(mean.dtype)
    if noise == "deterministic":
        return jnp.broadcast_to(mean, uniform.shape)
    bits = (uniform * 2**24).astype(jnp.uint32).ravel()
    shape_a = jnp.broadcast_to(mean * concentration, uniform.shape).ravel()
    shape_b = jnp.broadcast_to((1 - mean) * concentration, uniform.shape).ravel()
    keys = jax.vmap(jax.random.key)(bits)
    tiny = jnp.finfo(mean.dtype).tiny  # a mean of 0 or 1 has no beta distribution: the sample is the mean
    beta = partial(jax.random.beta, dtype=mean.dtype)  # not float64 because it could be
    draw = jax.vmap(beta)(keys, jnp.maximum(shape_a, tiny), jnp.maximum(shape_b, tiny)).reshape(uniform.shape)
    return jnp.where((mean <= 0) | (mean >= 1), mean, draw)
