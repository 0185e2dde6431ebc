"""Random families: the requested Slater margin, constraints that bind, rejected draws, small margins."""

import numpy as np
import pytest

import cpdpo_jax as cp
from cpdpo_jax.exact.lp import evaluate


@pytest.mark.parametrize(("rho", "constraints"), [
    (0.1, 1), (0.01, 3),
    *(pytest.param(*both, marks=pytest.mark.exhaustive) for both in [(1.0, 1), (0.01, 1), (1.0, 3), (0.1, 3)]),
])  # fmt: skip
def test_fifty_draws_have_the_requested_margin_and_bind(rho, constraints):
    rejected: list[int] = []
    cmdp = cp.envs.make("random", rho=rho, constraints=constraints, instances=50, rejected=rejected)
    solution = cp.solve(cmdp)
    np.testing.assert_allclose(solution.slater_margin, rho, rtol=0, atol=1e-6)
    assert solution.multipliers.min() >= 1e-3
    costs = [
        evaluate(instance.transition, policy, instance.cost)
        for instance, policy in zip(cp.unstack(cmdp), np.moveaxis(solution.policy, -1, 0), strict=True)
    ]
    np.testing.assert_allclose(np.transpose(costs), cmdp.threshold, atol=1e-9)
    assert len(rejected) == 50
    off = np.abs(solution.slater_margin - rho).max()
    print(f"\nrho {rho}, m {constraints}: error of rho {off:.0e}, rejected {sum(rejected)}")


def test_the_margin_without_binding():
    cmdp = cp.envs.make("random", rho=2.5, binding=False, instances=5)
    np.testing.assert_allclose(cp.solve(cmdp).slater_margin, 2.5, atol=1e-6)


@pytest.mark.parametrize("constraints", [1, 2])
def test_tighter_thresholds_leave_less(constraints):
    values, margins = [], []
    for tightness in (0.2, 0.5, 0.9):
        cmdp = cp.envs.make("random", tightness=tightness, constraints=constraints, binding=False, instances=4)
        solution = cp.solve(cmdp)
        values.append(solution.value)
        margins.append(solution.slater_margin)
    assert (np.diff(values, axis=0) < 0).all()
    assert (np.diff(margins, axis=0) < 0).all()


def test_the_draws_are_those_documented():
    cmdp = cp.envs.make("random", key=11)
    rng = np.random.Generator(np.random.PCG64([11, 0]))
    np.testing.assert_allclose(cmdp.transition[1:], rng.dirichlet(np.ones(5), size=(5, 5, 3))[1:], atol=1e-14)
    np.testing.assert_array_equal(cmdp.reward[1:], rng.random((6, 5, 3))[1:])
    np.testing.assert_array_equal(cmdp.cost[:, 1:], rng.random((1, 6, 5, 3))[:, 1:])


def test_a_margin_out_of_reach_says_how_far_it_was():
    with pytest.raises(ValueError, match=r"rho = 3 is not attainable .* 500 draws of random \(it stayed below \d"):
        cp.envs.make("random", rho=3.0, layers=3, states=2)


@pytest.mark.parametrize("constraints", [1, 2])
def test_small_margins_move_only_the_thresholds(constraints):
    cmdp = cp.envs.make("small_rho", constraints=constraints, layers=7)
    solution = cp.solve(cmdp)
    np.testing.assert_allclose(solution.slater_margin, [1, 0.3, 0.1, 0.03, 0.01], atol=1e-6)
    assert solution.multipliers.min() >= 1e-3
    for field in ("transition", "reward", "cost"):
        array = getattr(cmdp, field)
        np.testing.assert_array_equal(array, np.broadcast_to(array[..., :1], array.shape))
    moved = cmdp.threshold - cmdp.threshold[:, -1:]
    np.testing.assert_allclose(moved, np.tile([0.99, 0.29, 0.09, 0.02, 0.0], (constraints, 1)), atol=1e-12)
    assert cmdp.names[1] == "small_rho(rho=0.3)(key=0)[0]"
    assert cp.envs.make("small_rho", rhos=(0.1, 0.2), instances=2).batch_shape == (4,)


def test_garnet_has_its_branching_and_steps_that_do_not_differ():
    cmdp = cp.envs.make("garnet", branching=2, states=6, constraints=2, rho=0.2, instances=3)
    steps = cmdp.transition[1:]
    assert ((steps > 0).sum(axis=3) == 2).all()
    np.testing.assert_array_equal(steps, np.broadcast_to(steps[:1], steps.shape))
    np.testing.assert_allclose(cp.solve(cmdp).slater_margin, 0.2, atol=1e-6)


def test_every_instance_of_a_large_batch_has_a_margin():
    """One in a few draws of so small a family has a policy that is best in reward and in cost: it is drawn again."""
    rejected: list[int] = []
    batch = cp.envs.make("random", layers=1, states=1, actions=2, instances=40, binding=False, rejected=rejected)
    assert sum(rejected) > 0
    assert (cp.solve(batch).slater_margin > 1e-9).all()
