"""A seed has the same bits in blocks of 16, 32 and 64 lanes, of which 64 are compiled with other options.

All learners with CPDPO_LONG_TESTS=1: what a compiler rounds is its own affair, and a new one may find a sum that is not
written as `kernels/cpu/README.md` says.
"""

from __future__ import annotations

import os

import numpy as np
import pytest

import cpdpo_jax as cp
from cpdpo_jax.common.machine import cores
from cpdpo_jax.learners import base
from cpdpo_jax.simulation import lanes
from tests.support import random_cmdp

COMPILED = [name for name in sorted(base._REGISTRY) if base._REGISTRY[name].compiled]
CHECKED = COMPILED if os.environ.get("CPDPO_LONG_TESTS") else ["cpdpo", "cpd_oppo", "optprimaldual"]
ONE_CONSTRAINT = random_cmdp(3, 3, 2, 1, seed=5)
TWO_CONSTRAINTS = random_cmdp(4, 5, 3, 2, seed=6)


def curves(learner, cmdp, seeds, **options):
    """All results of seeds 0 to 3."""
    run = cp.simulate(learner, cmdp, seeds=seeds, episodes=400, checkpoints=4, progress=False, **options)
    data = run.data.sel(seed=range(4))
    return {name: one.values for name, one in data.data_vars.items() if "seed" in one.dims}


def assert_same(one, other):
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=str(name))


@pytest.mark.parametrize("learner", CHECKED)
def test_any_width(learner):
    """With one constraint, where products of payoffs and multipliers are added in other places than with two."""
    assert_same(curves(learner, ONE_CONSTRAINT, 4), curves(learner, ONE_CONSTRAINT, 4, block=64))


@pytest.mark.parametrize("learner", CHECKED)
def test_any_width_with_two_constraints(learner):
    if base._REGISTRY[learner].most_constraints == 1:
        pytest.skip("made for one constraint")
    few = curves(learner, TWO_CONSTRAINTS, 4)
    assert_same(few, curves(learner, TWO_CONSTRAINTS, 4, block=32))
    assert_same(few, curves(learner, TWO_CONSTRAINTS, 4, block=64))


@pytest.mark.parametrize("learner", ["cpdpo", "cpd_oppo"])
def test_any_width_with_several_instances(learner):
    """Each lane then reads a model of its own."""
    both = [TWO_CONSTRAINTS, random_cmdp(4, 5, 3, 2, seed=7)]
    assert_same(curves(learner, both, 4), curves(learner, both, 4, block=64))


def test_any_width_of_options_that_divide_by_roots():
    """A quotient by a square root is an estimate and one step of Newton's in vectors, and exact outside of them."""
    options = {"hparams": {"anytime": 1.0, "adaptive_rate": 1.0}}
    assert_same(
        curves("cpd_oppo", ONE_CONSTRAINT, 4, **options), curves("cpd_oppo", ONE_CONSTRAINT, 4, block=64, **options)
    )


def test_few_seeds_pay_for_one_vector(monkeypatch):
    widths, padded = [], lanes.padded
    monkeypatch.setattr(lanes, "padded", lambda *given: widths.append(given[3]) or padded(*given))
    for seeds in (4, 16):
        curves("uniform", ONE_CONSTRAINT, seeds)
    assert set(widths) == {16}
    widths.clear()
    curves("uniform", ONE_CONSTRAINT, 17 * cores())
    assert set(widths) == {32}
