"""The luck of a run: counter-based draws, a pure function of (key, seed, instance, episode).

Nothing is carried from episode to episode, so a seed's draws do not depend on the batch it runs in, on the block
size, on the number of devices or on a resume, and all learners under one key face the same luck. A learner that draws
for itself has a stream of its own, which the environment never touches.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from cpdpo_jax.kernels.counters import threefry2x32, uniforms

__all__ = ["init_key", "lane_keys", "threefry2x32", "uniforms", "update_key"]

# second words of the counter, where the environment's draws have their index: an episode never has so many
_UPDATE, _INIT = np.uint32(0xFFFFFFFF), np.uint32(0xFFFFFFFE)


def lane_keys(key: int, instance: np.ndarray, seed: np.ndarray) -> np.ndarray:
    """One key per lane, [2, lanes] uint32, from the run's key and the lane's instance and seed."""
    with np.errstate(over="ignore"):  # arithmetic modulo 2^32 is meant
        word = np.full(np.shape(seed), key & 0xFFFFFFFF, np.uint32), np.full(np.shape(seed), key >> 32, np.uint32)
        return np.stack(threefry2x32(word, (np.asarray(instance, np.uint32), np.asarray(seed, np.uint32))))


def update_key(keys: jax.Array, episode: jax.Array | int) -> jax.Array:
    """The key that a learner with randomness gets for its update after an episode: [2,B] from the lanes' keys."""
    return _own(keys, episode, _UPDATE)


def init_key(keys: jax.Array, episode: jax.Array | int) -> jax.Array:
    """The same for its start before an episode."""
    return _own(keys, episode, _INIT)


def _own(keys: jax.Array, episode: jax.Array | int, stream: np.uint32) -> jax.Array:
    """On the host for a host's keys [2]: NumPy's arrays wrap around in silence, its numbers do not."""
    if isinstance(keys, np.ndarray):
        counter = np.array([episode], np.uint32), np.array([stream])
        return np.concatenate(threefry2x32((keys[:1], keys[1:]), counter))  # pyright: ignore[reportReturnType]
    return jnp.stack(threefry2x32((keys[0], keys[1]), (jnp.asarray(episode).astype(jnp.uint32), stream)))
