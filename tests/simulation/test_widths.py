"""A seed is bit-identical in blocks of 16, 32 and 64 lanes.

The tests of all learners are exhaustive: what a compiler rounds is its own affair, and a new one may find a sum that
is not written as `kernels/machines/README.md` says.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import cpdpo_jax as cp
from cpdpo_jax.common.machine import cores
from cpdpo_jax.learners import base, cpd_oppo
from cpdpo_jax.simulation import lanes
from tests.support import random_cmdp

pytestmark = pytest.mark.optimised

COMPILED = [name for name in sorted(base._REGISTRY) if base._REGISTRY[name].compiled]
FEW = ("cpdpo",)
CHECKED = [pytest.param(name, marks=[pytest.mark.exhaustive] * (name not in FEW)) for name in COMPILED]
ONE_CONSTRAINT = random_cmdp(3, 3, 2, 1, seed=5)
TWO_CONSTRAINTS = random_cmdp(4, 5, 3, 2, seed=6)


def curves(learner, cmdp, seeds, **options):
    """All results of seeds 0 to 3."""
    run = cp.simulate(learner, cmdp, seeds=seeds, episodes=400, checkpoints=4, progress=False, **options)
    data = run.data.sel(seed=range(4))
    return {name: array.values for name, array in data.data_vars.items() if "seed" in array.dims}


def assert_same(actual, other):
    for name in actual:
        np.testing.assert_array_equal(actual[name], other[name], err_msg=str(name))


@pytest.mark.parametrize("learner", CHECKED)
def test_any_width(learner):
    """With one constraint, products of payoffs and multipliers are added elsewhere than with two."""
    assert_same(curves(learner, ONE_CONSTRAINT, 4), curves(learner, ONE_CONSTRAINT, 4, block=64))


@pytest.mark.parametrize(
    "learner", [pytest.param(name, marks=[pytest.mark.exhaustive] * (name != "cpd_oppo")) for name in COMPILED]
)
def test_any_width_with_two_constraints(learner):
    if base._REGISTRY[learner].most_constraints == 1:
        pytest.skip("made for one constraint")
    few = curves(learner, TWO_CONSTRAINTS, 4)
    assert_same(few, curves(learner, TWO_CONSTRAINTS, 4, block=32))
    assert_same(few, curves(learner, TWO_CONSTRAINTS, 4, block=64))


@pytest.mark.parametrize("learner", [pytest.param("cpdpo", marks=pytest.mark.exhaustive), "cpd_oppo"])
def test_any_width_with_several_instances(learner):
    """Each lane then reads its own model."""
    both = [TWO_CONSTRAINTS, random_cmdp(4, 5, 3, 2, seed=7)]
    assert_same(curves(learner, both, 4), curves(learner, both, 4, block=64))


def test_any_width_of_options_that_divide_by_roots():
    """Division by a square root is an estimate with a Newton step inside vectors, and exact outside."""
    options = {"hparams": {"anytime": 1.0, "adaptive_rate": 1.0}}
    assert_same(
        curves("cpd_oppo", ONE_CONSTRAINT, 4, **options), curves("cpd_oppo", ONE_CONSTRAINT, 4, block=64, **options)
    )


def test_few_seeds_pay_for_one_vector(monkeypatch):
    widths, padded = [], lanes.pad_block
    monkeypatch.setattr(lanes, "pad_block", lambda *given: widths.append(given[3]) or padded(*given))
    for seeds in (4, 16):
        curves("uniform", ONE_CONSTRAINT, seeds)
    assert set(widths) == {16}
    widths.clear()
    curves("uniform", ONE_CONSTRAINT, 17 * cores())
    assert set(widths) == {32}


def test_learners_of_the_package_run_in_narrower_blocks():
    assert {name for name in COMPILED if lanes.is_builtin(base.get(name))} == set(COMPILED)


@pytest.mark.parametrize(
    "changes",
    [
        {"policy": lambda *given: cpd_oppo.policy(*given)},
        {"init": lambda *given: cpd_oppo.init(*given)},
        {"update": partial(cpd_oppo.update, dual=lambda values, threshold, cap: values)},
        {"update": partial(partial(lambda own, *given: cpd_oppo.update(*given), max))},
    ],
)
def test_learners_with_a_function_of_the_user_do_not(changes):
    """Such a function may round differently there."""
    assert not lanes.is_builtin(replace(cpd_oppo.LEARNER, name="own", **changes))
