"""The named environments a second time: plain dictionaries and loops, and sampled episodes.

Written from the page of definitions alone; imports nothing from the package. A world is

    start    {state: probability}
    actions  state -> list of actions
    step     (h, state, action) -> list of (probability, next state, objective, constraint values)

with objective and constraints in the units and the sense of the source. States are whatever is natural: numbers, pairs,
letters. A policy is a table of weights [H, A], the same in every state: at step h the j-th allowed action is taken with
probability proportional to weights[h, j]. Only the order of the actions is shared with the package.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import NamedTuple

import numpy as np


class World(NamedTuple):
    horizon: int
    start: dict[Hashable, float]
    actions: Callable
    step: Callable
    sizes: tuple[int, int, int]  # S, A, H as on the page


def sample(world: World, weights: np.ndarray, episodes: int, seed: int) -> np.ndarray:
    """Sums of objective and constraints over sampled episodes of the policy, [episodes, 1 + M]."""
    rng = np.random.default_rng(seed)
    states = list(world.start)
    here = _pick(rng, np.array([list(world.start.values())]), np.zeros(episodes, int))
    total = None
    for h in range(world.horizon):
        here_states, index = states, {}
        lists = []
        for state in here_states:
            outcomes = []
            allowed = world.actions(state)
            share = weights[h, : len(allowed)] / weights[h, : len(allowed)].sum()
            for chosen, action in zip(share, allowed, strict=True):
                outcomes += [(chosen * p, y, v) for p, y, v in _flat(world.step(h, state, action))]
            lists.append(outcomes)
            for _, y, _ in outcomes:
                index.setdefault(y, len(index))
        width = max(map(len, lists))
        n_values = len(lists[0][0][2])
        chance = np.zeros((len(lists), width))
        there = np.zeros((len(lists), width), int)
        value = np.zeros((len(lists), width, n_values))
        for i, outcomes in enumerate(lists):
            for j, (p, y, v) in enumerate(outcomes):
                chance[i, j], there[i, j], value[i, j] = p, index[y], v
        drawn = _pick(rng, chance, here)
        gained = value[here, drawn]
        total = gained if total is None else total + gained
        here, states = there[here, drawn], list(index)
    assert total is not None
    return total


def _flat(outcomes):
    for p, y, objective, constraints in outcomes:
        if p > 0:
            yield p, y, (objective, *constraints)


def _pick(rng: np.random.Generator, rows: np.ndarray, which: np.ndarray) -> np.ndarray:
    """For each entry of `which` a column drawn from that row's probabilities."""
    assert np.allclose(rows.sum(axis=1), 1)
    until = np.cumsum(rows, axis=1)
    until[np.cumsum(rows[:, ::-1], axis=1)[:, ::-1] - rows <= 1e-15] = (
        2.0  # the last possible column takes what is left
    )
    found = np.empty(len(which), int)
    uniform = rng.random(len(which))
    for i in np.unique(which):
        at = which == i
        found[at] = np.searchsorted(until[i], uniform[at], side="right")
    return found


def media_streaming() -> World:
    def step(h, s, a):
        mu = {"fast": 0.9, "slow": 0.1}[a]
        return _buffer(s, mu, 0.8, 9, 1.0 if s == 0 else 0.0, 1.0 if a == "fast" else 0.0)

    return World(10, {0: 1.0}, lambda s: ["fast", "slow"], step, (10, 2, 10))


def _buffer(s, mu, leave, top, objective, constraint):
    up, down = mu * (1 - leave), (1 - mu) * leave
    outcomes = [(up, min(s + 1, top)), (down, max(s - 1, 0)), (1 - up - down, s)]
    return [(p, y, objective, [constraint]) for p, y in outcomes]


def streaming_episode_wise(key: int = 0) -> World:
    rng = np.random.Generator(np.random.PCG64([key, 0]))
    mu = 0.5 + 0.4 * rng.random()
    leave = 0.1 + 0.3 * rng.random()

    def step(h, s, a):
        rate = mu if a == "fast" else 1 - mu
        return _buffer(s, rate, leave, 5, 1.0 if s >= 1 else 0.0, 1.0 if a == "slow" else 0.0)

    return World(4, {0: 1.0}, lambda s: ["fast", "slow"], step, (6, 2, 4))


def inventory() -> World:
    demand = {0: 0.3, 1: 0.2, 2: 0.2, 3: 0.2, 4: 0.05, 5: 0.05}

    def revenue(stock):
        return sum(p * 0.08 * min(d, stock) for d, p in demand.items())

    def cost(s, a):
        return (4 + 2 * a if a > 0 else 0) + s + a

    pairs = [(s, a) for s in range(6) for a in range(6 - s)]
    most_revenue, most_cost = max(revenue(s + a) for s, a in pairs), max(cost(s, a) for s, a in pairs)

    def step(h, s, a):
        return [
            (p, max(0, s + a - d), 0.08 * min(d, s + a) / most_revenue, [cost(s, a) / most_cost])
            for d, p in demand.items()
        ]

    return World(7, {0: 1.0}, lambda s: list(range(6 - s)), step, (6, 6, 7))


def factored() -> World:
    def step(h, s, a):
        return [(1.0, s, 0.0, [0.0])] if a == "stay" else [(1.0, (s + 1) % 3, (s + 1) / 3, [1.0])]

    return World(6, {0: 1.0}, lambda s: ["stay", "move"], step, (3, 2, 6))


def simple() -> World:
    def step(h, s, a):
        return [(1.0, s, 0.0, [0.0])] if a == "stay" else [(1.0, (s + 1) % 3, s + 1.0, [1.0])]

    return World(6, {s: 1 / 3 for s in range(3)}, lambda s: ["stay", "move"], step, (3, 2, 6))


def difficult() -> World:
    def step(h, state, a):
        x, y = state
        if x == 0:
            return [(0.1, (1, 0), 0.0, [0.0]), (0.9, (1, 1), 0.0, [0.0])]
        if x == 1:
            return [(1.0, (2, y), 1.0 if a == ("B" if y == 0 else "A") else 0.0, [1.0 if a == "A" else 0.0])]
        return [(1.0, state, 0.0, [0.0])]

    return World(3, {(0, 0): 0.5, (0, 1): 0.5}, lambda s: ["A", "B"], step, (6, 2, 3))


COMPASS = {"north": (-1, 0), "east": (0, 1), "south": (1, 0), "west": (0, -1)}


def _walk(cell, direction, inside):
    there = (cell[0] + COMPASS[direction][0], cell[1] + COMPASS[direction][1])
    return there if inside(there) else cell


def cliff() -> World:
    def step(h, cell, a):
        if cell == (3, 5):
            return [(1.0, cell, 0.0, [0.0])]
        there = _walk(cell, a, lambda c: 0 <= c[0] <= 3 and 0 <= c[1] <= 5)
        if there[0] == 3 and there[1] in (1, 2, 3, 4):
            return [(1.0, (3, 0), -100.0, [0.0])]
        return [(1.0, there, -1.0, [there[0] if there[0] in (1, 2) and there[1] in (1, 2, 3, 4) else 0.0])]

    return World(15, {(3, 0): 1.0}, lambda s: list(COMPASS), step, (24, 4, 15))


def mars_rover() -> World:
    text = """
    S 0 0 0 0 0 0 0
    0 0 0 0 0 0 0 0
    0 0 0 P 0 0 P 0
    0 0 0 0 0 0 0 0
    0 0 0 0 0 0 0 0
    0 P P 0 0 0 0 0
    0 P 0 0 P 0 P 0
    0 0 0 P 0 0 0 G
    """
    letters = {(i, j): c for i, row in enumerate(text.split("\n")[1:9]) for j, c in enumerate(row.split())}

    def step(h, cell, a):
        if letters[cell] in "GP":
            return [(1.0, cell, 1 / 30, [1 / 30 if letters[cell] == "P" else 0.0])]
        outcomes = []
        for direction in COMPASS:
            there = _walk(cell, direction, lambda c: c in letters)
            p = 0.925 if direction == a else 0.025
            hit = letters[there] in "GP"
            outcomes.append((p, there, 1.0 if hit else 0.0, [1.0 if letters[there] == "P" else 0.0]))
        return outcomes

    return World(30, {(0, 0): 1.0}, lambda s: list(COMPASS), step, (64, 4, 30))


def box() -> World:
    text = """
    W W W W W W
    W 0 S W W W
    W 0 X 0 0 W
    W W 0 0 0 W
    W W W 0 G W
    W W W W W W
    """
    letters = {(i, j): c for i, row in enumerate(text.split("\n")[1:7]) for j, c in enumerate(row.split())}
    where = {c: cell for cell, c in letters.items() if c in "SXG"}

    def move(cell, direction):
        return cell[0] + COMPASS[direction][0], cell[1] + COMPASS[direction][1]

    def cost(crate):
        return 1 / 30 if sum(letters[move(crate, d)] == "W" for d in COMPASS) >= 2 else 0.0

    def step(h, state, a):
        agent, crate = state
        if agent == where["G"]:
            return [(1.0, state, 1 / 30, [cost(crate)])]
        outcomes = []
        for direction in COMPASS:
            after = move(agent, direction)
            pushed = move(crate, direction) if after == crate else crate
            if letters[after] == "W" or letters[pushed] == "W":
                after, pushed = agent, crate
            p = 0.925 if direction == a else 0.025
            outcomes.append((p, (after, pushed), 1.0 if after == where["G"] else 0.0, [cost(pushed)]))
        return outcomes

    return World(30, {(where["S"], where["X"]): 1.0}, lambda s: list(COMPASS), step, (121, 4, 30))


def grid_three_constraints() -> World:
    utility = [{(0, 3): 1.0}, {(i, 0): 1.0 for i in range(5)}, {(i, 4): 1.0 for i in range(5)}]

    def step(h, cell, a):
        values = [u.get(cell, 0.0) for u in utility]
        if cell == (0, 1):
            return [(1.0, (4, 1), 10.0, values)]
        if cell == (0, 3):
            return [(1.0, (2, 3), 5.0, values)]
        there = _walk(cell, a, lambda c: 0 <= c[0] <= 4 and 0 <= c[1] <= 4)
        return [(1.0, there, -1.0 if there == cell else 0.0, values)]

    start: dict[Hashable, float] = {(i, j): 1 / 25 for i in range(5) for j in range(5)}
    return World(15, start, lambda s: list(COMPASS), step, (25, 4, 15))


def _drawn(horizon, n, m, chance, same, key) -> World:
    """P ~ Dirichlet(.1) for every step, then Bernoulli rewards and utilities; the draws' order is the package's."""
    rng = np.random.Generator(np.random.PCG64([key, 0]))
    p = rng.dirichlet([0.1] * n, size=(horizon, n, m))
    reward = rng.random((horizon, n, m)) < chance
    utility = ~reward if same else rng.random((horizon, n, m)) < chance

    def step(h, s, a):
        values = float(reward[h, s, a]), [float(utility[h, s, a])]
        return [(float(q), y, *values) for y, q in enumerate(p[h, s, a])]

    return World(horizon, {0: 1.0}, lambda s: list(range(m)), step, (n, m, horizon))


def random_uniform_pac(key: int = 0) -> World:
    return _drawn(10, 30, 3, 0.5, True, key)


def random_episode_wise(key: int = 0) -> World:
    return _drawn(4, 5, 3, 0.1, False, key)


WORLDS = {
    "media_streaming": media_streaming,
    "inventory": inventory,
    "factored": factored,
    "simple": simple,
    "difficult": difficult,
    "cliff": cliff,
    "mars_rover": mars_rover,
    "box": box,
    "random_uniform_pac": random_uniform_pac,
    "random_episode_wise": random_episode_wise,
    "streaming_episode_wise": streaming_episode_wise,
    "grid_three_constraints": grid_three_constraints,
}
