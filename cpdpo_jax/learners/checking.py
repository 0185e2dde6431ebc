"""Checking a learner of one's own before a long run: shapes, probabilities, lanes, compilations, numbers.

Everything is done on a small made-up problem with random trajectories: no environment is needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cpdpo_jax.common.types import Trajectory
from cpdpo_jax.learners.base import PRESETS, Info, Learner, Problem

LAYERS, STATES, ACTIONS, LANES = 3, 3, 2, 4
EPISODES = 30
SUM_TOLERANCE = 1e-3


def check(learner: Learner, *, constraints: int | None = None) -> None:
    """Raise ValueError with one sentence for everything that is wrong with a learner; return if nothing is.

    Its hyperparameters under both presets, the shapes and types of what its functions return, that it plays
    probabilities over the allowed actions, that a lane does not depend on its neighbours, that other settings and
    trajectories compile nothing again, and that all stays finite for some episodes of random play.
    """
    m = constraints or min(2, learner.most_constraints or 2)
    problem = small_problem(m)
    found = list(_hyperparameter_faults(learner, problem))
    if not found:
        hyper = learner.hyperparameters(problem, PRESETS[0])
        if learner.compiled:
            arrays = jax.tree.map(_on_device, (problem, hyper))
            found = shape_faults(learner, *arrays) or list(_behaviour_faults(learner, *arrays))
        else:
            found = list(_host_faults(learner, problem, hyper))
    if found:
        raise ValueError("\n".join(f"learner {learner.name!r}: {one}" for one in found))


def small_problem(constraints: int) -> Problem:
    """Three layers of up to three states, some actions not allowed; float64 on the host, [LANES] trailing."""
    mask = np.ones((LAYERS, STATES, ACTIONS), bool)
    mask[0, 1:], mask[1, -1], mask[2, 0, 1] = False, False, False
    return Problem(
        action_mask=np.repeat(mask[..., None], LANES, axis=-1),
        threshold=np.full((constraints, LANES), 1.2),
        n_states=np.full(LANES, 7.0),
        n_actions=np.full(LANES, 2.0),
        episodes=np.full(LANES, 1000.0),
        delta=np.full(LANES, 0.05),
        slater_margin=np.full(LANES, 0.4),
    )


def _on_device(array: Any) -> jax.Array:
    array = np.asarray(array)
    return jnp.asarray(array if array.dtype == bool else array.astype(np.float32))


def _trajectory(problem: Problem, rng: np.random.Generator) -> Trajectory:
    """Random allowed states and actions, and payoffs of 0 or 1: of the types that a run hands over."""
    mask = np.asarray(problem.action_mask)
    layers, lanes = mask.shape[0], mask.shape[-1]
    kind = problem.threshold.dtype
    state, action = np.zeros((layers, lanes), np.int32), np.zeros((layers, lanes), np.int32)
    for k in range(layers):
        for b in range(lanes):
            state[k, b] = rng.choice(np.flatnonzero(mask[k, :, :, b].any(axis=1)))
            action[k, b] = rng.choice(np.flatnonzero(mask[k, state[k, b], :, b]))
    payoff = (rng.random((1 + len(problem.threshold), layers, lanes)) < 0.5).astype(kind)
    return jax.tree.map(jnp.asarray, Trajectory(state, action, payoff[0], payoff[1:]))


def _hyperparameter_faults(learner: Learner, problem: Problem) -> Iterator[str]:
    lanes = problem.delta.shape
    for preset in PRESETS:
        hyper = learner.hyperparameters(problem, preset)
        if not hasattr(hyper, "_fields"):
            yield f"`hyperparameters` returns a {type(hyper).__name__}; return a NamedTuple of [B] arrays."
            return
        for name, value in hyper._asdict().items():
            if np.shape(value) != lanes:
                yield f"hyperparameter {name} of {preset!r} has shape {np.shape(value)}; give one number a lane."
            elif not np.isfinite(value).all() or (np.asarray(value) < 0).any():
                yield f"hyperparameter {name} of {preset!r} is {np.asarray(value)[0]:g}; give a number of at least 0."


def shape_faults(learner: Learner, problem: Problem, hyper: Any) -> list[str]:
    """What is wrong with the shapes and types of what a compiled learner returns; nothing is computed."""
    try:
        return _shape_faults(learner, problem, hyper)
    except (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError):
        return [
            "it asks for the value of an array while it is compiled (Python's if, float() or NumPy on what it is "
            "handed); use jnp.where and jnp's functions."
        ]


def _shape_faults(learner: Learner, problem: Problem, hyper: Any) -> list[str]:
    n_layers, n_states, n_actions, lanes = problem.action_mask.shape
    m, dtype = problem.threshold.shape[0], problem.threshold.dtype
    key = (jax.ShapeDtypeStruct((2, lanes), jnp.uint32),) * learner.randomness
    before = jax.eval_shape(learner.init, problem, hyper, *key)
    found = [
        f"`init` returns a state with an array of shape {leaf.shape}; lanes trail everywhere: make its last axis B = "
        f"{lanes}."
        for leaf in jax.tree.leaves(before)
        if leaf.shape[-1:] != (lanes,)
    ]
    policy = jax.eval_shape(learner.policy, problem, hyper, before)
    found += _array_faults("`policy` returns", policy, (n_layers, n_states, n_actions, lanes), dtype)
    if found:
        return found
    whole, real = jax.ShapeDtypeStruct((n_layers, lanes), jnp.int32), jax.ShapeDtypeStruct((n_layers, lanes), dtype)
    seen = Trajectory(state=whole, action=whole, reward=real, cost=jax.ShapeDtypeStruct((m, n_layers, lanes), dtype))
    returned = jax.eval_shape(learner.update, problem, hyper, before, policy, seen, *key)
    if not (isinstance(returned, tuple) and len(returned) == 2 and isinstance(returned[1], Info)):
        what = "an array" if hasattr(returned, "shape") else f"a {type(returned).__name__}"
        return [f"`update` returns {what}; return (state, Info(multipliers, epochs))."]
    after, info = returned
    if jax.tree.structure(after) != jax.tree.structure(before):
        return [
            f"`update` returns a state of another structure, {jax.tree.structure(after)}, than `init`, "
            f"{jax.tree.structure(before)}; make them the same."
        ]
    for old, new in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
        found += _array_faults("`update` returns a state with", new, old.shape, old.dtype)
    found += _array_faults("`update` returns Info with multipliers of", info.multipliers, (m, lanes), dtype)
    return found + _array_faults("`update` returns Info with epochs of", info.epochs, (lanes,), np.dtype(np.int32))


def _array_faults(what: str, array: Any, shape: tuple[int, ...], dtype: Any) -> list[str]:
    if not hasattr(array, "shape"):
        return [f"{what} a {type(array).__name__} where an array of shape {shape} is wanted."]
    if (array.shape, array.dtype) == (shape, dtype):
        return []
    return [f"{what} {array.dtype}{list(array.shape)} where {np.dtype(dtype).name}{list(shape)} is wanted."]


def _behaviour_faults(learner: Learner, problem: Problem, hyper: Any) -> Iterator[str]:
    """Some episodes of random trajectories, compiled; then once more with other lanes beside lane 0."""
    traced: list[int] = []

    def step(hyper: Any, state: Any, seen: Trajectory, keys: jax.Array) -> tuple[Any, Any, jax.Array]:
        traced.append(1)
        policy = learner.policy(problem, hyper, state)
        return (*learner.update(problem, hyper, state, policy, seen, *(keys,) * learner.randomness), policy)

    def strong(state: Any) -> Any:  # without weak types, which would make the first call another program
        return jax.tree.map(
            lambda leaf: leaf if _is_key(leaf) else jax.lax.convert_element_type(leaf, leaf.dtype), state
        )

    step = jax.jit(step)
    start = jax.jit(lambda hyper, keys: learner.init(problem, hyper, *(keys,) * learner.randomness))
    ends = []
    for neighbour in range(2):
        rng, others = np.random.default_rng(0), np.random.default_rng(10 + neighbour)

        def beside(own: Any, other: Any) -> Any:
            return jax.tree.map(lambda a, b: jnp.concatenate([a[..., :1], b[..., 1:]], axis=-1), own, other)

        scale = jnp.ones(LANES).at[1:].set(1 + 0.5 * neighbour)
        scaled = jax.tree.map(partial(jnp.multiply, scale), hyper)
        state = strong(start(scaled, beside(_keys(rng), _keys(others))))
        for episode in range(EPISODES):
            seen = beside(_trajectory(problem, rng), _trajectory(problem, others))
            state, info, policy = step(scaled, state, seen, beside(_keys(rng), _keys(others)))
            state = strong(state)
            fault = _played_fault(np.asarray(policy), np.asarray(problem.action_mask))
            leaves = [np.asarray(leaf) for leaf in jax.tree.leaves((info, _numbers(state)))]
            if fault is None and not all(np.isfinite(leaf).all() for leaf in leaves if leaf.dtype.kind == "f"):
                fault = "its state or what it shows is not finite"
            if fault is not None:
                yield f"{fault}, in episode {episode + 1} of random play."
                return
        ends.append([np.asarray(leaf)[..., 0] for leaf in jax.tree.leaves((_numbers(state), policy))])
    if not all(np.array_equal(*pair) for pair in zip(*ends, strict=True)):
        yield (
            "a lane's state depends on the lanes beside it, so that a seed's result would depend on its batch; let no "
            "operation mix the last axis (no sum, sort or maximum over it)."
        )
    if len(traced) > 1:
        yield f"other settings or trajectories compile `update` again, {len(traced)} times; it must depend on arrays."


def _numbers(state: Any) -> Any:
    """A state whose typed keys are their words."""

    return jax.tree.map(lambda leaf: jnp.moveaxis(jax.random.key_data(leaf), -1, 0) if _is_key(leaf) else leaf, state)


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)  # pyright: ignore[reportPrivateImportUsage]


def _keys(rng: np.random.Generator) -> jax.Array:
    return jnp.asarray(rng.integers(0, 2**32, (2, LANES), dtype=np.uint32))


def _played_fault(policy: np.ndarray, mask: np.ndarray) -> str | None:
    """What is wrong with a policy [L,S,A,...], if anything."""
    if not np.isfinite(policy).all():
        return "it plays probabilities that are not finite"
    error = np.abs(policy.sum(axis=2) - mask.any(axis=2)).max()
    if error > SUM_TOLERANCE:
        return f"its probabilities sum to 1 only up to {error:.3g} (to 0 at states that are padding)"
    if (policy < 0).any():
        return f"it plays a probability of {policy.min():.3g}"
    return "it plays an action that problem.action_mask does not allow" if (policy[~mask] > 0).any() else None


def _host_faults(learner: Learner, problem: Problem, hyper: Any) -> Iterator[str]:
    """The same for a learner on the host: one lane, NumPy in float64."""
    one, own = jax.tree.map(lambda array: np.asarray(array)[..., 0], (problem, hyper))
    rng = np.random.default_rng(0)
    key = (np.zeros(2, np.uint32),) * learner.randomness
    state = learner.init(one, own, *key)
    like = jax.tree.map(lambda leaf: (np.shape(leaf), np.asarray(leaf).dtype), state)
    for episode in range(EPISODES):
        policy = learner.policy(one, own, state)
        if np.shape(policy) != one.action_mask.shape:
            yield f"`policy` returns shape {np.shape(policy)} where {one.action_mask.shape} is wanted."
            return
        fault = _played_fault(np.asarray(policy), one.action_mask)
        if fault is not None:
            yield f"{fault}, in episode {episode + 1} of random play."
            return
        seen = jax.tree.map(lambda array: np.asarray(array)[..., 0], _trajectory(problem, rng))
        returned = learner.update(one, own, state, policy, seen, *key)
        if not (isinstance(returned, tuple) and len(returned) == 2 and isinstance(returned[1], Info)):
            yield f"`update` returns a {type(returned).__name__}; return (state, Info(multipliers, epochs))."
            return
        state, info = returned
        if jax.tree.map(lambda leaf: (np.shape(leaf), np.asarray(leaf).dtype), state) != like:
            yield "`update` returns a state of another structure, shapes or types than `init`; make them the same."
            return
        if np.shape(info.multipliers) != one.threshold.shape:
            yield f"Info.multipliers has shape {np.shape(info.multipliers)} where {one.threshold.shape} is wanted."
            return
