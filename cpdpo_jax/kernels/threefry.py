"""Counter-based random numbers: a pure function of a key and a counter, over trailing batch axes.

Threefry-2x32 with 20 rounds (Salmon et al. 2011). `jax.random` draws the same bits but does not vectorise over a batch
of keys on a CPU.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def threefry2x32(key: tuple[Any, Any], counter: tuple[Any, Any]) -> tuple[Any, Any]:
    """Two random uint32 words from two key words and two counter words; all broadcast."""
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


def uniforms(keys: jax.Array, counter: jax.Array | int, shape: tuple[int, ...]) -> jax.Array:
    """Uniforms in [0, 1) with 24 bits: keys [2, *B] uint32, counter an integer -> [*shape, *B] float32.

    Each counter gives different numbers. A lane's numbers depend on its own key only, not on other lanes.
    """
    size = int(np.prod(shape))
    half = (size + 1) // 2
    index = jnp.arange(half, dtype=jnp.uint32).reshape((half,) + (1,) * (keys.ndim - 1))
    words = threefry2x32((keys[0][None], keys[1][None]), (jnp.asarray(counter).astype(jnp.uint32), index))
    bits = jnp.concatenate(words)[:size]
    return ((bits >> np.uint32(8)).astype(jnp.float32) * np.float32(2**-24)).reshape(*shape, *keys.shape[1:])
