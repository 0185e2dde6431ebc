"""Random families with parameters for sizes, constraints, Slater margin and tightness."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from cpdpo_jax.common.types import CMDP
from cpdpo_jax.envs.build import make_cmdp
from cpdpo_jax.envs.parameters import SOLVING_SPARSE, check_memory, integer, number
from cpdpo_jax.envs.slater import Unreachable, place
from cpdpo_jax.envs.streams import indices, join, label, stream

MOST_DRAWS = 500  # for one instance, before the request is called impossible

Draw = Callable[[np.random.Generator], tuple[np.ndarray, np.ndarray, np.ndarray]]  # P, r, g


def random(
    *,
    layers: int = 6,
    states: int = 5,
    actions: int = 3,
    constraints: int = 1,
    concentration: float = 1.0,
    rho: float | None = None,
    tightness: float = 0.5,
    binding: bool = True,
    noise: str = "bernoulli",
    key: int = 0,
    instances: int | None = None,
    rejected: list[int] | None = None,
) -> CMDP:
    """Random layered CMDP with a requested Slater margin or tightness, with constraints that bind.

    Drawn by `key` in this order: P ~ Dirichlet(`concentration`) `[L-1, S, A, S]`, r ~ U(0, 1) `[L, S, A]`,
    g ~ U(0, 1) `[M, L, S, A]`; then the thresholds (see `cpdpo_jax.envs.slater`). `rho`: the Slater margin, which
    `solve` confirms within 1e-6. Without it, `tightness` in [0, 1) places the thresholds between the costs of
    the unconstrained optimum (0) and costs that no policy can lower simultaneously (1). `binding`: every optimal
    multiplier is at least 1e-3. Draws where this is impossible are rejected in favour of the next draw of the stream;
    the list `rejected` receives their number for each instance. `instances=n` gives a batch of n.
    """
    n_layers, draw = _layered("random", layers, states, actions, constraints, concentration, instances)
    return _family("random", draw, _margins(rho, n_layers), tightness, binding, noise, key, instances, rejected)


def garnet(
    *,
    horizon: int = 8,
    states: int = 10,
    actions: int = 3,
    branching: int = 3,
    constraints: int = 1,
    rho: float | None = None,
    tightness: float = 0.5,
    binding: bool = True,
    noise: str = "bernoulli",
    key: int = 0,
    instances: int | None = None,
    rejected: list[int] | None = None,
) -> CMDP:
    """Garnet (Archibald et al. 1995; Bhatnagar et al. 2009): every pair leads to `branching` states only.

    Transitions are the same at every step; the initial state is 0. Drawn by `key` in this order: for each (s, a)
    `branching` different next states and cut points ~ U(0, 1), whose gaps are their probabilities; r ~ U(0, 1)
    `[S, A]`; g ~ U(0, 1) `[M, S, A]`. Everything else is as in `random`. All states are real in every layer but the
    first, including those that cannot be reached there.
    """
    h, n, a = integer("horizon", horizon, 1), integer("states", states, 1), integer("actions", actions, 1)
    m, b = integer("constraints", constraints, 1), integer("branching", branching, 1, n)
    check_memory("garnet", h, n, a, instances, SOLVING_SPARSE)

    def draw(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        transition = np.zeros((n, a, n))
        for s in range(n):
            for action in range(a):
                there = rng.choice(n, b, replace=False)
                cuts = np.sort(rng.random(b - 1))
                transition[s, action, there] = np.diff(np.concatenate([[0.0], cuts, [1.0]]))
        reward, cost = rng.random((n, a)), rng.random((m, n, a))
        steps = np.broadcast_to(transition, (h - 1, n, a, n))
        return steps, np.broadcast_to(reward, (h, n, a)), np.repeat(cost[:, None], h, axis=1)

    return _family("garnet", draw, _margins(rho, h), tightness, binding, noise, key, instances, rejected)


def small_rho(
    *,
    rhos: Sequence[float] = (1.0, 0.3, 0.1, 0.03, 0.01),
    layers: int = 6,
    states: int = 5,
    actions: int = 3,
    constraints: int = 1,
    concentration: float = 1.0,
    binding: bool = True,
    noise: str = "bernoulli",
    key: int = 0,
    instances: int | None = None,
    rejected: list[int] | None = None,
) -> CMDP:
    """A batch with the same P, r and g, and Slater margins down to .01: only the thresholds differ.

    P, r and g as in `random`, one instance for each of `rhos`, in this order; `binding`: the constraints bind in all
    of them. With `instances` = n, a batch of n times as many, ordered by draw, then by margin.
    """
    n_layers, draw = _layered("small_rho", layers, states, actions, constraints, concentration, instances)
    if np.ndim(rhos) != 1 or len(rhos) == 0:
        raise ValueError(f"rhos = {rhos!r}; give a list of at least one margin in (0, {n_layers}].")
    margins = [number(f"rhos[{i}]", rho, 0, n_layers, open_low=True) for i, rho in enumerate(rhos)]
    ascending = tuple(sorted(margins))
    cmdps = []
    for i in indices(instances):
        placed, count = _until_placed("small_rho", draw, stream(key, i), ascending, 0.5, bool(binding), noise)
        for rho in margins:
            name = label(f"small_rho(rho={rho:g})", key, i)
            cmdps.append(replace(placed[ascending.index(rho)], names=(name,)))
        if rejected is not None:
            rejected.append(count)
    return join(cmdps, len(cmdps))


def _layered(name, layers, states, actions, constraints, concentration, instances) -> tuple[int, Draw]:
    """The number of layers, and draws of P ~ Dirichlet, r and g ~ U(0, 1)."""
    n_layers, n, a = integer("layers", layers, 1), integer("states", states, 1), integer("actions", actions, 1)
    m = integer("constraints", constraints, 1)
    check_memory(name, n_layers, n, a, instances)
    alpha = number("concentration", concentration, 0, np.inf, open_low=True)

    def draw(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        transition = rng.dirichlet(np.full(n, alpha), size=(n_layers - 1, n, a))
        return transition, rng.random((n_layers, n, a)), rng.random((m, n_layers, n, a))

    return n_layers, draw


def _margins(rho: float | None, n_layers: int) -> tuple[float, ...] | None:
    return None if rho is None else (number("rho", rho, 0, n_layers, open_low=True),)


def _family(name, draw: Draw, margins, tightness, binding, noise, key, instances, rejected) -> CMDP:
    """Draw the instances, each from its own stream, and count what was rejected."""
    tightness = number("tightness", tightness, 0, 1, open_low=bool(binding), open_high=True)
    cmdps = []
    for i in indices(instances):
        placed, count = _until_placed(name, draw, stream(key, i), margins, tightness, bool(binding), noise)
        cmdps.append(replace(placed[0], names=(label(name, key, i),)))
        if rejected is not None:
            rejected.append(count)
    return join(cmdps, instances)


def _until_placed(
    name: str, draw: Draw, rng: np.random.Generator, margins, tightness: float, binding: bool, noise: str
) -> tuple[list[CMDP], int]:
    """The first draw that attains the requested thresholds, and the number of rejected draws before it."""
    best = 0.0
    for count in range(MOST_DRAWS):
        transition, reward, cost = draw(rng)
        free = np.full(len(cost), float(len(reward)))
        try:
            return place(
                make_cmdp(transition, reward, cost, free, noise=noise), rng, margins, tightness, binding
            ), count
        except Unreachable as error:
            best = max(best, error.best)
    requested = f"tightness = {tightness:g}" if margins is None else f"rho = {', '.join(f'{rho:g}' for rho in margins)}"
    bind = " with every constraint binding" if binding else ""
    short = f" (it stayed below {best:.3g})" if margins and best < margins[-1] else ""
    raise ValueError(
        f"{requested} is not attainable{bind} in any of {MOST_DRAWS} draws of {name}{short}; choose a smaller value, "
        f"more layers or actions, fewer constraints{', or binding=False' if binding else ''}."
    )
