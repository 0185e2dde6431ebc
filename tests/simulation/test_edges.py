"""Edge cases of `simulate`: precision, learners with wrong shapes, missing platforms, leftover memory."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
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
from tests.support import random_cmdp

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def cmdp() -> cp.CMDP:
    return random_cmdp(3, 3, 2, 2, seed=5)


def run(*arguments: Any, **keywords: Any) -> cp.Result:
    return cp.simulate(*arguments, **({"progress": False, "episodes": 30} | keywords))


def test_double_precision_switches_itself_on(cmdp):
    """Same bits as in a process with x64 enabled; the configuration is restored."""
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
    said = r"^learner 'wrong': `update` returns a state with float32\[\d, 1\] instead of"
    with pytest.raises(ValueError, match=said) as error:
        run(wrong, cmdp, seeds=2)
    assert "\n" not in str(error.value)


def test_a_platform_that_is_not_there_is_one_sentence():
    script = "import cpdpo_jax as cp; cp.simulate('uniform', 'simple', episodes=2, seeds=1)"
    environment = {**os.environ, "JAX_PLATFORMS": "cuda", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("ValueError: JAX_PLATFORMS = 'cuda' has no device here")


def test_programs_go_with_their_learner(cmdp):
    """Otherwise every learner object would keep megabytes for ever."""
    kept = [blocks._compiled_begin, blocks._compiled_policy, compiled_loop._run]
    gc.collect()
    before = [len(program) for program in kept]
    for i in range(3):
        own = replace(fixed.UNIFORM, name=f"own {i}", update=lambda *given: fixed.UNIFORM.update(*given))
        programs = [weakref.ref(program.program(own)) for program in kept]
        run(own, cmdp, seeds=1, episodes=2)
        del own
    gc.collect()
    assert [len(program) for program in kept] == before
    assert [program() for program in programs] == [None] * 3
