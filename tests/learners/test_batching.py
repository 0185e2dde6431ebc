"""Every compiled learner without a batch axis, with one, with two, and mapped: the same learner.

The grid of learners, shapes and places is exhaustive, except all shapes and places for two learners. That the lanes of
a batch equal lanes one by one is tested in `test_conformance.py`, for all learners.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cpdpo_jax.common.types import Trajectory
from cpdpo_jax.learners import base

LANES = 6
COMPILED = [name for name in base.names() if base.get(name).compiled and base.get(name).plays is None]
SHAPES = [(3, 3, 2), (3, 10, 2)]
PLACES = ["front", "middle", "back"]
IN_FULL = ("cpdpo", "cpd_oppo")


def grid(values: list[Any]) -> list[Any]:
    """(learner, value); exhaustive for all but the learners `IN_FULL`."""
    return [
        pytest.param(name, value, marks=[pytest.mark.exhaustive] * (name not in IN_FULL))
        for name in COMPILED for value in values
    ]  # fmt: skip


def inputs(learner: base.Learner, shape: tuple[int, int, int]) -> tuple[Any, Any, list[Trajectory]]:
    """(problem, hyperparameters, two episodes) of random lanes, the batch axis last."""
    n_layers, n_states, n_actions = shape
    m = learner.most_constraints or 2
    rng = np.random.default_rng(shape)
    mask = np.ones((*shape, LANES), bool)
    mask[0, 1:] = False
    problem = base.Problem(
        action_mask=mask,
        threshold=rng.uniform(0.5, 1, (m, LANES)),
        n_states=np.full(LANES, 2.0 + (n_layers - 1) * n_states),
        n_actions=np.full(LANES, float(n_actions)),
        episodes=np.full(LANES, 50.0),
        delta=np.full(LANES, 0.1),
        slater_margin=rng.uniform(0.2, 0.4, LANES),
    )
    if learner.extra_knowledge:
        safe = rng.dirichlet(np.ones(n_actions), (n_layers, n_states, LANES))
        problem = problem._replace(safe=base.SafePolicy(np.moveaxis(safe, -1, 2) * mask, 0.5 * problem.threshold))
    hyper = learner.hyperparameters(problem, "tuned")

    def episode() -> Trajectory:
        state = rng.integers(n_states, size=(n_layers, LANES))
        state[0] = 0
        action = rng.integers(n_actions, size=state.shape)
        return Trajectory(state, action, rng.random(state.shape), rng.random((m, *state.shape)))

    def traced(x: Any) -> jax.Array:
        kind = {"f": jnp.float32, "i": jnp.int32, "b": bool}[np.asarray(x).dtype.kind]
        return jnp.asarray(x, kind)

    return jax.tree.map(traced, (problem, hyper, [episode(), episode()]))


@cache
def play(name: str) -> Any:
    """Two episodes from the start: (last policy, state, what it shows of itself)."""
    learner = base.get(name)

    def run(problem: Any, hyper: Any, episodes: list[Trajectory]) -> Any:
        def episode(state: Any, trajectory: Trajectory) -> tuple[Any, Any]:
            return learner.update(problem, hyper, state, learner.policy(problem, hyper, state), trajectory)

        both = jax.tree.map(lambda *each: jnp.stack(each), *episodes)  # one loop: the update is compiled once
        state, info = jax.lax.scan(episode, learner.init(problem, hyper), both)
        return learner.policy(problem, hyper, state), state, jax.tree.map(lambda each: each[-1], info)

    return run


@cache
def batched(name: str, shape: tuple[int, int, int]) -> Any:
    """What is expected: the lanes together."""
    return jax.jit(play(name))(*inputs(base.get(name), shape))


def assert_same(actual: Any, expected: Any) -> None:
    chex.assert_trees_all_equal_shapes_and_dtypes(actual, expected)
    chex.assert_trees_all_close(actual, expected, rtol=2e-5, atol=1e-6)  # sums of other vector code


@pytest.mark.parametrize(("name", "shape"), grid(SHAPES))
def test_one_problem_without_a_batch_axis(name: str, shape: tuple[int, int, int]) -> None:
    alone = jax.jit(play(name))(*jax.tree.map(lambda x: x[..., 0], inputs(base.get(name), shape)))
    assert_same(alone, jax.tree.map(lambda x: x[..., 0], batched(name, shape)))


@pytest.mark.parametrize(("name", "shape"), grid(SHAPES))
def test_two_batch_axes_agree(name: str, shape: tuple[int, int, int]) -> None:
    run, args, expected = jax.jit(play(name)), inputs(base.get(name), shape), batched(name, shape)
    square = run(*jax.tree.map(lambda x: x.reshape(*x.shape[:-1], 2, 3), args))
    assert_same(jax.tree.map(lambda x: x.reshape(*x.shape[:-2], LANES), square), expected)


@pytest.mark.parametrize(("name", "place"), grid(PLACES))
def test_mapped_axes_agree(name: str, place: str) -> None:
    args = inputs(base.get(name), SHAPES[0])
    axes = jax.tree.map(lambda x: {"front": 0, "middle": (x.ndim - 1) // 2, "back": -1}[place], args)
    moved = jax.tree.map(lambda x, axis: jnp.moveaxis(x, -1, axis), args, axes)
    mapped = jax.jit(jax.vmap(play(name), in_axes=axes, out_axes=-1))
    assert_same(mapped(*moved), batched(name, SHAPES[0]))


@pytest.mark.parametrize("name", ["cpdpo"])
def test_mapped_in_front_of_lanes_on_wide_layers(name: str) -> None:
    """The mapped axis and the lanes go to the compiled kernels as one."""
    args = inputs(base.get(name), SHAPES[1])
    moved = jax.tree.map(lambda x: jnp.moveaxis(x.reshape(*x.shape[:-1], 2, 3), -2, 0), args)
    mapped = jax.jit(jax.vmap(play(name), out_axes=-2))(*moved)
    assert_same(jax.tree.map(lambda x: x.reshape(*x.shape[:-2], LANES), mapped), batched(name, SHAPES[1]))
