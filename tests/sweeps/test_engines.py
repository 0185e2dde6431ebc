"""Specifications of engines, and messages between client and workers: unrequested content is rejected."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import h5py
import numpy as np
import pytest

import cpdpo_jax as cp
from cpdpo_jax import cli
from cpdpo_jax.common import files
from cpdpo_jax.common.errors import WorkerError
from cpdpo_jax.sweeps import config
from cpdpo_jax.sweeps.dask import clusters, slurm, worker
from cpdpo_jax.sweeps.dask.clusters import visible_gpus, worker_environment
from cpdpo_jax.sweeps.dask.messages import Reply, check_file
from cpdpo_jax.sweeps.dask.slurm import slurm_options
from cpdpo_jax.sweeps.engine_spec import EngineSpec
from cpdpo_jax.sweeps.run import build_config
from cpdpo_jax.sweeps.store import Store

TABLE = {"learners": ["uniform"], "environments": ["factored"], "episodes": 40, "seeds": 3}


def test_what_is_asked_is_understood():
    kinds = {"": "threads", "local": "local", "local:3": "local", "slurm:8": "slurm", "tcp://a:1": "address"}
    assert {on: EngineSpec(on).kind for on in kinds} == kinds
    assert [EngineSpec(on).count for on in ("", "local", "local:3", "slurm:8", "tcp://a:1")] == [None, None, 3, 8, None]


@pytest.mark.parametrize("on", ["locl", "local:0", "local:x", "slurm:", "http://a", "tcp://", 3])
def test_what_is_not_known_is_refused(on):
    with pytest.raises(ValueError, match=r"^on "):
        EngineSpec(on)


def test_mistakes_write_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(clusters, "CONNECT_SECONDS", 1)
    flags = ["run", "--learner", "uniform", "--env", "factored", "--episodes", "9", "--seeds", "1"]
    for more in (["--on", "lokal:2"], ["--on", "tls://x:1", "--tls-ca", "a"], ["--on", "tcp://127.0.0.1:9"]):
        assert cli.main([*flags, "--out", str(tmp_path / "a"), *more]) == 2
        assert capsys.readouterr().err.count("\n") == 1
    assert not list(tmp_path.glob("a/*.json"))


def test_dask_that_is_missing_is_named(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"needs dask; install it with: pip install 'cpdpo_jax\[dask\]'"):
        EngineSpec("local:2")
    assert EngineSpec("").kind == "threads"


def test_an_open_scheduler_elsewhere_is_warned_of(monkeypatch):
    monkeypatch.setattr("distributed.Client", lambda *_, **__: "client")
    warnings: list[str] = []
    for host in ("127.0.0.1", "localhost", "192.0.2.1", "no-such-host.invalid"):
        assert clusters._client(EngineSpec(f"tcp://{host}:8786"), warnings.append) == "client"
    assert [warning.split()[0] for warning in warnings] == ["tcp://192.0.2.1:8786", "tcp://no-such-host.invalid:8786"]


def test_the_slurm_table_in_jobqueues_words():
    table = {"jobs": 3, "partition": "p", "time": "1:00:00", "memory": "2GB", "gpus": 1, "directives": ["--qos=low"]}
    built = config.build(TABLE | {"slurm": table})
    assert slurm_options(built.slurm) == {
        "queue": "p", "walltime": "1:00:00", "memory": "2GB", "cores": 1, "job_name": "cpdpo",
        "job_extra_directives": ["--qos=low", "--gres=gpu:1"], "job_script_prologue": [],
    }  # fmt: skip
    assert built.digest == config.build(TABLE).digest  # where it runs is no part of what is run
    for bad in ({"partitoin": "p"}, {"jobs": 0}, {"jobs": "3"}, {"gpus": 2}, {"directives": "x"}, 3):
        if bad != {"directives": "x"}:  # one text is a list of one
            with pytest.raises(ValueError, match="slurm"):
                config.build(TABLE | {"slurm": bad})


def test_slurm_jobs_that_ended_are_replaced(tmp_path, monkeypatch):
    """Until three times their number has ended while no worker runs."""
    alive, answer, scaled = ["10", "11"], [0], []
    listed = lambda *_, **__: SimpleNamespace(returncode=answer[0], stdout="\n".join(alive) + "\n")  # noqa: E731
    monkeypatch.setattr(slurm.subprocess, "run", listed)
    cluster = SimpleNamespace(
        worker_spec={"a": 1, "b": 1}, scheduler_info={"workers": {}}, scale=lambda jobs: scaled.append(jobs),
        workers={"a": SimpleNamespace(job_id="10"), "b": SimpleNamespace(job_id=None)},
    )  # fmt: skip
    jobs = slurm.Jobs(cluster, 2, tmp_path)
    jobs.refill()  # one runs, and one is not submitted yet
    assert (jobs.lost, scaled, set(cluster.worker_spec)) == (0, [], {"a", "b"})
    alive.remove("10")
    answer[0] = 1  # squeue fails: nothing is known
    jobs.refill()
    assert scaled == []
    answer[0] = 0
    jobs.refill()
    assert (jobs.lost, scaled, set(cluster.worker_spec)) == (1, [2], {"b"})
    del cluster.workers["b"], cluster.workers["a"]  # dask has removed them first
    jobs.refill()
    assert (jobs.lost, scaled) == (1, [2, 2])
    cluster.workers = {f"c{i}": SimpleNamespace(job_id=f"2{i}") for i in range(5)}
    cluster.worker_spec = dict.fromkeys(cluster.workers, 1)
    jobs.refill()
    assert (jobs.lost, scaled) == (6, [2, 2, 2])
    cluster.workers = {"d": SimpleNamespace(job_id="30")}
    cluster.scheduler_info["workers"] = {"one": {}}
    jobs.refill()  # a worker runs
    assert jobs.lost == 7
    cluster.scheduler_info["workers"] = {}
    with pytest.raises(WorkerError, match=rf"^8 SLURM jobs have ended and none runs; see their logs in {tmp_path}$"):
        jobs.refill()


def test_local_workers_listen_on_the_loopback_address_with_tls(monkeypatch):
    made = {}
    monkeypatch.setattr("distributed.SpecCluster", lambda **options: made.update(options))
    clusters._local(2)
    assert sorted(made["workers"]) == [0, 1]
    for part in (made["scheduler"], *made["workers"].values()):
        options = part["options"]
        assert (options["host"], options["protocol"], options["dashboard_address"]) == (
            "127.0.0.1", "tls://", "127.0.0.1:0"
        )  # fmt: skip
        assert options["security"] is made["security"]
    assert [worker["options"]["nthreads"] for worker in made["workers"].values()] == [1, 1]
    assert made["security"].get_connection_args("worker")["require_encryption"]


def test_an_error_on_a_worker_keeps_its_kind_and_message():
    replies = [worker._error_reply(error, "h") for error in (
        ValueError("wrong"), OSError(28, "No space left"), OSError("odd"), KeyError("k"))]  # fmt: skip
    assert [(reply.state, reply.message, reply.number, reply.host) for reply in replies] == [
        ("refused", "wrong", 0, "h"), ("disk", "No space left", 28, "h"), ("disk", "odd", 0, "h"),
        ("failed", "KeyError: 'k'", 0, "h"),
    ]  # fmt: skip


def test_one_gpu_for_every_worker(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5")
    assert visible_gpus() == ["4", "5"]
    assert [worker_environment(i, visible_gpus())["CUDA_VISIBLE_DEVICES"] for i in range(3)] == ["4", "5", "4"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert worker_environment(0, visible_gpus()) == {}


def test_a_reply_is_what_was_packed():
    reply = Reply("done", host="h", rounding={"cpu": "x"}, files={"a": b"12\n3", "b": b""})
    assert Reply.unpack(reply.pack(), {"a", "b", "c"}) == reply


@pytest.mark.parametrize(
    "content", [b"", b"x\n", b"[]\n", b'{"files": {}}\n', 3, Reply("done", files={"z": b"1"}).pack(),
                Reply("other").pack(), Reply("done", files={"a": b"1"}).pack() + b"more"],
)  # fmt: skip
def test_a_reply_of_another_form_is_refused(content):
    with pytest.raises(ValueError, match="a worker's reply"):
        Reply.unpack(content, {"a"})


@pytest.fixture(scope="module")
def stored(tmp_path_factory) -> tuple[bytes, str, dict[str, Any]]:
    """The file of a finished block, its key and its description."""
    out = tmp_path_factory.mktemp("run") / "a"
    cp.run(TABLE, out=out, progress=False)
    ((key, block),) = Store(out).blocks.items()
    return Store(out).result_path(key).read_bytes(), key, block


def _changed(content: bytes, change: Any) -> bytes:
    buffer = io.BytesIO(files.unseal(content) or b"")
    with h5py.File(buffer, "r+") as file:
        change(file)
    return files.seal(buffer.getvalue())


def _outside(file: Any) -> None:
    del file["optimum"]
    file["optimum"] = h5py.ExternalLink("/etc/passwd", "/x")


def _stored_outside(file: Any) -> None:
    del file["optimum"]
    file.create_dataset("optimum", (4,), "u1", external=[("/etc/passwd", 0, 4)])


def _virtual(file: Any) -> None:
    layout = h5py.VirtualLayout((4,), "u1")
    layout[:] = h5py.VirtualSource("/tmp/other.h5", "x", (4,))
    del file["optimum"]
    file.create_virtual_dataset("optimum", layout)


def _seeds(file: Any) -> None:
    file["seed"][...] = np.array([5, 6, 7])


def _of_another(file: Any) -> None:
    file.attrs["block_key"] = "0" * 16


def _references(file: Any) -> None:
    file.create_dataset("more", (1,), h5py.ref_dtype)


FORGED = {
    _outside: "'optimum' is a link",
    _stored_outside: "'optimum' is not an array inside the file",
    _virtual: "'optimum' is not an array inside the file",
    _seeds: "its seeds differ",
    _of_another: "it is another block",
    _references: "'more' has type object, neither numbers nor texts",
}


@pytest.mark.parametrize("forge", FORGED)
def test_a_file_that_is_not_the_block_is_refused(stored, forge):
    content, key, block = stored
    check_file(content, key, block)
    with pytest.raises(ValueError, match=f"the file of block {key} that a worker sent is rejected: .*{FORGED[forge]}"):
        check_file(_changed(content, forge), key, block)


def test_half_a_file_is_refused(stored):
    content, key, block = stored
    with pytest.raises(ValueError, match="is rejected"):
        check_file(content[: len(content) // 2], key, block)


def test_imports_of_a_run_are_those_of_its_file():
    assert build_config(TABLE | {"imports": "package.module"}).imports == ["package.module"]
    assert build_config(TABLE | {"imports": "a.py"}).imports == [str(Path("a.py").absolute())]
