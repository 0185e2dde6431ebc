"""Sampling of an episode (Algorithm 1): the true model as tables, and the rollout."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cpdpo_jax.common.types import CMDP, Trajectory
from cpdpo_jax.kernels import sample_path

Noise = str | tuple[str, str]  # of all payoffs, or of the reward and of the costs


class Model(NamedTuple):
    """The true model, never given to a learner. Trailing axis: lanes, or 1 for all lanes."""

    transition: jax.Array  # [L-1,S,A,S,B]
    arrival: jax.Array  # [L-1,S,A,S,B] cumulative transition, 2 from the last reachable state on
    payoff: jax.Array  # [1+M,L,S,A,B] mean reward, then mean costs
    last_action: jax.Array  # [L,S,A,B] bool, True from the last allowed action on
    concentration: jax.Array  # [B] for the "beta" noise


def make_model(cmdp: CMDP, lanes: np.ndarray | None, dtype: Any) -> Model:
    """The model of each lane's instance; with `lanes` None, one instance with a trailing axis of size 1."""

    def spread(array: Any) -> np.ndarray:
        array = np.asarray(array)
        if cmdp.batch_shape:
            return array[..., lanes] if lanes is not None else array
        return array[..., None]

    transition = np.asarray(cmdp.transition)
    possible = np.flip(np.cumsum(np.flip(transition, 3), axis=3), 3)  # probability of this and later states
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


def rollout(model: Model, policy: jax.Array, uniforms: jax.Array, noise: Noise) -> Trajectory:
    """Sample an episode of `policy` [L,S,A,B] by inversion of the uniforms [L,3+M,B].

    Column 0 gives the action and column 1 the next state (the first whose cumulative probability exceeds the uniform),
    column 2 the reward and column 3+i cost i.
    """
    states, actions, mean = sample_path(policy, model.last_action, model.arrival, model.payoff, uniforms)
    drawn = sample(mean, jnp.moveaxis(uniforms[:, 2:], 1, 0), model.concentration, noise)
    return Trajectory(state=states, action=actions, reward=drawn[0], cost=drawn[1:])


def sample(mean: jax.Array, uniform: jax.Array, concentration: jax.Array, noise: Noise) -> jax.Array:
    """Samples in [0, 1] with the given means, from one uniform each; all [1+M,L,B]."""
    if isinstance(noise, tuple):
        parts = zip((slice(None, 1), slice(1, None)), noise, strict=True)
        return jnp.concatenate([sample(mean[some], uniform[some], concentration, of) for some, of in parts])
    if noise == "bernoulli":
        return (uniform < mean).astype(mean.dtype)
    if noise == "deterministic":
        return jnp.broadcast_to(mean, uniform.shape)
    bits = (uniform * 2**24).astype(jnp.uint32).ravel()
    shape_a = jnp.broadcast_to(mean * concentration, uniform.shape).ravel()
    shape_b = jnp.broadcast_to((1 - mean) * concentration, uniform.shape).ravel()
    keys = jax.vmap(jax.random.key)(bits)
    tiny = jnp.finfo(mean.dtype).tiny  # there is no beta distribution with mean 0 or 1: the sample is the mean
    beta = partial(jax.random.beta, dtype=mean.dtype)  # the default would be float64 under x64
    draw = jax.vmap(beta)(keys, jnp.maximum(shape_a, tiny), jnp.maximum(shape_b, tiny)).reshape(uniform.shape)
    return jnp.where((mean <= 0) | (mean >= 1), mean, draw)
