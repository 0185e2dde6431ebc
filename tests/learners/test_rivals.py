"""Learners from the literature on strong violations: against independent plain-loop transcriptions on the same recorded
draws, and with estimates as good as exact, where what they compute is known.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cpdpo_jax as cp
from cpdpo_jax.exact import optimum
from cpdpo_jax.learners import base, ghosh, optimistic
from cpdpo_jax.simulation import compiled_loop
from tests.learners.test_baselines import exact_estimates
from tests.reference import ghosh_numpy, optpess_primaldual_numpy, triple_q_numpy, uopt_rpgpd_numpy
from tests.support import lanes_for, random_cmdp

FAST_COMPILE = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
EPISODES = 2000
RHO = 0.5
INSTANCES: dict[str, dict[str, Any]] = {
    "m=1": {"layers": 3, "states": 3, "actions": 2, "constraints": 1, "seed": 3},
    "m=1, masks": {"layers": 3, "states": 3, "actions": 3, "constraints": 1, "seed": 7, "masked": True},
    "m=1, short": {"layers": 2, "states": 4, "actions": 4, "constraints": 1, "seed": 8},
    "m=2, masks": {"layers": 4, "states": 3, "actions": 3, "constraints": 2, "seed": 4, "masked": True},
}
REFERENCES: dict[str, Any] = {
    "ghosh": ghosh_numpy,
    "uopt_rpgpd": uopt_rpgpd_numpy,
    "optpess_primaldual": optpess_primaldual_numpy,
    "triple_q": triple_q_numpy,
}
CASES = [
    (name, instance)
    for name in REFERENCES
    for instance, sizes in INSTANCES.items()
    if sizes["constraints"] <= (base.get(name).most_constraints or sizes["constraints"])
]


def _record(state: Any) -> Any:
    """What the transcriptions tell of the state after an update, under their names."""
    fields = {"log_weights": "log_weights", "multipliers": "next_multipliers", "queue": "queue", "tables": "tables"}
    return {told: getattr(state, field) for field, told in fields.items() if hasattr(state, field)}


@cache
def _replayer(name: str) -> Any:
    return jax.jit(
        partial(compiled_loop.replay, base.get(name), "bernoulli", record=_record), compiler_options=FAST_COMPILE
    )


def _theory(name: str, cmdp: cp.CMDP) -> dict[str, float]:
    """The constants that the transcription states."""
    if name == "uopt_rpgpd":
        return uopt_rpgpd_numpy.THEORY
    if name == "optpess_primaldual":
        return optpess_primaldual_numpy.theory_constants(cmdp.action_mask, RHO)
    return REFERENCES[name].theory_constants(cmdp.action_mask, EPISODES)


@pytest.mark.parametrize("preset", base.PRESETS)
@pytest.mark.parametrize(("name", "instance"), CASES)
def test_equals_the_transcription(x64: None, name: str, instance: str, preset: str) -> None:
    """Trajectories exactly, all else to 1e-9 (of multipliers above 1: relatively)."""
    cmdp, learner = random_cmdp(**INSTANCES[instance]), base.get(name)
    n = 400 if (name, preset) == ("ghosh", "tuned") else EPISODES  # of the EPISODES: 26 plain passes take their time
    draws = np.random.default_rng(11).random((n, cmdp.n_layers, 3 + cmdp.n_constraints))
    lanes = lanes_for(learner, cmdp, episodes=EPISODES, preset=preset, rho=RHO, dtype=np.float64)
    _, episodes, records = jax.tree.map(
        lambda a: np.asarray(a)[..., 0], _replayer(name)(lanes, jnp.asarray(draws)[..., None])
    )
    hyper = {field: float(np.asarray(value)[0]) for field, value in lanes.hyper._asdict().items()}
    if preset == "theory":
        assert hyper == pytest.approx(_theory(name, cmdp), rel=1e-14)
    expected = REFERENCES[name].run(
        transition=cmdp.transition,
        reward=cmdp.reward,
        cost=cmdp.cost,
        threshold=cmdp.threshold,
        action_mask=cmdp.action_mask,
        hyper=hyper,
        episodes=EPISODES,
        delta=0.05,
        uniforms=draws,
    )
    np.testing.assert_array_equal(episodes.trajectory.state, expected["states"])
    np.testing.assert_array_equal(episodes.trajectory.action, expected["actions"])
    np.testing.assert_allclose(episodes.policy, expected["policies"], rtol=0, atol=1e-9)
    np.testing.assert_allclose(episodes.info.multipliers, expected["multipliers"], rtol=1e-9, atol=1e-9)
    for told in records.keys() & expected.keys():
        np.testing.assert_allclose(records[told], expected[told], rtol=1e-9, atol=1e-9)
    moved = {field: np.ptp(expected[field], axis=0).max() for field in ("policies", "multipliers")}
    assert min(moved.values()) > 0.1 if preset == "tuned" else max(moved.values()) > 1e-3  # else it says little


def test_ghosh_refuses_several_constraints() -> None:
    cmdp = random_cmdp(**INSTANCES["m=2, masks"])
    with pytest.raises(ValueError, match="one constraint, and the CMDP has 2; keep one"):
        cp.simulate("ghosh", cmdp, episodes=10, seeds=1, progress=False)


@pytest.mark.parametrize("instance", ["m=1", "m=1, masks"])
def test_ghosh_is_near_the_optimum_when_estimates_are_exact(x64: None, instance: str) -> None:
    """A softmax at rate c loses at most H ln|A| / c, here 1e-3; the bisection stays on the feasible side."""
    cmdp = random_cmdp(**INSTANCES[instance])
    solution = cp.solve(cmdp)
    lanes = lanes_for(
        ghosh.LEARNER,
        cmdp,
        episodes=EPISODES,
        preset="theory",
        rho=RHO,
        dtype=np.float64,
        policy_rate=3000.0,
        transition_confidence=1e-12,
        payoff_confidence=1e-12,
    )
    statistics = optimistic.from_estimates(exact_estimates(cmdp, 1, np.float64))
    policy, multiplier = jax.jit(ghosh.choose_policy, compiler_options=FAST_COMPILE)(
        lanes.problem, lanes.hyper, statistics
    )
    policy = np.asarray(policy)[..., 0]
    reward, cost = (optimum.evaluate(cmdp.transition, policy, payoff) for payoff in (cmdp.reward[None], cmdp.cost))
    assert float(solution.value) - 1e-3 < float(reward[0]) <= float(solution.value) + 1e-7
    assert (cost <= np.asarray(cmdp.threshold) + 1e-6).all()
    assert float(multiplier[0]) == pytest.approx(float(np.max(solution.multipliers)), rel=0.05)
