"""The pymdptoolbox layout: P [A, S, S], R [S, A]."""

import numpy as np
import pytest
from scipy import sparse

import cpdpo_jax as cp

RNG = np.random.default_rng(0)
P = RNG.dirichlet(np.ones(4), size=(3, 4))  # [A, S, S]
R, C = RNG.random((4, 3)), RNG.random((2, 4, 3))


def same(a, b) -> None:
    for field in ("transition", "reward", "cost", "threshold"):
        np.testing.assert_allclose(getattr(a, field), getattr(b, field), atol=1e-14)


def test_is_from_episodic_with_the_action_first():
    expected = cp.from_episodic(P.transpose(1, 0, 2), R, C, [2.0, 3.0], horizon=5, initial=1)
    same(cp.from_arrays(P, R, C, [2.0, 3.0], horizon=5, initial=1), expected)
    same(cp.from_arrays([sparse.csr_array(p) for p in P], R, C, [2.0, 3.0], horizon=5, initial=1), expected)


def test_the_forest_of_pymdptoolbox():
    # mdptoolbox.example.forest(S=3, r1=4, r2=2, p=.1): wait or cut; a fire takes the forest back to 0.
    p = [[[0.1, 0.9, 0], [0.1, 0, 0.9], [0.1, 0, 0.9]], [[1, 0, 0], [1, 0, 0], [1, 0, 0]]]
    reward = [[0, 0], [0, 1], [4, 2]]
    cuts = [[0, 1], [0, 1], [0, 1]]
    cmdp = cp.from_arrays(p, reward, cuts, 0.5, horizon=4, name="forest")
    value, _ = cp.envs.original_units(cmdp, cp.solve(cmdp).unconstrained_value, cmdp.threshold)
    # never cut: state 2 at step 2 with .81, at step 3 with .81 * .9 (again) or 0 .1 .9 .9: 4 (.81 + .9 * .9)
    assert float(value) >= 4 * 0.81 * (1 + 0.9) - 1e-9
    assert cmdp.n_constraints == 1


def test_rewards_of_states_and_of_steps():
    by_state = RNG.random(4)
    same(
        cp.from_arrays(P, by_state, C, [2, 3], horizon=3),
        cp.from_arrays(P, np.repeat(by_state[:, None], 3, 1), C, [2, 3], horizon=3),
    )
    by_step = RNG.random((3, 4, 4))
    mean = np.einsum("asy,asy->sa", P, by_step)
    same(cp.from_arrays(P, by_step, by_step[None], [2], horizon=3), cp.from_arrays(P, mean, mean[None], [2], horizon=3))


@pytest.mark.parametrize(
    ("p", "r", "match"),
    [
        (P.transpose(1, 0, 2), R, r"transition has shape \(4, 3, 4\); give \[A, S, S\]"),
        (P, R.T, r"reward has shape \(3, 4\); give \[S, A\] = \(4, 3\)"),
        (P, "x", "reward is not an array"),
        (P * 0.5, R, "sums to 0.5"),
    ],
)
def test_wrong_layouts_are_named(p, r, match):
    with pytest.raises(ValueError, match=match):
        cp.from_arrays(p, r, C, [2.0, 3.0], horizon=5)
