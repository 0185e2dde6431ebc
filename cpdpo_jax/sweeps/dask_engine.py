"""Blocks on dask's workers: one task a pack, one bar for all, a lost worker's blocks elsewhere from their snapshots."""

from __future__ import annotations

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
from cpdpo_jax.simulation.progress import progress_bar
from cpdpo_jax.sweeps import imports, snapshots
from cpdpo_jax.sweeps.dask_clusters import Cluster
from cpdpo_jax.sweeps.dask_messages import Reply, Task, check_file, fingerprint
from cpdpo_jax.sweeps.dask_worker import run_blocks, stop_session
from cpdpo_jax.sweeps.packing import Pack
from cpdpo_jax.sweeps.store import Store

GIVE_UP = 3  # times that dask gives up on a task (four workers lost each) without any progress in between
STOP_SECONDS = 60.0  # for the workers to come to a snapshot
LOOK_SECONDS = 5.0  # between two looks at whether workers are missing
QUICK = 5.0  # seconds of a task, below which a thread should have its next one at hand
SEEN_SECONDS = 60.0  # until a file that another machine has written must be seen here


class Lost(NamedTuple):
    """How often dask has given up on a task since it last got on, and where it stood, in episodes."""

    standing: int
    times: int


class Dask:
    """Packs as tasks of a dask scheduler; the client keeps lock, manifest and table."""

    def __init__(
        self, cluster: Cluster, *, shared: bool, imports: Sequence[str], warn: Callable[[str], None] = warnings.warn
    ) -> None:
        self.cluster, self.shared, self.imports, self.warn = cluster, shared, imports, warn
        self.machines: list[dict[str, str]] = []

    @property
    def workers(self) -> int:
        """Blocks that run at once."""
        return self.cluster.wanted

    def run(self, store: Store, packs: Sequence[Pack], *, every: float, progress: bool) -> bool:
        """Run packs and store their blocks; False if stopped by Ctrl-C."""
        return _Session(self, store, every, progress).run(packs)


class _Session:
    """One run of some packs."""

    def __init__(self, engine: Dask, store: Store, every: float, progress: bool) -> None:
        self.engine, self.store, self.every = engine, store, every
        self.client = engine.cluster.client
        self.name = uuid.uuid4().hex[:12]
        self.packs: dict[str, Pack] = {}  # by the task's key
        self.futures: dict[str, Any] = {}  # of tasks that are not done
        self.begun: dict[str, float] = {}  # when they were handed over
        self.waiting: deque[Pack] = deque()  # not handed over yet
        self.own: list[list[Any]] = []  # code of the user's own, for the workers
        self.quick = False  # the last task took less than `QUICK` seconds
        self.texts: dict[str, str] = {}
        self.lost: dict[str, Lost] = {}
        self.numbers = itertools.count()
        self.done: dict[str, int] = {}  # work done by task, as told
        self.lock = threading.Lock()
        self.bar: Any = None
        self.shown = 0
        self.progress = progress
        self.stopping = False

    def run(self, packs: Sequence[Pack]) -> bool:
        own = [list(imports.read(name)) for name in self.engine.imports]
        self.bar = progress_bar(sum(pack.work for pack in packs), self.progress)
        topic = f"cpdpo-{self.name}"
        self.client.subscribe_topic(topic, self._told)
        try:
            with self.bar:
                self.own, self.waiting = own, deque(packs)
                return self._wait()
        finally:
            self.client.unsubscribe_topic(topic)
            self.client.cancel(list(self.futures.values()))

    def _feed(self) -> None:
        """Hand over as many tasks as workers have threads, quick ones twice: dask binds a task to a worker at once.

        (Handed over all together, four blocks of minutes came to lie three and one on two workers.)
        """
        threads = max(1, sum(self.client.nthreads().values())) if self.waiting else 0
        while self.waiting and len(self.futures) < threads * (2 if self.quick else 1):
            pack = self.waiting.popleft()
            self._submit(pack, self._task(pack, self.own).text(), Lost(0, 0))

    def _task(self, pack: Pack, own: list[list[Any]]) -> Task:
        return Task(
            session=self.name,
            blocks=pack.blocks,
            batch=pack.batch,
            every=self.every,
            directory=str(self.store.path.absolute()) if self.engine.shared else None,
            config_hash=self.store.manifest["config_hash"],
            expects=fingerprint(),
            imports=own,
            x64=bool(jax.config.jax_enable_x64),  # pyright: ignore[reportAttributeAccessIssue]
        )

    def _submit(self, pack: Pack, text: str, lost: Lost) -> None:
        key, more = next(iter(pack.blocks)), len(pack.blocks) - 1
        name = f"{key}{f'+{more}' if more else ''}-{self.name}-{next(self.numbers)}"
        self.packs[name], self.texts[name], self.lost[name] = pack, text, lost
        self.begun[name] = time.monotonic()
        self.futures[name] = self.client.submit(run_blocks, text, key=name, pure=False)

    def _wait(self) -> bool:
        """Until all is done; Ctrl-C and errors stop what runs at a snapshot."""
        try:
            self._feed()
            self._collect()
        except KeyboardInterrupt:
            self._stop()
            return False
        except BaseException:
            self._stop()
            raise
        return True

    def _collect(self, seconds: float = float("inf")) -> None:
        """Take every reply that comes within some seconds, until no task is left."""
        looked = started = time.monotonic()
        while self.futures and time.monotonic() - started < seconds:
            ended = [name for name, future in self.futures.items() if future.done()]
            for name in ended:
                self._ended(name, self.futures[name])
                self.quick = time.monotonic() - self.begun[name] < QUICK
            if not ended:
                time.sleep(0.05)
            elif not self.stopping:
                self._feed()
            if time.monotonic() - looked > LOOK_SECONDS and not self.stopping:
                looked = time.monotonic()
                self.engine.cluster.refill()
                self._feed()  # there may be more workers now
                self._describe()

    def _ended(self, name: str, future: Any) -> None:
        if future.status == "finished":
            reply = Reply.unpack(future.result(), set(self.packs[name].blocks))
            self._take(name, reply)
            self.futures.pop(name).release()  # not before: if its holder dies now, the task is run again
        elif future.status == "error" and type(future.exception()).__name__ == "KilledWorker":
            self._again(name)
        elif future.status == "error":
            raise WorkerError(f"dask could not run a block: {future.exception()}")
        else:
            raise WorkerError(f"the dask scheduler has lost the run ({future.status}); what is done is kept")

    def _take(self, name: str, reply: Reply) -> None:
        """What a worker says at the end of a task."""
        pack, where = self.packs[name], f"the worker on {reply.host}"
        for key, content in reply.files.items():
            check_file(content, key, pack.blocks[key])
            files.write(self.store.result_path(key), content)
        if reply.rounding and reply.rounding not in self.engine.machines:
            self.engine.machines.append(reply.rounding)
        if reply.state == "done":
            if reply.message:
                self.engine.warn(f"{where}: {reply.message}.")
            for key, block in pack.blocks.items():
                _seen(lambda key=key: self.store.is_done(key), f"{where} has finished block {key}, which is not there")
                if self.engine.shared:
                    check_file(self.store.result_path(key).read_bytes(), key, block)
            self._told((0, {"key": name, "done": pack.work}))
        elif reply.state == "refused":
            raise ValueError(f"{where} refuses: {reply.message}.".replace("..", "."))
        elif reply.state == "disk":
            raise OSError(reply.number, reply.message)
        elif reply.state == "failed":
            raise WorkerError(f"{where}: {reply.message}")
        elif not self.stopping:
            raise WorkerError(f"{where} was stopped by somebody else; what is done is kept")

    def _again(self, name: str) -> None:
        """Dask gives up on a task whose workers died: not we, as long as it gets on."""
        self.futures.pop(name).release()
        pack, text, lost = self.packs.pop(name), self.texts.pop(name), self.lost.pop(name)
        standing = sum(
            block["episodes"] if self.store.is_done(key) else snapshots.episodes_done(self.store, key)
            for key, block in pack.blocks.items()
        )
        times = lost.times + 1 if standing == lost.standing else 1
        if times >= GIVE_UP:
            raise WorkerError(f"{pack.label}: its workers die without getting on; is there enough memory?")
        self._submit(pack, text, Lost(standing, times))

    def _told(self, event: Any) -> None:
        """A worker's word on how far it has come; a block that was lost starts again from its snapshot."""
        message = event[1]
        name, done = message.get("key"), message.get("done")
        if name not in self.packs or not isinstance(done, int):
            return
        with self.lock:
            self.done[name] = min(done, self.packs[name].work)
            done = sum(self.done.get(one, 0) for one in self.packs)
            self.bar.update(done - self.shown)
            self.shown = done

    def _describe(self) -> None:
        there = len(self.client.nthreads())  # without the lock, for which the client's own thread may wait
        with self.lock:
            self.bar.set_description(f"{there} worker{'' if there == 1 else 's'}" if there else "waiting for workers")

    def _stop(self) -> None:
        """Ask the workers to stop at a snapshot, wait for them, and take back what they have not begun."""
        self.stopping = True
        self.waiting.clear()
        self.client.run(stop_session, self.name, on_error="ignore")
        running = {name for names in self.client.processing().values() for name in names}
        for name in [name for name in self.futures if name not in running]:
            self.client.cancel([self.futures.pop(name)])
        try:
            self._collect(STOP_SECONDS)
        except Exception:  # the first error is the one to be told
            return


def _seen(there: Callable[[], bool], message: str) -> None:
    """Wait for a file of another machine: network file systems show it some seconds later."""
    started = time.monotonic()
    while not there():
        if time.monotonic() - started > SEEN_SECONDS:
            raise ValueError(f"{message}; is the directory shared? Else give --no-shared.")
        time.sleep(0.2)
