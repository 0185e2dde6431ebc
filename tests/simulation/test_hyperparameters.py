"""A result records the hyperparameters with which each phase started."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest

import cpdpo_jax as cp
from cpdpo_jax.learners import Info, Learner, fixed
from cpdpo_jax.simulation import plan as planning

EPISODES = 40


class Constants(NamedTuple):
    """One hyperparameter depends on T, the other on rho."""

    rate: Any
    cap: Any


def update(problem: Any, hyper: Constants, state: Any, policy: Any, trajectory: Any) -> tuple[Any, Info]:
    return state, Info(jnp.stack([hyper.rate, hyper.cap]), 0 * trajectory.state[0])


LEARNER = Learner(
    name="constants",
    hyperparameters=lambda problem, preset: Constants(1 / np.sqrt(problem.episodes), 1 / problem.slater_margin),
    init=lambda problem, hyper: 0 * problem.threshold,
    policy=fixed.UNIFORM.policy,
    update=update,
)
"""Plays uniformly; its multipliers report its initial constants."""


@pytest.fixture(scope="module")
def cmdp() -> cp.CMDP:
    rng = np.random.default_rng(2)
    return cp.make_cmdp(np.full((1, 2, 2, 2), 0.5), rng.random((2, 2, 2)), 0.8 * rng.random((2, 2, 2, 2)), [1.3, 1.3])


def run(cmdp: cp.CMDP, monkeypatch: pytest.MonkeyPatch, **options: Any) -> Any:
    monkeypatch.setattr(planning, "FIRST_DOUBLING", 8)
    points = list(range(1, EPISODES + 1))
    return cp.simulate(
        LEARNER, cmdp, episodes=EPISODES, seeds=3, checkpoints=points, progress=False, **options
    ).data.isel(learner=0, instance=0, hparams=0)


def shown(data: Any, name: str, episode: int) -> np.ndarray:
    """The learner's constant in that episode, [seed]."""
    return data.multiplier.sel(episode=episode).isel(constraint=["rate", "cap"].index(name)).values


def test_one_phase_has_one_value(cmdp: cp.CMDP, monkeypatch: pytest.MonkeyPatch) -> None:
    data = run(cmdp, monkeypatch)
    assert data.hyper_rate.dims == ()
    np.testing.assert_allclose(shown(data, "rate", 3), float(data.hyper_rate), rtol=1e-6)


def test_doubling_records_every_phase(cmdp: cp.CMDP, monkeypatch: pytest.MonkeyPatch) -> None:
    data = run(cmdp, monkeypatch, horizon="doubling")
    assert data.hyper_rate.dims == ("phase",)
    assert data.phase_first.values.tolist() == [1, 9, 25]
    assert data.phase_horizon.values.tolist() == [8, 16, 32]
    for phase, first in enumerate(data.phase_first.values):
        for name in ("rate", "cap"):
            used = float(data[f"hyper_{name}"].isel(phase=phase))
            np.testing.assert_allclose(shown(data, name, first), used, rtol=1e-6)


def test_an_estimated_margin_is_recorded_seed_by_seed(cmdp: cp.CMDP, monkeypatch: pytest.MonkeyPatch) -> None:
    data = run(cmdp, monkeypatch, rho="estimate:10")
    assert data.hyper_cap.dims == ("seed",)
    assert len(set(data.hyper_cap.values)) == 3
    np.testing.assert_allclose(shown(data, "cap", EPISODES), data.hyper_cap, rtol=1e-6)
    np.testing.assert_allclose(shown(data, "rate", EPISODES), data.hyper_rate, rtol=1e-6)
    np.testing.assert_allclose(data.hyper_rate, 1 / np.sqrt(EPISODES - 10))


def test_both_at_once(cmdp: cp.CMDP, monkeypatch: pytest.MonkeyPatch) -> None:
    data = run(cmdp, monkeypatch, rho="estimate:10", horizon="doubling")
    assert data.hyper_cap.dims == ("seed", "phase")
    for phase, first in enumerate(data.phase_first.values):
        for name in ("rate", "cap"):
            np.testing.assert_allclose(shown(data, name, first), data[f"hyper_{name}"].isel(phase=phase), rtol=1e-6)
