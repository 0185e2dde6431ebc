"""Check a learner before a long run: shapes, probabilities, lanes, compilations, finite numbers.

The checks use a small artificial problem with random trajectories and need no environment.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cpdpo_jax.common.types import SUM_TOLERANCE, Trajectory
from cpdpo_jax.learners.base import PRESETS, Info, Learner, Problem, get

LAYERS, STATES, ACTIONS, LANES = 3, 3, 2, 4
EPISODES = 30


def check(learner: Learner | str, *, constraints: int | None = None) -> None:
    """Check a learner, given or by name; raise ValueError with one sentence per fault.

    Checks the hyperparameters of both presets, the shapes and types of all results, that policies are distributions
    over the allowed actions, that lanes do not depend on each other, that other hparams and trajectories do not
    recompile `update`, and that all numbers remain finite during a few episodes of random play.
    """
    learner = get(learner)
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
        raise ValueError("\n".join(f"learner {learner.name!r}: {fault}" for fault in found))


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
    """Random allowed states and actions with payoffs 0 or 1, of the types of a run."""
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
                yield f"hyperparameter {name} of {preset!r} has shape {np.shape(value)}; give one number per lane."
            elif not np.isfinite(value).all() or (np.asarray(value) < 0).any():
                yield f"hyperparameter {name} of {preset!r} is {np.asarray(value)[0]:g}; give a number of at least 0."


def shape_faults(learner: Learner, problem: Problem, hyper: Any) -> list[str]:
    """Faults in the shapes and types that a compiled learner returns; nothing is computed."""
    try:
        return _shape_faults(learner, problem, hyper)
    except (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError):
        return [
            "it needs the value of an array during compilation (by Python's if, float() or NumPy); use jnp.where and "
            "functions of jnp."
        ]


def _shape_faults(learner: Learner, problem: Problem, hyper: Any) -> list[str]:
    n_layers, n_states, n_actions, lanes = problem.action_mask.shape
    m, dtype = problem.threshold.shape[0], problem.threshold.dtype
    key = (jax.ShapeDtypeStruct((2, lanes), jnp.uint32),) * learner.randomness
    before = jax.eval_shape(learner.init, problem, hyper, *key)
    found = [
        f"`init` returns a state with an array of shape {leaf.shape}; lanes are the last axis of every array: "
        f"make it B = {lanes}."
        for leaf in jax.tree.leaves(before)
        if leaf.shape[-1:] != (lanes,)
    ]
    policy = jax.eval_shape(learner.policy, problem, hyper, before)
    found += _array_faults("`policy` returns", policy, (n_layers, n_states, n_actions, lanes), dtype)
    if found:
        return found
    integers, floats = (
        jax.ShapeDtypeStruct((n_layers, lanes), jnp.int32),
        jax.ShapeDtypeStruct((n_layers, lanes), dtype),
    )
    costs = jax.ShapeDtypeStruct((m, n_layers, lanes), dtype)
    trajectory = Trajectory(state=integers, action=integers, reward=floats, cost=costs)
    returned = jax.eval_shape(learner.update, problem, hyper, before, policy, trajectory, *key)
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
        return [f"{what} a {type(array).__name__} instead of an array of shape {shape}."]
    if (array.shape, array.dtype) == (shape, dtype):
        return []
    return [f"{what} {array.dtype}{list(array.shape)} instead of {np.dtype(dtype).name}{list(shape)}."]


def _behaviour_faults(learner: Learner, problem: Problem, hyper: Any) -> Iterator[str]:
    """A few compiled episodes of random trajectories, then the same with different neighbours of lane 0."""
    traced: list[int] = []

    def step(hyper: Any, state: Any, trajectory: Trajectory, keys: jax.Array) -> tuple[Any, Any, jax.Array]:
        traced.append(1)
        policy = learner.policy(problem, hyper, state)
        return (*learner.update(problem, hyper, state, policy, trajectory, *(keys,) * learner.randomness), policy)

    def strong(state: Any) -> Any:  # without weak types, with which the first call would compile another program
        return jax.tree.map(
            lambda leaf: leaf if _is_key(leaf) else jax.lax.convert_element_type(leaf, leaf.dtype), state
        )

    step = jax.jit(step)
    start = jax.jit(lambda hyper, keys: learner.init(problem, hyper, *(keys,) * learner.randomness))
    ends = []
    for neighbour in range(2):
        rng, others = np.random.default_rng(0), np.random.default_rng(10 + neighbour)

        def with_first_lane(first: Any, other: Any) -> Any:
            return jax.tree.map(lambda a, b: jnp.concatenate([a[..., :1], b[..., 1:]], axis=-1), first, other)

        scale = jnp.ones(LANES).at[1:].set(1 + 0.5 * neighbour)
        scaled = jax.tree.map(partial(jnp.multiply, scale), hyper)
        state = strong(start(scaled, with_first_lane(_keys(rng), _keys(others))))
        for episode in range(EPISODES):
            trajectory = with_first_lane(_trajectory(problem, rng), _trajectory(problem, others))
            state, info, policy = step(scaled, state, trajectory, with_first_lane(_keys(rng), _keys(others)))
            state = strong(state)
            fault = _played_fault(np.asarray(policy), np.asarray(problem.action_mask))
            leaves = [np.asarray(leaf) for leaf in jax.tree.leaves((info, _numbers(state)))]
            if fault is None and not all(np.isfinite(leaf).all() for leaf in leaves if leaf.dtype.kind == "f"):
                fault = "its state or its Info is not finite"
            if fault is not None:
                yield f"{fault}, in episode {episode + 1} of random play."
                return
        ends.append([np.asarray(leaf)[..., 0] for leaf in jax.tree.leaves((_numbers(state), policy))])
    if not all(np.array_equal(*pair) for pair in zip(*ends, strict=True)):
        yield (
            "a lane's state depends on its neighbours, so a seed's result would depend on its batch; do not mix the "
            "last axis (no sum, sort or maximum over it)."
        )
    if len(traced) > 1:
        yield f"other hparams or trajectories compile `update` again, {len(traced)} times; it must depend on arrays."


def _numbers(state: Any) -> Any:
    """The state with typed keys replaced by their words."""

    return jax.tree.map(lambda leaf: jnp.moveaxis(jax.random.key_data(leaf), -1, 0) if _is_key(leaf) else leaf, state)


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)  # pyright: ignore[reportPrivateImportUsage]


def _keys(rng: np.random.Generator) -> jax.Array:
    return jnp.asarray(rng.integers(0, 2**32, (2, LANES), dtype=np.uint32))


def _played_fault(policy: np.ndarray, mask: np.ndarray) -> str | None:
    """The fault of a policy [L,S,A,...], or None."""
    if not np.isfinite(policy).all():
        return "it plays probabilities that are not finite"
    total, expected = policy.sum(axis=2), np.asarray(mask.any(axis=2), float)
    worst = np.unravel_index(np.abs(total - expected).argmax(), total.shape)
    if abs(total[worst] - expected[worst]) > SUM_TOLERANCE:
        return f"its probabilities in a state sum to {total[worst]:.6g} instead of {expected[worst]:g}"
    if (policy < 0).any():
        return f"it plays an action with probability {policy.min():.3g}"
    return "it plays an action that problem.action_mask does not allow" if (policy[~mask] > 0).any() else None


def _host_faults(learner: Learner, problem: Problem, hyper: Any) -> Iterator[str]:
    """The same for a learner on the host: one lane, NumPy in float64."""
    single, single_hyper = jax.tree.map(lambda array: np.asarray(array)[..., 0], (problem, hyper))
    rng = np.random.default_rng(0)
    key = (np.zeros(2, np.uint32),) * learner.randomness
    state = learner.init(single, single_hyper, *key)
    like = jax.tree.map(lambda leaf: (np.shape(leaf), np.asarray(leaf).dtype), state)
    for episode in range(EPISODES):
        policy = learner.policy(single, single_hyper, state)
        if np.shape(policy) != single.action_mask.shape:
            yield f"`policy` returns shape {np.shape(policy)} instead of {single.action_mask.shape}."
            return
        fault = _played_fault(np.asarray(policy), single.action_mask)
        if fault is not None:
            yield f"{fault}, in episode {episode + 1} of random play."
            return
        trajectory = jax.tree.map(lambda array: np.asarray(array)[..., 0], _trajectory(problem, rng))
        returned = learner.update(single, single_hyper, state, policy, trajectory, *key)
        if not (isinstance(returned, tuple) and len(returned) == 2 and isinstance(returned[1], Info)):
            yield f"`update` returns a {type(returned).__name__}; return (state, Info(multipliers, epochs))."
            return
        state, info = returned
        if jax.tree.map(lambda leaf: (np.shape(leaf), np.asarray(leaf).dtype), state) != like:
            yield "`update` returns a state of another structure, shapes or types than `init`; make them the same."
            return
        if np.shape(info.multipliers) != single.threshold.shape:
            yield f"Info.multipliers has shape {np.shape(info.multipliers)} instead of {single.threshold.shape}."
            return
