"""What a result tells about how it was computed."""

from __future__ import annotations

import json
import platform
from importlib import metadata

import numpy as np

import cpdpo_jax as cp
from tests.support import random_cmdp


def test_the_attributes_of_a_result():
    """How it was computed, and the instances' sizes, solutions and units."""
    cmdp = random_cmdp(3, 3, 2, 2, seed=5)
    options = {"key": 3, "safety": 0.25, "rho": [0.1, 0.2], "progress": False}
    data = cp.simulate(["dope", "optcmdp"], cmdp, episodes=2, seeds=2, **options).data  # pyright: ignore[reportArgumentType]
    versions = json.loads(data.attrs["versions"])
    assert versions == {name: metadata.version(name) for name in ("cpdpo_jax", "jax", "numpy")} | {
        "python": platform.python_version()
    }
    stored = ("key", "dtype", "noise", "layers", "states", "actions", "interrupted", "episodes", "delta", "safety")
    assert [data.attrs[name] for name in stored] == ["3", "float32", "bernoulli", 3, 3, 2, 0, 2, 0.05, 0.25]
    assert "rho" not in data.attrs
    assert data.rho.values.tolist() == [0.1, 0.2]
    solution = cp.solve(cmdp)
    for name, value in (("optimum", solution.value), ("slater_margin", solution.slater_margin)):
        np.testing.assert_allclose(data[name], [value])
    np.testing.assert_allclose(data.optimal_multipliers.values[:, 0], solution.multipliers)
    np.testing.assert_allclose(data.threshold.values[:, 0], cmdp.threshold)
    assert data.safe_cost.dims == ("learner", "constraint", "instance")
    assert np.isfinite(data.safe_cost.sel(learner="dope")).all()  # only dope is given a safe policy
    assert np.isnan(data.safe_cost.sel(learner="optcmdp")).all()
    assert data.extra_knowledge.values.tolist() == [cp.learners.get("dope").extra_knowledge, ""]
    for name in ("regret", "violation"):  # the gaps of the second episode
        np.testing.assert_allclose(
            data[f"{name}_gap"].sel(episode=2), data[f"weak_{name}"].diff("episode").sel(episode=2), atol=1e-6
        )
    assert np.abs(data.regret_gap - data.violation_gap.isel(constraint=0)).max() > 0.01
