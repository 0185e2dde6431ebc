"""Pictures are drawn without a warning, with what they should show."""

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest

import cpdpo_jax as cp
from cpdpo_jax.envs import draw_cmdp, draw_grid_policy, grid_of


@pytest.mark.parametrize("with_policy", [False, True])
def test_a_graph_has_an_arrow_for_each_step(with_policy, tmp_path):
    cmdp = cp.envs.make("factored")
    figure = draw_cmdp(cmdp, cp.solve(cmdp).policy if with_policy else None)
    figure.savefig(tmp_path / "graph.png")
    # 15 states with 2 deterministic actions each; the optimum stays three times, then moves three times
    assert len(figure.axes[0].patches) == (6 if with_policy else 30)
    plt.close(figure)


@pytest.mark.parametrize("name", ["cliff", "grid_three_constraints"])
def test_a_grid_policy(name, tmp_path):
    cmdp = cp.envs.make(name)
    figure = draw_grid_policy(name, cmdp, cp.solve(cmdp).policy)
    figure.savefig(tmp_path / "grid.png")
    assert figure.axes[0].get_title() == name
    plt.close(figure)


def test_cells_of_layered_states():
    cells, rows = grid_of("cliff")
    assert rows[-1] == "SCCCCG"
    np.testing.assert_array_equal(cells[0], [[3, 0]])
    np.testing.assert_array_equal(cells[1], [[2, 0], [3, 0]])
    assert [3, 5] in cells[7].tolist()
    assert [3, 5] not in cells[6].tolist()
    np.testing.assert_array_equal(grid_of("grid_three_constraints")[0][0], [[-1, -1]])


def test_what_cannot_be_drawn_is_named():
    rover = cp.envs.make("mars_rover")
    with pytest.raises(ValueError, match="1468 states; a picture shows at most 80"):
        draw_cmdp(rover)
    with pytest.raises(ValueError, match="name = 'box' is not a grid"):
        draw_grid_policy("box", rover, rover.reward)
    with pytest.raises(ValueError, match="does not match cliff"):
        draw_grid_policy("cliff", rover, rover.reward)
    with pytest.raises(ValueError, match="policy has shape"):
        draw_grid_policy("cliff", cp.envs.make("cliff"), np.ones(3))
