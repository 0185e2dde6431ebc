"""Which form of the inner problem is fastest? Microseconds per lane of `occupancy_bounds` for each form tried.

    python experiments/kernel_forms/table.py

L = 5, A = 3, 64 lanes, float32. Every form computes both bounds of every state; each is checked against the first.
CPU seconds of the process, not wall clock, so that a busy machine disturbs less; compile time apart.
"""

from __future__ import annotations

import argparse
import importlib
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cpdpo_jax.kernels import extreme, loops
from cpdpo_jax.results.tables import format_table

LAYERS, ACTIONS, LANES = 5, 3, 64

occupancy: Any = importlib.import_module("cpdpo_jax.kernels.occupancy")  # `kernels.occupancy` is the function


def problem(states: int, lanes: int = LANES) -> tuple[jax.Array, jax.Array, jax.Array]:
    """A random policy and a random box around a random transition function, lanes last."""
    rng = np.random.default_rng(states)
    centre = rng.dirichlet(np.ones(states), size=(LAYERS - 1, states, ACTIONS, lanes))
    centre = np.moveaxis(centre, -1, 3)
    width = 0.2 * centre
    policy = np.moveaxis(rng.dirichlet(np.ones(ACTIONS), size=(LAYERS, states, lanes)), -1, 2)
    arrays = policy, np.maximum(centre - width, 0), np.minimum(centre + width, 1)
    return tuple(jnp.asarray(a, jnp.float32) for a in arrays)  # pyright: ignore[reportReturnType]


def naive_one(policy: jax.Array, lower: jax.Array, upper: jax.Array) -> tuple[jax.Array, jax.Array]:
    """As one would write it: one DP per target state, the inner problem by sorting, no thought of layout."""
    n_layers, n_states = policy.shape[:2]

    def inner(lo, hi, f, sign):
        order = jnp.argsort(-sign * f)
        c = (hi - lo)[order]
        given = jnp.clip(1 - lo.sum() - jnp.concatenate([jnp.zeros(1), jnp.cumsum(c)[:-1]]), 0, c)
        return lo @ f + given @ f[order]

    def bound(sign):
        rows = [jnp.eye(n_states)[0]]
        for h in range(1, n_layers):

            def target(f, h=h):
                for k in range(h - 1, -1, -1):
                    best = jax.vmap(jax.vmap(lambda lo, hi, f=f: inner(lo, hi, f, sign)))(lower[k], upper[k])
                    f = (policy[k] * best).sum(axis=1)
                return f[0]

            rows.append(jax.vmap(target)(jnp.eye(n_states)))
        return jnp.stack(rows)

    return bound(-1), bound(1)


def sorted_extreme(lower, spread, slack, excess, f, maximize) -> jax.Array:
    """The sorted form with the lanes last: lower.f + sum_j f_(j) (min(s, C_j) - min(s, C_(j-1)))."""
    n = f.shape[0]
    shape = jnp.broadcast_shapes(slack.shape, f.shape[1:])
    order = jnp.argsort(-f if maximize else f, axis=0)
    ranked = jnp.take_along_axis(f, order, axis=0)
    spreads = jnp.stack([jnp.broadcast_to(spread(j), shape) for j in range(n)])
    spreads = jnp.take_along_axis(spreads, jnp.broadcast_to(order, (n, *shape)), axis=0)
    total, before, filled = 0.0, 0.0, 0.0
    for j in range(n):
        filled = filled + spreads[j]
        given = jnp.minimum(filled, slack)
        total, before = total + ranked[j] * (given - before), given
    return total + loops.unrolled_sum(n, lambda j: lower(j) * f[j])


def batched(form: Callable | None, narrow: int) -> Callable:
    """`occupancy_bounds` with another inner form, or another width up to which breakpoints are unrolled."""

    def run(policy, lower, upper):
        kept = occupancy.extreme, occupancy.written_out, extreme.MAX_BREAKPOINTS
        occupancy.extreme, occupancy.written_out, extreme.MAX_BREAKPOINTS = (
            form or extreme.extreme,
            lambda shape: shape[1] <= narrow,
            narrow,
        )
        try:
            return occupancy.occupancy_bounds_in_box(policy, extreme.make_box(lower, upper))
        finally:
            occupancy.extreme, occupancy.written_out, extreme.MAX_BREAKPOINTS = kept

    return run


def seconds(function: Callable, arguments: tuple, budget: float) -> tuple[float, float, tuple]:
    """CPU seconds of a warm call (best of three rounds), of its compilation, and its answer."""
    start = time.process_time()
    compiled = jax.jit(function).lower(*arguments).compile()
    compile_time = time.process_time() - start
    start = time.process_time()
    answer = jax.block_until_ready(compiled(*arguments))
    calls = max(1, int(budget / max(time.process_time() - start, 1e-5)))
    best = np.inf
    for _ in range(3):
        start = time.process_time()
        for _ in range(calls):
            out = compiled(*arguments)
        jax.block_until_ready(out)
        best = min(best, (time.process_time() - start) / calls)
    return best, compile_time, answer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--states", type=int, nargs="+", default=[3, 5, 10, 20, 40])
    parser.add_argument("--budget", type=float, default=0.3, help="seconds per timing round")
    chosen = parser.parse_args()
    forms: dict[str, tuple[Callable, int]] = {  # with the widest layer each is tried on
        "naive: sort, plain vmap": (jax.vmap(naive_one, in_axes=-1, out_axes=-1), 20),
        "breakpoints unrolled, lanes last": (batched(None, narrow=99), 10),
        "breakpoints in a loop, lanes last": (batched(None, narrow=0), 99),
        "sorted, lanes last": (batched(partial(sorted_extreme), narrow=0), 20),
        "as shipped": (batched(None, narrow=loops.MAX_BREAKPOINTS), 99),
    }
    rows = [["form", *(f"S={s}" for s in chosen.states), "exponent", "compile s at each S"]]
    times: dict[str, list[float]] = {}
    reference = {}
    for name, (form, widest) in forms.items():
        cells, compiles = [], []
        for s in chosen.states:
            if s > widest:
                cells.append(np.nan)
                compiles.append("-")
                continue
            arguments = problem(s)
            best, compile_time, answer = seconds(form, arguments, chosen.budget)
            expected = reference.setdefault(s, answer)
            error = max(float(jnp.abs(a - b).max()) for a, b in zip(answer, expected, strict=True))
            if error > 1e-5:
                raise SystemExit(f"{name} disagrees with the naive form at S = {s} by {error:.2g}")
            cells.append(best / LANES * 1e6)
            compiles.append(f"{compile_time:.1f}")
        times[name] = cells
        done = np.isfinite(cells)
        slope = np.polyfit(np.log(np.array(chosen.states)[done]), np.log(np.array(cells)[done]), 1)[0]
        shown = ["-" if np.isnan(c) else f"{c:.3g}" for c in cells]
        rows.append([name, *shown, f"{slope:.2f}", " ".join(compiles)])
        print(name, shown, flush=True)
    print(f"\nmicroseconds per lane of both occupancy bounds, L={LAYERS}, A={ACTIONS}, {LANES} lanes, CPU time")
    print(format_table(rows))
    if 5 in chosen.states:
        at = chosen.states.index(5)
        ratio = times["naive: sort, plain vmap"][at] / times["as shipped"][at]
        print(f"S=5: as shipped is {ratio:.1f} times faster than the naive form in the same run")


if __name__ == "__main__":
    main()
