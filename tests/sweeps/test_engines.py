"""Specifications of engines, and messages between client and workers: unrequested content is rejected."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import cpdpo_jax as cp
from cpdpo_jax import cli
from cpdpo_jax.common import files
from cpdpo_jax.sweeps import config
from cpdpo_jax.sweeps.dask import clusters
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
