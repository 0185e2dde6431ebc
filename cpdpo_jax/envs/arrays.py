"""Import from pymdptoolbox's layout: arrays with the action axis first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cpdpo_jax.common.types import CMDP
from cpdpo_jax.envs.episodic import from_episodic


def from_arrays(
    transition: Any,
    reward: Any,
    cost: Any,
    threshold: Any,
    *,
    horizon: int,
    initial: Any = 0,
    sense: str | Sequence[str] = "<=",
    minimize: bool = False,
    noise: str = "bernoulli",
    name: str | None = None,
    reward_unit: str | None = None,
    cost_units: str | Sequence[str] | None = None,
) -> CMDP:
    """A finite-horizon CMDP from arrays in the layout of pymdptoolbox, built like `from_episodic`.

    Args:
        transition: P `[A, S, S]`, `P[a][s, s']`, or a sequence of A matrices `[S, S]`, SciPy sparse ones included.
        reward: R `[S, A]`, `[S]` (per state), or `[A, S, S]` (per transition; averaged over P).
        cost: `[M, S, A]` or `[M, A, S, S]`; for a single constraint also `[S, A]`.
        threshold: `[M]`, or a number for one constraint.
        horizon: H; pymdptoolbox's discount has no counterpart here.
        initial: the first state, or a distribution `[S]`.
        sense: "<=" or ">=", one for all constraints or one for each.
        minimize: whether the reward is to be minimised.
        noise: as in `make_cmdp`.
        name: as in `make_cmdp`.
        reward_unit: as in `from_episodic`.
        cost_units: as in `from_episodic`.

    Returns:
        A `CMDP`, as from `from_episodic`.
    """
    p = _dense("transition", transition)
    if p.ndim != 3 or p.shape[1] != p.shape[2]:
        raise ValueError(f"transition has shape {p.shape}; give [A, S, S], the action first.")
    costs = _dense("cost", cost)
    costs = costs[None] if costs.ndim == 2 else costs
    return from_episodic(
        p.transpose(1, 0, 2),
        _pairs("reward", _dense("reward", reward), p),
        np.stack([_pairs(f"cost[{i}]", entry, p) for i, entry in enumerate(costs)]) if len(costs) else costs,
        np.atleast_1d(np.asarray(threshold, float)),
        horizon=horizon,
        initial=initial,
        sense=sense,
        minimize=minimize,
        noise=noise,
        name=name,
        reward_unit=reward_unit,
        cost_units=cost_units,
    )


def _dense(field: str, value: Any) -> np.ndarray:
    """A dense array from an array or a sequence of matrices, which may be sparse."""
    if hasattr(value, "toarray"):
        return value.toarray().astype(float)
    try:
        if isinstance(value, list | tuple):
            value = [entry.toarray() if hasattr(entry, "toarray") else entry for entry in value]
        return np.array(value, dtype=float)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{field} is not an array of numbers ({error}); give a rectangular array.") from error


def _pairs(field: str, payoff: np.ndarray, p: np.ndarray) -> np.ndarray:
    """A payoff per state, pair or transition as a payoff per pair `[S, A]`."""
    n_actions, n_states, _ = p.shape
    if payoff.shape == p.shape:
        return (p * payoff).sum(axis=2).T
    if payoff.shape == (n_states,):
        return np.repeat(payoff[:, None], n_actions, axis=1)
    if payoff.shape != (n_states, n_actions):
        raise ValueError(
            f"{field} has shape {payoff.shape}; give [S, A] = {(n_states, n_actions)}, [S], or [A, S, S] as transition."
        )
    return payoff
