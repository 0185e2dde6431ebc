"""Random draws of a run: counter-based, a pure function of (key, seed, instance, episode).

There is no random state, so a seed's draws do not depend on the batch, the block size, the number of devices or a
resume, and all learners with the same key share common random numbers. A learner with its own randomness uses a
separate stream.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from cpdpo_jax.kernels.threefry import threefry2x32, uniforms

__all__ = ["init_key", "lane_keys", "threefry2x32", "uniforms", "update_key"]

# second word of the counter: larger than any index of the environment's draws
_UPDATE, _INIT = np.uint32(0xFFFFFFFF), np.uint32(0xFFFFFFFE)


def lane_keys(key: int, instance: np.ndarray, seed: np.ndarray) -> np.ndarray:
    """One key per lane, [2, lanes] uint32, from the run's key and the lane's instance and seed."""
    with np.errstate(over="ignore"):  # arithmetic modulo 2^32 is intended
        word = np.full(np.shape(seed), key & 0xFFFFFFFF, np.uint32), np.full(np.shape(seed), key >> 32, np.uint32)
        return np.stack(threefry2x32(word, (np.asarray(instance, np.uint32), np.asarray(seed, np.uint32))))


def update_key(keys: jax.Array, episode: jax.Array | int) -> jax.Array:
    """The key for a learner's update after an episode: [2,B] from the keys of the lanes."""
    return _stream_key(keys, episode, _UPDATE)


def init_key(keys: jax.Array, episode: jax.Array | int) -> jax.Array:
    """The key for a learner's `init` before an episode: [2,B] from the keys of the lanes."""
    return _stream_key(keys, episode, _INIT)


def _stream_key(keys: jax.Array, episode: jax.Array | int, stream: np.uint32) -> jax.Array:
    """The key of a stream; on the host for NumPy keys [2], as arrays, because NumPy's scalars warn about overflow."""
    if isinstance(keys, np.ndarray):
        counter = np.array([episode], np.uint32), np.array([stream])
        return np.concatenate(threefry2x32((keys[:1], keys[1:]), counter))  # pyright: ignore[reportReturnType]
    return jnp.stack(threefry2x32((keys[0], keys[1]), (jnp.asarray(episode).astype(jnp.uint32), stream)))
