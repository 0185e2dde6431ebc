"""Blocks that run side by side: the same bytes as by themselves, also when stopped in the middle and taken up again."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest

import cpdpo_jax as cp
from cpdpo_jax.kernels.machines.target import tracing_for
from cpdpo_jax.learners import Info, Learner, base
from cpdpo_jax.simulation import blocks
from cpdpo_jax.simulation.blocks import Snapshot
from cpdpo_jax.simulation.curves import BlockCurves
from cpdpo_jax.sweeps import runner, snapshots
from cpdpo_jax.sweeps.packing import Pack, describe_lanes, join, make_packs, split
from cpdpo_jax.sweeps.run import build_config
from cpdpo_jax.sweeps.specification import build_batch, expand, has_instances, launch_width, mdp_shape
from cpdpo_jax.sweeps.store import Store
from tests.sweeps.test_store import contents

ENVIRONMENT = {"name": "random", "layers": 2, "states": 2, "actions": 2, "constraints": 1, "rho": 0.1, "instances": 3}
TABLE = {
    "learners": ["cpdpo"], "environments": [ENVIRONMENT], "episodes": 1200, "seeds": 5,
    "hparams": ["tuned", {"learning_rate": "x2"}],
}  # fmt: skip


def run(table: dict, out: Path, *, packed: bool, stop_after: float = np.inf) -> list[int]:
    """Run what is not finished; how many lanes each pack had. `stop_after`: so many calls of a pack."""
    config = build_config(table)
    store, todo = Store(out), expand(config)
    out.mkdir(exist_ok=True)
    store.begin(config, todo)
    sizes = []
    todo = {key: block for key, block in todo.items() if not store.is_done(key)}
    begun = {key: snapshots.episodes_done(store, key) for key in todo}
    found = make_packs(todo, begun, 1) if packed else [Pack({key: block}, False) for key, block in todo.items()]
    for pack in found:
        asks = itertools.count()
        assert runner.run_pack(store, pack, stop=lambda asks=asks: next(asks) >= stop_after) == (stop_after == np.inf)
        sizes.append(pack.lanes)
    return sizes


@pytest.mark.parametrize(
    "options",
    [
        {"rho": [0.05, 0.2], "hparams": "tuned"},
        pytest.param({"monitor": True}, marks=pytest.mark.exhaustive),
        pytest.param({"rho": "estimate:100", "horizon": "doubling"}, marks=pytest.mark.exhaustive),
    ],
)
def test_packed_stopped_and_alone_give_the_same_bytes(options, tmp_path, monkeypatch):
    table = TABLE | options
    assert run(table, tmp_path / "alone", packed=False) == [5] * 6
    assert run(table, tmp_path / "packed", packed=True) == [30]
    alone = contents(tmp_path / "alone")
    assert len(alone) == 6
    assert contents(tmp_path / "packed") == alone
    monkeypatch.setattr(blocks, "CALL_SECONDS", 1e-9)
    run(table, tmp_path / "a", packed=True, stop_after=70)  # taken up alone
    assert len(list((tmp_path / "a" / "checkpoints").iterdir())) == 6
    run(table, tmp_path / "b", packed=False, stop_after=70)  # taken up in a pack
    monkeypatch.undo()
    assert run(table, tmp_path / "a", packed=False) == [5] * 6
    assert run(table, tmp_path / "b", packed=True) == [30]
    assert contents(tmp_path / "a") == alone
    assert contents(tmp_path / "b") == alone
    assert not list(tmp_path.rglob("*.npz"))


def test_few_lanes_run_as_one_vector_with_the_same_bytes(tmp_path, monkeypatch):
    """Blocks of 32 lanes, as in runs of older versions, and packs of 16 continue each other's snapshots."""
    table = TABLE | {"hparams": "tuned", "seeds": 3}
    todo = expand(build_config(table))
    (pack,) = make_packs(todo, dict.fromkeys(todo, 0), 1)
    assert (pack.narrow, pack.lanes, len(build_batch(list(todo.values()), pack.batch, pack.narrow)[1].seed)) == (
        1,
        9,
        16,
    )
    run(table, tmp_path / "wide", packed=False)
    run(table, tmp_path / "narrow", packed=True)
    wide = contents(tmp_path / "wide")
    assert len(wide) == 3
    assert contents(tmp_path / "narrow") == wide
    monkeypatch.setattr(blocks, "CALL_SECONDS", 1e-9)
    run(table, tmp_path / "a", packed=False, stop_after=70)
    run(table, tmp_path / "b", packed=True, stop_after=70)
    monkeypatch.undo()
    for name, packed in (("a", True), ("b", False)):
        assert len(list((tmp_path / name / "checkpoints").iterdir())) == 3
        run(table, tmp_path / name, packed=packed)
        assert contents(tmp_path / name) == wide


def test_one_vector_only_where_it_holds_all_packs_of_a_program(monkeypatch):
    def narrow(table: dict, workers: int = 1) -> set[bool]:
        todo = expand(build_config(TABLE | {"hparams": "tuned"} | table))
        return {pack.narrow for pack in make_packs(todo, dict.fromkeys(todo, 0), workers)}

    assert narrow({"seeds": 5}) == {True}
    assert narrow({"seeds": 6}) == {False}  # 18 lanes
    assert narrow({"seeds": 6}, workers=3) == {True}
    assert narrow({"seeds": 40}, workers=20) == {False}  # packs of 32 and of 8: one program for both
    assert narrow({"learners": ["optcmdp"]}) == {False}
    monkeypatch.setitem(base._REGISTRY, "fails", fails())
    assert narrow({"learners": ["fails"]}) == {False}  # a user's learner may round differently with 16 lanes
    with tracing_for("gpu"):
        assert narrow({"seeds": 1}) == {False}


class Fails(NamedTuple):
    """The episode after which it plays what is not a number; 0: never."""

    after: Any


def fails() -> Learner:
    """Uniform play until it fails."""

    def policy(problem, hyper, state):
        bad = (hyper.after > 0) & (state >= hyper.after)
        return base.uniform_policy(problem.action_mask, jnp.float32) + jnp.where(bad, jnp.nan, 0)

    def update(problem, hyper, state, policy, trajectory):
        return state + 1, Info(jnp.zeros_like(problem.threshold), jnp.zeros(state.shape, jnp.int32))

    def hyperparameters(problem, preset="tuned"):
        return Fails(np.zeros_like(problem.delta))

    return Learner("fails", hyperparameters, lambda problem, hyper: jnp.zeros_like(problem.delta), policy, update)


def test_a_block_that_is_not_finite_leaves_those_beside_it_alone(tmp_path, monkeypatch):
    monkeypatch.setitem(base._REGISTRY, "fails", fails())
    table = TABLE | {"learners": ["fails"], "hparams": [{"after": [0, 30, 500]}], "episodes": 600, "checkpoints": 6}
    run(table, tmp_path / "alone", packed=False)
    assert run(table, tmp_path / "packed", packed=True) == [30, 15]
    alone = contents(tmp_path / "alone")
    assert len(alone) == 9
    assert contents(tmp_path / "packed") == alone
    first = cp.load_run(tmp_path / "packed")[0].result.data.first_non_finite.isel(learner=0, instance=0, seed=0)
    assert first.values.tolist() == [0, 31, 501]
    assert not list(tmp_path.rglob("*.npz"))


def test_how_packs_are_filled():
    todo = expand(build_config(TABLE | {"learners": ["uniform", "optcmdp"], "hparams": "tuned", "seeds": 40}))
    begun = dict.fromkeys(todo, 0)

    def lanes(workers: int) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {"uniform": [], "optcmdp": []}
        for pack in make_packs(todo, begun, workers):
            found[next(iter(pack.blocks.values()))["learner"]].append(pack.lanes)
        return found

    assert lanes(1) == {"uniform": [32, 24, 32, 32], "optcmdp": [4] * 30}  # 3 instances of 32 + 8; the host's alone
    assert lanes(20)["uniform"] == [32, 8] * 3  # 240 lanes, 12 for each worker
    key = next(key for key, block in todo.items() if block["learner"] == "uniform" and len(block["seeds"]) == 8)
    begun[key] = 100
    assert sorted(lanes(1)["uniform"]) == [8, 16, 32, 32, 32]
    assert all(len({begun[key] for key in pack.blocks}) == 1 for pack in make_packs(todo, begun, 1))


def test_packs_of_one_instance_keep_one_model():
    todo = expand(build_config(TABLE | {"learners": ["uniform"], "hparams": "tuned", "seeds": 32}))
    assert [pack.batch for pack in make_packs(todo, dict.fromkeys(todo, 0), 1)] == [False] * 3
    todo = expand(build_config(TABLE | {"learners": ["uniform"], "hparams": "tuned", "seeds": 12}))
    found = make_packs(todo, dict.fromkeys(todo, 0), 1)
    assert [(pack.lanes, pack.batch) for pack in found] == [(24, True), (12, True)]  # one program for both


def test_join_is_the_inverse_of_split_by_hand():
    rows = np.arange(5.0)
    curves = BlockCurves(*(rows[None] for _ in BlockCurves._fields[:-1]), done=np.array(7))
    whole = Snapshot(7, rows, curves, [np.stack([rows, 10 * rows]), np.array(3)])
    first, second = split(whole, (2, 2), 5, 5)
    assert first.believed.tolist() == [0, 1, 1, 1, 1]  # its last lane is repeated
    assert second.state[0].tolist() == [[2, 3, 3, 3, 3], [20, 30, 30, 30, 30]]
    assert (second.episode, int(second.state[1]), int(second.curves.done)) == (7, 3, 7)
    again = join([first, second], (2, 2), 5, 5)
    assert again.believed.tolist() == [0, 1, 2, 3, 3]
    assert again.curves.strong.tolist() == [[0, 1, 2, 3, 3]]


def test_an_accelerators_packs_leave_the_same_files(tmp_path, monkeypatch):
    """Its launches are wider than a block, and always as wide: forced on a CPU, in its forms and loops."""
    monkeypatch.setattr("cpdpo_jax.kernels.machines.programs.ACCELERATOR_LANES", 128)
    table = TABLE | {"seeds": 40, "episodes": 200, "hparams": "tuned"}
    with tracing_for("gpu"):
        todo = expand(build_config(table))
        assert sorted(len(block["seeds"]) for block in todo.values()) == [8] * 3 + [32] * 3
        assert {launch_width(block) for block in todo.values()} == {128}
        assert run(table, tmp_path / "packed", packed=True) == [120]
        alone = tmp_path / "alone"
        monkeypatch.setattr("cpdpo_jax.sweeps.packing._fill", lambda blocks, most: [{k: b} for k, b in blocks.items()])
        assert sorted(run(table, alone, packed=True)) == [8] * 3 + [32] * 3
        monkeypatch.undo()
        monkeypatch.setattr("cpdpo_jax.kernels.machines.programs.ACCELERATOR_LANES", 128)
        assert contents(tmp_path / "packed") == contents(alone)
        monkeypatch.setattr(blocks, "CALL_SECONDS", 1e-9)
        run(table, tmp_path / "stopped", packed=True, stop_after=3)  # a snapshot of every block, as wide as the block
        kept = list((tmp_path / "stopped" / "checkpoints").iterdir())
        assert len(kept) == 6
        monkeypatch.undo()
        monkeypatch.setattr("cpdpo_jax.kernels.machines.programs.ACCELERATOR_LANES", 128)
        assert run(table, tmp_path / "stopped", packed=True) == [120]
    assert contents(tmp_path / "stopped") == contents(alone)


def test_lanes_are_told_with_the_reason():
    todo = expand(build_config(TABLE | {"learners": ["uniform", "optcmdp"], "hparams": "tuned"}))

    def lines() -> list[str]:
        return describe_lanes(make_packs(todo, dict.fromkeys(todo, 0), 1))

    on_cpu = lines()
    assert any("16 lanes per launch (one vector holds all lanes; a CPU" in line for line in on_cpu)
    assert any("on the host" in line for line in on_cpu)
    todo = expand(build_config(TABLE | {"learners": ["uniform"], "hparams": "tuned", "seeds": 32}))
    assert any("32 lanes per launch (block = 32; a CPU" in line for line in lines())
    with tracing_for("gpu"):
        assert any("4,096 lanes per launch (packs of blocks; gpu:" in line for line in lines())


@pytest.mark.exhaustive
@pytest.mark.optimised
@pytest.mark.slow
def test_a_packed_run_that_is_killed_goes_on_without_a_change_of_a_byte(tmp_path):
    """kill -9 of `cpdpo run` in the middle, in an accelerator's form."""
    arguments = ["--learner", "cpdpo", "--env", "random:layers=2,states=2,actions=2,constraints=1,instances=3"]
    arguments += ["--episodes", "8000", "--seeds", "40", "--checkpoint-every", "0.2"]
    env = os.environ | {"CPDPO_TARGET": "gpu"}

    def start(out: str) -> subprocess.Popen:
        command = [sys.executable, "-m", "cpdpo_jax.cli", "run", *arguments, "--out", str(tmp_path / out)]
        return subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    assert start("whole").wait(300) == 0
    process, kept = start("killed"), tmp_path / "killed" / "checkpoints"
    deadline = time.monotonic() + 300
    while process.poll() is None and not (kept.is_dir() and len(list(kept.glob("*.npz"))) == 6):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    assert process.wait(300) == -signal.SIGKILL
    assert start("killed").wait(300) == 0
    assert len(contents(tmp_path / "whole")) == 6
    assert contents(tmp_path / "killed") == contents(tmp_path / "whole")


def test_the_size_of_results_is_estimated_from_checkpoints_constraints_and_policies():
    """60 kB per block, and for each of 32 lanes 8 bytes for L S A and, at each checkpoint, 4 + 5 m numbers."""
    large = {"name": "random", "layers": 5, "states": 4, "actions": 3, "constraints": 2}
    todo = expand(build_config(TABLE | {"environments": [large], "hparams": "tuned", "checkpoints": [10, 20, 30]}))
    assert len(todo) == 1
    measured = runner.probe(todo, [])
    assert measured.megabytes == pytest.approx((60_000 + 8 * 32 * (4 * 14 + 60)) / 1e6)
    assert (measured.compilations, measured.compile_seconds, measured.run_seconds, measured.microseconds) == (
        0, 0, 0, {}
    )  # fmt: skip


def test_instances_and_shape_of_a_block():
    for instances in (1, 3):
        block = next(
            iter(expand(build_config(TABLE | {"environments": [ENVIRONMENT | {"instances": instances}]})).values())
        )
        assert has_instances(block) == (instances > 1)
        assert mdp_shape(block) == (2, 2, 2)
