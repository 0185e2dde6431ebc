"""The `hard` family: an exact primal-dual method with a known model cycles, so weak and strong metrics come apart."""

import numpy as np
import pytest

import cpdpo_jax as cp


def primal_dual(cmdp, episodes: int) -> np.ndarray:
    """Values [T, 1 + M] of pi_{t+1} ~ pi_t exp(eta Q(r - lambda.g)), lambda <- [lambda + eta (V(g) - alpha)]^+.

    No learning: true P, r and g. eta = 1/sqrt(T), as in the analyses.
    """
    payoff = np.concatenate([cmdp.reward[None], cmdp.cost])
    shape, eta = cmdp.reward.shape, 1 / np.sqrt(episodes)
    logits, multipliers, values = np.zeros(shape), np.zeros(cmdp.n_constraints), []
    for _ in range(episodes):
        weight = np.exp(logits - logits.max(axis=2, keepdims=True)) * cmdp.action_mask
        policy = weight / np.maximum(weight.sum(axis=2, keepdims=True), 1e-300)
        q, ahead = np.zeros(payoff.shape), np.zeros((len(payoff), shape[1]))
        for k in reversed(range(shape[0])):
            future = np.einsum("xay,cy->cxa", cmdp.transition[k], ahead) if k + 1 < shape[0] else 0.0
            q[:, k] = payoff[:, k] + future
            ahead = (policy[k] * q[:, k]).sum(axis=-1)
        values.append(ahead[:, 0].copy())
        logits += eta * (q[0] - np.tensordot(multipliers, q[1:], 1))
        multipliers = np.maximum(0.0, multipliers + eta * (values[-1][1:] - cmdp.threshold))
    return np.array(values)


def metrics(cmdp, episodes: int) -> tuple[float, float, float, float]:
    """Strong and weak violation, strong and weak regret."""
    values = primal_dual(cmdp, episodes)
    over, short = values[:, 1:] - cmdp.threshold, float(cp.solve(cmdp).value) - values[:, 0]
    return (
        float(np.maximum(over, 0).sum(axis=0).max()),
        float(over.sum(axis=0).max()),
        float(np.maximum(short, 0).sum()),
        float(short.sum()),
    )


@pytest.mark.parametrize("constraints", [1, 2])
def test_weak_and_strong_metrics_come_apart(constraints):
    cmdp = cp.envs.make("hard", constraints=constraints)
    short, long = metrics(cmdp, 500), metrics(cmdp, 8000)
    growth = np.log(np.divide(long, short)[[0, 2]]) / np.log(16)
    print(f"\nm {constraints}: strong violation {long[0]:.0f}, weak {long[1]:.0f}, strong regret {long[2]:.0f}, weak {long[3]:.0f}, exponents {growth.round(2)}")  # fmt: skip  # noqa: E501
    assert long[0] > 4 * abs(long[1])  # the strong violation is of another size
    assert long[2] > 4 * abs(long[3])
    assert (growth > 0.85).all()  # and nearly linear in T
    assert abs(long[1]) < 3 * np.sqrt(8000)  # while the weak one is O(sqrt(T)): lambda / eta


def test_a_random_instance_does_not_do_this():
    cmdp = cp.envs.make("random", rho=0.5)
    short, long = metrics(cmdp, 500), metrics(cmdp, 8000)
    assert np.log(long[0] / short[0]) / np.log(16) < 0.75


@pytest.mark.parametrize("constraints", [1, 3])
def test_every_policy_maximises_the_lagrangian(constraints):
    cmdp = cp.envs.make("hard", constraints=constraints, layers=4, states=3, key=2)
    solution = cp.solve(cmdp)
    flat = cmdp.reward - np.tensordot(solution.multipliers, cmdp.cost, 1)
    np.testing.assert_allclose(flat, 0, atol=1e-9)
    assert (solution.multipliers >= 0.5 - 1e-9).all()
    assert float(solution.slater_margin) == pytest.approx(float(cmdp.threshold[0]))  # action 0 costs nothing
    assert float(solution.value) == pytest.approx(float(solution.multipliers @ cmdp.threshold))
