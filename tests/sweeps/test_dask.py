"""Blocks on dask's workers: the bytes of the threads' run, whatever dies; nobody else gets in; nothing is trusted."""

from __future__ import annotations

import fractions
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import jax
import psutil
import pytest
import xarray as xr

import cpdpo_jax as cp
from cpdpo_jax import cli
from cpdpo_jax.common import files
from cpdpo_jax.sweeps import snapshots
from cpdpo_jax.sweeps.dask import clusters, engine
from cpdpo_jax.sweeps.dask.clusters import connect
from cpdpo_jax.sweeps.engine_spec import EngineSpec
from cpdpo_jax.sweeps.store import Store
from tests.sweeps.test_integrity import begin_block, finished, place  # noqa: F401
from tests.sweeps.test_run import TABLE as SMALL
from tests.sweeps.test_store import contents
from tests.sweeps.user_code import table

ENVIRONMENT = "random:layers=2,states=2,actions=2,constraints=1,instances=4"
LONG = {"learners": ["uniform"], "environments": [ENVIRONMENT], "episodes": 300_000, "seeds": 40}
FLAGS = ["--learner", "uniform", "--env", ENVIRONMENT, "--episodes", "300000", "--seeds", "40"]
SHORT = LONG | {"episodes": 60}

pytestmark = [pytest.mark.slow, pytest.mark.optimised]


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    """Two worker processes, as `--on local:2` starts them."""
    with connect(EngineSpec("local:2"), {}, tmp_path_factory.mktemp("dask"), print, print) as cluster:
        yield cluster.client


@pytest.fixture(scope="module")
def by_threads(tmp_path_factory):
    """The long run without dask."""
    out = tmp_path_factory.mktemp("threads") / "run"
    cp.run(LONG, out=out, progress=False)
    return contents(out)


def nothing_is_left(out: Path) -> bool:
    return not list(out.rglob(f"*{files.SUFFIX}")) and not list(out.rglob("*.npz"))


def test_a_worker_killed_in_the_middle_changes_no_byte(client, by_threads, tmp_path):
    out, killed = tmp_path / "a", []

    def kill() -> None:
        deadline = time.monotonic() + 300
        while not list(out.glob("checkpoints/*.npz")) and time.monotonic() < deadline:
            time.sleep(0.01)
        pid = next(iter(client.run(os.getpid).values()))
        killed.append((pid, Store(out).finished))
        os.kill(pid, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    cp.run(LONG, out=out, on=client, every=0.1, progress=False)
    killer.join(300)
    assert [done for _, done in killed] == [False]
    assert len(by_threads) == 8
    assert contents(out) == by_threads
    assert nothing_is_left(out)


@pytest.mark.exhaustive
def test_ctrl_c_leaves_what_threads_take_up(by_threads, tmp_path):
    """Ctrl-C goes to all processes of the terminal, the workers too."""
    out = tmp_path / "a"
    command = [sys.executable, "-m", "cpdpo_jax.cli", "run", *FLAGS, "--out", str(out)]
    before = signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # in the background it is ignored, and inherited so
    process = subprocess.Popen(
        [*command, "--on", "local:2", "--checkpoint-every", "0.1"], start_new_session=True, stderr=subprocess.PIPE
    )
    signal.signal(signal.SIGINT, before)
    deadline = time.monotonic() + 300
    while not list(out.glob("checkpoints/*.npz")) and time.monotonic() < deadline:
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 130
    lines = [line for line in errors.decode().splitlines() if not re.match(r"cpdpo: \d+% ", line)]  # of progress
    assert [line.endswith(f"cpdpo resume {out}") for line in lines] == [False, True], lines  # and nothing of dask's
    assert not Store(out).finished
    assert list(out.glob("checkpoints/*.npz"))
    assert cli.main(["resume", str(out)]) == 0
    assert contents(out) == by_threads
    assert nothing_is_left(out)


@pytest.mark.parametrize("shared", [True, False])
def test_a_learner_of_ones_own_runs_on_the_workers(client, mine, tmp_path, shared):
    cp.run(table(mine), out=tmp_path / "threads", progress=False)
    cp.run(table(mine), out=tmp_path / "dask", on=client, shared=shared, progress=False)
    assert len(contents(tmp_path / "dask")) == 2
    assert contents(tmp_path / "dask") == contents(tmp_path / "threads")


def test_a_worker_gets_a_block_when_it_has_time_for_it(client, tmp_path, monkeypatch):
    """Not all at once: dask binds a task to a worker, and two workers had three and one of four long blocks."""
    outstanding, submit = [], engine._Session._submit

    def counted(self, *given: Any) -> None:
        submit(self, *given)
        outstanding.append(len(self.futures))

    monkeypatch.setattr(engine._Session, "_submit", counted)
    monkeypatch.setattr(engine, "SHORT_SECONDS", 0.0)
    cp.run(SHORT, out=tmp_path / "slow", on=client, progress=False)
    assert len(outstanding) > 4
    assert max(outstanding) == 2
    monkeypatch.setattr(engine, "SHORT_SECONDS", 60.0)
    cp.run(SHORT, out=tmp_path / "quick", on=client, progress=False)
    assert 2 < max(outstanding) <= 4


@pytest.mark.exhaustive
def test_a_script_without_a_guard_may_start_workers(tmp_path):
    """Processes that Python spawns import the script again."""
    table = SHORT | {"environments": ["simple"], "seeds": 3}
    script = tmp_path / "script.py"
    script.write_text(f"import cpdpo_jax as cp\nprint(len(cp.run({table}, out='a', on='local:1', progress=False)))\n")
    variables = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr[-2000:]


def test_another_version_on_the_workers_is_refused(client, tmp_path, monkeypatch):
    monkeypatch.setattr(engine, "fingerprint", lambda: {"jax": "0.0.1", "numpy": "?"})
    with pytest.raises(ValueError, match=r"refuses: it has another version \(jax [0-9.]+ there, 0\.0\.1 here; numpy"):
        cp.run(SHORT, out=tmp_path / "a", on=client, progress=False)
    monkeypatch.undo()
    assert len(cp.run(SHORT, out=tmp_path / "a", on=client, progress=False)) == 1


def test_a_snapshot_of_another_kind_of_machine_is_told_and_not_gone_on_from(client, place, monkeypatch):  # noqa: F811
    here, whole = snapshots.rounding(), contents(place)
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(snapshots, "rounding", lambda: here | {"cpu": "another"})
        key, _ = begin_block(place)
    with pytest.warns(UserWarning, match=rf"block {key} was started on another kind of machine \(cpu 'another' then"):
        cp.run(SMALL, out=place, on=client, progress=False)
    assert contents(place) == whole
    assert Store(place).manifest["sessions"][-1]["workers"] == [here]


def test_a_directory_that_workers_do_not_see_is_told(client, tmp_path, monkeypatch):
    task: Any = engine.Task
    monkeypatch.setattr(engine, "Task", lambda **of: task(**(of | {"directory": "/nowhere"})))
    message = r"does not see the run in /nowhere; share the directory, or give --no-shared\.$"
    with pytest.raises(ValueError, match=message):
        cp.run(SHORT, out=tmp_path / "a", on=client, progress=False)


def test_only_the_loopback_address_is_listened_on(client):
    own = psutil.Process()
    sockets = [
        connection for process in (own, *own.children(recursive=True)) for connection in process.net_connections("inet")
    ]
    listening = [connection.laddr.ip for connection in sockets if connection.status == psutil.CONN_LISTEN]
    assert len(listening) >= 5  # scheduler, two workers and those that watch them
    assert set(listening) == {"127.0.0.1"}


def test_who_has_no_certificate_is_not_let_in(client, tmp_path, monkeypatch):
    from distributed import Security

    monkeypatch.setattr(clusters, "CONNECT_SECONDS", 3)
    address = client.scheduler.address
    assert address.startswith("tls://")

    def certificates(security: Security, folder: str) -> dict[str, str]:
        (tmp_path / folder).mkdir()
        own = security.get_tls_config_for_role("client")
        paths = {name: tmp_path / folder / name for name in ("ca", "cert", "key")}
        for name, field in (("ca", "ca_file"), ("cert", "cert"), ("key", "key")):
            paths[name].write_text(own[field])
        return {name: str(path) for name, path in paths.items()}

    def threads_there(on: str, tls: dict[str, str]) -> int:
        with connect(EngineSpec(on, tls=tls), {}, tmp_path, print, print) as cluster:
            return cluster.wanted

    with pytest.raises(ValueError, match="cannot connect to a dask scheduler at tls://"):
        threads_there(address, certificates(Security.temporary(), "others"))
    with pytest.raises(ValueError, match="cannot connect to a dask scheduler at tcp://"):
        threads_there(address.replace("tls", "tcp"), {})
    with pytest.raises(ValueError, match="needs certificates; give --tls-ca"):
        threads_there(address, {})
    assert threads_there(address, certificates(client.security, "own")) == 2


def test_pickles_are_not_read(client):
    """What a worker could make us run by sending it."""
    future = client.submit(fractions.Fraction, 1, 3, pure=False)
    with pytest.raises(TypeError, match="only able to deserialize"):
        future.result(timeout=300)


def test_the_contexts_of_the_client_are_those_of_the_workers_but_for_its_device(client, tmp_path):
    with jax.default_matmul_precision("highest"):
        (table,) = cp.run(SMALL | {"episodes": [40]}, out=tmp_path / "a", on=client, progress=False)
    assert table.result.data.sizes["seed"] == 3
    kinds = [json.loads(block["rounding"]) for block in map(block_attributes, (tmp_path / "a" / "blocks").iterdir())]
    assert [block["matmul_precision"] for block in kinds] == ["highest"]
    with jax.default_device(jax.devices()[0]), pytest.raises(ValueError, match="a device of this process, which dask"):
        cp.run(SMALL | {"episodes": [40]}, out=tmp_path / "b", on=client, progress=False)


def test_workers_have_the_clients_forms_of_the_kernels(client, tmp_path):
    with cp.kernels.paper_forms():
        cp.run(SMALL | {"episodes": [40]}, out=tmp_path / "a", on=client, progress=False)
    kinds = [json.loads(block["rounding"]) for block in map(block_attributes, (tmp_path / "a" / "blocks").iterdir())]
    assert {block["kernels"] for block in kinds} == {"pure JAX"}


def block_attributes(path: Path) -> dict[str, Any]:
    with xr.open_dataset(path, engine="h5netcdf") as data:
        return dict(data.attrs)
