"""Where blocks run: a thread for every core or device, one progress bar, and a stop that keeps what is done."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
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

    An error in one job stops the others at their next call, and is raised when they have. While a program is compiled,
    the blocks of those before it run.
    """
    local = devices()
    stop, begun, lock = threading.Event(), threading.Event(), threading.Lock()
    compiled: set[Hashable] = set()
    futures: list[Future[Any]] = []
    bar = progress_bar(sum(job.work for job in jobs), progress)

    def advanced(n: int) -> None:
        begun.set()
        with lock:
            bar.update(n)

    def run(job: Job, device: Any) -> Any:
        with jax.default_device(device):
            return None if stop.is_set() else job.run(advanced, stop.is_set)

    interrupted = False
    with bar, ThreadPoolExecutor(workers or how_many()) as pool:
        try:
            for i, job in enumerate(jobs):
                if any(future.done() and future.exception() for future in futures):
                    break
                if job.program not in compiled:
                    if futures:
                        begun.wait(1)  # tracing would hold up the first block
                    bar.set_description(f"{job.label}: compiling")
                    with jax.default_device(local[0]):  # as the blocks run: another context is another compilation
                        job.compile()
                    compiled.add(job.program)
                bar.set_description(job.label)
                futures.append(pool.submit(run, job, local[i % len(local)]))
            wait(futures, return_when=FIRST_EXCEPTION)
        except KeyboardInterrupt:
            interrupted = True
            stop.set()
        finally:
            if any(future.done() and future.exception() for future in futures):
                stop.set()
        wait(futures)
    done = [future.result() for future in futures]
    return done + [None] * (len(jobs) - len(done)), interrupted


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
