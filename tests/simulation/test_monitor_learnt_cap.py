"""The monitor of CPD-OPPO with a learnt cap: no check fails with the proof's constants, and each can fail."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import cpdpo_jax as cp
from cpdpo_jax.exact.optimum import least_multiplier_norm
from cpdpo_jax.learners import cpd_oppo_free, cpd_oppo_free_analysis
from cpdpo_jax.learners.base import Info, Learner
from cpdpo_jax.learners.cpd_oppo_free import LEARNER
from tests.support import random_cmdp

NO_WIDTHS = {"preset": "theory", "transition_confidence": 0.0, "payoff_confidence": 0.0}


@pytest.fixture(scope="module")
def cmdp() -> cp.CMDP:
    """An instance without a Slater point."""
    return cp.envs.make("fixed_cost", layers=3, states=3, actions=2, key=1)


def watched(learner: Any, cmdp: cp.CMDP, hparams: Any, episodes: int = 20, seeds: int = 4, **options: Any) -> Any:
    """The monitor's results of a run: (data at the last episode, the number of failing episodes by event and seed)."""
    result = cp.simulate(
        learner, cmdp, episodes=episodes, seeds=seeds, hparams=hparams, monitor=True, progress=False, **options
    )
    data = result.data.isel(learner=0, instance=0, hparams=0)
    return data, data.failures.isel(episode=-1)


@pytest.mark.parametrize("realised", [0.0, 1.0])
def test_nothing_fails_with_the_constants_of_the_proof(cmdp: cp.CMDP, realised: float) -> None:
    """All events together may fail in delta = 0.05 of the seeds; the widths are so wide that none does."""
    data, failed = watched(LEARNER, cmdp, {"preset": "theory", "realised": realised}, episodes=1000, seeds=32)
    assert set(data.event.values) == set(cpd_oppo_free_analysis.EVENTS)
    assert (failed == 0).all()
    both, z = (data.watched_sum.sel(quantity=name) for name in ("x + e", "Z"))
    assert (both <= z).all()
    assert (both.isel(episode=-1) > 0).all()
    assert (z.diff("episode") > 0).all()
    np.testing.assert_array_equal(data.watched_sum.sel(quantity="x + e of the phase"), both)  # nothing is doubled
    assert np.isfinite([data.regret_order_term, data.violation_order_term]).all()


def test_narrow_widths_fail_the_events(cmdp: cp.CMDP) -> None:
    _, failed = watched(LEARNER, cmdp, NO_WIDTHS, episodes=300, seeds=32)
    for event in ("reward", "cost", "transition", "error", "width"):
        assert (failed.sel(event=event) > 0).any(), event


def knowing(learner: Learner, cmdp: cp.CMDP, **changed: Any) -> Learner:
    """The learner after 10^9 visits of every pair with expected counts."""
    n = 10**9

    def init(problem: Any, hyper: Any) -> Any:
        state = learner.init(problem, hyper)

        def spread(array: Any, like: Any) -> Any:
            return jnp.broadcast_to(jnp.asarray(array)[..., None], like.shape).astype(like.dtype)

        old = state.estimates
        exact = old._replace(
            visits=spread(np.full(cmdp.reward.shape, n), old.visits),
            transitions=spread(np.rint(n * np.asarray(cmdp.transition)), old.transitions),
            payoff_sum=spread(n * np.concatenate([cmdp.reward[None], cmdp.cost]), old.payoff_sum),
        )
        return state._replace(estimates=exact)

    return replace(learner, name="knowing", init=init, **changed)


def test_a_small_allowance_fails_the_cap_and_the_phase(cmdp: cp.CMDP) -> None:
    """If Z is much too small, a cap above 2 Lambda is doubled and x + e sums to more than Z; not with the proof's Z."""
    (norm,) = least_multiplier_norm(cmdp, cp.solve(cmdp))
    narrow = NO_WIDTHS | {"first_cap": 2.1 * norm, "largest_cap": 64.0}
    data, failed = watched(knowing(LEARNER, cmdp), cmdp, narrow | {"bound_scale": 1e-4}, episodes=300)
    assert (failed.sel(event=["cap", "phase"]) > 0).all()
    both, z = (data.watched_sum.sel(quantity=name).isel(episode=-1) for name in ("x + e", "Z"))
    assert (both > z).all()
    data, failed = watched(knowing(LEARNER, cmdp), cmdp, narrow, episodes=300)
    assert (failed == 0).all()


def test_a_later_phase_does_not_hide_that_the_first_exceeds_its_allowance(cmdp: cp.CMDP) -> None:
    """All phases but the first report a thousand times their Z, so that the total Z is large enough."""
    narrow = NO_WIDTHS | {"first_cap": 0.5, "realised": 1.0, "bound_scale": 0.1}

    def update(*given: Any) -> Any:
        after, info = LEARNER.update(*given)
        factor = jnp.where(given[2].phases == 1, 1, 1e3)
        return after._replace(allowance=factor * after.allowance), info

    learner, episodes = knowing(LEARNER, cmdp, update=update), range(1, 301)
    data, failed = watched(learner, cmdp, narrow, episodes=300, seeds=2, checkpoints=episodes)
    both, z, of_phase = (data.watched_sum.sel(quantity=name).values for name in cpd_oppo_free_analysis.SUMS)
    assert (both[:, -1] < z[:, -1]).all()
    assert (failed.sel(event="phase") > 0).all()
    for curve, last, phase in zip(both, of_phase, data.epochs.values, strict=True):
        (ends,) = np.nonzero(np.diff(phase))
        np.testing.assert_allclose(last[ends], curve[ends], rtol=1e-5)
        np.testing.assert_allclose(curve[ends] + last[-1], curve[-1], rtol=1e-5)
        assert len(ends) == 1


def test_wrong_multipliers_fail_the_inequalities() -> None:
    """The safest policy with multipliers at the cap, although the dual max would be 0."""
    cmdp = random_cmdp(3, 3, 2, 1, seed=3)
    safest = cp.solve(cmdp).slater_policy

    def policy(problem: Any, hyper: Any, state: Any) -> Any:
        return jnp.repeat(jnp.asarray(safest, problem.threshold.dtype)[..., None], problem.threshold.shape[1], axis=-1)

    def update(problem: Any, hyper: Any, state: Any, policy: Any, trajectory: Any) -> Any:
        return state, Info(0 * problem.threshold + hyper.first_cap, 0 * trajectory.state[0])

    broken = knowing(LEARNER, cmdp, policy=policy, update=update)
    _, failed = watched(broken, cmdp, NO_WIDTHS | {"first_cap": 20.0})
    for event in ("exchange", "regret", "violation"):
        assert (failed.sel(event=event) == 20).all(), event
    assert (failed.sel(event=["reward", "cost", "transition", "width", "cap"]) == 0).all()


def test_wrong_values_fail_improvement_error_and_width(cmdp: cp.CMDP) -> None:
    """Overestimated costs are not lower bounds, zero action values bound nothing, and a width of -1 is too small."""

    def evaluate(*given: Any) -> Any:
        seen = cpd_oppo_free.evaluate(*given)
        return seen._replace(action_values=0 * seen.action_values, values=seen.values.at[1:].add(0.5))

    for analysis, events in (
        (cpd_oppo_free_analysis.analysis(evaluate, cpd_oppo_free.value_width), ("improvement", "error")),
        (
            cpd_oppo_free_analysis.analysis(
                cpd_oppo_free.evaluate, lambda *given: cpd_oppo_free.value_width(*given) - 1.0
            ),
            ("width",),
        ),
    ):
        _, failed = watched(knowing(LEARNER, cmdp, analysis=analysis), cmdp, NO_WIDTHS)
        for event in events:
            assert (failed.sel(event=event) == 20).all(), event
