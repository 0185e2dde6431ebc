"""About a hundred unusual learners by name, for `faults.learners`.

The unusual part is inside `update` (or `init`, `policy`): large constants, operations for which XLA's CPU compiler has
no code inside one function, states of unusual structure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from cpdpo_jax.learners import Info, Learner, NoHyperparameters, Problem
from cpdpo_jax.learners.base import softmax_policy

ROWS = 4  # of the state

Change = Callable[[jax.Array, Any], jax.Array]  # (state [ROWS,B], trajectory) -> state


def _uniform(problem: Problem, hyper: Any, state: Any) -> jax.Array:
    """Operations that one function accepts, so the unusual part alone decides whether the loop is one function."""
    return softmax_policy(jnp.zeros(problem.action_mask.shape, problem.threshold.dtype), problem.action_mask)


def _learner(name: str, change: Change) -> Learner:
    """A learner that plays uniformly and changes its state [ROWS,B] in an unusual way."""

    def update(problem: Problem, hyper: Any, state: Any, policy: Any, trajectory: Any) -> tuple[Any, Info]:
        after = change(state, trajectory)
        shown = jnp.where(jnp.isfinite(after[:1]), after[:1], 0).astype(problem.threshold.dtype)
        return after, Info(0 * problem.threshold + shown, 0 * trajectory.state[0])

    return Learner(
        name=name,
        hyperparameters=lambda problem, preset: NoHyperparameters(),
        init=lambda problem, hyper: jnp.zeros((ROWS, *problem.threshold.shape[1:]), problem.threshold.dtype),
        policy=_uniform,
        update=update,
    )


def numbers(*shape: int, kind: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(0).random(shape).astype(kind)


@cache
def _on_device(length: int) -> jax.Array:
    with jax.ensure_compile_time_eval():
        return jnp.asarray(numbers(length))


def _row(table: Any, trajectory: Any) -> jax.Array:
    """An entry of a table at a dynamic index that depends on the first lane's trajectory."""
    return lax.dynamic_index_in_dim(table, trajectory.action[0, 0], 0, keepdims=False)


def _constants() -> dict[str, Change]:
    """Learners with captured values in all possible places."""
    small, large, huge = numbers(500), numbers(2600), numbers(100_000)
    pieces = [numbers(900) + np.float32(i) for i in range(5)]
    transition, policies = numbers(8, 8, 6, 8), numbers(50, 5, 5, 3)

    @jax.custom_jvp
    def kinked(x: jax.Array) -> jax.Array:
        return jnp.maximum(x, jnp.asarray(large)[7])

    kinked.defjvp(lambda primals, tangents: (kinked(*primals), tangents[0]))

    def looped(state: jax.Array, seen: Any) -> jax.Array:
        return lax.fori_loop(0, 3, lambda i, s: s + lax.dynamic_index_in_dim(large, i, 0), state)

    def waited(state: jax.Array, seen: Any) -> jax.Array:
        count = seen.action[0, 0]
        return lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] + _row(large, seen)), (count, state))[1]

    def scanned(state: jax.Array, seen: Any) -> jax.Array:
        return lax.scan(lambda s, x: (s + x, None), state, large[:260])[0]

    def inner_scan(state: jax.Array, seen: Any) -> jax.Array:
        return lax.scan(lambda s, i: (s + lax.dynamic_index_in_dim(large, i, 0), None), state, jnp.arange(3))[0]

    def chosen(state: jax.Array, seen: Any) -> jax.Array:
        return lax.cond(seen.action[0, 0] > 0, lambda s: s + _row(large, seen), lambda s: s - _row(huge, seen), state)

    def switched(state: jax.Array, seen: Any) -> jax.Array:
        branches = [lambda s, piece=piece: s + _row(piece, seen) for piece in [large, *pieces]]
        return lax.switch(seen.action[0, 0], branches, state)

    return {
        "constant of 500 floats": lambda s, t: s + _row(small, t),
        "constant of 2,600 floats": lambda s, t: s + _row(large, t),
        "constant of 2,600 floats on the device": lambda s, t: s + _row(_on_device(2600), t),
        "constant of 100,000 floats": lambda s, t: s + _row(huge, t),
        "constant of 20,000 whole numbers": lambda s, t: s + _row(np.arange(20_000), t),
        "constant of 20,000 bools": lambda s, t: s + _row(numbers(20_000) > 0.5, t),
        "constant of 5,000 doubles": lambda s, t: s + _row(numbers(5000, kind=np.float64), t).astype(s.dtype),
        "constant as a whole": lambda s, t: s + (jnp.asarray(large)[:, None] * t.reward[0]).max(axis=0),
        "constant, unrolled": lambda s, t: s + sum(jnp.asarray(large)[i] * t.reward[0] for i in range(3)),
        "transition tensor": lambda s, t: s + _row(_row(transition, t)[0, 0], t),
        "table of policies": lambda s, t: s + lax.dynamic_index_in_dim(policies, t.state[1, 0], 0)[0, 0, 0, 0],
        "constant in a nested jit": lambda s, t: jax.jit(lambda s: jax.jit(lambda s: s + _row(large, t))(s))(s),
        "constant in a loop": looped,
        "constant in a while loop": waited,
        "constant scanned over": scanned,
        "constant inside a scan": inner_scan,
        "constant in a branch": chosen,
        "constants of a switch": switched,
        "constant under vmap": lambda s, t: jax.vmap(lambda row: row + _row(large, t))(s),
        "constant under remat": lambda s, t: jax.checkpoint(lambda s: s + _row(large, t))(s),
        "constant in a custom derivative": lambda s, t: kinked(s),
        "constants that join to a large one": lambda s, t: s + _row(jnp.concatenate(pieces), t),
        "constant that is pad_block": lambda s, t: s + _row(jnp.pad(small, 1500), t),
        "constant that is repeated": lambda s, t: s + _row(jnp.tile(small, 20), t),
        "five constants": lambda s, t: s + sum(_row(piece, t) for piece in pieces),
        "identity matrix made inside": lambda s, t: s + _row(jnp.eye(80), t)[0],
        "triangle made inside": lambda s, t: s + _row(jnp.tril(jnp.ones((80, 80))), t)[1],
        "long range made inside": lambda s, t: s + _row(jnp.linspace(0.0, 1.0, 5000), t),
        "mask set inside": lambda s, t: s + _row(jnp.zeros((60, 60)).at[3].set(1), t)[0],
        "mask scattered inside": lambda s, t: s + _row(jnp.zeros((60, 60)).at[np.arange(9), np.arange(9)].set(1), t)[0],
        "window updated inside": lambda s, t: (
            s + _row(lax.dynamic_update_slice(jnp.zeros((60, 60)), jnp.ones((2, 60)), (0, 0)), t)[0]
        ),
        "sorted constant": lambda s, t: s + _row(jnp.sort(large), t),
        "running sums of a constant": lambda s, t: s + _row(jnp.cumsum(large), t),
    }


def _operations() -> dict[str, Change]:
    """Operations beyond plain arithmetic."""
    lanes = jnp.arange

    def uniform(state: jax.Array, seen: Any) -> jax.Array:
        return state + jax.random.uniform(jax.random.fold_in(jax.random.key(0), seen.state[1, 0]), state.shape)

    def gamma(state: jax.Array, seen: Any) -> jax.Array:
        return state + jax.random.gamma(jax.random.key(1), 1 + state[0] ** 2, state.shape)

    def solved(state: jax.Array, seen: Any) -> jax.Array:
        return state + jnp.linalg.solve(jnp.eye(ROWS) + 0.1 * state[:, :1], state)

    def eigen(state: jax.Array, seen: Any) -> jax.Array:
        return state + jnp.linalg.eigvalsh(jnp.eye(ROWS) * (1 + seen.reward[0, 0]))[:, None]

    def called_back(state: jax.Array, seen: Any) -> jax.Array:
        like = jax.ShapeDtypeStruct(state.shape, state.dtype)
        return jax.pure_callback(lambda s: np.asarray(s) + np.float32(1), like, state, vmap_method="sequential")

    def convolved(state: jax.Array, seen: Any) -> jax.Array:
        return state + jnp.convolve(state[:, 0], jnp.ones(3), mode="same")[:, None]

    def shortened(state: jax.Array, seen: Any) -> jax.Array:
        return lax.while_loop(lambda s: (s > 1).any(), lambda s: s * 0.5, state + seen.reward[0])

    def stacked(state: jax.Array, seen: Any) -> jax.Array:
        return state + lax.scan(lambda c, x: (c + x, c * x), state[0], seen.reward)[1].sum(axis=0)

    return {
        "scatter by what was seen": lambda s, t: s.at[t.state[1], lanes(s.shape[1])].set(t.reward[0]),
        "scatter of a stride": lambda s, t: s.at[::2, 1:].set(t.reward[0, 1:]),
        "scatter of one row": lambda s, t: s.at[2].set(t.reward[0]),
        "scatter and add": lambda s, t: s.at[t.state[1], lanes(s.shape[1])].add(1.0),
        "scatter and maximum": lambda s, t: s.at[t.state[1]].max(t.reward[0]),
        "scatter and multiply": lambda s, t: s.at[t.action[1], 0].mul(2.0),
        "scatter by a mask": lambda s, t: s.at[jnp.array([0, 2])].set(1 + t.reward[:1]),
        "scatter, indices out of bounds": lambda s, t: s.at[t.state[1] + 9].set(t.reward[0]),
        "gather": lambda s, t: s + s[t.state[1], lanes(s.shape[1])],
        "take along an axis": lambda s, t: s + jnp.take_along_axis(s, t.action[:1], axis=0),
        "dynamic slice out of bounds": lambda s, t: s + lax.dynamic_slice_in_dim(s, t.state[1, 0] + 7, 1),
        "segment sum": lambda s, t: s + jax.ops.segment_sum(t.reward[0], t.state[1], ROWS)[:, None],
        "sort": lambda s, t: jnp.sort(s + t.reward[0], axis=0),
        "sort of lanes": lambda s, t: s + jnp.argsort(t.reward[0]).astype(s.dtype) * 0,
        "largest two": lambda s, t: s + lax.top_k(t.reward[0], 2)[0].sum(),
        "cumulative sum": lambda s, t: jnp.cumsum(s + t.reward[0], axis=0) * 0.1,
        "cumulative maximum": lambda s, t: lax.cummax(s + t.reward[0], axis=0),
        "cumulative product": lambda s, t: jnp.cumprod(1 + 0.1 * t.reward, axis=0)[:1] + 0 * s,
        "associative scan": lambda s, t: lax.associative_scan(jnp.add, s * 0.5 + t.reward[0]),
        "sum of all": lambda s, t: 0.1 * s + t.reward.sum(axis=0),
        "mean, variance": lambda s, t: s + t.reward.mean(axis=0) + t.reward.var(axis=0),
        "product of all": lambda s, t: s + t.reward.prod(axis=0),
        "index of the largest": lambda s, t: s + t.reward.argmax(axis=0).astype(s.dtype),
        "matrix product": lambda s, t: 0.1 * jnp.ones((ROWS, ROWS)) @ s + t.reward[0],
        "einsum": lambda s, t: s + jnp.einsum("lb,lb->b", t.reward, t.reward),
        "convolution": convolved,
        "Fourier transform": lambda s, t: s + jnp.fft.fft(s[:, 0]).real[:, None],
        "linear equations": solved,
        "eigenvalues": eigen,
        "Cholesky factor": lambda s, t: s + jnp.linalg.cholesky(jnp.eye(ROWS) * 2)[0, 0],
        "random uniforms": uniform,
        "random gammas": gamma,
        "special functions": lambda s, t: s + jax.scipy.special.erf(s) + jnp.tanh(s) + jax.scipy.special.gammaln(1 + s),
        "trigonometry": lambda s, t: jnp.sin(s) + jnp.arctan2(s, 1 + t.reward[0]) + jnp.cbrt(s),
        "complex numbers": lambda s, t: s + jnp.abs(jnp.exp(1j * s)),
        "half precision": lambda s, t: (s.astype(jnp.bfloat16) + 1).astype(jnp.float16).astype(s.dtype),
        "bytes": lambda s, t: s + (t.state[1].astype(jnp.uint8) + 250).astype(s.dtype),
        "bits": lambda s, t: s + lax.population_count(t.state[1]).astype(s.dtype),
        "floats as bits": lambda s, t: s + lax.bitcast_convert_type(s, jnp.int32).astype(s.dtype) * 0,
        "whole division and remainder": lambda s, t: s + (t.state[1] // 2 + t.state[1] % 3).astype(s.dtype),
        "rounding": lambda s, t: jnp.round(s + 0.4) + jnp.floor(s) + jnp.ceil(s),
        "next number": lambda s, t: jnp.nextafter(s, jnp.ones_like(s)),
        "log of a sum of exponentials": lambda s, t: s + jax.nn.logsumexp(t.reward, axis=0),
        "softmax": lambda s, t: jax.nn.softmax(s + t.reward[0], axis=0),
        "padding": lambda s, t: jnp.pad(s[1:], ((1, 0), (0, 0))) + t.reward[0],
        "reversed": lambda s, t: s[::-1] + t.reward[0],
        "rolled": lambda s, t: jnp.roll(s, 1, axis=1) * 0.5 + t.reward[0],
        "window": lambda s, t: s + lax.reduce_window(s, -jnp.inf, lax.max, (2, 1), (1, 1), "SAME") * 0.1,
        "a loop of unknown length": shortened,
        "a scan with outputs": stacked,
        "a branch of lanes": lambda s, t: jax.vmap(
            lambda x, a: lax.cond(a > 0, lambda x: x + 1, lambda x: x * 0.5, x), in_axes=(1, 0), out_axes=1
        )(s, t.action[0]),
        "gradient inside": lambda s, t: s - 0.1 * jax.grad(lambda s: ((s - t.reward[0]) ** 2).sum())(s),
        "Hessian inside": lambda s, t: s + jax.hessian(lambda x: (x**3).sum())(s[:, 0]).sum(axis=1)[:, None] * 0.1,
        "call to Python": called_back,
        "barrier": lambda s, t: lax.optimization_barrier(s + t.reward[0]),
        "empty array": lambda s, t: s + jnp.zeros((0, s.shape[1])).sum(axis=0),
        "nothing used": lambda s, t: s,
        "everything constant": lambda s, t: jnp.ones_like(s),
        "reduced precision": lambda s, t: lax.reduce_precision(s + t.reward[0], 8, 7),
        "selected by rank": lambda s, t: jnp.where(t.state[1] > 1, s, s + 1),
    }


def _structures() -> dict[str, Learner]:
    """Unusual states, `init` and `policy`."""
    plain = _learner("", lambda s, t: s + t.reward[0])
    table = numbers(5000)

    def with_state(make: Callable[[Problem], Any], step: Callable[[Any, Any], Any]) -> Learner:
        def update(problem: Problem, hyper: Any, state: Any, policy: Any, trajectory: Any) -> tuple[Any, Info]:
            return step(state, trajectory), Info(0 * problem.threshold, 0 * trajectory.state[0])

        return replace(plain, init=lambda problem, hyper: make(problem), update=update)

    def keys(problem: Problem) -> Any:
        return jax.random.split(jax.random.key(3), problem.threshold.shape[1])

    return {
        "state without arrays": with_state(lambda problem: (), lambda s, t: ()),
        "state with None": with_state(lambda problem: {"a": None, "b": problem.threshold + 0}, lambda s, t: s),
        "state with an empty array": with_state(
            lambda problem: (jnp.zeros((0, problem.threshold.shape[1])), problem.threshold + 0), lambda s, t: s
        ),
        "state of bools": with_state(lambda problem: problem.action_mask[0, 0], lambda s, t: ~s),
        "state of typed keys": with_state(keys, lambda s, t: jax.vmap(lambda k: jax.random.fold_in(k, 1))(s)),
        "state of bytes": with_state(lambda problem: problem.action_mask[0, 0].astype(jnp.uint8), lambda s, t: s + 1),
        "large constant in init": replace(
            plain, init=lambda problem, hyper: jnp.broadcast_to(jnp.asarray(table)[:ROWS, None], (ROWS, 1)) + 0 *
            problem.threshold[:1],
        ),
        "large constant in policy": replace(
            plain,
            policy=lambda problem, hyper, state: _uniform(problem, hyper, state)
            + 0 * lax.dynamic_index_in_dim(jnp.asarray(table), (state[0, 0] > 1).astype(jnp.int32), 0),
        ),
        "frozen partial": replace(plain, update=partial(lambda extra, *given: plain.update(*given), numbers(3000))),
    }  # fmt: skip


def learners() -> dict[str, Learner]:
    """All learners by name, created in the process that runs them."""
    changes = _constants() | _operations()
    made = {name: _learner(name, change) for name, change in changes.items()}
    return made | {name: replace(learner, name=name) for name, learner in _structures().items()}
