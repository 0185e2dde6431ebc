"""CMDPs from tabular Gymnasium environments: the values of the original, computed from its own table."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

import cpdpo_jax as cp
from cpdpo_jax.exact.lp import evaluate, plan


def best(P, horizon: int) -> np.ndarray:
    """Value iteration on the original table: V_h(s) = max_a sum p (r + [not terminated] V_{h+1}(s')), [S]."""
    value = np.zeros(len(P))
    for _ in range(horizon):
        value = np.array([
            max(sum(p * (r + (0 if over else value[y])) for p, y, r, over in steps) for steps in P[s].values())
            for s in range(len(P))
        ])  # fmt: skip
    return value


def uniform_cost(P, cost, horizon: int) -> np.ndarray:
    """The expected cost of uniform play until an episode ends, [S]."""
    value = np.zeros(len(P))
    for _ in range(horizon):
        value = np.array([
            np.mean([
                sum(p * (cost(s, a, y) + (0 if over else value[y])) for p, y, _, over in steps)
                for a, steps in P[s].items()
            ]) for s in range(len(P))
        ])  # fmt: skip
    return value


def is_left(state: int, action: int, following: int) -> float:
    return 2.0 * (action == 0) + 0.5 * (following == state)


@pytest.mark.parametrize(
    ("name", "horizon", "initial"),
    [
        ("FrozenLake-v1", 12, None),
        ("CliffWalking-v1", 16, None),
        ("Taxi-v4", 5, None),
        ("Taxi-v4", 14, 1),
        ("Taxi-v4", 20, 123),
    ],
)
def test_values_are_those_of_the_original(name, horizon, initial):
    env: Any = gymnasium.make(name).unwrapped
    cmdp = cp.from_gymnasium(env, cost=is_left, threshold=10.0, horizon=horizon, initial=initial)
    start = np.asarray(env.initial_state_distrib) if initial is None else np.eye(len(env.P))[initial]
    value, _ = plan(cmdp.transition, cmdp.reward, cmdp.action_mask)
    uniform = cmdp.action_mask / np.maximum(cmdp.action_mask.sum(axis=2, keepdims=True), 1)
    ours = cp.envs.original_units(cmdp, value, evaluate(cmdp.transition, uniform, cmdp.cost))
    assert float(ours[0]) == pytest.approx(start @ best(env.P, horizon), abs=1e-9)
    assert float(ours[1][0]) == pytest.approx(start @ uniform_cost(env.P, is_left, horizon), abs=1e-9)


def test_taxi_from_one_state_is_solved_and_its_layers_are_small():
    env: Any = gymnasium.make("Taxi-v4")
    cmdp = cp.from_gymnasium(env, cost=is_left, threshold=20.0, horizon=8, initial=1, reward_unit="points")
    assert cmdp.name == "Taxi-v4"
    assert cmdp.n_states < 100  # of 501
    solution = cp.solve(cmdp)
    shown, _ = cp.envs.original_units(cmdp, solution.value, cmdp.threshold)
    assert float(shown) == pytest.approx(best(env.unwrapped.P, 8)[1], abs=1e-6)
    result = cp.simulate("uniform", cmdp, episodes=20, seeds=2, progress=False)
    assert np.isfinite(result.data.strong_regret).all()


def test_taxi_from_all_starts_has_the_optimum_of_its_own_table():
    """15 steps: 4.18. Without an absorbing end the last reward of 20 would repeat, and the value would be 21.47."""
    cmdp = cp.from_gymnasium(gymnasium.make("Taxi-v4"), cost=is_left, threshold=30.0, horizon=15)
    value, _ = plan(cmdp.transition, cmdp.reward, cmdp.action_mask)
    shown, _ = cp.envs.original_units(cmdp, value, cmdp.threshold)
    assert float(shown) == pytest.approx(4.18, abs=0.005)


def test_a_cost_of_two_arguments_is_refused_in_a_sentence():
    for wrong in (lambda s, a: 0.0, lambda: 0.0):
        with pytest.raises(ValueError, match="cost does not accept three arguments; give a function of state, action"):
            cp.from_gymnasium(gymnasium.make("FrozenLake-v1"), cost=wrong, threshold=1.0, horizon=3)
    cp.from_gymnasium(gymnasium.make("FrozenLake-v1"), cost=max, threshold=20.0, horizon=3)


def test_taxi_with_a_limit_on_moves_to_the_south_by_hand():
    """From state 1 the way takes 2 moves south and pays 20 - 9 = 11; without it 11 steps cost 11. At most one such move
    in the mean: each in half of the episodes, OPT 0, and another move would be worth 11 points.
    """
    cmdp = cp.from_gymnasium(
        gymnasium.make("Taxi-v4"), cost=lambda s, a, y: float(a == 0), threshold=1.0, horizon=11, initial=1,
        reward_unit="points", cost_units="moves",
    )  # fmt: skip
    text = cmdp.describe()
    assert "OPT 0 points (largest value that meets the constraints; without them 11)" in text
    assert "constraint 0: 1 <= 1 moves, binds, multiplier 11 points per moves" in text


def test_a_table_with_several_costs_and_a_utility():
    """Two states: action 1 of state 0 ends the episode with reward 4 and cost 1, action 0 stays, with cost 0."""
    P = {0: {0: [(1.0, 0, 1.0, False)], 1: [(0.5, 1, 4.0, True), (0.5, 0, 0.0, False)]},
         1: {0: [(1.0, 1, 9.0, False)]}}  # fmt: skip
    cmdp = cp.from_gymnasium(
        P, cost=lambda s, a, y: [float(y == 1), float(a == 0)], threshold=[0.5, 1.0], horizon=2, sense=["<=", ">="],
        name="two",
    )  # fmt: skip
    solution = cp.solve(cmdp)
    free, _ = cp.envs.original_units(cmdp, solution.unconstrained_value, cmdp.threshold)
    assert float(free) == pytest.approx(3.0)  # stay, then the last step; or end at once: 2 + 0.5 * 2
    found = cp.envs.tabulate(P, cost=np.ones((2, 2)))
    assert found.transition[0, 1].tolist() == [0.5, 0.0, 0.5]  # state 1 is not entered: the episode is over
    assert found.cost[0].tolist() == [[1, 1], [1, 1], [0, 0]]
    assert found.action_mask.tolist() == [[True, True], [True, False], [True, False]]
    states = cp.envs.layer_states(found.transition, horizon=2, initial=found.initial, action_mask=found.action_mask)
    assert [layer.tolist() for layer in states] == [[0], [0, 2]]


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="env is a int without a table P; give a tabular environment such as"):
        cp.from_gymnasium(3, cost=is_left, threshold=1, horizon=2)
    env = gymnasium.make("FrozenLake-v1")
    with pytest.raises(ValueError, match=r"cost has shape \(1, 3, 4\); give \[S, A\] = \(16, 4\)"):
        cp.from_gymnasium(env, cost=np.ones((3, 4)), threshold=1, horizon=2)
    with pytest.raises(ValueError, match=r"initial has shape \(3,\); give a state, or a distribution \[S\] = \(16,\)"):
        cp.from_gymnasium(env, cost=is_left, threshold=1, horizon=2, initial=np.ones(3) / 3)
