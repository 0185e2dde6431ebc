"""Compiled programs in files: the next process traces nothing and has the same bits; what does not fit is not read."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from jax.experimental.compilation_cache import compilation_cache

from cpdpo_jax.common import files
from cpdpo_jax.kernels import cpu_acceleration, loops, values
from cpdpo_jax.kernels.cpu import ffi, program_files, switch
from cpdpo_jax.learners import cpd_oppo, fixed
from cpdpo_jax.learners.base import Learner
from cpdpo_jax.simulation import compiled_loop
from cpdpo_jax.simulation.programs import LearnerProgram
from tests.support import FAST_COMPILE, lanes_for, random_cmdp

LEARNER = cpd_oppo.LEARNER


@pytest.fixture(autouse=True)
def _learners_broadcast():
    with jax.numpy_rank_promotion("allow"):
        yield


@pytest.fixture
def folder(tmp_path):
    """Programs are written here; jax itself keeps none of these, which are compiled in less than 100 seconds."""
    wanted = {"jax_compilation_cache_dir": str(tmp_path), "jax_persistent_cache_min_compile_time_secs": 100.0}
    before = {name: jax.config.values[name] for name in wanted}
    for name, value in wanted.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()
    yield tmp_path / program_files.FOLDER
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


def given(states: int = 3, dtype: type = np.float32, learner: Learner = LEARNER):
    cmdp = random_cmdp(3, states, 2, 1, seed=5)
    return lanes_for(learner, cmdp, episodes=1000, preset="tuned", rho=0.5, dtype=dtype, n_lanes=16)


def fresh(clear: bool = True, **options) -> LearnerProgram:
    """The loop, as a process that has just started has it; without `clear` with what jax has traced in this one."""
    if clear:
        jax.clear_caches()
    options = {"compiler_options": FAST_COMPILE, "static_argnums": (0, 5), "donate_argnums": 2} | options
    return LearnerProgram(compiled_loop.advance_whole, **options)


def run(program: LearnerProgram, lanes, learner: Learner = LEARNER) -> list[np.ndarray]:
    state, _ = program(learner, "bernoulli", lanes, compiled_loop.begin(learner, lanes), 0, 50)
    return [np.asarray(leaf) for leaf in jax.tree.leaves(state)]


def was_traced(program: LearnerProgram, lanes) -> bool:
    """Whether a run of the program traces it."""
    names = []
    jax.monitoring.register_event_duration_secs_listener(lambda event, *_, **about: names.append((event, about)))
    try:
        run(program, lanes)
    finally:
        jax.monitoring.clear_event_listeners()
    return any(event.endswith("jaxpr_trace_duration") and "advance_whole" in str(about) for event, about in names)


def assert_same(one, other):
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("states", [3, 11])  # 11: the program calls numba's kernels
def test_a_second_start_reads_what_the_first_one_wrote(folder, states):
    lanes = given(states)
    first = run(fresh(), lanes)
    (path,) = folder.iterdir()
    assert bool(pickle.loads(files.unsealed(path.read_bytes()) or b"").kernels) == (states == 11)
    second = fresh()
    assert not was_traced(second, lanes)
    assert_same(first, run(second, lanes))
    with cpu_acceleration(False):
        pure = run(fresh(), lanes)
    for a, b in zip(first, pure, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


def test_other_code_other_settings_and_other_arguments_are_other_programs(folder, monkeypatch):
    def kept() -> int:
        return len(list(folder.iterdir()))

    lanes = given()
    run(fresh(), lanes)
    monkeypatch.setattr(loops, "MAX_STATES_OF_UNROLLED_LAYERS", loops.MAX_STATES_OF_UNROLLED_LAYERS + 1)
    assert was_traced(fresh(), lanes)
    assert kept() == 1  # in the place of the first
    monkeypatch.undo()
    assert was_traced(fresh(), lanes)
    assert not was_traced(fresh(), lanes)
    with jax.default_matmul_precision("float32"):
        assert was_traced(fresh(), lanes)
        assert not was_traced(fresh(), lanes)
    assert not was_traced(fresh(), lanes)  # each setting has its own
    assert kept() == 2
    assert was_traced(fresh(compiler_options={}), lanes)
    with jax.enable_x64(True):
        assert was_traced(fresh(), given(dtype=np.float64))
    assert kept() == 4


def test_what_jax_has_traced_of_other_code_is_not_written(folder, monkeypatch):
    """Inner functions are jitted, too, and jax does not see when what they call is replaced."""
    lanes = given()
    right = run(fresh(), lanes)
    for path in folder.iterdir():
        path.unlink()
    jax.clear_caches()
    step = values._one_step
    monkeypatch.setattr(values, "_one_step", lambda *arguments: 0 * step(*arguments))
    wrong = run(fresh(clear=False), lanes)
    assert not folder.exists() or not list(folder.iterdir())
    assert any((a != b).any() for a, b in zip(right, wrong, strict=True))
    monkeypatch.undo()
    assert_same(right, run(fresh(clear=False), lanes))
    assert_same(right, run(fresh(), lanes))
    assert len(list(folder.iterdir())) == 1


@pytest.mark.parametrize("replaced", [["root_value"], ["root_value", "walk", "observe", "observe_whole"]])
def test_replaced_kernels_leave_nothing_behind(folder, monkeypatch, replaced):
    """Some of numba's, or all that a program asks for, so that its file would name none; and put back afterwards."""
    lanes, calls = given(11, learner=fixed.UNIFORM), dict(ffi._CALLS)
    right = run(fresh(), lanes, fixed.UNIFORM)
    for path in folder.iterdir():
        path.unlink()
    for name in replaced:
        own = calls[name]
        monkeypatch.setitem(ffi._CALLS, name, lambda *a, own=own: jax.tree.map(lambda x: x * 0, own(*a)))
    run(fresh(), lanes, fixed.UNIFORM)
    assert not list(folder.iterdir())
    monkeypatch.undo()
    assert_same(right, run(fresh(clear=False), lanes, fixed.UNIFORM))
    assert_same(right, run(fresh(), lanes, fixed.UNIFORM))


def test_a_program_in_memory_is_of_its_context_alone(folder):
    """The same object, called in a context in which other code would be traced."""
    program, lanes = fresh(), given()
    run(program, lanes)
    assert not was_traced(program, lanes)
    with cpu_acceleration(False):
        assert was_traced(program, lanes)
    with jax.default_matmul_precision("float32"):
        assert was_traced(program, lanes)


def test_cleared_caches_are_cleared(folder, monkeypatch):
    """Who replaces a function and tells jax to forget what it has traced gets a program of the new one."""
    program, lanes = fresh(), given()
    right = run(program, lanes)
    step = values._one_step
    monkeypatch.setattr(values, "_one_step", lambda *arguments: 0 * step(*arguments))
    jax.clear_caches()
    assert was_traced(program, lanes)
    assert any((a != b).any() for a, b in zip(right, run(program, lanes), strict=True))


@pytest.mark.parametrize("setting", ["jax_disable_jit", "jax_debug_nans", "jax_debug_infs"])
def test_no_file_where_jit_does_more_than_run(folder, setting):
    jax.config.update(setting, True)
    try:
        assert program_files.signature([], [np.int32(1)]) is None
        assert program_files.signature([], [1]) is None
    finally:
        jax.config.update(setting, False)
    assert program_files.signature([], [1]) is not None


def test_no_file_with_flags_of_the_compiler(folder, monkeypatch):
    """XLA reads them once, and nobody knows when."""
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=false")
    assert program_files.signature([], [1]) is None
    monkeypatch.delenv("XLA_FLAGS")
    monkeypatch.setattr(program_files, "_FLAGS", "--xla_cpu_enable_fast_math=false")
    assert program_files.signature([], [1]) is None


@pytest.mark.parametrize("damage", ["cut", "bit", "empty", "seal", "another"])
def test_a_damaged_file_is_made_anew(folder, damage):
    lanes = given()
    first = run(fresh(), lanes)
    (path,) = folder.iterdir()
    content = path.read_bytes()
    flipped = content[:5000] + bytes([content[5000] ^ 1]) + content[5001:]
    wrong = {
        "cut": content[: len(content) // 2],
        "bit": flipped,
        "empty": b"",
        "seal": content[:-10],
        "another": files.sealed(pickle.dumps("something else")),
    }[damage]
    path.write_bytes(wrong)
    compilation_cache.reset_cache()
    again = fresh()
    assert was_traced(again, lanes)
    assert_same(first, run(again, lanes))


def test_what_jax_read_from_its_own_cache_is_not_written(folder):
    """XLA leaves the machine code out of a program that it has read: loaded again, it would end in an error."""
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    lanes = given()
    first = run(fresh(), lanes)
    for path in folder.iterdir():
        path.unlink()
    assert_same(first, run(fresh(), lanes))
    assert not list(folder.iterdir())


def test_a_process_that_lacks_something_writes_nothing(folder, monkeypatch):
    monkeypatch.setattr(switch, "_WARNED", {"kernels"})
    run(fresh(), given())
    assert not folder.exists()


def test_a_folder_that_can_not_be_written_is_no_hindrance(folder):
    folder.write_text("a file where the folder should be")
    lanes = given()
    assert_same(run(fresh(), lanes), run(fresh(), lanes))


def test_no_file_without_the_cache_or_beside_other_devices(folder, monkeypatch):
    lanes = given()
    monkeypatch.setattr(jax, "device_count", lambda: 2)
    run(fresh(), lanes)
    monkeypatch.undo()
    jax.config.update("jax_enable_compilation_cache", False)
    try:
        run(fresh(), lanes)
    finally:
        jax.config.update("jax_enable_compilation_cache", True)
    assert not folder.exists()


PROCESS = """
import json, sys
import jax, numpy as np
told = []
jax.monitoring.register_event_duration_secs_listener(lambda event, *_, **about: told.append(str(about)))
import cpdpo_jax as cp
cmdp = cp.envs.make("random", layers=3, states=int(sys.argv[1]), actions=2, constraints=1, rho=0.2, key=1)
run = cp.simulate("cpdpo", cmdp, episodes=60, seeds=3, progress=False)
print(json.dumps([any("advance_whole" in one for one in told), run.data.strong_regret.values.tolist()]))
"""


@pytest.mark.parametrize("states", ["3", "11"])
def test_processes(tmp_path, states):
    """As a user starts them: the second one traces no loop, and its numbers are the first one's."""
    environment = os.environ | {"JAX_COMPILATION_CACHE_DIR": str(tmp_path), "JAX_NUMPY_DTYPE_PROMOTION": "standard"}

    def start() -> list:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", PROCESS, states],
            capture_output=True, text=True, env=environment, cwd=Path(__file__).parents[3], check=True,
        )  # fmt: skip
        return json.loads(done.stdout)

    (first_traced, first), (second_traced, second) = start(), start()
    assert (first_traced, second_traced) == (True, False)
    assert first == second
