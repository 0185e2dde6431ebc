"""What runs on a dask worker: some blocks, after a look at whether this worker gives the client's bits.

Also a preload module of the workers that we start: `dask_setup` makes them leave Ctrl-C to the client.
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

TOLD_SECONDS = 0.5  # between two words about progress

_STOPPED: set[str] = set()
_RUNNING = 0
_LOCK = threading.Lock()


def dask_setup(worker: Any) -> None:
    """Ctrl-C in a terminal goes to all its processes: the client hears it and asks the workers to stop."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def stop_session(session: str) -> None:
    """To be run on every worker: its blocks of this session stop at a snapshot."""
    _STOPPED.add(session)


def run_blocks(text: str) -> bytes:
    """Run the blocks of a `Task`; a `Reply`, also of what went wrong: exceptions would travel as pickles."""
    from distributed import get_worker

    from cpdpo_jax.sweeps.dask_messages import Reply, Task

    worker, host = get_worker(), socket.gethostname()
    key = worker.get_current_task()
    try:
        # in a thread of its own, which dask does not know: xarray would ask for locks of the whole cluster else
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(_run, Task(**json.loads(text)), worker, key).result().pack()
    except ValueError as error:
        return Reply("refused", str(error), host=host).pack()
    except OSError as error:
        return Reply("disk", error.strerror or str(error), error.errno or 0, host).pack()
    except Exception as error:
        return Reply("failed", f"{type(error).__name__}: {error}", host=host).pack()


def _run(task: Any, worker: Any, key: Any) -> Any:
    import jax

    from cpdpo_jax.simulation.workers import use_compilation_cache
    from cpdpo_jax.sweeps.dask_messages import Reply
    from cpdpo_jax.sweeps.provenance import rounding
    from cpdpo_jax.sweeps.store import Store

    stop = _stopper(task.session, worker, key)
    progress = _teller(task.session, worker, key)
    with jax.enable_x64(task.x64), _running():
        _check(task)
        use_compilation_cache()
        if task.directory is not None:
            store = Store(task.directory)
            dropped = _drop_of_another_machine(store, task.blocks)
            state = "done" if _run_in(store, task, progress, stop) else "stopped"
            return Reply(state, dropped, host=socket.gethostname(), rounding=rounding())
        with tempfile.TemporaryDirectory(prefix="cpdpo-") as folder:
            for name in ("blocks", "checkpoints"):
                (Path(folder) / name).mkdir()
            store = Store(folder)
            done = _run_in(store, task, progress, stop)
            files = {one: store.result_path(one).read_bytes() for one in task.blocks if store.is_done(one)}
            state = "done" if done else "stopped"
            return Reply(state, host=socket.gethostname(), rounding=rounding(), files=files)


def _run_in(store: Any, task: Any, progress: Callable[[int], None], stop: Callable[[], bool]) -> bool:
    """Run what is not finished in a directory: a task is run again where its worker was lost."""
    from cpdpo_jax.sweeps import snapshots
    from cpdpo_jax.sweeps.packing import Pack, packs
    from cpdpo_jax.sweeps.runner import run_pack

    todo = {}
    for key, block in task.blocks.items():
        if store.is_done(key):
            progress(block["episodes"] * len(block["seeds"]))
        else:
            todo[key] = block
    # a kill may have come between the snapshots of two blocks, which then do not stand at one episode
    begun = {key: snapshots.episodes_done(store, key) for key in todo}
    found = packs(todo, begun, 1) if todo else []
    every = task.every if task.directory is not None else float("inf")
    return all(not stop() and run_pack(store, Pack(one.blocks, task.batch), progress, stop, every) for one in found)


def _drop_of_another_machine(store: Any, keys: Iterable[str]) -> str:
    """Snapshots of another kind of machine are not gone on from: the bits of a block would be of two. In words."""
    from cpdpo_jax.sweeps import snapshots

    told = []
    for key in keys:
        if not store.is_done(key) and (differ := snapshots.of_another_machine(store, key)):
            store.checkpoint_path(key).unlink(missing_ok=True)
            told.append(f"block {key} was begun on another kind of machine ({differ})")
    return f"{'; '.join(told)}: run again from the start, since it may round otherwise" if told else ""


def _check(task: Any) -> None:
    """Refuse blocks that this worker would run otherwise than the client, or write where nobody looks."""
    from cpdpo_jax.sweeps import imports
    from cpdpo_jax.sweeps.dask_messages import fingerprint
    from cpdpo_jax.sweeps.store import Store

    here = fingerprint()
    differ = [f"{name} {here.get(name)} there, {value} here" for name, value in task.expects.items()
              if here.get(name) != value]  # fmt: skip
    if differ:
        raise ValueError(
            f"another version runs there ({'; '.join(differ)}), which may round otherwise; install the same"
        )
    if task.directory is not None:
        store = Store(task.directory)
        if not store.exists or store.manifest.get("config_hash") != task.config_hash:
            raise ValueError(f"{task.directory} is not the run's directory there; share it, or give --no-shared")
    sent = [imports.Imported(*one) for one in task.imports]
    with _LOCK:
        imports.load_sent(sent, alone=_RUNNING == 1)


@contextmanager
def _running() -> Iterator[None]:
    global _RUNNING
    with _LOCK:
        _RUNNING += 1
    try:
        yield
    finally:
        with _LOCK:
            _RUNNING -= 1


def _stopper(session: str, worker: Any, key: Any) -> Callable[[], bool]:
    """Whether the client has asked for a stop, or is gone: dask then takes the task back."""

    def stop() -> bool:
        state = worker.state.tasks.get(key)
        return session in _STOPPED or state is None or state.state != "executing"

    return stop


def _teller(session: str, worker: Any, key: Any) -> Callable[[int], None]:
    """Tells the client now and then how much of the task is done, in episodes times lanes."""
    done, told = 0, 0.0

    def progress(n: int) -> None:
        nonlocal done, told
        done += n
        if time.monotonic() - told > TOLD_SECONDS:
            told = time.monotonic()
            worker.log_event(f"cpdpo-{session}", {"key": str(key), "done": done})

    return progress
