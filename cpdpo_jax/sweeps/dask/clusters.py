"""Connections to dask workers: local processes, SLURM jobs, or a running scheduler.

A dask scheduler runs code for anyone who can connect to it. A scheduler that a run starts listens on the loopback
address (with SLURM on the network) and requires certificates made for this run, because other users of a machine can
reach its loopback address, too. A running scheduler is used as it is, with a warning if it is remote and unencrypted.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from multiprocessing import spawn
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from cpdpo_jax.common.machine import cores
from cpdpo_jax.sweeps.dask.slurm import LOOPBACK, PRELOAD, Jobs, make_certificates, make_cluster

if TYPE_CHECKING:
    from cpdpo_jax.sweeps.engine_spec import EngineSpec

CONNECT_SECONDS = 15  # timeout for a scheduler's answer
SAFE_SERIALIZERS = ["dask", "msgpack"]  # of results: unpickling would execute code here
CLIENT_OPTIONS: dict[str, Any] = {  # not the default client, which xarray would use for its locks
    "serializers": [*SAFE_SERIALIZERS, "pickle"], "deserializers": SAFE_SERIALIZERS, "set_as_default": False,
}  # fmt: skip


class Cluster(NamedTuple):
    """A connection to workers."""

    client: Any
    wanted: int  # number of workers, including those that have not started yet
    refill: Callable[[], None]  # replaces lost workers; called regularly


@contextmanager
def connect(
    spec: EngineSpec,
    slurm: Mapping[str, Any],
    directory: Path,
    log: Callable[[str], None],
    warn: Callable[[str], None],
) -> Iterator[Cluster]:
    """Connect to the workers of a run; on exit the workers that it started end."""
    import dask.config
    from distributed import Client

    with ExitStack() as stack:
        # a busy machine may need longer than dask's default of 15 seconds to restart a worker
        stack.enter_context(dask.config.set({"distributed.deploy.lost-worker-timeout": "10 minutes"}))
        if spec.kind == "client":
            yield Cluster(spec.on, _threads(spec.on), lambda: None)
            return
        if spec.kind == "address":
            client = _client(spec, warn)
            stack.callback(client.close)
            yield Cluster(client, _threads(client), lambda: None)
            return
        if spec.kind == "local":
            count = spec.count or len(visible_gpus()) or cores()
            stack.enter_context(skip_main_import())
            cluster: Any = stack.enter_context(_local(count))
            wanted, refill = count, lambda: _revive(cluster, count)
        else:
            if shutil.which("sbatch") is None or find_spec("dask_jobqueue") is None:
                raise ValueError(f"on = {spec.on!r} needs sbatch and dask-jobqueue; run it on a login node with both.")
            count = spec.count or slurm.get("jobs", 1)
            folder = directory.absolute() / "slurm"
            folder.mkdir(exist_ok=True)
            certificates = stack.enter_context(tempfile.TemporaryDirectory(prefix=".tls-", dir=folder))
            cluster = stack.enter_context(make_cluster(slurm, folder, make_certificates(Path(certificates))))
            cluster.scale(jobs=count)
            wanted, refill = count * slurm.get("cores", 1), Jobs(cluster, count, folder).refill
        client = stack.enter_context(Client(cluster, **CLIENT_OPTIONS))
        if find_spec("bokeh") is not None:
            log(f"dashboard: {cluster.dashboard_link}")
        yield Cluster(client, wanted, refill)


def _threads(client: Any) -> int:
    return max(1, sum(client.nthreads().values()))


def visible_gpus() -> list[str]:
    """The GPUs that a process may use, determined without jax, which would allocate their memory."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [name.strip() for name in visible.split(",") if name.strip() not in ("", "-1")]
    folder = Path("/proc/driver/nvidia/gpus")
    return [str(i) for i in range(len(list(folder.iterdir())))] if folder.is_dir() else []


def worker_environment(i: int, gpus: list[str]) -> dict[str, str]:
    """The environment variables of worker i, which select one GPU in turn."""
    return {"CUDA_VISIBLE_DEVICES": gpus[i % len(gpus)]} if gpus else {}


@contextmanager
def skip_main_import() -> Iterator[None]:
    """Keep spawned workers from importing the main script, which would start the run again if it has no main guard.

    Workers do not need the script; the client sends them the imports of the run.
    """
    original = spawn.get_preparation_data

    def preparation_data(name: str) -> dict[str, Any]:
        data = original(name)
        if name.startswith("Dask Worker"):
            data = {key: value for key, value in data.items() if not key.startswith("init_main")}
        return data

    spawn.get_preparation_data = preparation_data
    try:
        yield
    finally:
        spawn.get_preparation_data = original


def _local(count: int) -> Any:
    """A cluster of local worker processes with one thread each; dask restarts a worker that dies."""
    from distributed import Nanny, Scheduler, Security, SpecCluster

    security = Security.temporary()
    network = {"host": LOOPBACK, "protocol": "tls://", "security": security, "dashboard_address": f"{LOOPBACK}:0"}
    options = {"nthreads": 1, "memory_limit": 0, "preload": [PRELOAD], "silence_logs": logging.CRITICAL}
    gpus = visible_gpus()
    return SpecCluster(
        scheduler={"cls": Scheduler, "options": {**network, "port": 0}},
        workers={
            i: {"cls": Nanny, "options": {**network, **options, "env": worker_environment(i, gpus)}}
            for i in range(count)
        },
        security=security,
        silence_logs=logging.CRITICAL,  # pyright: ignore[reportArgumentType]
    )


def _revive(cluster: Any, count: int) -> None:
    """Replace the workers that dask has given up."""
    for name, worker in list(cluster.workers.items()):
        if worker.status.name in ("closed", "failed"):
            cluster.workers.pop(name, None)
    if set(cluster.worker_spec) - set(cluster.workers):
        cluster.scale(count)


def _client(spec: EngineSpec, warn: Callable[[str], None]) -> Any:
    """A connection to a running scheduler."""
    from distributed import Client, Security

    if spec.on.startswith("tls://"):
        files = spec.tls
        security = Security(
            require_encryption=True,
            **({"tls_ca_file": files["ca"], "tls_client_cert": files["cert"], "tls_client_key": files["key"]}
               if files else {}),
        )  # fmt: skip
        if not security.tls_ca_file or not security.tls_client_cert:
            raise ValueError(
                f"{spec.on} needs certificates; give --tls-ca, --tls-cert and --tls-key, or set distributed.comm.tls "
                "in dask's configuration."
            )
    else:
        security = None
        if not _is_loopback(urlsplit(spec.on).hostname or ""):
            warn(
                f"{spec.on} is neither encrypted nor protected: anyone who can connect can run code on its workers; "
                "use tls:// with certificates."
            )
    try:
        return Client(spec.on, security=security, timeout=CONNECT_SECONDS, **CLIENT_OPTIONS)
    except (OSError, TimeoutError) as error:
        raise ValueError(
            f"cannot connect to a dask scheduler at {spec.on} ({str(error).partition(chr(10))[0]}); check that it runs "
            "and that the certificates are those of the scheduler."
        ) from error


def _is_loopback(host: str) -> bool:
    """Whether all addresses of a host are loopback addresses."""
    try:
        addresses = {str(entry[4][0]).partition("%")[0] for entry in socket.getaddrinfo(host, None)}
    except OSError:
        return False
    return all(ipaddress.ip_address(address).is_loopback for address in addresses)
