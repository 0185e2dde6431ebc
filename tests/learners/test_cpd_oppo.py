"""CPD-OPPO: against an independent plain-loop transcription on the same draws, its inequalities with theory's constants
and with exact estimates, and what its options promise.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cpdpo_jax as cp
from cpdpo_jax.exact.optimum import evaluate
from cpdpo_jax.learners import cpd_oppo
from tests.reference import cpd_oppo_numpy as reference
from tests.support import lanes_for, random_cmdp, replay

EPISODES = 2000
RHO = 0.5
INSTANCES: dict[str, dict[str, Any]] = {
    "m=1": {"layers": 3, "states": 3, "actions": 2, "constraints": 1, "seed": 3},
    "m=2, masks": {"layers": 4, "states": 3, "actions": 3, "constraints": 2, "seed": 4, "masked": True},
    "one layer": {"layers": 1, "states": 1, "actions": 3, "constraints": 1, "seed": 6},
}
FIXED = {"adaptive_rate": 0.0, "policy_rate": 0.08}  # some hundred times the theory's: policies move
OPTIONS: dict[str, dict[str, float]] = {
    "fixed rate": FIXED,
    "anytime": FIXED | {"anytime": 1.0},
    "all": {"anytime": 1.0, "adaptive_rate": 1.0, "dual_cap": 0.05},
}


def _record(state: cpd_oppo.State) -> Any:
    return state.advantage, state.range_sum


@cache
def _replayer() -> Any:
    run = partial(replay, cpd_oppo.LEARNER, "bernoulli", record=_record)
    return jax.jit(run)


def _both(instance: str, n: int, preset: str, **changed: Any) -> tuple[cp.CMDP, Any, Any, dict[str, Any]]:
    cmdp = random_cmdp(**INSTANCES[instance])
    draws = np.random.default_rng(11).random((n, cmdp.n_layers, 3 + cmdp.n_constraints))
    lanes = lanes_for(cpd_oppo.LEARNER, cmdp, episodes=EPISODES, preset=preset, rho=RHO, dtype=np.float64, **changed)
    replayed = _replayer()(lanes, jnp.asarray(draws)[..., None])
    _, episodes, records = jax.tree.map(lambda array: np.asarray(array)[..., 0], replayed)
    hyper = {field: float(np.asarray(value)[0]) for field, value in lanes.hyper._asdict().items()}
    expected = reference.run(
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
    return cmdp, episodes, records, expected | {"hyper": hyper}


def _assert_same(episodes: Any, records: Any, expected: dict[str, Any]) -> None:
    np.testing.assert_array_equal(episodes.trajectory.state, expected["states"])
    np.testing.assert_array_equal(episodes.trajectory.action, expected["actions"])
    np.testing.assert_allclose(episodes.policy, expected["policies"], rtol=0, atol=1e-9)
    np.testing.assert_allclose(episodes.info.multipliers, expected["multipliers"], rtol=1e-12, atol=1e-12)
    advantage, range_sum = records
    np.testing.assert_allclose(advantage, expected["weights"], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(range_sum, expected["range_sum"], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("preset", ["theory", "tuned"])
@pytest.mark.parametrize(
    "instance", [pytest.param(name, marks=[pytest.mark.exhaustive] * (name == "m=1")) for name in INSTANCES]
)
def test_equals_the_transcription(x64: None, instance: str, preset: str) -> None:
    cmdp, episodes, records, expected = _both(instance, EPISODES, preset)
    _assert_same(episodes, records, expected)
    if preset == "theory":
        stated = reference.theory_constants(cmdp.action_mask, cmdp.n_constraints, EPISODES, RHO)
        assert expected["hyper"] == pytest.approx(stated, rel=1e-14)
    else:  # else the comparison says little
        assert expected["multipliers"].max() > 0
        assert np.ptp(expected["policies"], axis=0).max() > 0.3


@pytest.mark.parametrize("option", OPTIONS)
def test_options_equal_the_transcription(x64: None, option: str) -> None:
    _, episodes, records, expected = _both("m=2, masks", 500, "tuned", **OPTIONS[option])
    _assert_same(episodes, records, expected)


def test_inequalities_of_the_proof_hold_in_every_episode_with_the_theorys_widths(x64: None) -> None:
    """(a), (c), (d) and the sum of x_t, from the run of the learner itself, by the transcription's own analysis."""
    cmdp, _, _, log = _both("m=1", 400, "theory")
    solution = cp.solve(cmdp)
    rho = float(solution.slater_margin)
    replayed = reference.analysis(
        log,
        transition=cmdp.transition,
        reward=cmdp.reward,
        cost=cmdp.cost,
        threshold=cmdp.threshold,
        action_mask=cmdp.action_mask,
        optimum=float(solution.value),
        optimal_costs=evaluate(cmdp.transition, solution.policy, cmdp.cost),
        optimal_policy=solution.policy,
        multiplier_bound=cmdp.n_layers / rho,
    )
    for event in ("reward_event", "cost_event", "transition_event"):
        assert replayed[event].all(), event
    cap = log["hyper"]["dual_cap"]
    for name in ("a", "a_sum", "b", "c"):
        assert (replayed[f"{name}_left"] <= replayed[f"{name}_right"] + 1e-9 * (1 + cap)).all(), name
    assert replayed["x"].sum() <= reference.sum_x_bound(np.asarray(cmdp.action_mask), 1, EPISODES, cap)


def test_a_cap_below_the_optimal_multiplier_violates_linearly() -> None:
    """As the theory says: V_T <= Z / (kappa - ||lambda*||) needs kappa above it. Twice the episodes, twice the sum."""
    cmdp = cp.envs.make("random", layers=3, states=3, actions=2, constraints=1, rho=0.2, key=3)
    largest = float(cp.solve(cmdp).multipliers.max())
    assert largest > 0.05
    ends = {}
    for name, cap in (("below", 0.5 * largest), ("above", 4 * largest)):
        result = cp.simulate(
            "cpd_oppo", cmdp, episodes=20_000, seeds=32, hparams={"dual_cap": cap}, checkpoints=[10_000, 20_000],
            progress=False,
        )  # fmt: skip
        ends[name] = result.metric("strong_violation").mean("seed").values.ravel()
    assert ends["below"][1] / ends["below"][0] > 1.8
    assert ends["above"][1] / ends["above"][0] < 1.7
    assert ends["above"][1] < 0.5 * ends["below"][1]
