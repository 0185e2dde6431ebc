"""Runs blocks on a dask worker, after a check that the worker rounds like the client.

This is also the preload module of the workers that a run starts: `dask_setup` makes them leave Ctrl-C to the client.
"""

from __future__ import annotations

import json
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

REPORT_SECONDS = 0.5  # between two progress messages

_STOPPED: set[str] = set()
_RUNNING = 0
_LOCK = threading.Lock()


def dask_setup(worker: Any) -> None:
    """Ignore Ctrl-C, which a terminal sends to all its processes; the client tells the workers to stop."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def stop_session(session: str) -> None:
    """Stop this worker's blocks of a session at a snapshot."""
    _STOPPED.add(session)


def run_blocks(text: str) -> bytes:
    """Run the blocks of a `Task` and return a `Reply`, also for errors: exceptions would be sent as pickles."""
    from distributed import get_worker

    from cpdpo_jax.sweeps.dask.messages import Task

    worker, host = get_worker(), socket.gethostname()
    key = worker.get_current_task()
    try:
        # in a separate thread, unknown to dask; otherwise xarray would request locks of the whole cluster
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(_run, Task(**json.loads(text)), worker, key).result().pack()
    except Exception as error:
        return _error_reply(error, host).pack()


def _error_reply(error: Exception, host: str) -> Any:
    """The reply for an error; an error in user code has its place."""
    from cpdpo_jax.sweeps import user_errors
    from cpdpo_jax.sweeps.dask.messages import Reply

    if (place := user_errors.describe(error)) is not None:
        return Reply("failed", f"{place} (an error in your code)", host=host)
    if isinstance(error, ValueError):
        return Reply("refused", str(error), host=host)
    if isinstance(error, OSError):
        return Reply("disk", error.strerror or str(error), error.errno or 0, host)
    return Reply("failed", f"{type(error).__name__}: {error}", host=host)


def _run(task: Any, worker: Any, key: Any) -> Any:
    from cpdpo_jax.simulation.workers import apply_contexts, use_compilation_cache
    from cpdpo_jax.sweeps.dask.messages import Reply
    from cpdpo_jax.sweeps.provenance import rounding
    from cpdpo_jax.sweeps.store import Store

    stop = _stopper(task.session, worker, key)
    progress = _progress_reporter(task.session, worker, key)
    with apply_contexts(task.contexts), _running():
        _check(task)
        use_compilation_cache()
        if task.directory is not None:
            store = Store(task.directory)
            warning = _drop_foreign_snapshots(store, task.blocks)
            state = "done" if _run_in(store, task, progress, stop) else "stopped"
            return Reply(state, warning, host=socket.gethostname(), rounding=rounding())
        with tempfile.TemporaryDirectory(prefix="cpdpo-") as folder:
            for name in ("blocks", "checkpoints"):
                (Path(folder) / name).mkdir()
            store = Store(folder)
            done = _run_in(store, task, progress, stop)
            files = {block: store.result_path(block).read_bytes() for block in task.blocks if store.is_done(block)}
            state = "done" if done else "stopped"
            return Reply(state, host=socket.gethostname(), rounding=rounding(), files=files)


def _run_in(store: Any, task: Any, progress: Callable[[int], None], stop: Callable[[], bool]) -> bool:
    """Run the unfinished blocks of a task in a directory; dask repeats the task of a lost worker."""
    from cpdpo_jax.sweeps import snapshots
    from cpdpo_jax.sweeps.packing import make_packs
    from cpdpo_jax.sweeps.runner import run_pack

    todo = {}
    for key, block in task.blocks.items():
        if store.is_done(key):
            progress(block["episodes"] * len(block["seeds"]))
        else:
            todo[key] = block
    # snapshots may be at different episodes if the worker was killed while it wrote them
    begun = {key: snapshots.episodes_done(store, key) for key in todo}
    packs = make_packs(todo, begun, 1) if todo else []
    every = task.every if task.directory is not None else float("inf")
    return all(not stop() and run_pack(store, pack._replace(batch=task.batch), progress, stop, every) for pack in packs)


def _drop_foreign_snapshots(store: Any, keys: Iterable[str]) -> str:
    """Delete snapshots from other kinds of machine, so that no block mixes their rounding; returns a warning."""
    from cpdpo_jax.sweeps import snapshots

    warnings = []
    for key in keys:
        if not store.is_done(key) and (difference := snapshots.machine_difference(store, key)):
            store.checkpoint_path(key).unlink(missing_ok=True)
            warnings.append(f"block {key} was started on another kind of machine ({difference})")
    return f"{'; '.join(warnings)}: restarted, because that machine may round differently" if warnings else ""


def _check(task: Any) -> None:
    """Raise if this worker rounds differently than the client, or does not see the run directory."""
    from cpdpo_jax.sweeps import imports
    from cpdpo_jax.sweeps.dask.messages import fingerprint
    from cpdpo_jax.sweeps.store import Store

    current = fingerprint()
    differences = [f"{name} {current.get(name)} there, {value} here" for name, value in task.expects.items()
                   if current.get(name) != value]  # fmt: skip
    if differences:
        raise ValueError(
            f"it has another version ({'; '.join(differences)}), which may round differently; install the same version"
        )
    if task.directory is not None:
        store = Store(task.directory)
        if not store.exists or store.manifest.get("config_hash") != task.config_hash:
            raise ValueError(f"it does not see the run in {task.directory}; share the directory, or give --no-shared")
    received = [imports.Imported(*fields) for fields in task.imports]
    with _LOCK:
        imports.load_received(received, alone=_RUNNING == 1)


@contextmanager
def _running() -> Iterator[None]:
    """Count the tasks that run in this process."""
    global _RUNNING
    with _LOCK:
        _RUNNING += 1
    try:
        yield
    finally:
        with _LOCK:
            _RUNNING -= 1


def _stopper(session: str, worker: Any, key: Any) -> Callable[[], bool]:
    """Whether the client has requested a stop or has disappeared, so that dask has released the task."""

    def stop() -> bool:
        state = worker.state.tasks.get(key)
        return session in _STOPPED or state is None or state.state != "executing"

    return stop


def _progress_reporter(session: str, worker: Any, key: Any) -> Callable[[int], None]:
    """A function that counts the task's progress, in episodes times lanes, and sends it to the client."""
    done, reported = 0, 0.0

    def progress(n: int) -> None:
        nonlocal done, reported
        done += n
        if time.monotonic() - reported > REPORT_SECONDS:
            reported = time.monotonic()
            worker.log_event(f"cpdpo-{session}", {"key": str(key), "done": done})

    return progress
