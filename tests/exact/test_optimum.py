"""solve: certified, equal to independent computations, unmoved by padding, the same in a batch."""

from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog

from cpdpo_jax.common.types import CMDP
from cpdpo_jax.envs.build import make_cmdp, stack, unstack
from cpdpo_jax.exact.optimum import InfeasibleError, Solution, evaluate, plan, solve


def random_cmdp(rng, shape, *, spread=1.0, tightness=0.5, full=False) -> CMDP:
    """Thresholds between the costs of the Slater policy (tightness 1) and those of the unconstrained optimum (0)."""
    n_layers, n_states, n_actions, m = shape
    allowed = rng.random((n_layers, n_states, n_actions)) < (1.0 if full else 0.8)
    allowed[..., 0] = True
    given: dict[str, Any] = {
        "transition": rng.dirichlet(np.full(n_states, spread), size=(n_layers - 1, n_states, n_actions)),
        "reward": rng.random((n_layers, n_states, n_actions)),
        "cost": rng.random((m, n_layers, n_states, n_actions)),
        "action_mask": allowed,
    }
    loose = make_cmdp(threshold=np.full(m, float(n_layers)), **given)
    solved = solve(loose)
    least = evaluate(loose.transition, solved.slater_policy, loose.cost)
    free = evaluate(loose.transition, solved.unconstrained_policy, loose.cost)
    return make_cmdp(threshold=least + (1 - tightness) * np.maximum(free - least, 0.0), **given)


def assert_certified(cmdp: CMDP, found: Solution) -> None:
    assert abs(found.gap) <= 1e-9
    assert found.violation <= 1e-9
    assert (found.multipliers >= 0).all()
    rows = found.policy.sum(axis=2)
    np.testing.assert_allclose(rows, cmdp.state_mask, atol=1e-12)
    assert (found.policy[~cmdp.action_mask] == 0).all()
    assert found.value <= found.unconstrained_value + 1e-9
    margin = np.min(cmdp.threshold - evaluate(cmdp.transition, found.slater_policy, cmdp.cost))
    assert abs(found.slater_margin - margin) <= 1e-9


@pytest.mark.parametrize("block", range(8))
def test_certificates_of_random_cmdps(block: int):
    """200 in all, 1 to 4 constraints, up to 10 layers, 20 states, 5 actions; odd blocks: very uneven transitions."""
    rng = np.random.default_rng(block)
    for i in range(25):
        shape = (*(int(n) for n in rng.integers(1, (11, 21, 6))), i % 4 + 1)
        cmdp = random_cmdp(rng, shape, spread=0.1 if block % 2 else 1.0, tightness=rng.uniform(0, 0.99))
        assert_certified(cmdp, solve(cmdp))


@pytest.mark.parametrize("m", [1, 2, 4])
@pytest.mark.parametrize("n_layers", [1, 3, 8])
def test_certificates_of_degenerate_cmdps(m: int, n_layers: int):
    rng = np.random.default_rng(m)
    shape = (n_layers, 6, 3, m)
    at_minimum = random_cmdp(rng, shape, tightness=1.0)
    found = solve(at_minimum)
    assert_certified(at_minimum, found)
    assert found.slater_margin <= 1e-9
    loose = random_cmdp(rng, shape, tightness=0.0)
    loose = make_cmdp(loose.transition, loose.reward, loose.cost, np.full(m, n_layers), action_mask=loose.action_mask)
    found = solve(loose)
    assert_certified(loose, found)
    np.testing.assert_allclose(found.value, found.unconstrained_value, atol=1e-12)
    np.testing.assert_allclose(found.multipliers, 0.0, atol=1e-9)


def test_rare_transitions_are_not_lost():
    """HiGHS drops matrix entries below 1e-9: with 1e-10 in the row, 1e-9 more reward would look free of cost."""
    p = np.array([[[[1 - 1e-10, 1e-10], [1.0, 0.0]]] * 2])
    reward, cost = np.zeros((2, 2, 2)), np.zeros((1, 2, 2, 2))
    reward[0, 0, 0], cost[0, 1, 1] = 1.0, 1.0  # the paying action leads to the costly state, with 1e-10
    found = solve(make_cmdp(p, reward, cost, [5e-11]))
    np.testing.assert_allclose(found.value, 0.5, atol=1e-6)
    np.testing.assert_allclose(found.multipliers, 1e10, rtol=1e-6)


def test_by_hand():
    """One state, two actions: (reward, cost) = (1, .8) or (.2, .1), threshold .45: an even mixture."""
    cmdp = make_cmdp(None, [[[1.0, 0.2]]], [[[[0.8, 0.1]]]], [0.45])
    found = solve(cmdp)
    np.testing.assert_allclose(found.policy, [[[0.5, 0.5]]], atol=1e-12)
    np.testing.assert_allclose(found.value, 0.6, atol=1e-12)
    np.testing.assert_allclose(found.multipliers, [0.8 / 0.7], atol=1e-12)
    np.testing.assert_allclose(found.slater_margin, 0.35, atol=1e-12)
    np.testing.assert_allclose(found.slater_policy, [[[0, 1]]], atol=1e-12)
    assert found.unconstrained_value == 1.0


def occupancy_rows(cmdp: CMDP) -> tuple[np.ndarray, np.ndarray]:
    """The flow equations over all [L, S, A] entries as a dense matrix, by loops: independent of the oracle's."""
    n_layers, n_states, n_actions = cmdp.reward.shape
    rows = np.zeros((n_layers, n_states, n_layers, n_states, n_actions))
    for k in range(n_layers):
        for x in range(n_states):
            rows[k, x, k, x] = 1.0
            if k:
                rows[k, x, k - 1] = -cmdp.transition[k - 1, :, :, x]
    right = np.zeros((n_layers, n_states))
    right[0, 0] = 1.0
    return rows.reshape(n_layers * n_states, -1), right.ravel()


def penalised_optimum(cmdp: CMDP, c: float) -> float:
    """max_pi V(r) - c sum_i [V(g_i) - alpha_i]^+, an LP in (q, excess) with excess_i >= V(g_i) - alpha_i and >= 0."""
    m, n = len(cmdp.cost), cmdp.reward.size
    flow, right = occupancy_rows(cmdp)
    upper = np.hstack([cmdp.cost.reshape(m, n), -np.eye(m)])
    ends = [(0.0, None if real else 0.0) for real in np.asarray(cmdp.action_mask).ravel()] + [(0.0, None)] * m
    result = linprog(
        np.append(-cmdp.reward.ravel(), np.full(m, c)),
        upper,
        cmdp.threshold,
        np.hstack([flow, np.zeros((len(right), m))]),
        right,
        ends,
    )
    assert result.status == 0
    return -result.fun


@pytest.mark.parametrize("seed", range(10))
def test_lemma_strong_plus(seed: int):
    """Lemma strong_plus (Section 6.1): c = (L+1)/rho makes violating the constraints not pay; less may not."""
    rng = np.random.default_rng(seed)
    m = seed % 3 + 1
    cmdp = random_cmdp(rng, (3, 4, 3, m), tightness=0.7)
    found = solve(cmdp)
    assert found.slater_margin > 1e-3
    assert found.multipliers.max() > 1e-2
    large = (cmdp.n_layers + 1) / float(found.slater_margin)
    np.testing.assert_allclose(penalised_optimum(cmdp, large), found.value, atol=1e-7)
    # sum_i lambda_i rho <= OPT - V(r) of the Slater policy <= L: the lemma's constant covers the multipliers
    assert found.multipliers.sum() <= cmdp.n_layers / found.slater_margin
    np.testing.assert_allclose(penalised_optimum(cmdp, found.multipliers.max()), found.value, atol=1e-7)
    assert penalised_optimum(cmdp, 0.5 * found.multipliers.max()) > found.value + 1e-4
    np.testing.assert_allclose(penalised_optimum(cmdp, 0.0), found.unconstrained_value, atol=1e-7)


def test_infeasible_says_by_how_much():
    """Costs of at least .3 (by action 1) and .25 (by action 0) against thresholds of .2 and .25."""
    cmdp = make_cmdp(None, [[[1.0, 0.2]]], [[[[0.8, 0.3]]], [[[0.25, 0.75]]]], [0.2, 0.25], name="tight")
    with pytest.raises(InfeasibleError) as caught:
        solve(cmdp)
    message = str(caught.value)
    assert isinstance(caught.value, ValueError)
    assert "tight is infeasible" in message
    assert "V(cost[0]) is at least 0.3 against threshold[0] = 0.2 (violated by 0.1 at best)" in message
    assert "V(cost[1]) is at least 0.25 against threshold[1] = 0.25;" in message
    # w on action 0: violations .1 + .5 w and .5 (1 - w) are equal, 0.3, at w = .4
    assert "violated by at least 0.3," in message


def test_infeasible_by_rounding_counts_as_feasible():
    cmdp = make_cmdp(None, [[[1.0, 0.2]]], [[[[0.8, 0.3]]]], [0.3 - 5e-10])
    found = solve(cmdp)
    assert found.slater_margin == 0.0
    assert 0 < found.violation <= 1e-9
    np.testing.assert_allclose(found.value, 0.2, atol=1e-8)


def padded(cmdp: CMDP, rng: np.random.Generator) -> CMDP:
    """The same CMDP in wider arrays, real states moved to random places (x_0 stays), rubbish at the padding."""
    n_layers, n_states, n_actions = cmdp.reward.shape
    wide, more = n_states + 3, n_actions + 2
    p, r = rng.random((n_layers - 1, wide, more, wide)), rng.normal(size=(n_layers, wide, more))
    g, mask = rng.normal(size=(len(cmdp.cost), n_layers, wide, more)), np.zeros((n_layers, wide, more), bool)
    where = [np.arange(n_states), *(rng.permutation(wide)[:n_states] for _ in range(n_layers - 1))]
    for k in range(n_layers):
        if k < n_layers - 1:
            p[k, where[k], :n_actions] = 0.0
            p[k][np.ix_(where[k], np.arange(n_actions), where[k + 1])] = cmdp.transition[k]
        r[k, where[k], :n_actions] = cmdp.reward[k]
        g[:, k, where[k], :n_actions] = cmdp.cost[:, k]
        mask[k, where[k], :n_actions] = cmdp.action_mask[k]
    return make_cmdp(p, r, g, cmdp.threshold, action_mask=mask)


@pytest.mark.parametrize("seed", range(8))
def test_padding_changes_nothing(seed: int):
    rng = np.random.default_rng(seed)
    cmdp = random_cmdp(rng, (1 + seed % 5, 4, 3, 1 + seed % 3))
    found, wide = solve(cmdp), solve(padded(cmdp, rng))
    for field in ("value", "multipliers", "slater_margin", "unconstrained_value"):
        np.testing.assert_allclose(getattr(found, field), getattr(wide, field), atol=1e-9)


def test_policy_evaluation_and_planning_agree_with_the_occupancy():
    cmdp = random_cmdp(np.random.default_rng(5), (4, 5, 3, 2))
    value, policy = plan(cmdp.transition, cmdp.reward, cmdp.action_mask)
    np.testing.assert_allclose(evaluate(cmdp.transition, policy, cmdp.reward[None])[0], value, atol=1e-14)
    flow, right = occupancy_rows(cmdp)
    reach, sums = np.eye(5)[0], 0.0
    q = np.zeros(cmdp.reward.shape)
    for k in range(4):
        q[k] = reach[:, None] * policy[k]
        sums += (q[k] * cmdp.reward[k]).sum()
        reach = np.einsum("xa,xay->y", q[k], cmdp.transition[k]) if k < 3 else reach
    np.testing.assert_allclose(sums, value, atol=1e-14)
    np.testing.assert_allclose(flow @ q.ravel(), right, atol=1e-14)


def test_batch_is_one_by_one():
    rng = np.random.default_rng(0)
    ones = [random_cmdp(rng, (4, 5, 3, 2)) for _ in range(5)]
    found = solve(stack(ones))
    assert found.policy.shape == (4, 5, 3, 5)
    assert found.multipliers.shape == (2, 5)
    assert found.value.shape == (5,)
    for i, single in enumerate(unstack(stack(ones))):
        for field, value in zip(Solution._fields, solve(single), strict=True):
            np.testing.assert_allclose(getattr(found, field)[..., i], value, atol=1e-12)


def test_an_infeasible_instance_of_a_batch_is_named():
    ones = [make_cmdp(None, [[[1.0]]], [[[[0.5]]]], [alpha], name=f"n{alpha}") for alpha in (1.0, 0.5, 0.25)]
    with pytest.raises(InfeasibleError, match=r"n0\.25 \(instance 2\).*violated by at least 0\.25"):
        solve(stack(ones))


def test_the_former_number_of_processes_is_ignored_with_a_warning():
    single = make_cmdp(None, [[[1.0]]], [[[[0.5]]]], [1.0])
    with pytest.warns(DeprecationWarning, match="leave the argument out"):
        assert solve(single, processes=2).value == 1.0
