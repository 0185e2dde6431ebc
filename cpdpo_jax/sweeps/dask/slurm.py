"""Dask workers as SLURM jobs, by dask-jobqueue."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cpdpo_jax.common.errors import WorkerError

LOOPBACK = "127.0.0.1"
PRELOAD = "cpdpo_jax.sweeps.dask.worker"
MAX_LOST = 3  # give up after this multiple of the number of jobs has ended while no worker runs


def make_certificates(folder: Path) -> Any:
    """Certificates for workers on other machines, in files that only this user can read."""
    from distributed import Security

    certificates = Security.temporary().get_tls_config_for_role("client")
    paths = {}
    for name in ("ca_file", "cert", "key"):
        paths[name] = str(folder / f"{name}.pem")
        with open(os.open(paths[name], os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(certificates[name])
    roles = {
        f"tls_{role}_{part}": paths[part] for role in ("scheduler", "worker", "client") for part in ("cert", "key")
    }
    return Security(tls_ca_file=paths["ca_file"], require_encryption=True, **roles)


def make_cluster(table: Mapping[str, Any], folder: Path, security: Any) -> Any:
    """A cluster of SLURM jobs with one worker each, by dask-jobqueue; their logs are in `folder`."""
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
    """The table [slurm] as options of dask-jobqueue."""
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


class Jobs:
    """Keeps a number of SLURM jobs running; SLURM does not restart jobs that were killed or timed out."""

    def __init__(self, cluster: Any, count: int, folder: Path) -> None:
        self.cluster, self.count, self.folder, self.lost = cluster, count, folder, 0

    def refill(self) -> None:
        """Replace the jobs that have ended."""
        queue = subprocess.run(["squeue", "-h", "-o", "%A"], capture_output=True, text=True, timeout=60, check=False)
        if queue.returncode:
            return
        alive = set(queue.stdout.split())
        lost = [name for name, job in list(self.cluster.workers.items()) if job.job_id and job.job_id not in alive]
        self.lost += len(lost)
        if self.lost > MAX_LOST * self.count and not self.cluster.scheduler_info["workers"]:
            raise WorkerError(f"{self.lost} SLURM jobs have ended and none runs; see their logs in {self.folder}")
        for name in lost:
            self.cluster.worker_spec.pop(name, None)
        if lost or set(self.cluster.worker_spec) - set(self.cluster.workers):  # dask may have removed them first
            self.cluster.scale(jobs=self.count)
