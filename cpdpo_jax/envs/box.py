"""Box: reach the goal without pushing a box into a place where it is stuck."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cpdpo_jax.common.types import CMDP
from cpdpo_jax.envs.episodic import from_episodic
from cpdpo_jax.envs.grids import MOVES, read_map
from cpdpo_jax.envs.parameters import integer, number, thresholds

BOX = (
    "WWWWWW",
    "W0SWWW",
    "W0X00W",
    "WW000W",
    "WWW0GW",
    "WWWWWW",
)


def box(
    *,
    horizon: int = 30,
    threshold: float = 0.1,
    slip: float = 0.1,
    map: Sequence[str] = BOX,
    noise: str = "bernoulli",
) -> CMDP:
    """Box (ConRL, Brantley et al. 2020): a push into a corner cannot be undone.

    121 states, 4 actions, H = 30. State: agent's cell x box's cell, both without wall (they may coincide), numbered
    agent * 11 + box. With probability `slip` = .1 the move is replaced by a uniformly random move. Moving onto the box
    pushes it; a move that leaves the state space has no effect. When the agent reaches G: reward 1, then 1/H per step
    (absorbs). Cost 1/H for every step, also in G, while the box, after the step, has at least 2 of its 4 neighbours as
    walls; at most .1. `map`: rows of W (wall), S (agent), X (box), G and 0, surrounded by walls.
    """
    rows, horizon = read_map("map", map, "WSXG0"), integer("horizon", horizon, 1)
    slip = number("slip", slip, 0, 1)
    border = rows[0] + rows[-1] + "".join(row[0] + row[-1] for row in rows)
    if set(border) != {"W"} or "".join(rows).count("X") != 1:
        raise ValueError(f"map = {map!r}; give a map surrounded by walls with exactly one box X.")
    free = [(i, j) for i, row in enumerate(rows) for j, letter in enumerate(row) if letter != "W"]
    number_of = {cell: n for n, cell in enumerate(free)}
    letter = {cell: rows[cell[0]][cell[1]] for cell in free}
    stuck = {cell: sum(_next(cell, move) not in number_of for move in MOVES) >= 2 for cell in free}

    n = len(free)
    transition, reward, cost = np.zeros((n * n, 4, n * n)), np.zeros((n * n, 4)), np.zeros((1, n * n, 4))
    for agent in free:
        for box in free:
            s = number_of[agent] * n + number_of[box]
            if letter[agent] == "G":
                transition[s, :, s], reward[s], cost[0, s] = 1.0, 1 / horizon, stuck[box] / horizon
                continue
            for b, move in enumerate(MOVES):
                agent_there, box_there = _next(agent, move), box
                if agent_there == box:
                    box_there = _next(box, move)
                if agent_there not in number_of or box_there not in number_of:
                    agent_there, box_there = agent, box
                there = number_of[agent_there] * n + number_of[box_there]
                for a in range(4):
                    chance = (1 - slip) * (a == b) + slip / 4
                    transition[s, a, there] += chance
                    reward[s, a] += chance * (letter[agent_there] == "G")
                    cost[0, s, a] += chance * stuck[box_there] / horizon
    where = {rows[i][j]: number_of[i, j] for i, j in free}
    return from_episodic(
        transition,
        reward,
        cost,
        thresholds("threshold", threshold, 1),
        horizon=horizon,
        initial=where["S"] * n + where["X"],
        noise=noise,
        name="box",
    )


def _next(cell: tuple[int, int], move: tuple[int, int]) -> tuple[int, int]:
    return cell[0] + move[0], cell[1] + move[1]
