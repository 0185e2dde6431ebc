"""Compares forms of the inner problem: microseconds per lane of `occupancy_bounds` for each form.

    python experiments/kernel_forms/table.py

L = 5, A = 3, 64 lanes, float32. Every form computes both bounds of every state; each is checked against the first.
CPU seconds of the process, not wall clock, so that a busy machine disturbs less; compile time apart.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from cpdpo_jax import kernels
from cpdpo_jax.kernels.machines import unrolled
from cpdpo_jax.results.tables import format_table

LAYERS, ACTIONS, LANES = 5, 3, 64


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
    """A straightforward version: a recursion per target state, sorting for the inner problem, ignoring the layout."""
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
        "the paper's: scan over layers, lanes last": (kernels.occupancy_bounds.paper, 20),
        "unrolled, lanes last": (unrolled.occupancy_bounds, 10),
        "as shipped": (kernels.occupancy_bounds, 99),
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
