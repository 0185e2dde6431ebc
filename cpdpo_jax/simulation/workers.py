"""Where blocks run: a thread for every core or device, one progress bar, and a stop that keeps what is done."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, NamedTuple

import jax
from jax.experimental.compilation_cache import compilation_cache

from cpdpo_jax.common.machine import cores
from cpdpo_jax.kernels.target import for_accelerator
from cpdpo_jax.simulation.progress import progress_bar


class Job(NamedTuple):
    """One block: what it is called, how much there is to do, how it is compiled and how it is run."""

    label: str
    program: Hashable  # jobs of one program are compiled once
    work: int  # episodes times lanes
    compile: Callable[[], None]
    run: Callable[[Callable[[int], None], Callable[[], bool]], Any]  # handed: report work done, ask for a stop


def devices() -> list[Any]:
    """The devices of this process; one sentence where jax was told to use some that are not there."""
    try:
        return jax.local_devices()
    except (RuntimeError, AssertionError) as error:
        wanted = jax.config.jax_platforms  # pyright: ignore[reportAttributeAccessIssue]
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(
            f"JAX_PLATFORMS = {wanted!r} has no device here ({reason}); set it to 'cpu', or install the jax of that "
            "platform."
        ) from None


def how_many() -> int:
    """Blocks that run at once: one for every core, or for every accelerator."""
    found = devices()
    return len(found) if for_accelerator() else max(len(found), cores())


def run_jobs(jobs: Sequence[Job], *, workers: int | None = None, progress: bool = True) -> tuple[list[Any], bool]:
    """What each job returned (None: not begun), and whether Ctrl-C ended it.

    A worker runs the first job whose program is compiled; where there is none it compiles the first program that nobody
    is compiling, so that programs are compiled side by side while no block can run, and blocks run as soon as they can.
    (An accelerator leaves the cores idle: there one thread more does nothing but compile.)
    An error in one job stops the others at their next call, and is raised when they have.
    """
    local = devices()
    bar = progress_bar(sum(job.work for job in jobs), progress)
    todo = _ToDo(jobs, bar)

    def work(compiles_only: bool) -> None:
        try:
            while (task := todo.take(compiles_only)) is not None:
                number, job, compiling = task
                # programs are compiled as the blocks run: another context is another compilation
                with jax.default_device(local[0 if compiling else number % len(local)]):
                    todo.done(task, job.compile() if compiling else job.run(todo.advanced, todo.stop.is_set))
        except BaseException as error:
            todo.failed(error)

    threads = [False] * (workers or how_many()) + [True] * for_accelerator()
    interrupted = False
    with bar, ThreadPoolExecutor(len(threads)) as pool:  # which waits for them in the end
        try:
            wait([pool.submit(work, compiles_only) for compiles_only in threads])
        except KeyboardInterrupt:
            interrupted = True
            todo.end()
    if todo.error is not None:
        raise todo.error
    return todo.results, interrupted


class _Task(NamedTuple):
    number: int  # of the job
    job: Job
    compiling: bool  # its program, or the job itself


class _ToDo:
    """What is left of some jobs, for several threads."""

    def __init__(self, jobs: Sequence[Job], bar: Any) -> None:
        self.results: list[Any] = [None] * len(jobs)
        self.error: BaseException | None = None
        self.stop = threading.Event()
        self._waiting = dict(enumerate(jobs))
        self._compiling: dict[Hashable, str] = {}  # labels
        self._compiled: set[Hashable] = set()
        self._changed = threading.Condition()
        self._bar = bar

    def take(self, compiles_only: bool) -> _Task | None:
        """The next thing to do, as soon as there is one; None: there will be none."""
        with self._changed:
            while self._waiting and not self.stop.is_set():
                task = self._next(compiles_only)
                if task is not None:
                    return task
                self._changed.wait()
            return None

    def _next(self, compiles_only: bool) -> _Task | None:
        for number, job in self._waiting.items():
            if job.program in self._compiled and not compiles_only:
                del self._waiting[number]
                self._bar.set_description(str(job.label))
                return _Task(number, job, compiling=False)
        for number, job in self._waiting.items():
            if job.program not in self._compiled and job.program not in self._compiling:
                self._compiling[job.program] = str(job.label)
                self._bar.set_description(f"{', '.join(self._compiling.values())}: compiling")
                return _Task(number, job, compiling=True)
        return None

    def done(self, task: _Task, result: Any) -> None:
        """A task was carried out."""
        with self._changed:
            if task.compiling:
                del self._compiling[task.job.program]
                self._compiled.add(task.job.program)
            else:
                self.results[task.number] = result
            self._changed.notify_all()

    def advanced(self, work: int) -> None:
        """So much of a job is done."""
        with self._changed:
            self._bar.update(work)

    def failed(self, error: BaseException) -> None:
        """A task ended in an error: the first one counts."""
        with self._changed:
            self.error = self.error or error
        self.end()

    def end(self) -> None:
        """Nothing more is begun, and what runs ends at its next call."""
        with self._changed:
            self.stop.set()
            self._changed.notify_all()


def use_compilation_cache() -> None:
    """Keep compiled programs in the user's cache directory, so that a second start need not compile again.

    A directory that the user has set (`JAX_COMPILATION_CACHE_DIR` or `jax_compilation_cache_dir`) is left as it is.
    """
    config: Any = jax.config
    if config.jax_compilation_cache_dir is not None or not config.jax_enable_compilation_cache:
        return
    directory = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cpdpo_jax"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        writable = os.access(directory, os.W_OK)
    except (OSError, RuntimeError):
        writable = False
    if writable:
        config.update("jax_compilation_cache_dir", str(directory))
        config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        compilation_cache.reset_cache()  # what was compiled before has settled that there is none
