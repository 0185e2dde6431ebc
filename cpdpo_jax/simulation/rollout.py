"""Playing an episode (Algorithm 1): the true model as tables for sampling, and the rollout itself."""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cpdpo_jax.common.types import CMDP, Trajectory
from cpdpo_jax.kernels.accelerator import together
from cpdpo_jax.kernels.cpu.choice import replaced_by
from cpdpo_jax.kernels.lookup import at_index, at_pairs
from cpdpo_jax.kernels.loops import MAX_UNROLLED_STATES, unrolled_sum
from cpdpo_jax.kernels.target import unrolls_states

MAX_PAIRS_OF_ONE_KERNEL = 512  # pairs times next states of all layers, for a walk that is written out

LONG = "bernoulli, of more than 2^24 episodes"  # a noise of programs, not of CMDPs: see `summed`


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
    if unrolls_states(policy.shape[1]):
        small = math.prod(model.arrival.shape[:4]) <= MAX_PAIRS_OF_ONE_KERNEL
        states, actions = (_walk_in_one_kernel if small else _walk_all_at_once)(model, policy, uniforms)
        mean = at_pairs(states, actions, model.payoff)  # [1+M,L,B]
    else:
        walk = replaced_by("walk", _walk, policy.shape[1], policy.shape[3:], policy.dtype)
        states, actions, mean = walk(policy, model.last_action, model.arrival, model.payoff, uniforms)
    drawn = sample(mean, jnp.moveaxis(uniforms[:, 2:], 1, 0), model.concentration, noise)
    return Trajectory(state=states, action=actions, reward=drawn[0], cost=drawn[1:])


def _walk(
    policy: jax.Array, last_action: jax.Array, arrivals: jax.Array, payoff: jax.Array, uniforms: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """States and actions [L,B] int32, layer by layer, and the mean payoffs there [1+M,L,B]."""
    n_layers, n_states, n_actions, *_ = policy.shape
    until = [policy[:, :, 0]]
    for a in range(1, n_actions):
        until.append(until[-1] + policy[:, :, a])
    until = jnp.where(last_action, 2, jnp.stack(until, axis=2))  # [L,S,A,B]
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


def _walk_in_one_kernel(model: Model, policy: jax.Array, uniforms: jax.Array) -> tuple[jax.Array, jax.Array]:
    """`_walk` for an accelerator, a thread a lane: every number an array [B] of its own, so that one kernel makes all.

    The same comparisons of the same numbers.
    """
    n_layers, n_states, n_actions, *lanes = policy.shape
    states, actions = [jnp.zeros(lanes, jnp.int32)], []

    def passed(bound: jax.Array, draw: jax.Array) -> jax.Array:
        return (jnp.broadcast_to(bound, lanes) <= draw).astype(jnp.int32)

    for k in range(n_layers):
        at_state = [states[-1] == x for x in range(n_states)]
        probability = [selected(at_state, policy[k, :, a]) for a in range(n_actions)]
        is_last = [selected(at_state, model.last_action[k, :, a]) for a in range(n_actions)]
        until = [sum(probability[1 : a + 1], start=probability[0]) for a in range(n_actions)]
        until = [jnp.where(is_last[a], 2, until[a]) for a in range(n_actions)]
        actions.append(unrolled_sum(n_actions, lambda a, k=k, until=until: passed(until[a], uniforms[k, 0])))
        if k + 1 < n_layers:
            at_pair = [at & (actions[-1] == a) for at in at_state for a in range(n_actions)]
            table = model.arrival[k].reshape(-1, *model.arrival.shape[3:])  # [S A,S',B]
            rows = [selected(at_pair, table[:, y]) for y in range(n_states)]
            states.append(unrolled_sum(n_states, lambda y, k=k, rows=rows: passed(rows[y], uniforms[k, 1])))
    both = together(jnp.stack(states + actions))
    return both[:n_layers], both[n_layers:]


def _walk_all_at_once(model: Model, policy: jax.Array, uniforms: jax.Array) -> tuple[jax.Array, jax.Array]:
    """`_walk` for an accelerator and wide layers: where every state of every layer would lead, then the path."""
    n_layers, _, n_actions, *lanes = policy.shape
    until = [unrolled_sum(a + 1, lambda i: policy[:, :, i]) for a in range(n_actions)]
    until = jnp.where(model.last_action, 2, jnp.stack(until, axis=2))
    action = (until <= uniforms[:, 0, None, None]).sum(axis=2, dtype=jnp.int32)  # [L,S,B] what every state would draw
    leads = (model.arrival <= uniforms[:-1, 1, None, None, None]).sum(axis=3, dtype=jnp.int32)  # [L-1,S,A,B]
    is_drawn = action[:-1, :, None] == jnp.arange(n_actions, dtype=jnp.int32)[:, None]
    follows = jnp.where(is_drawn, leads, 0).sum(axis=2, dtype=jnp.int32)  # [L-1,S,B] where every state would lead
    action, follows = together((action, follows))
    states = [jnp.zeros(lanes, jnp.int32)]
    for k in range(n_layers - 1):
        states.append(selected([states[-1] == x for x in range(follows.shape[1])], follows[k]))
    actions = [selected([state == x for x in range(action.shape[1])], action[k]) for k, state in enumerate(states)]
    both = together(jnp.stack(states + actions))
    return both[:n_layers], both[n_layers:]


def selected(conditions: list[jax.Array], entries: jax.Array) -> jax.Array:
    """The entry whose condition holds: entries [N,B]."""
    chosen = entries[0]
    for i, condition in enumerate(conditions[1:], start=1):
        chosen = jnp.where(condition, entries[i], chosen)
    return chosen


def summed(noise: str, episodes: int) -> str:
    """The noise of a program that runs up to so many episodes: float32 counts ones to 2^24, then it needs more care."""
    return LONG if noise == "bernoulli" and episodes > 2**24 else noise


def sample(mean: jax.Array, uniform: jax.Array, concentration: jax.Array, noise: str) -> jax.Array:
    """A sample in [0, 1] with the given mean from one uniform each; all [1+M,L,B]."""
    if noise in ("bernoulli", LONG):
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
