"""Runs blocks in one thread per core or device, with one progress bar and an interruption that keeps finished work."""

from __future__ import annotations

import contextvars
import os
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, suppress
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

import jax

from cpdpo_jax.common.interrupts import interrupts
from cpdpo_jax.kernels.machines import programs, target
from cpdpo_jax.simulation.progress import progress_bar

# jax's public thread-local contexts, in addition to `jax.default_device`
CONTEXTS = (
    "allow_f16_reductions", "array_garbage_collection_guard", "check_tracer_leaks", "debug_infs", "debug_key_reuse",
    "debug_nans", "default_matmul_precision", "default_prng_impl", "disable_jit", "enable_checks", "enable_custom_prng",
    "enable_x64", "explain_cache_misses", "legacy_prng_key", "log_compiles", "numpy_dtype_promotion",
    "numpy_rank_promotion", "softmax_custom_jvp", "threefry_partitionable", "transfer_guard_device_to_device",
    "transfer_guard_device_to_host", "transfer_guard_host_to_device",
)  # fmt: skip


def contexts() -> dict[str, Any]:
    """The values of jax's and the package's contexts in this thread, by name, for `apply_contexts`."""
    values = {name: getattr(jax.config, f"jax_{name}") for name in CONTEXTS if hasattr(jax.config, f"jax_{name}")}
    return target.contexts() | {
        name: value.value if isinstance(value, Enum) else value for name, value in values.items()
    }


@contextmanager
def apply_contexts(values: Mapping[str, Any]) -> Iterator[None]:
    """Set these contexts in this thread, except those that have the value already."""
    current = contexts()
    with ExitStack() as stack:
        stack.enter_context(target.apply_contexts(values))
        for name, value in values.items():
            if name in CONTEXTS and current.get(name, value) != value:
                stack.enter_context(getattr(jax, name)(value))
        yield


class Job(NamedTuple):
    """One block: its label, its work, and the functions that compile and run it."""

    label: str
    program: Hashable  # jobs with the same program are compiled once
    work: int  # episodes times lanes
    compile: Callable[[], None]
    run: Callable[[Callable[[int], None], Callable[[], bool]], Any]  # arguments: report work, test for a stop


def devices() -> list[Any]:
    """The devices of this process; a ValueError if JAX_PLATFORMS names a platform without devices."""
    try:
        return jax.local_devices()
    except (RuntimeError, AssertionError, AttributeError) as error:  # the last: jax's assertion under `python -OO`
        platforms = jax.config.jax_platforms  # pyright: ignore[reportAttributeAccessIssue]
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(
            f"JAX_PLATFORMS = {platforms!r} has no device here ({reason}); set it to 'cpu', or install jax for that "
            "platform."
        ) from None


def worker_count() -> int:
    """The number of blocks that run at the same time: one per core, or one per accelerator."""
    return programs.parallel_blocks(len(devices()))


def run_jobs(jobs: Sequence[Job], *, workers: int | None = None, progress: bool = True) -> tuple[list[Any], bool]:
    """The results of the jobs (None for jobs not started), and whether Ctrl-C ended the run.

    A worker runs the first job whose program is compiled. If there is none, it compiles the first program that no other
    worker is compiling, so that programs compile in parallel and blocks run as soon as possible. (With accelerators,
    whose hosts are idle, an additional thread only compiles.) An error in one job stops the others at their next call
    and is raised when they have stopped. The threads inherit the caller's contexts: Python's context variables, jax's
    `CONTEXTS` and its default device.
    """
    default = jax.config.jax_default_device  # pyright: ignore[reportAttributeAccessIssue]
    local = devices() if default is None else [default]
    jax_contexts, python_context = contexts(), contextvars.copy_context()
    bar = progress_bar(sum(job.work for job in jobs), progress)
    queue = _Queue(jobs, bar)

    def stop() -> bool:
        return queue.stop.is_set() or interrupt.requested

    def work(compiles_only: bool) -> None:
        try:
            with apply_contexts(jax_contexts):
                while not stop() and (task := queue.take(compiles_only)) is not None:
                    number, job, compiling = task
                    # compile in the contexts in which the blocks run: they are part of the program's key
                    with jax.default_device(local[0 if compiling else number % len(local)]):
                        queue.done(task, job.compile() if compiling else job.run(queue.advanced, stop))
        except BaseException as error:
            queue.failed(error)

    threads = [False] * (workers or worker_count()) + [True] * programs.compiling_threads()
    with interrupts() as interrupt:
        with bar, ThreadPoolExecutor(len(threads)) as pool:
            # a Python context can be entered by one thread at a time
            wait([pool.submit(python_context.copy().run, work, compiles_only) for compiles_only in threads])
        if queue.error is not None:
            raise queue.error
        return queue.results, interrupt.acknowledge()


class _Task(NamedTuple):
    number: int  # of the job
    job: Job
    compiling: bool  # whether to compile its program or to run the job


class _Queue:
    """Jobs shared by several threads."""

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
        """Wait for the next task; None if there will be none."""
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
        """Record the result of a task."""
        with self._changed:
            if task.compiling:
                del self._compiling[task.job.program]
                self._compiled.add(task.job.program)
            else:
                self.results[task.number] = result
            self._changed.notify_all()

    def advanced(self, work: int) -> None:
        """Report completed work."""
        with self._changed:
            self._bar.update(work)

    def failed(self, error: BaseException) -> None:
        """Record the error of a task, unless there was one before, and stop."""
        with self._changed:
            self.error = self.error or error
        self.end()

    def end(self) -> None:
        """Start no more tasks, and stop the running ones at their next call."""
        with self._changed:
            self.stop.set()
            self._changed.notify_all()


def use_compilation_cache() -> None:
    """Store compiled programs in the user's cache directory, so that a second start does not compile again.

    A directory set by the user (`JAX_COMPILATION_CACHE_DIR` or `jax_compilation_cache_dir`) takes precedence.
    """
    config: Any = jax.config
    if config.jax_compilation_cache_dir is not None or not config.jax_enable_compilation_cache:
        return
    directory = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cpdpo_jax"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        directory.chmod(0o700)  # its content is executed; fails if the directory belongs to another user
        writable = os.access(directory, os.W_OK)
    except (OSError, RuntimeError):
        writable = False
    if writable:
        config.update("jax_compilation_cache_dir", str(directory))
        config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        with suppress(ImportError, AttributeError):  # not in all releases of jax
            from jax.experimental.compilation_cache import compilation_cache

            compilation_cache.reset_cache()  # jax may have decided before that there is no cache
