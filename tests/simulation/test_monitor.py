"""The monitor counts no failures if the analysis holds, and detects violations."""

from __future__ import annotations

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

import cpdpo_jax as cp
from cpdpo_jax.learners import cpd_oppo, cpd_oppo_analysis, cpdpo, cpdpo_analysis
from cpdpo_jax.learners.base import Info, Learner, Problem
from tests.support import random_cmdp


@pytest.fixture(scope="module")
def cmdp():
    return random_cmdp(3, 3, 2, 2, seed=11)


def watch(cmdp, **keywords):
    options = {"episodes": 2000, "seeds": 64, "monitor": True, "progress": False} | keywords
    return cp.simulate("cpdpo", cmdp, **options)


def test_the_order_terms_by_hand():
    """L = 2, m = 2, |X| = 3, |A| = 4, T = 25: m (L^3 |X| sqrt(|A| T) + L^5) = 2 (8 * 3 * 10 + 32) = 544; by rho = 1/2.

    A second lane with T = 100 and rho = 2: 2 (8 * 3 * 20 + 32) = 1024, and half of it.
    """
    lanes = np.ones(2)
    problem = Problem(
        action_mask=np.ones((2, 3, 4, 2), bool),
        threshold=np.ones((2, 2)),
        n_states=3 * lanes,
        n_actions=4 * lanes,
        episodes=np.array([25.0, 100.0]),
        delta=0.05 * lanes,
        slater_margin=np.array([0.5, 2.0]),
    )
    regret, violation = cpdpo_analysis.order_terms(problem, 2, None)
    np.testing.assert_allclose(violation, [544, 1024], rtol=1e-15)
    np.testing.assert_allclose(regret, [1088, 512], rtol=1e-15)


def test_the_concentration_bounds_by_hand():
    """L = 2, |X||A| = 12, T = 25, and delta = 300 / e^10 makes ln(T |X||A| / delta) = 10 and ln(1/delta) = 10 - ln 300:

    4 sqrt(2 * 12 * 25 * 10) + 2 sqrt(2 * 25 (10 - ln 300)), with 10 + ln m under the first root for the costs.
    """
    delta = 300 / np.exp(10)
    problem = Problem(
        action_mask=np.ones((2, 3, 4, 1), bool),
        threshold=np.ones((2, 1)),
        n_states=np.array([3.0]),
        n_actions=np.array([4.0]),
        episodes=np.array([25.0]),
        delta=np.array([delta]),
        slater_margin=np.ones(1),
    )
    reward, cost = cpdpo_analysis.concentration_bounds(problem, None, 1, 25)
    azuma = 2 * np.sqrt(2 * 25 * (10 - np.log(300)))
    np.testing.assert_allclose([reward, cost], 4 * np.sqrt(2 * 12 * 25 * 10) + azuma * np.ones((2, 1)), rtol=1e-12)
    _, more = cpdpo_analysis.concentration_bounds(problem, None, 7, 25)
    np.testing.assert_allclose(more, 4 * np.sqrt(2 * 12 * 25 * (10 + np.log(7))) + azuma, rtol=1e-12)


@pytest.mark.slow
def test_the_events_hold_with_the_constants_of_the_theory(cmdp):
    """The lemmas promise at most delta = 0.05 of the SEEDS (0.2 for transitions) with any failure; the bounds are so
    wide that none is seen. The two inequalities follow from the events.
    """
    result = watch(cmdp, hparams="theory")
    failing = (result.data.failures.isel(episode=-1) > 0).mean("seed").squeeze()
    assert float(failing.sel(event="reward")) <= 0.05
    assert float(failing.sel(event="cost")) <= 0.05
    assert float(failing.sel(event="transition")) <= 0.2
    for event in ("occupancy", "lagrangian", "lagrangian_cor"):
        assert float(failing.sel(event=event)) <= 0.2
    last = result.data.isel(episode=-1)
    assert (last.watched_sum <= last.watched_bound).all()
    assert (last.watched_sum > 0).all()
    assert "order term" in result.monitor_table()


@pytest.mark.slow
def test_broken_bounds_are_seen_to_fail(cmdp):
    """Widths with a logarithm a thousand times too small."""
    broken = {"reward_confidence": "x0.001", "cost_confidence": "x0.001", "transition_confidence": "x0.001"}
    data = watch(cmdp, hparams={"preset": "theory", **broken}).data
    failing = (data.failures.isel(episode=-1) > 0).mean("seed").squeeze()
    for event in ("reward", "cost", "transition"):
        assert float(failing.sel(event=event)) > 0.9, event
        assert float(data.slack.sel(event=event).min()) < 0
    monotone = data.failures.diff("episode")
    assert (monotone >= 0).all()


def test_the_slack_is_what_plain_numpy_says(cmdp):
    """After one episode only visited pairs have changed, so everything can be computed by hand."""
    result = watch(cmdp, episodes=1, seeds=1, hparams={"preset": "theory", "reward_confidence": 1e-6})
    slack = result.data.slack.isel(episode=-1).squeeze()
    log = 1e-6 * np.log(1 * float(cmdp.real_states) * float(cmdp.real_actions) / 0.05)
    width = min(1, (4 * log) ** 0.5)
    mask = np.asarray(cmdp.action_mask)
    # unvisited: |0 - r| against the same width (max(1, N) = 1); visited: |sample - r|
    unvisited = width - np.asarray(cmdp.reward)[mask].max()
    visited = width - (1 - np.asarray(cmdp.reward)[mask]).max()
    assert float(slack.sel(event="reward")) <= unvisited + 1e-6
    assert float(slack.sel(event="reward")) >= min(unvisited, visited) - 1e-6
    # the first epoch's set is everything: what is left to its ends is P and 1 - P
    p = np.asarray(cmdp.transition)[mask[:-1]]
    assert float(slack.sel(event="transition")) == pytest.approx(np.minimum(p, 1 - p).min(), abs=3e-6)


@pytest.mark.slow
def test_the_events_of_cpd_oppo_hold_with_the_constants_of_its_proof(cmdp):
    """The events may fail together in delta = 0.05 of the seeds; the inequalities follow from them."""
    result = cp.simulate("cpd_oppo", cmdp, episodes=2000, seeds=64, hparams="theory", monitor=True, progress=False)
    last = result.data.isel(episode=-1, learner=0)
    assert set(result.data.event.values) == set(cpd_oppo_analysis.EVENTS)
    assert (last.failures == 0).all()
    x = last.watched_sum.sel(quantity="x")
    assert (x <= last.watched_bound.sel(quantity="x")).all()
    assert (last.watched_sum.sel(quantity="e") > 0).all()
    assert "exchange" in result.monitor_table()


def test_narrow_widths_fail_the_events_of_cpd_oppo(cmdp):
    narrow = {"preset": "theory", "transition_confidence": 1e-6, "payoff_confidence": 1e-6}
    result = cp.simulate("cpd_oppo", cmdp, episodes=300, seeds=32, hparams=narrow, monitor=True, progress=False)
    failed = (result.data.failures.isel(episode=-1, learner=0, instance=0, hparams=0) > 0).any("seed")
    for event in ("reward", "cost", "transition", "error"):
        assert failed.sel(event=event), event


def _knows_too_much(learner: Learner, cmdp: cp.CMDP, **changed) -> Learner:
    """The learner with exact counts that always plays the safest policy and always reports full multipliers."""
    safest = cp.solve(cmdp).slater_policy
    n = 10**9

    def init(problem, hyper):
        lanes = problem.threshold.shape[1]

        def spread(array):
            return jnp.repeat(jnp.asarray(array)[..., None], lanes, axis=-1)

        state = learner.init(problem, hyper)
        counts = state.estimates._replace(
            visits=spread(np.full(cmdp.reward.shape, n, np.int32)),
            transitions=spread(np.rint(n * np.asarray(cmdp.transition)).astype(np.int32)),
            payoff_sum=spread(n * np.concatenate([cmdp.reward[None], cmdp.cost]).astype(np.float32)),
        )
        return state._replace(estimates=counts)

    def policy(problem, hyper, state):
        return jnp.repeat(jnp.asarray(safest, jnp.float32)[..., None], problem.threshold.shape[1], axis=-1)

    def update(problem, hyper, state, policy, trajectory):
        return state, Info(0 * problem.threshold + hyper.dual_cap, 0 * trajectory.state[0])

    return replace(learner, name=f"broken_{learner.name}", init=init, policy=policy, update=update, **changed)


@pytest.mark.parametrize(
    ("learner", "events"),
    [(cpdpo.LEARNER, ("lagrangian", "lagrangian_cor")), (cpd_oppo.LEARNER, ("exchange", "regret", "violation"))],
)
def test_a_broken_dual_fails_the_inequalities(learner, events):
    """Multipliers at the cap although the constraint (active at the optimum) is met: the dual max would be 0."""
    cmdp = random_cmdp(3, 3, 2, 1, seed=3)
    assert cp.solve(cmdp).multipliers.min() > 0.01
    broken = _knows_too_much(learner, cmdp)
    result = cp.simulate(broken, cmdp, episodes=20, seeds=4, hparams="theory", monitor=True, progress=False)
    failed = result.data.failures.isel(episode=-1, learner=0, instance=0, hparams=0)
    for event in events:
        assert (failed.sel(event=event) == 20).all(), event
    assert (failed.sel(event=["reward", "cost"]) == 0).all()


def test_broken_values_fail_the_improvement_and_the_error(cmdp):
    """Overestimated costs are not lower bounds; action values of another reward do not bound the loss."""

    def evaluate(*given):
        seen = cpd_oppo.evaluate(*given)
        return seen._replace(action_values=0 * seen.action_values, values=seen.values.at[1:].add(0.5))

    broken = _knows_too_much(cpd_oppo.LEARNER, cmdp, analysis=cpd_oppo_analysis.analysis(evaluate))
    result = cp.simulate(broken, cmdp, episodes=20, seeds=4, hparams="theory", monitor=True, progress=False)
    failed = result.data.failures.isel(episode=-1, learner=0, instance=0, hparams=0)
    assert (failed.sel(event="improvement") == 20).all()
    assert (failed.sel(event="error") == 20).all()


def test_the_widths_watched_are_the_learners_own(cmdp):
    """Wrong widths are detected, because the monitor does not copy the formula."""
    nothing = cpdpo_analysis.analysis(lambda problem, hyper, visits: (0 * visits, 0 * visits), past_counts=False)
    wrong = replace(cpdpo.LEARNER, name="wrong_widths", analysis=nothing)
    result = cp.simulate(wrong, cmdp, episodes=50, seeds=4, hparams="theory", monitor=True, progress=False)
    failed = result.data.failures.isel(episode=-1, learner=0, instance=0, hparams=0)
    assert (failed.sel(event=["reward", "cost"]) > 0).all()


def test_known_transitions_are_no_failure():
    """`simple` moves with probability 1: a sum of float32 that is 1 - 6e-8 is not outside the set."""
    result = cp.simulate("cpdpo", "simple", episodes=500, seeds=32, hparams="theory", monitor=True, progress=False)
    assert (result.data.failures.isel(episode=-1).sel(event="transition") == 0).all()


@pytest.mark.parametrize("options", [{"rho": "estimate:100"}, {"horizon": "doubling"}])
def test_sums_go_on_over_phases(cmdp, options):
    """Nothing is monitored while rho is estimated; when the learner restarts, sums and failures continue."""
    result = watch(cmdp, episodes=1500, seeds=4, hparams="theory", checkpoints=[1000, 1400, 1500], **options)
    sums = result.data.watched_sum.isel(learner=0, instance=0, hparams=0)
    assert np.isfinite(sums).all()
    assert (sums.diff("episode") > 0).all()


@pytest.mark.parametrize("learner", ["cpdpo", "cpd_oppo", pytest.param("cpd_oppo_free", marks=pytest.mark.exhaustive)])
def test_watching_changes_no_bit_of_the_run(learner):
    """400 episodes: watched inside the loop they differed by 1e-6."""
    cmdp = random_cmdp(4, 4, 3, 2, seed=5)
    plain, watched = (
        cp.simulate(learner, cmdp, episodes=400, seeds=4, monitor=monitor, progress=False).data
        for monitor in (False, True)
    )
    assert set(watched.data_vars) > set(plain.data_vars)
    for name in plain.data_vars:
        np.testing.assert_array_equal(watched[name], plain[name], err_msg=name)


def test_learners_without_an_analysis_run_beside_those_that_are_watched(cmdp):
    result = cp.simulate(["uniform", "cpdpo"], cmdp, episodes=50, seeds=4, monitor=True, progress=False)
    failures = result.data.failures.isel(episode=-1)
    assert failures.sel(learner="uniform").isnull().all()
    assert failures.sel(learner="cpdpo").notnull().all()
    table = result.monitor_table()
    assert "cpdpo" in table
    assert "uniform" not in table
