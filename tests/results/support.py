"""Made-up results of any size, without a simulation: what tables, figures and pages are tried on."""

from __future__ import annotations

import numpy as np
import xarray as xr

import cpdpo_jax as cp


def made_up(learners=("a", "b"), hparams=("tuned",), instances=1, seeds=6, constraints=1, points=40, episodes=10_000):
    """Curves that grow like the square root of the episodes, the more the later the learner and the hparams."""
    rng = np.random.default_rng(0)
    x = np.unique(np.geomspace(1, episodes, points).round().astype(int))
    lead = (len(learners), instances, len(hparams), seeds)
    level = 1 + 3 * np.arange(len(learners))[:, None, None, None] + np.arange(len(hparams))[:, None]
    luck = rng.lognormal(0, 0.2, lead)
    strong = level[..., None] * luck[..., None] * np.sqrt(x) * (1 + np.arange(instances)[:, None, None, None])
    weak = strong * 0.1 - 0.02 * x
    curve = ("learner", "instance", "hparams", "seed", "episode")
    each = (*curve, "constraint")
    shares = 1.0 / (1 + np.arange(constraints))
    cost, signed = strong[..., None] * shares, weak[..., None] * shares
    multiplier = np.broadcast_to(0.5 * shares, cost.shape)
    data = xr.Dataset(
        {
            "strong_regret": (curve, strong),
            "weak_regret": (curve, weak),
            "strong_violation": (each, cost),
            "weak_violation": (each, signed),
            "regret_gap": (curve, weak),
            "violation_gap": (each, signed),
            "multiplier": (each, multiplier),
            "epochs": (curve, 0 * strong),
            "infeasible": (curve, 0 * strong),
            "first_non_finite": (curve[:-1], np.zeros(lead)),
            "optimal_multipliers": (("constraint", "instance"), np.full((constraints, instances), 0.4)),
        },
        coords={
            "learner": list(learners),
            "instance": np.arange(instances),
            "instance_name": ("instance", [f"cmdp{i}" for i in range(instances)]),
            "hparams": list(hparams),
            "seed": np.arange(seeds),
            "episode": x,
            "constraint": np.arange(constraints),
        },
        attrs={"interrupted": 0, "episodes": episodes},
    )
    return cp.Result(data)
