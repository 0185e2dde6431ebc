"""The text of `CMDP.describe()`."""

from __future__ import annotations

import numpy as np

from cpdpo_jax.common.text import counted
from cpdpo_jax.common.types import CMDP
from cpdpo_jax.envs.build import unstack
from cpdpo_jax.envs.episodic import original_units
from cpdpo_jax.exact.lp import evaluate
from cpdpo_jax.exact.optimum import InfeasibleError, solve

BINDS = 1e-9  # a multiplier above it: the constraint costs reward
MOST_SHOWN = 20  # instances of a batch


def describe(cmdp: CMDP) -> str:
    """Sizes, OPT, constraints and multipliers in the source's units, rho; a batch is described instance by instance."""
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
    widest = counted(int(widths.max()), "state")
    states = f"{'' if widths.min() == widths.max() else f'{widths.min()} to '}{widest} (|X| = {int(cmdp.real_states)})"
    actions, constraints = counted(int(cmdp.real_actions), "action"), counted(cmdp.n_constraints, "constraint")
    layers = counted(cmdp.n_layers, "layer")
    lines = [f"{cmdp.name}: {layers} of {states}, up to {actions}, {constraints}, {cmdp.noise} noise"]
    try:
        solution = solve(cmdp)
    except InfeasibleError as error:
        return "\n".join([*lines, f"  WARNING: {error}"])
    values, costs = original_units(cmdp, solution.value, evaluate(cmdp.transition, solution.policy, cmdp.cost))
    free, limits = original_units(cmdp, solution.unconstrained_value, cmdp.threshold)
    values, free = (0.0 if abs(v) < BINDS * abs(cmdp.units.reward_scale) else float(v) for v in (values, free))
    sense = "least" if minimised else "largest"
    unit, *cost_units = [f" {name}" for name in cmdp.unit_names] or [""] * (1 + cmdp.n_constraints)
    lines.append(f"  OPT {values:.6g}{unit} ({sense} value that meets the constraints; without them {free:.6g})")
    lines.append(
        f"  Slater margin rho = {float(solution.slater_margin):.6g}" + (" (learner's units)" if scaled else "")
    )
    per = np.abs(cmdp.units.reward_scale / cmdp.units.cost_scale)  # from the learner's multipliers to the source's
    costly = solution.unconstrained_value - solution.value > BINDS  # else 0 is optimal too, whatever the LP returned
    multipliers = solution.multipliers * costly
    for i, multiplier in enumerate(multipliers):
        sign = ">=" if cmdp.units.cost_scale[i] < 0 else "<="
        state = _state(multiplier, multiplier * per[i], costs[i], limits[i])
        if cmdp.unit_names and multiplier > BINDS:
            state += f"{unit} per{cost_units[i]}"
        lines.append(f"  constraint {i}: {costs[i]:.6g} {sign} {limits[i]:.6g}{cost_units[i]}, {state}")
    if scaled:
        lines.append(
            "  OPT, constraints and multipliers are in the units of the source; rho is in the learner's, where rewards "
            "and costs lie in [0, 1]"
        )
    loose = [str(i) for i, multiplier in enumerate(multipliers) if multiplier <= BINDS]
    if loose:
        which = f"constraints {', '.join(loose)} have" if len(loose) > 1 else f"constraint {loose[0]} has"
        do = "do" if len(loose) > 1 else "does"
        lines.append(f"  WARNING: {which} multiplier 0 and {do} not affect OPT, so learners are not tested; tighten it")
    if solution.slater_margin <= BINDS:
        lines.append(
            "  WARNING: no policy satisfies the constraints strictly (rho = 0), as CPD-PO requires; loosen a constraint"
        )
    return "\n".join(lines)


def _state(multiplier: float, shown: float, value: float, limit: float) -> str:
    """Whether a constraint binds; a constraint met with equality does not bind if its multiplier is 0."""
    if multiplier > BINDS:
        return f"binds, multiplier {shown:.4g}"
    return "met with equality, multiplier 0" if np.isclose(value, limit, rtol=1e-6, atol=1e-9) else "inactive"


def _is_scaled(cmdp: CMDP) -> bool:
    units = cmdp.units
    plain = np.all(units.reward_scale == 1) and np.all(units.cost_scale == 1)
    return not (plain and np.all(units.reward_offset == 0) and np.all(units.cost_offset == 0))
