"""The environment's luck: counter-based uniforms, a pure function of (key, seed, instance, episode).

Nothing is carried from episode to episode, so a seed's draws do not depend on the batch it runs in, on the block
size, on the number of devices or on a resume, and all learners under one key face the same luck.
Threefry-2x32 with 20 rounds (Salmon et al. 2011), written over trailing batch axes: `jax.random` draws the same bits
but does not vectorise over a batch of keys on a CPU.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def threefry2x32(key: tuple, counter: tuple) -> tuple:
    """Two uint32 words from two key words and two counter words; all broadcast."""
    k0, k1 = key
    keys = (k0, k1, k0 ^ k1 ^ np.uint32(0x1BD11BDA))
    x0, x1 = counter[0] + keys[0], counter[1] + keys[1]
    for i in range(5):
        for r in _ROTATIONS[i % 2]:
            x0 = x0 + x1
            x1 = ((x1 << np.uint32(r)) | (x1 >> np.uint32(32 - r))) ^ x0
        x0 = x0 + keys[(i + 1) % 3]
        x1 = x1 + keys[(i + 2) % 3] + np.uint32(i + 1)
    return x0, x1


def lane_keys(key: int, instance: np.ndarray, seed: np.ndarray) -> np.ndarray:
    """One key per lane, [2, lanes] uint32, from the run's key and the lane's instance and seed."""
    with np.errstate(over="ignore"):  # arithmetic modulo 2^32 is meant
        word = np.full(np.shape(seed), key & 0xFFFFFFFF, np.uint32), np.full(np.shape(seed), key >> 32, np.uint32)
        return np.stack(threefry2x32(word, (np.asarray(instance, np.uint32), np.asarray(seed, np.uint32))))


def uniforms(keys: jax.Array, episode: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Uniforms in [0, 1) with 24 bits for one episode: keys [2, *B], episode a scalar -> [*shape, *B] float32."""
    size = int(np.prod(shape))
    half = (size + 1) // 2
    index = jnp.arange(half, dtype=jnp.uint32).reshape((half,) + (1,) * (keys.ndim - 1))
    words = threefry2x32((keys[0][None], keys[1][None]), (episode.astype(jnp.uint32), index))
    bits = jnp.concatenate(words)[:size]
    return ((bits >> np.uint32(8)).astype(jnp.float32) * np.float32(2**-24)).reshape(*shape, *keys.shape[1:])
