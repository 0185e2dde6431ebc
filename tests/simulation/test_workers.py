"""Jobs on threads: each program is compiled once, in parallel; blocks run as soon as possible; errors stop all."""

from __future__ import annotations

import contextvars
import dataclasses
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import pytest
from jax.experimental.compilation_cache import compilation_cache

import cpdpo_jax as cp
from cpdpo_jax.kernels.machines.target import tracing_for
from cpdpo_jax.simulation import workers
from cpdpo_jax.simulation.workers import Job, run_jobs


def job(program: str, log: list[str], compiles: Callable[[], Any] = lambda: None, runs: Any = None, name: str = ""):
    """A job that records its steps; `runs(stop)` is its work."""

    def compile_it() -> None:
        log.append(f"compile {program}")
        compiles()

    def run(advanced, stop):
        log.append(f"run {name or program}")
        advanced(3)
        return runs(stop) if runs else name or program

    return Job(label=program, program=program, work=3, compile=compile_it, run=run)


def test_one_worker_runs_what_it_can_before_it_compiles_more():
    log: list[str] = []
    jobs = [job("a", log, name="a1"), job("b", log, name="b1"), job("a", log, name="a2")]
    assert run_jobs(jobs, workers=1, progress=False) == (["a1", "b1", "a2"], False)
    assert log == ["compile a", "run a1", "run a2", "compile b", "run b1"]


def test_programs_are_compiled_side_by_side():
    meet, log = threading.Barrier(2, timeout=60), []
    jobs = [job(name, log, compiles=meet.wait) for name in "ab"]
    assert run_jobs(jobs, workers=2, progress=False) == (["a", "b"], False)


def test_while_one_block_runs_the_other_worker_compiles():
    compiled, log = threading.Event(), []

    def waits(stop):
        assert compiled.wait(10)
        return "waited"

    jobs = [job("a", log, runs=waits), job("b", log, compiles=compiled.set)]
    assert run_jobs(jobs, workers=2, progress=False) == (["waited", "b"], False)


def test_beside_an_accelerator_a_thread_compiles():
    """The single worker waits for the device, and the cores are idle."""
    compiled, log = threading.Event(), []

    def waits(stop):
        assert compiled.wait(10)
        return "waited"

    jobs = [job("a", log, runs=waits), job("b", log, compiles=compiled.set)]
    with tracing_for("gpu"):
        assert run_jobs(jobs, workers=1, progress=False) == (["waited", "b"], False)
    assert sorted(log) == ["compile a", "compile b", "run a", "run b"]


@pytest.mark.parametrize("where", ["compile", "run"])
def test_an_error_stops_the_others_and_is_raised(where):
    log: list[str] = []

    def breaks(*_):
        raise OSError("disk full")

    def until_stopped(stop):
        while not stop():
            pass
        return "stopped"

    broken = job("b", log, compiles=breaks) if where == "compile" else job("b", log, runs=breaks)
    jobs = [job("a", log, runs=until_stopped), broken, job("c", log)]
    with pytest.raises(OSError, match="disk full"):
        run_jobs(jobs, workers=2, progress=False)
    assert "run c" not in log


def test_an_error_before_a_job_is_begun_is_raised_too(monkeypatch):
    """An error of the progress bar, for example: no deadlock, and no silent loss."""

    class Broken:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def set_description(self, _):
            raise OSError("no terminal")

    monkeypatch.setattr(workers, "progress_bar", lambda *_: Broken())
    with pytest.raises(OSError, match="no terminal"):
        run_jobs([job("a", []), job("b", [])], workers=2)


def test_no_job_is_no_work():
    assert run_jobs([], workers=2, progress=False) == ([], False)


class Value(NamedTuple):
    """A context of jax and its value."""

    name: str
    value: Any


VALUES = [
    Value("default_matmul_precision", "highest"), Value("debug_nans", True), Value("numpy_rank_promotion", "raise"),
    Value("numpy_dtype_promotion", "strict"), Value("enable_x64", True), Value("disable_jit", True),
    Value("default_prng_impl", "rbg"), Value("legacy_prng_key", "error"), Value("transfer_guard_host_to_device", "log"),
]  # fmt: skip


OWN = ("numpy_rank_promotion", "enable_x64")  # `simulate` refuses the first and has an option for the second


@pytest.mark.parametrize("context", VALUES, ids=lambda context: context.name)
def test_the_contexts_of_the_caller_are_those_of_the_threads(context):
    """During compilation and during the run."""
    seen = []
    with jax.numpy_dtype_promotion("standard"), getattr(jax, context.name)(context.value):
        expected = workers.contexts()
        assert expected[context.name] == context.value
        task = job("a", [], compiles=lambda: seen.append(workers.contexts()), runs=lambda _: workers.contexts())
        (ran,), _ = run_jobs([task], workers=1, progress=False)
    assert [*seen, ran] == [expected] * 2


def test_all_public_contexts_of_jax_are_carried():
    """Except contexts of tracing and meshes, and the device, which `run_jobs` chooses."""
    known = {name for name in dir(jax) if hasattr(jax.config, f"jax_{name}") and callable(getattr(jax, name))}
    others = {
        "auto_pcast", "default_device", "no_execution", "no_tracing", "remove_size_one_mesh_axis_from_type",
        "thread_guard", "transfer_guard",
    }  # fmt: skip
    assert known - others == set(workers.CONTEXTS)


def test_a_context_variable_of_the_caller_is_that_of_each_thread():
    variable = contextvars.ContextVar("variable", default="outside")
    meet = threading.Barrier(2, timeout=60)

    def runs(_):
        meet.wait()
        variable.set(variable.get() + " and a thread")
        return variable.get()

    token = variable.set("inside")
    jobs = [job("a", [], runs=runs), job("b", [], runs=runs)]
    assert run_jobs(jobs, workers=2, progress=False) == (["inside and a thread"] * 2, False)
    variable.reset(token)
    jobs = [job("a", [], runs=runs), job("b", [], runs=runs)]
    assert run_jobs(jobs, workers=2, progress=False) == (["outside and a thread"] * 2, False)


def values_in_a_learner() -> set[tuple[tuple[str, Any], ...]]:
    """The contexts in which the policy of a learner is traced by `simulate`, each as sorted pairs."""
    seen = []
    uniform = cp.learners.get("uniform")

    def policy(*arguments):
        seen.append(tuple(sorted(workers.contexts().items())))
        return uniform.policy(*arguments)

    cp.simulate(dataclasses.replace(uniform, policy=policy), "factored", episodes=3, seeds=2, progress=False)
    return set(seen)


@pytest.mark.parametrize("context", [value for value in VALUES if value.name not in OWN], ids=lambda value: value.name)
def test_a_learner_is_traced_in_the_contexts_of_the_caller(context):
    with getattr(jax, context.name)(context.value):
        expected = workers.contexts() | {"numpy_rank_promotion": "allow", "enable_x64": False}
        (found,) = values_in_a_learner()
    assert dict(found) == expected
    assert expected[context.name] == context.value


def test_a_learner_is_traced_in_the_papers_form_where_the_caller_selects_it():
    with cp.kernels.paper_forms():
        expected = workers.contexts()
        assert dict(*values_in_a_learner()) == expected
    assert workers.contexts() != expected


def test_the_precision_of_a_learner_is_that_of_the_option():
    with jax.enable_x64(True):
        (found,) = values_in_a_learner()
    assert dict(found)["enable_x64"] is False


@pytest.mark.parametrize("value", ["raise", "warn"])
def test_a_context_that_forbids_rank_promotion_is_refused(tmp_path, value):
    """The batch is the last axis, so that learners broadcast; a setting of the process is for other code."""
    message = rf"jax.numpy_rank_promotion\('{value}'\) cannot apply to a learner, .* outside of this context"
    table = {"learners": ["uniform"], "environments": ["factored"], "episodes": 3, "seeds": 2}
    with jax.numpy_rank_promotion(value):
        with pytest.raises(ValueError, match=message):
            cp.simulate("uniform", "factored", episodes=3, seeds=2, progress=False)
        with pytest.raises(ValueError, match=message):
            cp.run(table, out=tmp_path / "a", progress=False)
    assert not (tmp_path / "a").exists()


def test_a_process_that_forbids_rank_promotion_runs():
    text = "import cpdpo_jax as cp; print(cp.simulate('uniform', 'factored', episodes=3, seeds=2).data.episode.size)"
    flags = os.environ | {"JAX_NUMPY_RANK_PROMOTION": "raise", "JAX_NUMPY_DTYPE_PROMOTION": "standard"}
    done = subprocess.run([sys.executable, "-c", text], env=flags, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


TWO_DEVICES = """
import jax, jax.numpy as jnp
from cpdpo_jax.simulation.workers import Job, run_jobs
def runs(advanced, stop):
    return str(next(iter(jnp.zeros(3).devices())))
jobs = [Job(str(i), 0, 1, lambda: None, runs) for i in range(4)]
with jax.default_device(jax.devices()[1]):
    print(*run_jobs(jobs, workers=2, progress=False)[0])
print(*run_jobs(jobs, workers=2, progress=False)[0])
"""


def test_the_default_device_of_the_caller_is_the_one_that_computes():
    flags = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", TWO_DEVICES], env=flags, capture_output=True, text=True, timeout=120)
    first, second = (f"cpu:{i}" for i in range(2))
    assert [line.split() for line in done.stdout.splitlines()] == [[second] * 4, [first, second] * 2], done.stderr


@pytest.mark.parametrize(("variable", "resets"), [("XDG_CACHE_HOME", True), ("HOME", True), ("HOME", False)])
def test_the_directory_of_the_compilation_cache_is_the_users_alone(tmp_path, monkeypatch, variable, resets):
    """Programs in the directory are executed; some releases of jax have no module to reset the cache."""
    if not resets:
        monkeypatch.setitem(sys.modules, "jax.experimental.compilation_cache", None)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv(variable, str(tmp_path))
    directory = tmp_path / (".cache/cpdpo_jax" if variable == "HOME" else "cpdpo_jax")
    directory.mkdir(mode=0o777, parents=True)
    directory.chmod(0o777)
    names = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")
    before = {name: getattr(jax.config, name) for name in names}
    enabled = jax.config.jax_enable_compilation_cache  # pyright: ignore[reportAttributeAccessIssue]
    try:
        jax.config.update("jax_compilation_cache_dir", None)
        jax.config.update("jax_enable_compilation_cache", True)
        workers.use_compilation_cache()
        assert jax.config.jax_compilation_cache_dir == str(directory)  # pyright: ignore[reportAttributeAccessIssue]
    finally:
        for name, value in before.items():
            jax.config.update(name, value)
        jax.config.update("jax_enable_compilation_cache", enabled)
        compilation_cache.reset_cache()
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700


def test_ctrl_c_lets_a_call_end_and_begins_no_more():
    log: list[str] = []
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def interrupts(stop):
        os.kill(os.getpid(), signal.SIGINT)
        deadline = time.monotonic() + 60
        while not stop() and time.monotonic() < deadline:
            time.sleep(0.01)
        return "ended"

    try:
        jobs = [job("a", log, runs=interrupts), job("a", log, name="never")]
        assert run_jobs(jobs, workers=1, progress=False) == (["ended", None], True)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert log == ["compile a", "run a"]
