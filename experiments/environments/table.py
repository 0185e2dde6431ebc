"""The table of every named environment, each compared with its second construction.

    python -m experiments.environments.table            (from the top of the repository; about fifteen seconds)

"z" is the largest distance, over objective and constraints, between the exact value of a policy and the mean of 10^5
episodes of it sampled from the plain dictionaries of `tests/reference/environments_plain.py`, in standard errors and in
the units of the source; for the uniform policy and for a random one. (The uniform policy alone cannot detect slips: a
move that slips to a uniform one is as good as the chosen one.)
"""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np

import cpdpo_jax as cp
from cpdpo_jax.exact.lp import evaluate
from tests.reference import environments_plain as plain

EPISODES = 100_000


class Row(NamedTuple):
    name: str
    page: str  # S, A, H as on the page
    layered: str  # layers x widest layer x actions, |X|
    optimum: float  # original units
    costs: np.ndarray  # [M] original units, of the optimal policy
    limits: np.ndarray  # [M] original units
    senses: list[str]  # [M]
    unconstrained: float  # original units
    rho: float
    multipliers: np.ndarray  # [M]
    gap: float
    build: float  # seconds
    solve: float  # seconds
    z: float


def layered_policy(cmdp: cp.CMDP, weights: np.ndarray) -> np.ndarray:
    """The policy [L, S, A] that takes allowed actions in proportion to weights [H, A], whatever the state."""
    added = np.ones((cmdp.n_layers - len(weights), cmdp.n_actions))  # of an x_0 that draws the start
    policy = np.concatenate([added, weights])[:, None, :] * cmdp.action_mask
    return policy / np.where(cmdp.action_mask.any(axis=2), policy.sum(axis=2), 1.0)[..., None]


def distance(cmdp: cp.CMDP, name: str, episodes: int = EPISODES, seed: int = 1) -> np.ndarray:
    """|exact value - mean of sampled episodes| in standard errors, [2, 1 + M]: uniform and random policy."""
    world = plain.WORLDS[name]()
    shape = (world.horizon, cmdp.n_actions)
    rng, ratios = np.random.default_rng(seed), []
    drift = rng.dirichlet(np.ones(shape[1])) * rng.uniform(0.5, 1.5, shape)  # a bias that lasts: it gets somewhere
    for weights in (np.ones(shape), drift):
        payoff = np.concatenate([cmdp.reward[None], cmdp.cost])
        value, *costs = evaluate(cmdp.transition, layered_policy(cmdp, weights), payoff)
        exact = np.concatenate([np.atleast_1d(part) for part in cp.envs.original_units(cmdp, value, costs)])
        sums = plain.sample(world, weights, episodes, seed)
        error = sums.std(axis=0, ddof=1) / np.sqrt(episodes)
        off = np.abs(sums.mean(axis=0) - exact)
        ratios.append(np.where(off < 1e-9, 0.0, off / np.maximum(error, 1e-12)))  # 0 / 0 where nothing is random
    return np.array(ratios)


def row(name: str, episodes: int = EPISODES) -> Row:
    start = time.perf_counter()
    cmdp = cp.envs.make(name)
    built = time.perf_counter()
    solution = cp.solve(cmdp)
    solved = time.perf_counter()
    optimum, costs = cp.envs.original_units(cmdp, solution.value, evaluate(cmdp.transition, solution.policy, cmdp.cost))
    free, limits = cp.envs.original_units(cmdp, solution.unconstrained_value, cmdp.threshold)
    return Row(
        name=name,
        page=", ".join(map(str, plain.WORLDS[name]().sizes)),
        layered=f"{cmdp.n_layers}x{cmdp.n_states}x{cmdp.n_actions}, {int(cmdp.real_states)}",
        optimum=float(optimum),
        costs=costs,
        limits=limits,
        senses=[">=" if scale < 0 else "<=" for scale in cmdp.units.cost_scale],
        unconstrained=float(free),
        rho=float(solution.slater_margin),
        multipliers=solution.multipliers,
        gap=float(solution.gap),
        build=built - start,
        solve=solved - built,
        z=float(distance(cmdp, name, episodes).max()),
    )


def main() -> None:
    cp.envs.make("factored")  # the first call loads jax, which is not building
    print(
        "| environment | S, A, H | LxSxA, X | OPT | constraints at OPT | without | rho | gap | build s | solve s | z |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for name in plain.WORLDS:
        facts = row(name)
        bounds = "; ".join(
            f"{c:.4g} {s} {limit:.4g}" for c, s, limit in zip(facts.costs, facts.senses, facts.limits, strict=True)
        )
        print(
            f"| {name} | {facts.page} | {facts.layered} | {facts.optimum:.5g} | {bounds} | {facts.unconstrained:.5g} | "
            f"{facts.rho:.4g} | {facts.gap:.0e} | {facts.build:.2f} | {facts.solve:.2f} | {facts.z:.1f} |"
        )


if __name__ == "__main__":
    main()
