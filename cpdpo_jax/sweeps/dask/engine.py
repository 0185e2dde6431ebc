"""Runs packs on dask workers: one task per pack; the blocks of a lost worker resume elsewhere from their snapshots."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
import uuid
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax

from cpdpo_jax.common import files
from cpdpo_jax.common.errors import WorkerError
from cpdpo_jax.common.interrupts import Stop, interrupts
from cpdpo_jax.common.text import counted
from cpdpo_jax.simulation.progress import progress_bar
from cpdpo_jax.simulation.workers import contexts
from cpdpo_jax.sweeps import imports, snapshots
from cpdpo_jax.sweeps.dask.clusters import Cluster
from cpdpo_jax.sweeps.dask.messages import Reply, Task, check_file, fingerprint, wait_until
from cpdpo_jax.sweeps.dask.worker import run_blocks, stop_session
from cpdpo_jax.sweeps.packing import Pack
from cpdpo_jax.sweeps.store import Store

MAX_RETRIES = 3  # retries without progress after dask has given up on a task (each time four workers were lost)
STOP_SECONDS = 60.0  # timeout for the workers to reach a snapshot
REFILL_SECONDS = 5.0  # between two checks for missing workers
SHORT_SECONDS = 5.0  # tasks shorter than this are queued two per thread


class Retries(NamedTuple):
    """The number of retries of a task since its last progress, and its episodes at that time."""

    episodes: int
    count: int


class DaskEngine:
    """Runs packs as tasks of a dask scheduler; this process holds the lock and writes the manifest."""

    def __init__(
        self, cluster: Cluster, *, shared: bool, imports: Sequence[str], warn: Callable[[str], None] = warnings.warn
    ) -> None:
        self.cluster, self.shared, self.imports, self.warn = cluster, shared, imports, warn
        self.machines: list[dict[str, str]] = []

    @property
    def workers(self) -> int:
        """The number of packs that run in parallel."""
        return self.cluster.wanted

    def run(self, store: Store, packs: Sequence[Pack], *, every: float, progress: bool) -> bool:
        """Run packs and store their blocks; False if stopped by Ctrl-C."""
        return _Session(self, store, every, progress).run(packs)


class _Session:
    """One run of packs."""

    def __init__(self, engine: DaskEngine, store: Store, every: float, progress: bool) -> None:
        self.engine, self.store, self.every = engine, store, every
        self.client = engine.cluster.client
        self.name = uuid.uuid4().hex[:12]
        self.packs: dict[str, Pack] = {}  # by task
        self.futures: dict[str, Any] = {}  # of unfinished tasks
        self.submitted: dict[str, float] = {}  # times
        self.waiting: deque[Pack] = deque()  # not submitted yet
        self.imports: list[list[Any]] = []  # the user's code, for the workers
        self.short = False  # the last task took less than `SHORT_SECONDS`
        self.texts: dict[str, str] = {}
        self.retries: dict[str, Retries] = {}
        self.numbers = itertools.count()
        self.done: dict[str, int] = {}  # reported work by task
        self.lock = threading.Lock()
        self.bar: Any = None
        self.shown, self.progress = 0, progress
        self.stopping, self.interrupt = False, Stop()

    def run(self, packs: Sequence[Pack]) -> bool:
        device = jax.config.jax_default_device  # pyright: ignore[reportAttributeAccessIssue]
        if device is not None:
            raise ValueError(
                f"jax.default_device = {device} is a device of this process, which dask workers do not have; leave "
                "that context, or run in threads (without `on`)."
            )
        self.imports = [list(imports.read(name)) for name in self.engine.imports]
        self.bar = progress_bar(sum(pack.work for pack in packs), self.progress)
        topic = f"cpdpo-{self.name}"
        self.client.subscribe_topic(topic, self._on_progress)
        try:
            with interrupts() as self.interrupt, self.bar:
                self.waiting = deque(packs)
                return self._run_all()
        finally:
            self.client.unsubscribe_topic(topic)
            self.client.cancel(list(self.futures.values()))

    def _submit_waiting(self) -> None:
        """Submit one task per thread of the workers, or two short ones, since dask assigns tasks immediately.

        When all were submitted at once, two workers got three and one of four long blocks.
        """
        threads = max(1, sum(self.client.nthreads().values())) if self.waiting else 0
        while self.waiting and len(self.futures) < threads * (2 if self.short else 1):
            pack = self.waiting.popleft()
            self._submit(pack, self._task(pack).text(), Retries(0, 0))

    def _task(self, pack: Pack) -> Task:
        return Task(
            session=self.name,
            blocks=pack.blocks,
            batch=pack.batch,
            every=self.every,
            directory=str(self.store.path.absolute()) if self.engine.shared else None,
            config_hash=self.store.manifest["config_hash"],
            expects=fingerprint(),
            imports=self.imports,
            contexts=contexts(),
        )

    def _submit(self, pack: Pack, text: str, retries: Retries) -> None:
        key, more = next(iter(pack.blocks)), len(pack.blocks) - 1
        name = f"{key}{f'+{more}' if more else ''}-{self.name}-{next(self.numbers)}"
        self.packs[name], self.texts[name], self.retries[name] = pack, text, retries
        self.submitted[name] = time.monotonic()
        self.futures[name] = self.client.submit(run_blocks, text, key=name, pure=False)

    def _run_all(self) -> bool:
        """Run all tasks; Ctrl-C and errors stop the running ones at a snapshot."""
        try:
            self._submit_waiting()
            self._collect()
        except KeyboardInterrupt:
            self._stop()
            return False
        except BaseException:
            self._stop()
            raise
        return True

    def _collect(self, seconds: float = float("inf")) -> None:
        """Handle replies until no task is left or the seconds have passed."""
        checked = started = time.monotonic()
        while self.futures and time.monotonic() - started < seconds:
            if not self.stopping and self.interrupt.acknowledge():
                raise KeyboardInterrupt
            ended = [name for name, future in self.futures.items() if future.done()]
            for name in ended:
                self._handle_end(name, self.futures[name])
                self.short = time.monotonic() - self.submitted[name] < SHORT_SECONDS
            if not ended:
                time.sleep(0.05)
            elif not self.stopping:
                self._submit_waiting()
            if time.monotonic() - checked > REFILL_SECONDS and not self.stopping:
                checked = time.monotonic()
                self.engine.cluster.refill()
                self._submit_waiting()  # there may be more workers now
                self._describe()

    def _handle_end(self, name: str, future: Any) -> None:
        if future.status == "finished":
            reply = Reply.unpack(future.result(), set(self.packs[name].blocks))
            self._handle_reply(name, reply)
            self.futures.pop(name).release()  # only now: until here dask repeats the task if its worker dies
        elif future.status == "error" and type(future.exception()).__name__ == "KilledWorker":
            self._retry(name)
        elif future.status == "error":
            raise WorkerError(f"dask could not run a block: {future.exception()}")
        else:
            raise WorkerError(f"the dask scheduler has lost the run ({future.status}); finished blocks are stored")

    def _handle_reply(self, name: str, reply: Reply) -> None:
        """Store the results of a task, or raise its error."""
        pack, worker = self.packs[name], f"the worker on {reply.host}"
        for key, content in reply.files.items():
            check_file(content, key, pack.blocks[key])
            files.write(self.store.result_path(key), content)
        if reply.rounding and reply.rounding not in self.engine.machines:
            self.engine.machines.append(reply.rounding)
        if reply.state == "done":
            if reply.message:
                self.engine.warn(f"{worker}: {reply.message}.")
            for key, block in pack.blocks.items():
                problem = f"{worker} has finished block {key}, but its file is missing"
                wait_until(lambda key=key: self.store.is_done(key), problem)
                if self.engine.shared:
                    check_file(self.store.result_path(key).read_bytes(), key, block)
            self._on_progress((0, {"key": name, "done": pack.work}))
        elif reply.state == "refused":
            raise ValueError(f"{worker} refuses: {reply.message}.".replace("..", "."))
        elif reply.state == "disk":
            raise OSError(reply.number, reply.message)
        elif reply.state == "failed":
            raise WorkerError(f"{worker}: {reply.message}")
        elif not self.stopping:
            raise WorkerError(f"{worker} was stopped by another process; finished blocks are stored")

    def _retry(self, name: str) -> None:
        """Submit a task again whose workers died, as long as it makes progress."""
        self.futures.pop(name).release()
        pack, text, retries = self.packs.pop(name), self.texts.pop(name), self.retries.pop(name)
        episodes = sum(
            block["episodes"] if self.store.is_done(key) else snapshots.episodes_done(self.store, key)
            for key, block in pack.blocks.items()
        )
        count = retries.count + 1 if episodes == retries.episodes else 1
        if count >= MAX_RETRIES:
            raise WorkerError(f"{pack.label}: its workers die without progress; check that there is enough memory.")
        self._submit(pack, text, Retries(episodes, count))

    def _on_progress(self, event: Any) -> None:
        """Show a worker's progress, which decreases when a lost block restarts from its snapshot."""
        message = event[1]
        name, done = message.get("key"), message.get("done")
        if name not in self.packs or not isinstance(done, int):
            return
        with self.lock:
            self.done[name] = min(done, self.packs[name].work)
            done = sum(self.done.get(task, 0) for task in self.packs)
            self.bar.update(done - self.shown)
            self.shown = done

    def _describe(self) -> None:
        count = len(self.client.nthreads())  # without the lock, for which the client's thread may wait
        with self.lock:
            self.bar.set_description(counted(count, "worker") if count else "waiting for workers")

    def _stop(self) -> None:
        """Tell the workers to stop at a snapshot, wait for them, and cancel the tasks that have not started."""
        self.stopping = True
        self.waiting.clear()
        self.client.run(stop_session, self.name, on_error="ignore")
        running = {name for names in self.client.processing().values() for name in names}
        for name in [name for name in self.futures if name not in running]:
            self.client.cancel([self.futures.pop(name)])
        with contextlib.suppress(Exception):  # the first error is the one to report
            self._collect(STOP_SECONDS)
