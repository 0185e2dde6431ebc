"""CPD-PO and PO-DB against an independent plain-loop transcription of the paper, on the same recorded draws.

Symbols: log_weights = -eta sum(Q_hat - B), multipliers = lambda_t, epochs = k.
"""

from __future__ import annotations

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cpdpo_jax.learners import base, cpdpo, podb
from cpdpo_jax.simulation import compiled_loop
from tests.reference import cpdpo_numpy as reference
from tests.support import lanes_for, random_cmdp, replay

EPISODES = 1500
HORIZON = 10**6  # the T of the constants. With T = 3000 the tuned rates are so large that the dynamics amplify rounding
# (1e-17 at the start) by a factor of about 600 every 500 episodes: no two orders of summation would agree.
INSTANCES = {
    "m=1": {"layers": 4, "states": 3, "actions": 2, "constraints": 1, "seed": 0},
    "m=2, masks": {"layers": 4, "states": 3, "actions": 3, "constraints": 2, "seed": 1, "masked": True},
    "m=3": {"layers": 3, "states": 4, "actions": 2, "constraints": 3, "seed": 2},
}


def _record(state):
    return state.primal.log_weights, state.primal.epochs


@cache
def _replayer(learner):
    """One for all tests: a shape is compiled once."""
    run = partial(replay, learner, "bernoulli", record=_record)
    return jax.jit(run)


def _replayed(cmdp, preset, dtype, draws, learner=cpdpo.LEARNER, **changed):
    lanes = lanes_for(learner, cmdp, episodes=HORIZON, preset=preset, rho=0.5, dtype=dtype, **changed)
    _, episodes, (weights, epochs) = _replayer(learner)(lanes, jnp.asarray(draws, dtype)[..., None])
    hyper = {name: float(np.asarray(value)[0]) for name, value in lanes.hyper._asdict().items()}
    return jax.tree.map(lambda a: np.asarray(a)[..., 0], (episodes, weights, epochs)), hyper


def _expected(cmdp, hyper, draws, past_counts=False):
    return reference.run(
        transition=cmdp.transition,
        reward=cmdp.reward,
        cost=cmdp.cost,
        threshold=cmdp.threshold,
        action_mask=cmdp.action_mask,
        hyper=hyper,
        episodes=HORIZON,
        delta=0.05,
        uniforms=draws,
        past_counts=past_counts,
    )


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["theory", "tuned"])
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.exhaustive] * (name == "m=1")) for name in INSTANCES]
)
def test_equals_the_transcription_of_the_paper(x64, name, preset):
    cmdp = random_cmdp(**INSTANCES[name])
    n = EPISODES if preset == "tuned" else 300  # the theory's rates move little in any number of them
    draws = np.random.default_rng(7).random((n, cmdp.n_layers, 3 + cmdp.n_constraints))
    (episodes, weights, epochs), hyper = _replayed(cmdp, preset, np.float64, draws)
    expected = _expected(cmdp, hyper, draws)
    if preset == "theory":
        stated = reference.theory_constants(cmdp.action_mask, cmdp.n_constraints, HORIZON, 0.5)
        assert hyper == pytest.approx(stated, rel=1e-14)
    else:  # else the comparison of multipliers says nothing
        assert 0 < (expected["multipliers"] > 0).mean() < 1
    np.testing.assert_array_equal(episodes.trajectory.state, expected["states"])
    np.testing.assert_array_equal(episodes.trajectory.action, expected["actions"])
    np.testing.assert_array_equal(episodes.info.multipliers, expected["multipliers"])
    np.testing.assert_array_equal(epochs, expected["epochs"])
    np.testing.assert_allclose(weights, expected["log_weights"], rtol=0, atol=1e-9)
    np.testing.assert_allclose(episodes.policy, expected["policies"], rtol=0, atol=1e-9)


@pytest.mark.parametrize("past", [False, True])
def test_equals_the_transcription_with_the_options(x64, past):
    """Clipping, no dilation, another cap and scale: the options of the ablations; and a loss made before it."""
    cmdp = random_cmdp(**INSTANCES["m=2, masks"])
    draws = np.random.default_rng(8).random((400, cmdp.n_layers, 5))
    changed = {"clip": 1.0, "dilation": 1.0, "dual_cap": 3.0, "loss_scale": 9.0, "cost_confidence": 0.003}
    learner = cpdpo.PAST if past else cpdpo.LEARNER
    (episodes, weights, epochs), hyper = _replayed(cmdp, "tuned", np.float64, draws, learner, **changed)
    expected = _expected(cmdp, hyper, draws, past)
    np.testing.assert_array_equal(episodes.info.multipliers, expected["multipliers"])
    np.testing.assert_array_equal(epochs, expected["epochs"])
    np.testing.assert_allclose(weights, expected["log_weights"], rtol=0, atol=1e-9)


def test_float32_stays_close_until_the_first_switch_differs():
    """float32 takes the same hard switches (actions, multipliers) for hundreds of episodes; up to the first that
    differs, policies are within 2e-3 of float64's, after that they are two different, equally valid runs.
    """
    cmdp = random_cmdp(**INSTANCES["m=2, masks"])
    draws = np.random.default_rng(9).random((1000, cmdp.n_layers, 5)).astype(np.float32)
    (episodes, _, _), hyper = _replayed(cmdp, "tuned", np.float32, draws)
    expected = _expected(cmdp, hyper, draws.astype(np.float64))
    same = (episodes.trajectory.action == expected["actions"]).all(axis=1)
    same &= (episodes.info.multipliers == np.float32(expected["multipliers"])).all(axis=1)
    until = len(same) if same.all() else int(np.argmin(same))
    assert until >= 200
    np.testing.assert_allclose(episodes.policy[:until], expected["policies"][:until], rtol=0, atol=2e-3)


def test_podb_alone_equals_the_transcription_on_adversarial_losses(x64):
    """PO-DB's step fed with losses that change with the episode."""
    cmdp = random_cmdp(**INSTANCES["m=2, masks"])
    rng = np.random.default_rng(10)
    n, shape = 500, (4, 3, 3)
    losses, draws = rng.random((n, *shape)), rng.random((n, shape[0], 5))
    lanes = lanes_for(podb.LEARNER, cmdp, episodes=n, preset="theory", rho=1.0, dtype=np.float64, learning_rate=0.005)
    hyper = {name: float(np.asarray(value)[0]) for name, value in lanes.hyper._asdict().items()}

    def step(state, inputs):
        draw, loss = inputs
        policy = podb.policy(lanes.problem, lanes.hyper, state)
        model = lanes.model._replace(payoff=lanes.model.payoff.at[0].set(1 - loss[..., None]))
        trajectory = compiled_loop.rollout(model, policy, draw[..., None], "deterministic")
        state, info = podb.update(lanes.problem, lanes.hyper, state, policy, trajectory)
        return state, (trajectory.state, trajectory.action, info.epochs, state.primal.log_weights)

    start = podb.init(lanes.problem, lanes.hyper)
    _, recorded = jax.jit(lambda d, x: jax.lax.scan(step, start, (d, x)))(jnp.asarray(draws), jnp.asarray(losses))
    states, actions, epochs, weights = (np.asarray(a)[..., 0] for a in recorded)
    expected = reference.run_podb(
        transition=cmdp.transition,
        action_mask=cmdp.action_mask,
        hyper=hyper,
        episodes=n,
        delta=0.05,
        losses=losses,
        uniforms=draws[:, :, :2],
    )
    np.testing.assert_array_equal(states, expected["states"])
    np.testing.assert_array_equal(actions, expected["actions"])
    np.testing.assert_array_equal(epochs, expected["epochs"])
    np.testing.assert_allclose(weights, expected["log_weights"], rtol=0, atol=1e-9)


def test_counts_and_sums_stay_exact_beyond_float32():
    """Beyond 2^24 increments: counts are integers, sums are compensated."""
    n, chunk = 2**24 + 1000, np.float32(0.7)

    def add(_, sums):
        return compiled_loop.compensated_add(sums[0], sums[1], chunk)

    total, carry = jax.jit(lambda: jax.lax.fori_loop(0, n, add, (jnp.float32(0), jnp.float32(0))))()
    assert float(total) - float(carry) == pytest.approx(n * float(chunk), rel=1e-7)
    plain = jax.jit(lambda: jax.lax.fori_loop(0, n, lambda _, s: s + chunk, jnp.float32(0)))()
    assert float(plain) != pytest.approx(n * float(chunk), rel=1e-3)  # what a plain sum would have done
    problem = base.make_problem(_stacked(), episodes=n, delta=0.05, slater_margin=np.ones(1))
    hyper = cpdpo.hyperparameters(problem)
    assert cpdpo.init(jax.tree.map(jnp.asarray, problem), hyper).estimates.visits.dtype == jnp.int32


def _stacked():
    import cpdpo_jax as cp

    return cp.stack([random_cmdp(**INSTANCES["m=1"])])


def test_with_past_counts_the_loss_does_not_depend_on_its_own_episode(x64):
    """The same past and another payoff in the last episode: the same step of PO-DB; as printed, another one."""
    cmdp = random_cmdp(**INSTANCES["m=1"])
    draws = np.random.default_rng(12).random((30, cmdp.n_layers, 4))
    other = draws.copy()
    draws[-1, :, 2:], other[-1, :, 2:] = 0.0, 1 - 1e-9  # all samples of the last episode 1, or all 0; its path stays
    for learner in (cpdpo.LEARNER, cpdpo.PAST):
        weights = [_replayed(cmdp, "tuned", np.float64, some, learner)[0][1][-1] for some in (draws, other)]
        assert np.array_equal(*weights) == (learner is cpdpo.PAST)
