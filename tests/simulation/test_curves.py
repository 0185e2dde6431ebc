"""Curves of a block: empty ones, and what is written at a checkpoint."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from cpdpo_jax.learners import base
from cpdpo_jax.learners.base import Info
from cpdpo_jax.simulation.compiled_loop import LoopState, Sums
from cpdpo_jax.simulation.curves import AT_CHECKPOINTS, empty_curves, write_checkpoint
from cpdpo_jax.simulation.monitor import MonitorState
from tests.support import random_cmdp


def test_empty_curves():
    """Two checkpoints and three lanes, before the first episode."""
    curves = empty_curves(2, random_cmdp(3, 4, 2, 2, seed=0), 3, base.get("cpdpo").analysis)
    assert (curves.first_non_finite.tolist(), curves.done.tolist()) == ([0, 0, 0], 0)
    shapes = {
        "strong": (2, 3, 3),
        "multiplier": (2, 2, 3),
        "failures": (2, 6, 3),
        "policy": (3, 4, 2, 3),
        "epochs": (2, 3),
    }
    for name, shape in shapes.items():
        assert getattr(curves, name).shape == shape
        assert np.isnan(getattr(curves, name)).all()
    assert curves.watched.shape == (2, 2, 3)
    assert empty_curves(2, random_cmdp(3, 4, 2, 2, seed=0), 3, None).failures.shape == (2, 0, 3)


def test_a_checkpoint_has_corrected_sums_and_nan_in_lanes_that_failed():
    rng = np.random.default_rng(0)

    def sums(scale: float) -> Sums:
        return Sums(*(scale * rng.random(shape) for shape in ((3, 3), (3, 3), (2, 3))))

    total, carry = sums(1.0), sums(0.1)
    info = Info(rng.random((2, 3)), np.array([1, 2, 3]), np.array([4, 5, 6]))
    watch = MonitorState(np.array([[1, 2, 3]] * 6), rng.random((6, 3)), rng.random((2, 3)), 0.1 * rng.random((2, 3)))  # pyright: ignore[reportArgumentType]
    failed: Any = np.array([-1, 7, -1])
    gaps: Any = rng.random((3, 3))
    unused: Any = SimpleNamespace()
    state = LoopState(unused, total, carry, gaps, info, failed, unused, watch, None)  # pyright: ignore[reportArgumentType]
    curves = empty_curves(2, random_cmdp(3, 4, 2, 2, seed=0), 3, base.get("cpdpo").analysis)
    write_checkpoint(curves, 1, 50, state._replace(policy_check=None))  # pyright: ignore[reportArgumentType]
    expected = {
        "strong": total.strong - carry.strong, "weak": total.weak - carry.weak, "gaps": gaps,
        "multiplier_mean": (total.multipliers - carry.multipliers) / 50, "multiplier": info.multipliers,
        "epochs": info.epochs, "infeasible": info.infeasible, "failures": watch.failures, "slack": watch.slack,
        "watched": watch.sums - watch.carry,
    }  # fmt: skip
    assert set(expected) == set(AT_CHECKPOINTS)
    for name, value in expected.items():
        found = getattr(curves, name)
        np.testing.assert_allclose(found[1][..., [0, 2]], np.asarray(value)[..., [0, 2]], err_msg=name)
        assert np.isnan(found[1][..., 1]).all()
        assert np.isnan(found[0]).all()
