"""`simulate` at its edges: precision, learners of wrong shapes, platforms that are not there, what it leaves behind."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import warnings
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cpdpo_jax as cp
from cpdpo_jax.learners import Info, Learner, NoHyperparameters, fixed
from cpdpo_jax.simulation import blocks, compiled_loop
from cpdpo_jax.simulation.programs import LearnerProgram
from tests.support import random_cmdp

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def cmdp() -> cp.CMDP:
    return random_cmdp(3, 3, 2, 2, seed=5)


def run(*arguments: Any, **keywords: Any) -> cp.Result:
    return cp.simulate(*arguments, **({"progress": False, "episodes": 30} | keywords))


def test_double_precision_switches_itself_on(cmdp):
    """The same bits as where the process has it on; nothing is left behind."""
    own = run("cpdpo", cmdp, seeds=2, dtype="float64").data.strong_regret
    assert jnp.zeros(1).dtype == np.float32
    with jax.enable_x64(True):
        on = run("cpdpo", cmdp, seeds=2, dtype="float64").data.strong_regret
        single = run("cpdpo", cmdp, seeds=2).data.strong_regret
    np.testing.assert_array_equal(own, on)
    assert not np.array_equal(own, single)
    np.testing.assert_array_equal(single, run("cpdpo", cmdp, seeds=2).data.strong_regret)


def test_wrong_shapes_of_a_learner_are_one_sentence(cmdp):
    def update(problem, hyper, state, policy, trajectory):
        return state[:, :1], Info(problem.threshold * 0, trajectory.state[0] * 0)

    wrong = Learner(
        name="wrong",
        hyperparameters=lambda problem, preset: NoHyperparameters(),
        init=lambda problem, hyper: problem.threshold * 0,
        policy=fixed.UNIFORM.policy,
        update=update,
    )
    said = r"^learner 'wrong': `update` returns a state with float32\[\d, 1\] where"
    with pytest.raises(ValueError, match=said) as error:
        run(wrong, cmdp, seeds=2)
    assert "\n" not in str(error.value)


def test_a_platform_that_is_not_there_is_one_sentence():
    script = "import cpdpo_jax as cp; cp.simulate('uniform', 'simple', episodes=2, seeds=1)"
    environment = {**os.environ, "JAX_PLATFORMS": "cuda", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("ValueError: JAX_PLATFORMS = 'cuda' has no device here")


def test_programs_go_with_their_learner(cmdp):
    """Else every learner object would keep some megabytes for ever."""
    kept = [blocks._compiled_begin, blocks._compiled_policy, compiled_loop._of_few_lanes]
    gc.collect()
    before = [len(one) for one in kept]
    for i in range(3):
        own = replace(fixed.UNIFORM, name=f"own {i}", update=lambda *given: fixed.UNIFORM.update(*given))
        programs = [weakref.ref(one.of(own)) for one in kept]
        run(own, cmdp, seeds=1, episodes=2)
        del own
    gc.collect()
    assert [len(one) for one in kept] == before
    assert [one() for one in programs] == [None] * 3


def test_a_learner_of_ones_own_that_is_compiled_in_pieces_is_told_of_once():
    def refuses(learner, x):
        raise jax.errors.JaxRuntimeError("UNIMPLEMENTED: no code for this inside a function")

    program = LearnerProgram(refuses, otherwise=LearnerProgram(lambda learner, x: x + 1))
    own = replace(fixed.UNIFORM, name="own", update=lambda *given: fixed.UNIFORM.update(*given))
    with pytest.warns(UserWarning, match="learner 'own': XLA's CPU compiler cannot make one function") as told:
        assert [int(program(own, 1)), int(program(own, 2))] == [2, 3]
    assert len(told) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert int(program(fixed.UNIFORM, 1)) == 2  # ours: the tests must see it
