"""Grid worlds: cliff, mars rover, and Sutton and Barto's 5x5 with three constraints."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from cpdpo_jax.common.types import CMDP
from cpdpo_jax.envs.episodic import ADDED, from_episodic, layer_states
from cpdpo_jax.envs.parameters import integer, number, thresholds

MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))  # up, right, down, left: the actions 0..3 of every grid
ROVER = (
    "S0000000",
    "00000000",
    "000P00P0",
    "00000000",
    "00000000",
    "0PP00000",
    "0P00P0P0",
    "000P000G",
)


class Grid(NamedTuple):
    """A grid world before it is laid out in layers."""

    arguments: dict[str, Any]  # of from_episodic
    rows: list[str]  # the map, a letter for each cell: S start, G goal, P pit, C cliff, A and B of Sutton and Barto


def cliff(
    *,
    horizon: int = 15,
    threshold: float = 2.0,
    rows: int = 4,
    columns: int = 6,
    fall: float = 100.0,
    noise: str = "bernoulli",
) -> CMDP:
    """Cliff walking (AlwaysSafe, Simao et al. 2021): the short way home runs through costly cells.

    24 states, 4 actions, H = 15. 4 rows, 6 columns; start bottom left, goal bottom right, which absorbs (reward 0).
    Every step pays -1; a step on the bottom row between them pays -100 instead and leads back to the start. Bumping
    into the border stays. Cost: the row of the cell stepped to when it is in the interior (rows 1-2, columns 1-4),
    at most 2.
    """
    return from_episodic(**_cliff(horizon, threshold, rows, columns, fall, noise).arguments)


def _cliff(horizon, threshold, rows, columns, fall, noise) -> Grid:
    n_rows, n_columns = integer("rows", rows, 3), integer("columns", columns, 3)
    fall = number("fall", fall, 0, np.inf)
    start, goal = (n_rows - 1) * n_columns, n_rows * n_columns - 1
    transition, reward, cost = _empty(n_rows * n_columns)
    for s in range(n_rows * n_columns):
        for a, move in enumerate(MOVES):
            row, column = _step(divmod(s, n_columns), move, n_rows, n_columns)
            there = row * n_columns + column
            if s == goal:
                transition[s, a, goal] = 1.0
            elif row == n_rows - 1 and 0 < column < n_columns - 1:
                transition[s, a, start], reward[s, a] = 1.0, -fall
            else:
                transition[s, a, there], reward[s, a] = 1.0, -1.0
                interior = 0 < row < n_rows - 1 and 0 < column < n_columns - 1
                cost[0, s, a] = row if interior else 0.0
    letters = ["0" * n_columns] * (n_rows - 1) + ["S" + "C" * (n_columns - 2) + "G"]
    limit = thresholds("threshold", threshold, 1)
    return Grid(_arguments("cliff", transition, reward, cost, limit, horizon, start, noise), letters)


def mars_rover(
    *,
    horizon: int = 30,
    threshold: float = 0.3,
    slip: float = 0.1,
    map: Sequence[str] = ROVER,
    noise: str = "bernoulli",
) -> CMDP:
    """Mars rover (ConRL, Brantley et al. 2020): reach the goal past pits that pay as much, and cost.

    64 states, 4 actions, H = 30. With probability `slip` = .1 the move is replaced by a uniformly random move; bumping
    into the border stays. Stepping on goal G or pit P pays 1, then 1/H per step there (both absorb); P also costs 1,
    then 1/H per step. Cost at most .3. `map`: rows of S (start), G, P and 0.
    """
    return from_episodic(**_mars_rover(horizon, threshold, slip, map, noise).arguments)


def _mars_rover(horizon, threshold, slip, map, noise) -> Grid:
    rows, horizon = read_map("map", map, "SGP0"), integer("horizon", horizon, 1)
    n_rows, n_columns = len(rows), len(rows[0])
    cells, slip = "".join(rows), number("slip", slip, 0, 1)
    transition, reward, cost = _empty(len(cells))
    for s, cell in enumerate(cells):
        for a in range(4):
            if cell in "GP":
                transition[s, a, s], reward[s, a] = 1.0, 1 / horizon
                cost[0, s, a] = (cell == "P") / horizon
                continue
            for b, move in enumerate(MOVES):
                chance = (1 - slip) * (a == b) + slip / 4
                row, column = _step(divmod(s, n_columns), move, n_rows, n_columns)
                there = row * n_columns + column
                transition[s, a, there] += chance
                reward[s, a] += chance * (cells[there] in "GP")
                cost[0, s, a] += chance * (cells[there] == "P")
    limit = thresholds("threshold", threshold, 1)
    return Grid(_arguments("mars_rover", transition, reward, cost, limit, horizon, cells.index("S"), noise), rows)


def grid_three_constraints(
    *, horizon: int = 15, threshold: Sequence[float] = (1.5, 2.0, 2.0), noise: str = "bernoulli"
) -> CMDP:
    """Sutton and Barto's 5x5 grid with THREE constraints (Coin Betting, Jain et al. 2022), with a horizon.

    25 states, 4 actions, H = 15; 16 layers, the first of which draws the start, uniform. Book, Example 3.5: any action
    in A = (0, 1) pays 10 and leads to (4, 1), in B = (0, 3) pays 5 and leads to (2, 3); bumping into the border pays
    -1 and stays. Utilities, each to be at least its threshold: the expected number of steps begun in B, in the left
    column, and in the right column.
    Deviation: discounted in the source, undiscounted here. The source's budgets are not given in our copy: horizon,
    utilities and thresholds are our own, chosen so that all three constraints bind.
    """
    return from_episodic(**_grid_three_constraints(horizon, threshold, noise).arguments)


def _grid_three_constraints(horizon, threshold, noise) -> Grid:
    n = 5
    special = {(0, 1): ((4, 1), 10.0), (0, 3): ((2, 3), 5.0)}
    transition, reward, _ = _empty(n * n)
    for s in range(n * n):
        for a, move in enumerate(MOVES):
            cell = divmod(s, n)
            there = _step(cell, move, n, n)
            pay = -1.0 if there == cell else 0.0
            there, pay = special.get((cell[0], cell[1]), (there, pay))
            transition[s, a, there[0] * n + there[1]], reward[s, a] = 1.0, pay
    utility = np.zeros((3, n, n))
    utility[0, 0, 3] = 1.0
    utility[1, :, 0] = 1.0
    utility[2, :, -1] = 1.0
    utility = np.repeat(utility.reshape(3, n * n, 1), 4, axis=2)
    limits, start = thresholds("threshold", threshold, 3), np.full(n * n, 1 / n**2)
    arguments = _arguments("grid_three_constraints", transition, reward, utility, limits, horizon, start, noise)
    return Grid({**arguments, "sense": ">="}, ["0A0B0", "00000", "00000", "00000", "00000"])


def grid_of(name: str, **parameters: Any) -> tuple[list[np.ndarray], list[str]]:
    """The cell `[x, 2]` (row, column) of state x in each layer of a named grid, and its map.

    The cell of an added x_0 is (-1, -1). For `cliff`, `mars_rover` and `grid_three_constraints`.
    """
    sources = {"cliff": _cliff, "mars_rover": _mars_rover, "grid_three_constraints": _grid_three_constraints}
    if name not in sources:
        raise ValueError(f"name = {name!r} is not a grid; choose one of {', '.join(sources)}.")
    given = inspect.signature(globals()[name]).bind(**parameters)
    given.apply_defaults()
    arguments, rows = sources[name](**given.arguments)
    numbers = layer_states(arguments["transition"], horizon=arguments["horizon"], initial=arguments["initial"])
    columns = len(rows[0])
    return [np.array([(-1, -1) if s == ADDED else divmod(int(s), columns) for s in layer]) for layer in numbers], rows


def read_map(name: str, rows: Sequence[str], letters: str) -> list[str]:
    """A map: rows of equal length of the given letters, with exactly one S and at least one G."""
    lines = [row.replace(" ", "") for row in rows]
    cells = "".join(lines)
    if not lines or len({len(row) for row in lines}) != 1 or not set(cells) <= set(letters) or cells.count("S") != 1:
        raise ValueError(
            f"{name} = {rows!r}; give rows of equal length made of {', '.join(letters)}, with exactly one S."
        )
    if "G" not in cells:
        raise ValueError(f"{name} = {rows!r} has no goal; add at least one G.")
    return lines


def _arguments(name, transition, reward, cost, threshold, horizon, initial, noise) -> dict[str, Any]:
    return {
        "transition": transition,
        "reward": reward,
        "cost": cost,
        "threshold": threshold,
        "horizon": integer("horizon", horizon, 1),
        "initial": initial,
        "noise": noise,
        "name": name,
    }


def _empty(n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Zeros for P `[S, 4, S]`, r `[S, 4]` and one cost `[1, S, 4]`."""
    return np.zeros((n, 4, n)), np.zeros((n, 4)), np.zeros((1, n, 4))


def _step(cell: tuple[int, int], move: tuple[int, int], rows: int, columns: int) -> tuple[int, int]:
    """The next cell, or the same cell at the border."""
    return min(max(cell[0] + move[0], 0), rows - 1), min(max(cell[1] + move[1], 0), columns - 1)
