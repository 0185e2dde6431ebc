"""OptCMDP and OptCMDP-bonus: their LPs against SciPy's, 500 episodes against plain loops, exact and infeasible ones."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest

import cpdpo_jax as cp
from cpdpo_jax.exact import optimum
from cpdpo_jax.learners import base, optcmdp, optcmdp_bonus, planning, replanning
from cpdpo_jax.learners.base import Problem
from cpdpo_jax.learners.replanning import Counts, Hyperparameters
from cpdpo_jax.simulation import host_loop
from tests.reference import baselines_numpy, optcmdp_scipy
from tests.support import lanes_for, random_cmdp

pytestmark = pytest.mark.strict_ranks
MODULES = {"optcmdp": optcmdp, "optcmdp_bonus": optcmdp_bonus}
both = pytest.mark.parametrize("name", MODULES)
RHO = 0.5


def one_problem(cmdp: cp.CMDP, episodes: int = 1000, threshold: Any = None) -> Problem:
    """A lane's, as the host loop hands it on."""
    problem = base.make_problem(cp.stack([cmdp]), episodes=episodes, delta=0.05, slater_margin=np.array([RHO]))
    problem = jax.tree.map(lambda leaf: np.asarray(leaf)[..., 0], problem)
    return problem if threshold is None else problem._replace(threshold=threshold)


def solve(name: str, problem: Problem, hyper: Hyperparameters, counts: Counts, basis: Any = None) -> planning.Plan:
    with_set, m = name == "optcmdp", len(problem.threshold)
    basis = planning.no_basis(problem.action_mask.shape, m, with_set) if basis is None else basis
    reward, cost, within = MODULES[name].model(problem, hyper, counts)
    return planning.program(problem.action_mask, m, with_set).solve(reward, cost, within, problem.threshold, basis)


def reference_counts(problem: Problem, hyper: Hyperparameters, counts: Counts | None = None) -> Any:
    made = baselines_numpy.Counts(
        problem.action_mask,
        len(problem.threshold),
        {field: float(value) for field, value in hyper._asdict().items()},
        int(problem.episodes),
        float(problem.delta),
    )
    if counts is not None:
        made.n, made.m, made.payoffs = counts.visits, counts.transitions, counts.payoff_sum
    return made


def random_counts(cmdp: cp.CMDP, rng: np.random.Generator) -> Counts:
    """Between nothing and 10^4 visits of each pair."""
    visits = np.where(cmdp.action_mask, (10 ** rng.uniform(-1, 4, cmdp.reward.shape)).astype(np.int32), 0)
    transitions = np.zeros(cmdp.transition.shape, np.int32)
    for at in np.argwhere(visits[:-1] > 0):
        transitions[tuple(at)] = rng.multinomial(visits[tuple(at)], cmdp.transition[tuple(at)])
    payoff = np.concatenate([cmdp.reward[None], cmdp.cost])
    return Counts(visits.astype(np.int32), transitions, rng.binomial(visits, payoff).astype(float))


@both
def test_the_lp_equals_scipys_on_50_random_states(name: str) -> None:
    """The objective within 1e-7, from no basis and from the last one; some are infeasible."""
    rng, infeasible = np.random.default_rng(0), 0
    for i in range(50):
        cmdp = random_cmdp(3, 3, 3, 2, seed=i % 7, masked=i % 2 == 0)
        confidence = 10 ** rng.uniform(-6, 0, 2)
        if name == "optcmdp_bonus":
            confidence[0] *= 0.01
        hyper = Hyperparameters(*confidence, solve_when_doubled=0.0)
        problem = one_problem(cmdp, threshold=np.asarray(cmdp.threshold) * rng.choice([0.3, 1.0, 1.3]))
        basis = None
        for counts in (random_counts(cmdp, rng), random_counts(cmdp, rng)):
            plan = solve(name, problem, hyper, counts, basis)
            basis = plan.basis
            expected = optcmdp_scipy.solve(name, reference_counts(problem, hyper, counts), problem.threshold)
            assert plan.infeasible == expected.infeasible
            assert plan.value == pytest.approx(expected.value, rel=1e-9, abs=1e-7)
            infeasible += plan.infeasible
    assert 5 < infeasible < 60


@both
def test_500_episodes_against_plain_loops(x64: None, name: str) -> None:
    """An LP has ties, so not every policy must be SciPy's; but every policy played must attain SciPy's optimum, on
    counts kept by plain loops, and be SciPy's where that is the only one.
    """
    cmdp, learner, episodes = random_cmdp(3, 3, 2, 1, seed=3), base.get(name), 500
    hyper: dict[str, Any] = {"transition_confidence": 1e-3 if name == "optcmdp" else 1e-5, "payoff_confidence": 1e-2}
    lanes = host_loop.select_lane(
        lanes_for(learner, cmdp, episodes=episodes, preset="theory", rho=RHO, dtype=np.float64, **hyper), 0
    )
    draws = host_loop.uniforms(np.array([3, 4], np.uint32), 0, episodes, (cmdp.n_layers, 3 + cmdp.n_constraints))
    counts = reference_counts(lanes.problem, lanes.hyper)
    state, unique, moved = learner.init(lanes.problem, lanes.hyper), 0, 0
    payoffs = np.concatenate([cmdp.reward[None], cmdp.cost])
    for t in range(episodes):
        policy = learner.policy(lanes.problem, lanes.hyper, state)
        trajectory = host_loop.rollout(lanes.model, policy, draws[t], "bernoulli")
        best = optcmdp_scipy.solve(name, counts, cmdp.threshold)
        attained = optcmdp_scipy.solve(name, counts, cmdp.threshold, fixed=policy)
        assert attained.infeasible == best.infeasible
        assert attained.value == pytest.approx(best.value, abs=1e-7)
        if best.unique:
            reached = best.policy.any(axis=2, keepdims=True)
            np.testing.assert_allclose(np.where(reached, policy, 0), best.policy, atol=1e-6)
        unique += best.unique
        moved += bool(state.multipliers.any())
        states, actions, x = [], [], 0
        for k in range(cmdp.n_layers):
            states.append(x)
            actions.append(baselines_numpy.draw(policy[k, x], draws[t, k, 0]))
            if k + 1 < cmdp.n_layers:
                x = baselines_numpy.draw(cmdp.transition[k, x, actions[k]], draws[t, k, 1])
        samples = [[float(draws[t, k, 2 + i] < mean[k, states[k], actions[k]]) for k in range(cmdp.n_layers)]
                   for i, mean in enumerate(payoffs)]  # fmt: skip
        np.testing.assert_array_equal(trajectory.state, states)
        np.testing.assert_array_equal(trajectory.action, actions)
        np.testing.assert_array_equal([trajectory.reward, *trajectory.cost], samples)
        counts.add(states, actions, np.array(samples))
        state, info = learner.update(lanes.problem, lanes.hyper, state, policy, trajectory)
        assert (int(info.epochs), int(info.infeasible)) == (t, 0)
    np.testing.assert_array_equal(state.counts.visits, counts.n)
    np.testing.assert_array_equal(state.counts.transitions, counts.m)
    np.testing.assert_array_equal(state.counts.payoff_sum, counts.payoffs)
    assert unique > 0.5 * episodes
    assert moved > 0.3 * episodes  # the constraint binds: the comparison says something


def exact_counts(cmdp: cp.CMDP) -> Counts:
    """10^9 visits of every pair, in proportion to the true model."""
    n = 10**9
    payoff = np.concatenate([cmdp.reward[None], cmdp.cost])
    visits = np.full(cmdp.reward.shape, n, np.int32)
    return Counts(visits, np.rint(n * cmdp.transition).astype(np.int32), n * payoff)


@both
@pytest.mark.parametrize("masked", [False, True])
def test_plays_the_optimum_when_estimates_are_exact(name: str, masked: bool) -> None:
    """Through `simulate`, after one episode: the value is OPT within 1e-6 and the constraints hold to 1e-6."""
    cmdp = random_cmdp(4, 3, 3, 2, seed=4, masked=masked)
    learner = base.get(name)

    def init(problem: Problem, hyper: Hyperparameters) -> replanning.State:
        return learner.init(problem, hyper)._replace(counts=exact_counts(cmdp))

    exact = replace(learner, name="exact", init=init)
    hparams = {"transition_confidence": 1e-12, "payoff_confidence": 1e-12}
    data = cp.simulate(exact, cmdp, episodes=3, seeds=2, hparams=hparams, checkpoints=[1, 2, 3], progress=False).data
    assert (np.abs(data.regret_gap.sel(episode=[2, 3])) < 1e-6).all()
    assert (data.violation_gap.sel(episode=[2, 3]) < 1e-6).all()
    multipliers = data.multiplier.sel(episode=3).values.reshape(2, 2)
    np.testing.assert_allclose(multipliers, np.tile(cp.solve(cmdp).multipliers, (2, 1)), atol=1e-4)
    assert multipliers.max() > 0.01
    assert float(data.infeasible.max()) == 0


@both
def test_an_infeasible_lp_is_counted_and_violated_least(name: str) -> None:
    """One constraint: the least cost is that of some deterministic policy, all of which are tried."""
    cmdp = random_cmdp(3, 2, 2, 1, seed=8)
    counts, hyper = exact_counts(cmdp), Hyperparameters(1e-12, 1e-12, 0.0)
    real = np.argwhere(np.asarray(cmdp.action_mask).any(axis=2)).tolist()
    least = np.inf
    for chosen in itertools.product(range(2), repeat=len(real)):
        policy = np.zeros(cmdp.reward.shape)
        for (k, x), a in zip(real, chosen, strict=True):
            policy[k, x, a] = 1
        least = min(least, float(optimum.evaluate(cmdp.transition, policy, cmdp.cost)[0]))
    problem = one_problem(cmdp, threshold=np.array([least - 0.1]))
    plan = solve(name, problem, hyper, counts)
    assert plan.infeasible
    assert plan.value == pytest.approx(-0.1, abs=1e-6)
    assert float(optimum.evaluate(cmdp.transition, plan.policy, cmdp.cost)[0]) == pytest.approx(least, abs=1e-6)
    assert plan.multipliers == pytest.approx([1.0])

    again = solve(name, problem._replace(threshold=np.array([least + 0.1])), hyper, counts, plan.basis)
    assert not again.infeasible  # from the basis that the infeasible one left

    tight = replace(cmdp, threshold=np.array([least + 1e-3]))  # feasible in truth, not always by the estimates
    small = {"payoff_confidence": 0, "transition_confidence": 0}
    data = cp.simulate(name, tight, episodes=200, seeds=4, hparams=small, progress=False).data
    counted = data.infeasible.isel(episode=-1)
    assert counted.sum() > 20
    assert (counted <= data.epochs.isel(episode=-1)).all()


@both
def test_solving_when_a_count_has_doubled(name: str) -> None:
    """At most one LP for each pair and each power of 2; the others every episode."""
    cmdp, episodes = random_cmdp(3, 3, 2, 1, seed=3), 400
    hparams = {"solve_when_doubled": [0, 1]}
    data = cp.simulate(name, cmdp, episodes=episodes, seeds=2, hparams=hparams, progress=False).data
    solved = data.epochs.isel(episode=-1, learner=0, instance=0).values  # [hparams, seed]
    assert (solved[0] == episodes - 1).all()
    pairs = int(np.asarray(cmdp.action_mask).sum())
    assert (solved[1] <= pairs * np.log2(2 * episodes)).all()
    assert (solved[1] < 0.25 * episodes).all()
    assert (solved[1] > 10).all()


def test_one_layer_is_a_bandit() -> None:
    """L = 1, no transitions at all: the arm of reward 0.9 and cost 0.9 may be pulled half of the time."""
    cmdp = cp.make_cmdp(None, [[[0.9, 0.1]]], [[[[0.9, 0.1]]]], [0.5])
    result = cp.simulate(list(MODULES), cmdp, episodes=500, seeds=2, hparams="tuned", progress=False)
    assert (np.abs(result.metric("weak_regret").values[..., -1]) / 500 < 0.1).all()


def test_the_set_by_hand() -> None:
    """p = (1/4, 3/4), beta = 1/8 each: half of the mass that is not bound, 1/4, may go anywhere within 1/4."""
    p, beta = np.array([0.25, 0.75]).reshape(1, 1, 1, 2), np.full((1, 1, 1, 2), 0.125)
    within = optcmdp.confidence_set(p, beta, np.array([[[True]]]))
    np.testing.assert_array_equal(within.lower.ravel(), [0.125, 0.625])
    np.testing.assert_array_equal(within.spare.ravel(), [0.25])
    np.testing.assert_array_equal(within.cap.ravel(), [1, 1])
    unseen = optcmdp.confidence_set(0 * p, 1e-9 + 0 * p, np.array([[[False]]]))
    np.testing.assert_array_equal(unseen.lower.ravel(), [0, 0])
    np.testing.assert_array_equal(unseen.spare.ravel(), [1])
    np.testing.assert_array_equal(unseen.cap.ravel(), [1, 1])
    one_model = optcmdp.confidence_set(p, 0 * p, np.array([[[True]]]))
    np.testing.assert_array_equal(one_model.lower, p)
    np.testing.assert_array_equal(one_model.spare.ravel(), [0])
