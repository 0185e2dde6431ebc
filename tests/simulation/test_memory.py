"""The memory of a result is the formula of docs/speed.md, and a run needs at most 2.6 times as much."""

import gc
import tracemalloc

import cpdpo_jax as cp
from tests.support import random_cmdp

SHAPE = (3, 4, 2, 2)
SEEDS, CHECKPOINTS = 3000, 40


def bytes_of_a_result(shape, lanes, checkpoints):
    """8 (5 C (m + 1) + L S A + 2) bytes for each lane."""
    n_layers, n_states, n_actions, m = shape
    return 8 * lanes * (5 * checkpoints * (m + 1) + n_layers * n_states * n_actions + 2)


def run(seeds):
    return cp.simulate(
        "uniform", random_cmdp(*SHAPE, seed=5), seeds=seeds, episodes=80, checkpoints=CHECKPOINTS, progress=False
    )


def test_the_memory_of_a_run_is_bounded_by_a_formula():
    run(64)  # compiles
    bound = bytes_of_a_result(SHAPE, SEEDS, CHECKPOINTS)
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        result = run(SEEDS)
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 0.5 * bound < result.data.nbytes < 1.3 * bound
    assert bound < peak - before < 2.6 * bound
    assert after - before < 1.6 * bound
