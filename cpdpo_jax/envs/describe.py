"""What a CMDP is, in words and numbers."""

from __future__ import annotations

import numpy as np

from cpdpo_jax.common.types import CMDP
from cpdpo_jax.envs.build import unstack
from cpdpo_jax.envs.episodic import original_units
from cpdpo_jax.exact.lp import evaluate
from cpdpo_jax.exact.optimum import InfeasibleError, solve

BINDS = 1e-9  # a multiplier above it: the constraint costs reward
MOST_SHOWN = 20  # instances of a batch


def describe(cmdp: CMDP) -> str:
    """Sizes, OPT in original units, rho, and which constraints bind; a batch is described instance by instance."""
    ones = unstack(cmdp)
    if not cmdp.batch_shape:
        return _one(cmdp)
    head = f"batch of {len(ones)} CMDPs"
    rest = [f"... and {len(ones) - MOST_SHOWN} more"] if len(ones) > MOST_SHOWN else []
    return "\n\n".join([head, *map(_one, ones[:MOST_SHOWN]), *rest])


def _one(cmdp: CMDP) -> str:
    """One instance."""
    widths = np.asarray(cmdp.state_mask).sum(axis=1)
    minimised, scaled = float(cmdp.units.reward_scale) < 0, _is_scaled(cmdp)
    lines = [
        f"{cmdp.name}: {cmdp.n_layers} layers of {_range(widths)} states (|X| = {int(cmdp.real_states)}), "
        f"up to {int(cmdp.real_actions)} actions, {_many(cmdp.n_constraints, 'constraint')}, {cmdp.noise} noise"
    ]
    try:
        solution = solve(cmdp, processes=1)
    except InfeasibleError as error:
        return "\n".join([*lines, f"  WARNING: {error}"])
    values, costs = original_units(cmdp, solution.value, evaluate(cmdp.transition, solution.policy, cmdp.cost))
    free, limits = original_units(cmdp, solution.unconstrained_value, cmdp.threshold)
    sense = "least" if minimised else "largest"
    unit, *cost_units = [f" {name}" for name in cmdp.unit_names] or [""] * (1 + cmdp.n_constraints)
    lines.append(
        f"  OPT {float(values):.6g}{unit} ({sense} value that meets the constraints; without them {float(free):.6g})"
    )
    lines.append(
        f"  Slater margin rho = {float(solution.slater_margin):.6g}" + (" (learner's units)" if scaled else "")
    )
    for i, multiplier in enumerate(solution.multipliers):
        sign = ">=" if cmdp.units.cost_scale[i] < 0 else "<="
        state = f"binds, multiplier {multiplier:.4g}" if multiplier > BINDS else "does not bind"
        lines.append(f"  constraint {i}: {costs[i]:.6g} {sign} {limits[i]:.6g}{cost_units[i]}, {state}")
    if scaled:
        lines.append(
            "  OPT and constraints are in the units of the source; rho and multipliers in those of the learner, where "
            "rewards and costs lie in [0, 1]"
        )
    loose = [str(i) for i, multiplier in enumerate(solution.multipliers) if multiplier <= BINDS]
    if loose:
        which = f"constraints {', '.join(loose)} do" if len(loose) > 1 else f"constraint {loose[0]} does"
        lines.append(
            f"  WARNING: {which} not bind: OPT is the same without, and no learner is tested on it; tighten it"
        )
    if solution.slater_margin <= BINDS:
        lines.append(
            "  WARNING: no policy meets the constraints strictly (rho = 0): CPD-PO refuses it; loosen a threshold"
        )
    return "\n".join(lines)


def _is_scaled(cmdp: CMDP) -> bool:
    units = cmdp.units
    plain = np.all(units.reward_scale == 1) and np.all(units.cost_scale == 1)
    return not (plain and np.all(units.reward_offset == 0) and np.all(units.cost_offset == 0))


def _range(widths: np.ndarray) -> str:
    low, high = int(widths.min()), int(widths.max())
    return str(low) if low == high else f"{low} to {high}"


def _many(n: int, thing: str) -> str:
    return f"{n} {thing}{'s' if n > 1 else ''}"
