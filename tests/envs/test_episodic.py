"""from_episodic against plain loops over the unlayered MDP, in original units."""

from typing import Any

import numpy as np
import pytest

from cpdpo_jax.envs.episodic import ADDED, from_episodic, layer_states, original_units
from cpdpo_jax.exact.optimum import evaluate, solve


def plain_values(p, payoffs, policy, start, horizon) -> list[float]:
    """Expected sums over an episode by pushing {state: probability} forward; p[h][s][a][s'], policy[h][s][a]."""
    sums, here = [0.0] * len(payoffs), {s: w for s, w in enumerate(start) if w > 0}
    for h in range(horizon):
        there: dict[int, float] = {}
        for s, w in here.items():
            for a, chance in enumerate(policy[h][s]):
                for i, payoff in enumerate(payoffs):
                    sums[i] += w * chance * payoff[h][s][a] if chance > 0 else 0.0
                for y, q in enumerate(p[h][s][a]) if chance > 0 else ():
                    if q > 0:
                        there[y] = there.get(y, 0.0) + w * chance * q
        here = there
    return sums


def layered_policy(cmdp, states, policy, horizon) -> np.ndarray:
    """The policy[h][s][a] of the source, at the layered states."""
    layered = np.zeros((cmdp.n_layers, cmdp.n_states, cmdp.n_actions))
    for k, original in enumerate(states):
        for x, s in enumerate(original):
            layered[k, x] = np.eye(cmdp.n_actions)[0] if s == ADDED else policy[k - cmdp.n_layers + horizon][s]
    return layered


def random_case(seed: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """An episodic CMDP with every feature switched at random, and its arrays with the steps spelled out."""
    rng = np.random.default_rng(seed)
    horizon, n, a, m = (
        int(rng.integers(1, 6)),
        int(rng.integers(2, 7)),
        int(rng.integers(1, 4)),
        int(rng.integers(1, 4)),
    )

    def steps(*shape: int, stepwise: bool) -> tuple[int, ...]:
        return (horizon, *shape) if stepwise else shape

    stepwise = rng.random(4) < 0.5
    p = rng.dirichlet(np.full(n, 0.3), size=steps(n, a, stepwise=stepwise[0]))
    p[p < 0.15] = 0.0  # many states are not reached at many steps
    p /= p.sum(axis=-1, keepdims=True)
    low, high = [(0.0, 1.0), (-3.0, 2.0), (2.0, 5.0), (-4.0, -1.0)][seed % 4]
    reward = rng.uniform(low, high, steps(n, a, stepwise=stepwise[1]))
    cost = rng.uniform(-2.0, 3.0, (*steps(stepwise=stepwise[2]), m, n, a))
    cost = np.moveaxis(cost, -3, 0)
    cost[0] = np.abs(cost[0]) / 3  # within [0, 1]: stays as it is
    allowed = rng.random(steps(n, a, stepwise=stepwise[3])) < 0.7
    allowed[..., 0] = True
    start = np.where(rng.random(n) < 0.5, 1.0, 0.0)
    start[0] += 0.5
    initial = start / start.sum() if seed % 3 else int(rng.integers(n))
    given = {
        "transition": p,
        "reward": reward,
        "cost": cost,
        "horizon": horizon,
        "initial": initial,
        "sense": [("<=", ">=")[int(i)] for i in rng.integers(0, 2, m)],
        "minimize": bool(rng.integers(2)),
        "action_mask": allowed,
    }
    full = {
        "p": np.broadcast_to(p, (horizon, n, a, n)),
        "payoffs": [np.broadcast_to(v, (horizon, n, a)) for v in (reward, *cost)],
        "allowed": np.broadcast_to(allowed, (horizon, n, a)),
        "start": initial if np.ndim(initial) else np.eye(n)[initial],
    }
    policy = random_policy(rng, full["allowed"])  # whose values are thresholds within the range of what is possible
    given["threshold"] = plain_values(full["p"], full["payoffs"], policy, full["start"], horizon)[1:]
    return given, full


def random_policy(rng: np.random.Generator, allowed: np.ndarray) -> np.ndarray:
    policy = rng.random(allowed.shape) * allowed
    return policy / policy.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize("seed", range(60))
def test_values_in_original_units_are_those_of_plain_loops(seed: int):
    given, full = random_case(seed)
    horizon = given["horizon"]
    cmdp = from_episodic(**given)
    states = layer_states(
        given["transition"], horizon=horizon, initial=given["initial"], action_mask=given["action_mask"]
    )
    policy = random_policy(np.random.default_rng(seed + 1000), full["allowed"])
    layered = layered_policy(cmdp, states, policy, horizon)
    value = evaluate(cmdp.transition, layered, cmdp.reward[None])[0]
    costs = evaluate(cmdp.transition, layered, cmdp.cost)
    in_original = original_units(cmdp, value, costs)
    expected = plain_values(full["p"], full["payoffs"], policy, full["start"], horizon)
    np.testing.assert_allclose(np.append(in_original[0], in_original[1]), expected, atol=1e-11)

    thresholds = original_units(cmdp, 0.0, cmdp.threshold)[1]
    np.testing.assert_allclose(thresholds, given["threshold"], atol=1e-12)
    for i, sense in enumerate(given["sense"]):  # the same policies are feasible
        if abs(expected[i + 1] - given["threshold"][i]) < 1e-9:
            continue
        met = expected[i + 1] <= given["threshold"][i] if sense == "<=" else expected[i + 1] >= given["threshold"][i]
        assert met == (costs[i] <= cmdp.threshold[i])
    assert (np.sign(cmdp.units.cost_scale) == [1 if s == "<=" else -1 for s in given["sense"]]).all()
    assert np.sign(cmdp.units.reward_scale) == (-1 if given["minimize"] else 1)


@pytest.mark.parametrize("seed", range(12))
def test_layers_hold_exactly_the_reachable_states(seed: int):
    given, full = random_case(seed)
    states = layer_states(
        given["transition"], horizon=given["horizon"], initial=given["initial"], action_mask=given["action_mask"]
    )
    if np.count_nonzero(full["start"]) > 1:
        assert states.pop(0).tolist() == [ADDED]
    here = {int(s) for s in np.flatnonzero(full["start"])}
    for h, layer in enumerate(states):
        assert layer.tolist() == sorted(here)
        here = {
            y
            for s in here
            for a in range(full["allowed"].shape[2])
            for y in range(len(full["start"]))
            if full["allowed"][h, s, a] and full["p"][h, s, a, y] > 0
        }
    cmdp = from_episodic(**given)
    assert int(cmdp.real_states) == sum(map(len, states)) + 1 + (cmdp.n_layers > given["horizon"])


def media_streaming(**changes: Any) -> dict[str, Any]:
    """The media streaming problem of DOPE: keep the buffer from running empty, pay for the fast service."""
    p = np.zeros((10, 2, 10))
    for a, mu in enumerate((0.9, 0.1)):
        for s in range(10):
            up, down = mu * 0.2, (1 - mu) * 0.8
            p[s, a, min(s + 1, 9)] += up
            p[s, a, max(s - 1, 0)] += down
            p[s, a, s] += 1 - up - down
    objective, cost = np.zeros((10, 2)), np.zeros((1, 10, 2))
    objective[0], cost[0, :, 0] = 1.0, 1.0
    return {
        "transition": p,
        "reward": objective,
        "cost": cost,
        "threshold": [5.0],
        "horizon": 10,
        "minimize": True,
    } | changes


def test_entries_in_the_unit_interval_stay():
    cmdp = from_episodic(**media_streaming())
    assert (cmdp.n_layers, cmdp.n_states) == (10, 10)
    assert [int(n) for n in cmdp.state_mask.sum(axis=1)] == list(range(1, 11))
    assert cmdp.threshold.tolist() == [5.0]
    assert (cmdp.units.cost_scale.tolist(), cmdp.units.cost_offset.tolist()) == ([1.0], [0.0])
    assert (float(cmdp.units.reward_scale), float(cmdp.units.reward_offset)) == (-1.0, 10.0)
    assert cmdp.reward[0, 0].tolist() == [0.0, 0.0]  # 1 - the cost 1 of the empty buffer
    assert set(np.unique(cmdp.reward)) == {0.0, 1.0}


def test_a_utility_is_the_same_problem_as_its_cost():
    costs = solve(from_episodic(**media_streaming()))
    utility = solve(from_episodic(**media_streaming(cost=1 - media_streaming()["cost"], threshold=[5.0], sense=">=")))
    np.testing.assert_allclose(costs.value, utility.value, atol=1e-10)
    np.testing.assert_allclose(costs.multipliers, utility.multipliers, atol=1e-8)


def test_scaling_by_hand():
    """Two states, two steps, rewards -1 and 3, a utility of 2 to 4 that must reach 7."""
    p = np.array([[[0.0, 1.0]], [[0.0, 1.0]]])
    utility = np.array([[[2.0], [4.0]]])
    cmdp = from_episodic(p, [[-1.0], [3.0]], utility, [7.0], horizon=2, initial=[0.25, 0.75], sense=">=")
    assert cmdp.n_layers == 3
    assert cmdp.transition[0, 0, 0].tolist() == [0.25, 0.75]
    assert (cmdp.reward[0, 0, 0], cmdp.cost[0, 0, 0, 0]) == (0.0, 0.0)  # the added layer: exempt from the offset
    assert cmdp.reward[1, :, 0].tolist() == [0.0, 1.0]
    assert cmdp.cost[0, 1, :, 0].tolist() == [1.0, 0.0]  # 1 - (u - 2) / 2
    assert cmdp.threshold.tolist() == [0.5]  # 2 - (7 - 2 * 2) / 2
    assert original_units(cmdp, 1.75, [0.25])[0] == 5.0  # .25 * (-1) + .75 * 3 + 3
    assert original_units(cmdp, 1.75, [0.25])[1].tolist() == [7.5]  # .25 * 2 + .75 * 4 + 4
    assert solve(cmdp).value == 1.75


def changed(field: str, index: tuple, value: float) -> dict[str, Any]:
    given = media_streaming()
    given[field] = np.array(given[field], dtype=float)
    given[field][index] = value
    return given


BAD = {
    "horizon": (media_streaming(horizon=0), ["horizon", "0", "at least 1"]),
    "horizon type": (media_streaming(horizon=2.5), ["horizon", "2.5", "integer"]),
    "initial state": (media_streaming(initial=10), ["initial", "10", "0..9"]),
    "initial sum": (media_streaming(initial=np.full(10, 0.2)), ["initial", "2", "sum to 1"]),
    "initial shape": (media_streaming(initial=[0.5, 0.5]), ["initial", "(2,)", "(10,)"]),
    "initial negative": (media_streaming(initial=np.eye(10)[0] * 2 - np.eye(10)[1]), ["initial[1]", "-1"]),
    "row": (changed("transition", (3, 1), 0.2), ["transition[3, 1]", "2", "sum to 1"]),
    "steps": (media_streaming(transition=np.ones((9, 10, 2, 10)) / 10), ["transition", "(9, 10, 2, 10)", "(10, 10"]),
    "transition axes": (media_streaming(transition=np.ones((10, 10))), ["transition", "(10, 10)", "[S, A, S]"]),
    "reward nan": (changed("reward", (4, 1), np.nan), ["reward[4, 4, 1] (step, state, action)", "nan"]),
    "reward shape": (media_streaming(reward=np.ones((10, 3))), ["reward", "(10, 3)", "(10, 2)"]),
    "cost axes": (media_streaming(cost=np.ones((10, 2))), ["cost", "(10, 2)", "[M, S, A]"]),
    "cost inf": (changed("cost", (0, 2, 0), np.inf), ["cost[0][2, 2, 0]", "inf"]),
    "threshold shape": (media_streaming(threshold=[1.0, 2.0]), ["threshold", "(2,)", "(1,)"]),
    "never binds": (media_streaming(threshold=[10.5]), ["threshold[0]", "10.5", "[0, 10]", "never bind"]),
    "never met": (media_streaming(threshold=[-1.0]), ["threshold[0]", "-1", "no policy"]),
    "utility never met": (media_streaming(threshold=[10.5], sense=">="), ["threshold[0]", "10.5", "no policy"]),
    "sense": (media_streaming(sense="<"), ["sense", "'<'", ">="]),
    "senses": (media_streaming(sense=("<=", "<=")), ["sense", "1 constraint"]),
    "no action": (media_streaming(action_mask=np.eye(10)[:, [9, 9]] == 1), ["action_mask", "state 0", "step 0"]),
    "mask value": (media_streaming(action_mask=np.full((10, 2), 3.0)), ["action_mask[0, 0, 0]", "3", "True"]),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_named_in_one_sentence(case: str):
    given, words = BAD[case]
    with pytest.raises(ValueError, match=r".") as caught:
        from_episodic(**given)
    message = str(caught.value)
    assert "\n" not in message
    assert message.endswith(".")
    for word in words:
        assert word in message, message


def test_a_threshold_outside_by_rounding_is_moved_to_the_end():
    assert from_episodic(**media_streaming(threshold=[10 + 1e-10])).threshold.tolist() == [10.0]
    assert from_episodic(**media_streaming(threshold=[-1e-10])).threshold.tolist() == [0.0]


def test_rubbish_at_unreachable_places_does_not_matter():
    clean = from_episodic(**media_streaming(horizon=3, threshold=[2.0]))
    given = media_streaming(horizon=3, threshold=[2.0])
    given["transition"][5:], given["reward"][5:], given["cost"][:, 5:] = np.nan, 1e9, -np.inf
    rubbish = from_episodic(**given)
    for field in ("transition", "reward", "cost", "threshold", "action_mask"):
        np.testing.assert_array_equal(getattr(clean, field), getattr(rubbish, field))
