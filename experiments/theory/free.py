"""What is run of CPD-OPPO with a learnt cap: the monitor, exact estimates, and the tuned preset's final caps.

With exact estimates B_t = 0, so that the rule for a new phase is not vacuous: each instance has its own learner, whose
estimates are the true model. It tests the rule and learns nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np

import cpdpo_jax as cp
from cpdpo_jax.exact.optimum import least_multiplier_norm
from cpdpo_jax.learners import Learner, cpd_oppo_free
from experiments.common import Cell
from experiments.suite.sweep import FAMILIES, HELD_OUT, LARGE, QUICK

LEARNER = cpd_oppo_free.LEARNER
VISITS = 10**8  # of every pair, as expected
DELTA = 0.05
BROKEN = {"payoff_confidence": "x0.001", "transition_confidence": "x0.001"}
FORMS: dict[str, Any] = {  # hparams of the watched runs
    "form B": {"preset": "theory"},
    "form R": {"preset": "theory", "realised": 1.0},
    "logarithms x 0.001": {"preset": "theory", **BROKEN},
}
WATCHED = {
    "fixed_cost": {"name": "fixed_cost", "key": 1},
    "least_cost": {"name": "least_cost", "key": 1},
    "hard": FAMILIES["hard"],
    "random": {"name": "random", "layers": 5, "states": 5, "actions": 3, "rho": 0.5, "key": 1, "constraints": 2},
}
EXACT = {
    "hard": FAMILIES["hard"],
    "random": {"name": "random", "layers": 3, "states": 3, "actions": 2, "constraints": 2, "key": 2},
    "least_cost": {"name": "least_cost", "layers": 3, "states": 2},
    "fixed_cost_0": {"name": "fixed_cost", "layers": 3, "states": 2, "key": 0},
    "fixed_cost_3": {"name": "fixed_cost", "layers": 3, "states": 2, "key": 3},
}
STARTS = {"Lambda/8": 0.125, "2 Lambda": 2.001}  # the first cap / Lambda
RULES = {"form R": (1.0, 1.0), "form B": (0.0, 1.0), "form B, Z x 0.2": (0.0, 0.2)}  # realised, bound_scale
TUNED = {
    **{name: environment for name, environment in (FAMILIES | QUICK | LARGE).items() if name != "frozen_lake"},
    **HELD_OUT,
}
SIZES = {  # episodes and seeds of the watched runs, episodes with exact estimates, episodes and seeds of the tuned runs
    "tiny": (30, 3, 300, 100, 2),
    "small": (3000, 200, 10**5, 2 * 10**4, 16),
    "paper": (20_000, 200, 10**5, 10**5, 32),
}


def environments(scale: str, of: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """All, or at tiny scale the first."""
    return dict(list(of.items())[:1]) if scale == "tiny" else of


def instance(environment: dict[str, Any]) -> cp.CMDP:
    """The CMDP of a cell's environment."""
    return cp.envs.make(environment["name"], **{name: of for name, of in environment.items() if name != "name"})


def exact_learner(label: str) -> Learner:
    """The learner whose estimates are the model of that instance; it counts nothing."""

    def init(problem: Any, hyper: Any) -> Any:
        state, cmdp = LEARNER.init(problem, hyper), instance(EXACT[label])
        old = state.estimates

        def spread(array: Any, like: Any) -> Any:
            return jnp.broadcast_to(jnp.asarray(array)[..., None], like.shape).astype(like.dtype)

        known = old._replace(
            visits=spread(np.full(cmdp.reward.shape, VISITS), old.visits),
            transitions=spread(np.rint(VISITS * np.asarray(cmdp.transition)), old.transitions),
            payoff_sum=spread(VISITS * np.concatenate([cmdp.reward[None], cmdp.cost]), old.payoff_sum),
        )
        return state._replace(estimates=known)

    def update(problem: Any, hyper: Any, state: Any, policy: Any, trajectory: Any) -> Any:
        after, info = LEARNER.update(problem, hyper, state, policy, trajectory)
        return after._replace(estimates=state.estimates), info

    return replace(LEARNER, name=f"cpd_oppo_free_exact_{label}", init=init, update=update, analysis=None)


EXACT_LEARNERS = {label: exact_learner(label) for label in EXACT}


@functools.cache
def norm(label: str) -> float:
    """Lambda of an instance with exact estimates, to four digits."""
    cmdp = instance(EXACT[label])
    return float(f"{least_multiplier_norm(cmdp, cp.solve(cmdp))[0]:.4g}")


def watched(scale: str, name: str) -> Cell:
    """The monitor on, with the proof's constants in both forms and with broken ones."""
    episodes, seeds = SIZES[scale][:2]
    options = {"episodes": episodes, "seeds": seeds, "checkpoints": 20, "monitor": True, "delta": DELTA}
    return Cell(f"free-{name}", LEARNER.name, WATCHED[name], options | {"hparams": list(FORMS.values())})


def exact(scale: str, name: str) -> Cell:
    """Exact estimates and no widths, from small and from sufficient caps."""
    narrow = {"preset": "theory", "transition_confidence": 0.0, "payoff_confidence": 0.0}
    hparams = [
        narrow | {"first_cap": start * norm(name), "realised": realised, "bound_scale": scale_of_z}
        for start in STARTS.values()
        for realised, scale_of_z in RULES.values()
    ]
    options = {"episodes": SIZES[scale][2], "seeds": 1, "checkpoints": 1, "hparams": hparams}
    return Cell(f"exact-{name}", EXACT_LEARNERS[name].name, EXACT[name], options)


def tuned(scale: str, name: str) -> Cell:
    """The tuned preset."""
    episodes, seeds = SIZES[scale][3:]
    return Cell(f"tuned-{name}", LEARNER.name, TUNED[name], {"episodes": episodes, "seeds": seeds, "checkpoints": 1})


KINDS: list[tuple[Callable[[str, str], Cell], dict[str, dict[str, Any]]]] = [
    (watched, WATCHED), (exact, EXACT), (tuned, TUNED),
]  # fmt: skip


def cells(scale: str) -> list[Cell]:
    """The watched runs, those with exact estimates, the tuned ones."""
    return [kind(scale, name) for kind, of in KINDS for name in environments(scale, of)]
