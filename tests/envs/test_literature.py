"""The named environments against their second construction, hand-worked optima, and the page's sizes."""

import numpy as np
import pytest

import cpdpo_jax as cp
from cpdpo_jax.exact.lp import evaluate, plan
from experiments.environments.table import distance, row
from tests.reference import environments_plain as plain

# 52 comparisons at 4 standard errors: a false alarm has probability 52 * 6.3e-5 = .003 over the seed, which is fixed.
SIGMAS = 4.0


@pytest.mark.parametrize("name", plain.WORLDS)
def test_agrees_with_sampled_episodes_of_plain_dictionaries(name):
    measured = row(name)
    assert measured.z < SIGMAS
    assert abs(measured.gap) < 1e-9
    assert (measured.multipliers > 1e-6).all(), "every constraint of the literature binds"
    np.testing.assert_allclose(measured.costs, measured.limits, atol=1e-9)
    assert measured.build < 5
    assert measured.solve < 30


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("media_streaming", {"leave": 0.77}),
        ("inventory", {"demand": (0.28, 0.22, 0.2, 0.2, 0.05, 0.05)}),
        ("difficult", {"low": 0.12}),
        ("mars_rover", {"slip": 0.13}),
        ("box", {"slip": 0.13}),
        ("cliff", {"fall": 98.0}),
        ("random_episode_wise", {"key": 1}),
    ],
)
def test_the_comparison_notices_a_small_change(name, parameters):
    uniform, random = distance(cp.envs.make(name, **parameters), name)
    assert max(uniform.max(), random.max()) > SIGMAS
    if "slip" in parameters:  # the uniform policy cannot see it
        assert uniform.max() < SIGMAS


@pytest.mark.parametrize("name", ["mars_rover", "box"])
def test_the_slip_leaves_the_chosen_move_925_in_1000(name):
    cmdp = cp.envs.make(name)
    first = np.asarray(cmdp.transition)[0, 0]  # [A, S]
    expected = {0.025, 0.05, 0.925, 0.95}  # moves that bump together stay together
    assert {round(float(p), 9) for p in first[first > 0]} <= expected
    assert first.max(axis=1).min() >= 0.925


@pytest.mark.parametrize(
    ("name", "optimum"),
    [
        ("factored", 2.0),  # stay until three moves are left: 1/3 + 2/3 + 1
        # k = 0..6 moves pay 0 1 3 6 7 9 12 from s = 0, 0 2 5 6 8 11 12 from 1, 0 3 4 6 9 10 12 from 2: at most 2k,
        # 2k + 1 and 2k + 1, reached at k = 3, 2, 4 (mean 3): 2 * 3 + (0 + 1 + 1) / 3
        ("simple", 20 / 3),
        ("difficult", 0.2),  # .1 for B at y = 0, and A at y = 1 as often as .1 allows
        ("cliff", -10.0),  # 3/4 of the way over row 0 (11 steps, cost 0), 1/4 through row 2 (7 steps, cost 8)
    ],
)
def test_hand_worked_optima(name, optimum):
    cmdp = cp.envs.make(name)
    solution = cp.solve(cmdp)
    value, _ = cp.envs.original_units(cmdp, solution.value, cmdp.threshold)
    assert float(value) == pytest.approx(optimum, abs=1e-9)


def test_media_streaming_minimises_and_shows_steps_with_an_empty_buffer():
    cmdp = cp.envs.make("media_streaming")
    solution = cp.solve(cmdp)
    best, _ = cp.envs.original_units(cmdp, solution.value, cmdp.threshold)
    free, _ = cp.envs.original_units(cmdp, solution.unconstrained_value, cmdp.threshold)
    uniform = cmdp.action_mask / np.maximum(1, cmdp.action_mask.sum(axis=2, keepdims=True))
    plain_value, _ = cp.envs.original_units(cmdp, evaluate(cmdp.transition, uniform, cmdp.reward[None])[0], [0.0])
    assert 1 <= free < best < plain_value <= 10
    assert float(cmdp.units.reward_scale) == -1


def test_inventory_masks_orders_that_do_not_fit():
    cmdp = cp.envs.make("inventory")
    allowed = np.asarray(cmdp.action_mask).sum(axis=2)
    assert allowed[0, 0] == 6
    np.testing.assert_array_equal(allowed[3], [6, 5, 4, 3, 2, 1])
    assert cmdp.reward.max() == pytest.approx(1.0)
    assert cmdp.cost.max() == pytest.approx(1.0)
    assert cmdp.cost[0, 0, 0, 1] == pytest.approx((4 + 2 + 1) / 19)  # the dearest: order 5, 4 + 10 + 5
    # revenue of one unit in stock over that of five: P(D >= 1) / E[D]
    assert cmdp.reward[0, 0, 1] == pytest.approx(0.7 / (0.2 + 0.4 + 0.6 + 0.2 + 0.25))


@pytest.mark.parametrize(("name", "reached"), [("mars_rover", 64), ("box", 60), ("cliff", 20), ("difficult", 2)])
def test_layers_hold_the_states_that_can_be_reached(name, reached):
    assert cp.envs.make(name).n_states == reached


def test_horizon_and_threshold_can_be_changed():
    cmdp = cp.envs.make("mars_rover", horizon=12, threshold=0.2)
    assert cmdp.n_layers == 12
    assert float(cmdp.threshold[0]) == 0.2
    resting = cmdp.cost[0][(cmdp.cost[0] > 0) & (cmdp.cost[0] < 0.99)].max()
    assert resting >= 1 / 12


def test_utilities_are_a_share_of_the_largest():
    cmdp = cp.envs.make("random_episode_wise", key=3)
    most = 4 + plan(cmdp.transition, -cmdp.cost[0], cmdp.action_mask)[0]
    _, limit = cp.envs.original_units(cmdp, 0.0, cmdp.threshold)
    assert float(limit[0]) == pytest.approx(0.6 * most)
