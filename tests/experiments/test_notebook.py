"""The notebook's program with all deviations of docs/rivals.md switched on is `uopt_rpgpd` with known payoffs."""

from __future__ import annotations

import numpy as np

import cpdpo_jax as cp
from experiments.rivals import notebook


def test_both_flags_lead_from_the_notebook_to_uopt_rpgpd(x64: None) -> None:
    """Episode by episode in float64; without them, both metrics differ."""
    environment = {"name": "random", "layers": 3, "states": 3, "actions": 2, "noise": "deterministic", "key": 0}
    cmdp = cp.envs.make("random", **{name: of for name, of in environment.items() if name != "name"})
    flags = [{"bounds_if_unseen": float(flag), "as_defined": float(flag)} for flag in (0, 1)]
    ours = {"preset": "theory", "bonus_scale": notebook.SCALE, "payoff_confidence": 0.0}
    options = {"episodes": 400, "seeds": 3, "delta": 0.1, "checkpoints": 400, "progress": False}
    theirs = cp.simulate(notebook.learner("notebook", environment), cmdp, hparams=flags, **options)
    package = cp.simulate("uopt_rpgpd", cmdp, hparams=ours, **options)
    for metric in ("strong_regret", "strong_violation"):
        plain, defined = theirs.metric(metric).isel(learner=0, instance=0).transpose("hparams", ...).values
        expected = package.metric(metric).isel(learner=0, instance=0, hparams=0).values
        np.testing.assert_allclose(defined, expected, rtol=1e-6, atol=1e-6)
        assert np.abs(plain - expected).max() > 0.1
