"""Dask's workers: started here, started as SLURM jobs, or there already; nobody else is let in.

A dask scheduler runs the code of whoever reaches it. What we start listens on the loopback address (SLURM: on the
network, as it must) and takes only those who hold certificates made for this run: other users of a machine reach its
loopback address too. A scheduler that is there already is taken as it is, with a warning if it is elsewhere and open.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from multiprocessing import spawn
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from cpdpo_jax.common.errors import WorkerError
from cpdpo_jax.common.machine import cores

LOOPBACK = "127.0.0.1"
PRELOAD = "cpdpo_jax.sweeps.dask_worker"
MOST_LOST = 3  # times as many jobs as were wanted may end without a worker being there
WAIT = 15  # seconds for an answer of a scheduler
PLAIN = ["dask", "msgpack"]  # results are read if they are bytes and plain values: a pickle would run code here
OWN: dict[str, Any] = {  # of a client that we make; xarray would take a default one for its locks
    "serializers": [*PLAIN, "pickle"], "deserializers": PLAIN, "set_as_default": False,
}  # fmt: skip


class Cluster(NamedTuple):
    """A connection to workers."""

    client: Any
    wanted: int  # workers that are there or to come
    refill: Callable[[], None]  # called now and then: asks for workers in place of lost ones


@contextmanager
def connected(
    where: Any, slurm: Mapping[str, Any], directory: Path, say: Callable[[str], None], warn: Callable[[str], None]
) -> Iterator[Cluster]:
    """Workers for a run; those that were started for it end with it."""
    import dask.config
    from distributed import Client

    with ExitStack() as stack:
        # a busy machine takes its time to start a worker again: dask would give up on it after 15 seconds
        stack.enter_context(dask.config.set({"distributed.deploy.lost-worker-timeout": "10 minutes"}))
        if where.kind == "client":
            yield Cluster(where.on, _threads(where.on), lambda: None)
            return
        if where.kind == "address":
            client = _client(where, warn)
            stack.callback(client.close)
            yield Cluster(client, _threads(client), lambda: None)
            return
        if where.kind == "local":
            count = where.count or len(visible_gpus()) or cores()
            stack.enter_context(_main_is_left_alone())
            cluster: Any = stack.enter_context(_local(count))
            wanted, refill = count, lambda: _revive(cluster, count)
        else:
            if shutil.which("sbatch") is None or find_spec("dask_jobqueue") is None:
                raise ValueError(f"on = {where.on!r} needs SLURM's sbatch on this machine, and dask-jobqueue.")
            count = where.count or slurm.get("jobs", 1)
            folder = directory.absolute() / "slurm"
            folder.mkdir(exist_ok=True)
            certificates = stack.enter_context(tempfile.TemporaryDirectory(prefix=".tls-", dir=folder))
            cluster = stack.enter_context(_slurm(slurm, folder, _certificates(Path(certificates))))
            cluster.scale(jobs=count)
            wanted, refill = count * slurm.get("cores", 1), _Jobs(cluster, count, folder).refill
        client = stack.enter_context(Client(cluster, **OWN))
        if find_spec("bokeh") is not None:
            say(f"dashboard: {cluster.dashboard_link}")
        yield Cluster(client, wanted, refill)


def _threads(client: Any) -> int:
    return max(1, sum(client.nthreads().values()))


def visible_gpus() -> list[str]:
    """The names of the GPUs that a process here may use, without a look by jax, which would take their memory."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is not None:
        return [one.strip() for one in given.split(",") if one.strip() not in ("", "-1")]
    found = Path("/proc/driver/nvidia/gpus")
    return [str(i) for i in range(len(list(found.iterdir())))] if found.is_dir() else []


def worker_environment(i: int, gpus: list[str]) -> dict[str, str]:
    """Of worker i: one GPU for each, in turn."""
    return {"CUDA_VISIBLE_DEVICES": gpus[i % len(gpus)]} if gpus else {}


@contextmanager
def _main_is_left_alone() -> Iterator[None]:
    """A process that Python spawns imports the script that started it, which would call us again if it has no guard.

    Workers need nothing of it: what they are to import is sent to them.
    """
    usual = spawn.get_preparation_data

    def prepared(name: str) -> dict[str, Any]:
        data = usual(name)
        if name.startswith("Dask Worker"):
            data = {key: value for key, value in data.items() if not key.startswith("init_main")}
        return data

    spawn.get_preparation_data = prepared
    try:
        yield
    finally:
        spawn.get_preparation_data = usual


def _local(count: int) -> Any:
    """Worker processes of one thread each on this machine; one that dies is started again."""
    from distributed import Nanny, Scheduler, Security, SpecCluster

    security = Security.temporary()
    closed = {"host": LOOPBACK, "protocol": "tls://", "security": security, "dashboard_address": f"{LOOPBACK}:0"}
    own = {"nthreads": 1, "memory_limit": 0, "preload": [PRELOAD], "silence_logs": logging.CRITICAL}
    gpus = visible_gpus()
    return SpecCluster(
        scheduler={"cls": Scheduler, "options": {**closed, "port": 0}},
        workers={
            i: {"cls": Nanny, "options": {**closed, **own, "env": worker_environment(i, gpus)}} for i in range(count)
        },
        security=security,
        silence_logs=logging.CRITICAL,  # pyright: ignore[reportArgumentType]
    )


def _revive(cluster: Any, count: int) -> None:
    """Workers in place of those that dask has given up."""
    for name, one in list(cluster.workers.items()):
        if one.status.name in ("closed", "failed"):
            cluster.workers.pop(name, None)
    if set(cluster.worker_spec) - set(cluster.workers):
        cluster.scale(count)


def _certificates(folder: Path) -> Any:
    """Certificates of this run in files that nobody else can read, for workers on other machines."""
    from distributed import Security

    made = Security.temporary().get_tls_config_for_role("client")
    paths = {}
    for name in ("ca_file", "cert", "key"):
        paths[name] = str(folder / f"{name}.pem")
        with open(os.open(paths[name], os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(made[name])
    roles = {
        f"tls_{role}_{part}": paths[part] for role in ("scheduler", "worker", "client") for part in ("cert", "key")
    }
    return Security(tls_ca_file=paths["ca_file"], require_encryption=True, **roles)


def _slurm(table: Mapping[str, Any], folder: Path, security: Any) -> Any:
    """SLURM jobs of one worker each, by dask-jobqueue; they write what they say into `folder`."""
    from dask_jobqueue.slurm import SLURMCluster

    options = slurm_options(table)
    return SLURMCluster(
        **options,
        processes=1,
        python=sys.executable,
        log_directory=str(folder),
        security=security,
        protocol="tls://",
        scheduler_options={"dashboard_address": f"{LOOPBACK}:0", "port": 0},
        worker_extra_args=["--dashboard-address", f"{LOOPBACK}:0", "--preload", PRELOAD],
        silence_logs="critical",
    )


def slurm_options(table: Mapping[str, Any]) -> dict[str, Any]:
    """The table [slurm] in dask-jobqueue's words."""
    directives = [*table.get("directives", []), *(["--gres=gpu:1"] if table.get("gpus") else [])]
    options: dict[str, Any] = {
        "queue": table.get("partition"),
        "account": table.get("account"),
        "walltime": table.get("time"),
        "memory": table.get("memory", "4GB"),
        "cores": table.get("cores", 1),
        "interface": table.get("interface"),
        "job_extra_directives": directives,
        "job_script_prologue": list(table.get("prologue", [])),
        "job_name": "cpdpo",
    }
    return {name: value for name, value in options.items() if value is not None}


class _Jobs:
    """Keeps a number of SLURM jobs: SLURM does not bring back one that was killed or ran out of time."""

    def __init__(self, cluster: Any, count: int, folder: Path) -> None:
        self.cluster, self.count, self.folder, self.lost = cluster, count, folder, 0

    def refill(self) -> None:
        """Jobs in place of those that have ended."""
        told = subprocess.run(["squeue", "-h", "-o", "%A"], capture_output=True, text=True, timeout=60, check=False)
        if told.returncode:
            return
        alive = set(told.stdout.split())
        lost = [name for name, job in list(self.cluster.workers.items()) if job.job_id and job.job_id not in alive]
        self.lost += len(lost)
        if self.lost > MOST_LOST * self.count and not self.cluster.scheduler_info["workers"]:
            raise WorkerError(f"{self.lost} SLURM jobs have ended and none runs; see what they said in {self.folder}")
        for name in lost:
            self.cluster.worker_spec.pop(name, None)
        if lost or set(self.cluster.worker_spec) - set(self.cluster.workers):  # dask may have seen it first
            self.cluster.scale(jobs=self.count)


def _client(where: Any, warn: Callable[[str], None]) -> Any:
    """A connection to a scheduler that is there already."""
    from distributed import Client, Security

    if where.on.startswith("tls://"):
        files = where.tls
        security = Security(
            require_encryption=True,
            **({"tls_ca_file": files["ca"], "tls_client_cert": files["cert"], "tls_client_key": files["key"]}
               if files else {}),
        )  # fmt: skip
        if not security.tls_ca_file or not security.tls_client_cert:
            raise ValueError(
                f"{where.on} needs certificates; give --tls-ca, --tls-cert and --tls-key, or distributed.comm.tls in "
                "dask's configuration."
            )
    else:
        security = None
        if not _is_here(urlsplit(where.on).hostname or ""):
            warn(
                f"{where.on} is neither encrypted nor closed: whoever reaches it can run code on its workers; "
                "use tls:// with certificates."
            )
    try:
        return Client(where.on, security=security, timeout=WAIT, **OWN)
    except (OSError, TimeoutError) as error:
        raise ValueError(
            f"no dask scheduler lets us in at {where.on} ({str(error).partition(chr(10))[0]}); is it there, and are "
            "the certificates its own?"
        ) from error


def _is_here(host: str) -> bool:
    """Whether an address is of this machine alone."""
    try:
        found = {one[4][0] for one in socket.getaddrinfo(host, None)}
    except OSError:
        return False
    return all(ipaddress.ip_address(str(one).partition("%")[0]).is_loopback for one in found)
