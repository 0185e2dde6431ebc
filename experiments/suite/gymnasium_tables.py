"""Write the Gymnasium table of the suite as a CMDP, so that the suite needs no Gymnasium.

    python -m experiments.suite.gymnasium_tables

FrozenLake, 4 x 4, eight steps, one in ten of which slips. The cost counts the steps that end next to or in a hole.
"""

from __future__ import annotations

import cpdpo_jax as cp
from experiments.suite.sweep import TABLES

HORIZON, THRESHOLD = 8, 2.5


def main() -> None:
    import gymnasium

    lake = gymnasium.make("FrozenLake-v1", map_name="4x4", is_slippery=True, success_rate=0.9)
    side = 4
    holes = {divmod(i, side) for i, letter in enumerate("SFFFFHFHFFFHHFFG") if letter == "H"}
    near = {(x + dx, y + dy) for x, y in holes for dx, dy in ((0, 0), (0, 1), (1, 0), (0, -1), (-1, 0))}
    cmdp = cp.from_gymnasium(
        lake,
        cost=lambda _state, _action, reached: float(divmod(reached, side) in near),
        threshold=THRESHOLD,
        horizon=HORIZON,
        name="frozen_lake",
    )
    print(cmdp.describe())
    cp.save_cmdp(TABLES / "frozen_lake.npz", cmdp)


if __name__ == "__main__":
    main()
