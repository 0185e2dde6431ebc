"""Jobs on threads: programs are compiled once and side by side, blocks run as soon as theirs is, errors stop all."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from cpdpo_jax.kernels.target import tracing_for
from cpdpo_jax.simulation import workers
from cpdpo_jax.simulation.workers import Job, run_jobs


def job(program: str, log: list[str], compiles: Callable[[], Any] = lambda: None, runs: Any = None, name: str = ""):
    """A job that writes down what it does; `runs(stop)` is what it does."""

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
    meet, log = threading.Barrier(2, timeout=10), []
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
    """Its one worker waits for the device; the cores have nothing to do."""
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
    """Of the progress bar, say: nobody waits for ever, and nothing is lost in silence."""

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
