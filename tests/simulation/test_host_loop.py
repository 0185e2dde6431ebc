"""The host loop: common random numbers with the compiled loop, and bit-identical results for any batch or resume."""

from __future__ import annotations

import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cpdpo_jax as cp
from cpdpo_jax import cli
from cpdpo_jax.learners import NoHyperparameters, base, fixed, replanning
from cpdpo_jax.learners.base import Info, Learner
from cpdpo_jax.simulation import compiled_loop, host_loop, randomness
from cpdpo_jax.simulation.blocks import Snapshot, run_block
from cpdpo_jax.simulation.lanes import LaneIndex
from cpdpo_jax.simulation.plan import select_instance
from cpdpo_jax.simulation.rollout import make_model, rollout
from cpdpo_jax.sweeps.load import load_runs
from cpdpo_jax.sweeps.store import Store
from tests.support import lanes_for, planned, random_cmdp

both = pytest.mark.parametrize("name", ["optcmdp", "optcmdp_bonus"])


def _update(problem: Any, hyper: Any, state: Any, policy: Any, trajectory: Any) -> tuple[Any, Info]:
    nothing = np.zeros_like(problem.threshold), np.zeros((), np.int32)
    return state._replace(counts=replanning.count(state.counts, trajectory)), Info(*nothing)


UNIFORM = Learner(  # the fixed policy, on the host
    name="uniform on the host",
    hyperparameters=lambda problem, preset: NoHyperparameters(),
    init=lambda problem, hyper: replanning.init(problem, with_set=False),
    policy=lambda problem, hyper, state: state.policy,
    update=_update,
    compiled=False,
)


def run(learner: Any, cmdp: Any, **keywords: Any) -> cp.Result:
    options: dict[str, Any] = {"episodes": 40, "seeds": 2, "progress": False, **keywords}
    return cp.simulate(learner, cmdp, **options)


def assert_same(a: cp.Result, b: cp.Result) -> None:
    for name in a.data.data_vars:
        np.testing.assert_array_equal(a.data[name].values, b.data[name].values, err_msg=str(name))


@pytest.mark.strict_ranks
@pytest.mark.parametrize("shape", [(3, 5), (5, 4), (1, 1)])
def test_draws_are_those_of_the_compiled_loop(shape: tuple[int, int]) -> None:
    keys = randomness.lane_keys(7, np.array([0, 0, 3]), np.array([0, 2**32 - 1, 5]))
    for b in range(3):
        here = host_loop.uniforms(keys[:, b], 1000, 1300, shape)
        for t in (1000, 1001, 1299):
            there = randomness.uniforms(jnp.asarray(keys), jnp.uint32(t), shape)
            np.testing.assert_array_equal(here[t - 1000], there[..., b])


@pytest.mark.parametrize("noise", ["bernoulli", "deterministic", "beta"])
def test_a_fixed_policy_has_the_trajectories_of_the_compiled_loop(noise: str) -> None:
    """Bit-identical in float64; "beta" is sampled in float32 in both loops."""
    cmdp = random_cmdp(4, 3, 3, 2, seed=3, masked=True, noise=noise, concentration=2.0)
    policy = np.random.default_rng(0).random((4, 3, 3)) * cmdp.action_mask
    policy /= np.maximum(policy.sum(axis=2, keepdims=True), 1e-9)
    n, key, dtype = 100, np.array([1, 2], np.uint32), np.float32 if noise == "beta" else np.float64
    uniform = host_loop.uniforms(key, 0, n, (4, 5))
    with jax.enable_x64(dtype == np.float64):
        model = make_model(cmdp, None, dtype)
        spread = jnp.broadcast_to(jnp.asarray(policy, dtype)[..., None], (4, 3, 3, n))
        there = jax.jit(rollout, static_argnums=3)(
            model, spread, jnp.asarray(np.moveaxis(uniform, 0, -1), dtype), noise
        )
    with jax.enable_x64(True):
        model = host_loop.select_lane(make_model(cmdp, None, np.float64), 0)
    for t in range(n):
        here = host_loop.rollout(model, policy, uniform[t], noise)
        for name, value in here._asdict().items():
            tolerance = 1e-6 if noise == "beta" else 0
            np.testing.assert_allclose(value, getattr(there, name)[..., t], atol=tolerance, err_msg=name)


def test_the_uniform_policy_has_the_same_counts_and_sums_on_both_loops(x64: None) -> None:
    cmdp = random_cmdp(3, 3, 2, 2, seed=5, masked=True)
    lanes = lanes_for(fixed.UNIFORM, cmdp, episodes=300, preset="tuned", rho=0.5, dtype=np.float64, n_lanes=3)
    lanes = lanes._replace(keys=jnp.asarray(randomness.lane_keys(0, np.zeros(3, int), np.arange(3))))
    there = compiled_loop.advance(
        fixed.UNIFORM, "bernoulli", lanes, compiled_loop.begin(fixed.UNIFORM, "bernoulli", lanes), 0, 300
    )
    lanes = jax.tree.map(np.asarray, lanes)
    here = host_loop.advance(UNIFORM, "bernoulli", lanes, host_loop.begin(UNIFORM, "bernoulli", lanes), 0, 100)
    here = host_loop.advance(UNIFORM, "bernoulli", lanes, here, 100, 300)
    np.testing.assert_array_equal(here.learner.counts.visits, there.learner.visits)
    np.testing.assert_array_equal(here.learner.counts.transitions, there.learner.transitions)
    np.testing.assert_array_equal(here.learner.counts.payoff_sum, there.learner.payoff_sum)
    for a, b in zip((*here.sums, here.gaps), (*there.sums, there.gaps), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.strict_ranks
@both
def test_a_seed_does_not_depend_on_what_runs_beside_it(name: str) -> None:
    cmdp, other = random_cmdp(3, 3, 2, 2, seed=5), random_cmdp(3, 3, 2, 2, seed=6, masked=True)
    alone = run(name, cmdp, seeds=[3])
    for keywords in ({"seeds": 5}, {"seeds": 5, "block": 2}, {"seeds": [9, 3], "block": 64}):
        many = run(name, cmdp, **keywords)
        assert_same(alone, cp.Result(many.data.sel(seed=[3])))
    many = run(name, [cmdp, other], seeds=[3, 4], hparams=["tuned", "theory"])
    assert_same(alone, cp.Result(many.data.sel(seed=[3], hparams=["tuned"], instance=[0])))


@pytest.mark.strict_ranks
@both
def test_the_type_of_the_run_does_not_matter(name: str) -> None:
    cmdp = random_cmdp(3, 3, 2, 2, seed=5)
    single = run(name, cmdp)
    with jax.enable_x64(True):
        assert_same(single, run(name, cmdp, dtype="float64"))


def test_blocks_are_narrow_and_not_padded(monkeypatch: pytest.MonkeyPatch) -> None:
    """No LP is wasted on padding: 5 seeds on 2 cores form blocks of 3 and 2."""
    seen: list[int] = []

    def counting(work: Any, lane: LaneIndex, *more: Any) -> Any:
        seen.append(len(lane.seed))
        return run_block(work, lane, *more)

    monkeypatch.setattr("cpdpo_jax.simulation.simulate.run_block", counting)
    monkeypatch.setattr("cpdpo_jax.kernels.machines.programs.cores", lambda: 2)
    run("optcmdp_bonus", random_cmdp(3, 3, 2, 2, seed=5), seeds=5, episodes=3)
    assert sorted(seen) == [2, 3]


def test_beside_a_compiled_learner() -> None:
    data = run(["optcmdp_bonus", "uniform"], random_cmdp(3, 3, 2, 2, seed=5)).data.isel(episode=-1)
    assert np.isfinite(data.strong_regret).all()
    assert np.isfinite(data.infeasible.sel(learner="optcmdp_bonus")).all()
    assert np.isnan(data.infeasible.sel(learner="uniform")).all()


def _copy(snapshot: Snapshot) -> Snapshot:
    curves = type(snapshot.curves)(*(np.array(x) for x in snapshot.curves))
    return snapshot._replace(curves=curves, state=[np.array(leaf) for leaf in snapshot.state])


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("optcmdp", {"episodes": 100}),
        ("optcmdp", {"episodes": 100, "hparams": {"solve_when_doubled": 1}}),
        ("optcmdp_bonus", {"episodes": 100}),
        ("optcmdp_bonus", {"episodes": 150, "rho": "estimate:20", "horizon": "doubling"}),
    ],
)
def test_a_block_goes_on_from_any_snapshot_bit_for_bit(
    name: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cpdpo_jax.simulation.blocks.CALL_SECONDS", 1e-3)
    monkeypatch.setattr("cpdpo_jax.simulation.plan.FIRST_DOUBLING", 32)
    cmdp = cp.envs.make("random", layers=3, states=3, actions=2, constraints=2, instances=2)
    work = select_instance(planned(name, cmdp, seeds=2, **options).learners[0], 1, 0)
    lane = LaneIndex(np.zeros(2, int), np.zeros(2, int), np.arange(2), np.ones(2, bool))
    snapshots: list[Snapshot] = []
    whole = run_block(work, lane, save=lambda snapshot: snapshots.append(_copy(snapshot)), every=0)
    assert len(snapshots) > 20
    for snapshot in snapshots[:: len(snapshots) // 5] + snapshots[-1:]:
        again = run_block(work, lane, start=_copy(snapshot))
        for field, values in whole._asdict().items():
            assert values.tobytes() == getattr(again, field).tobytes(), (field, snapshot.episode)


def test_a_stored_run_is_what_simulate_returns(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """In blocks of four seeds, without padding; `--dry-run` measures them too."""
    flags = ["--learner", "optcmdp", "uniform", "--env", "random:layers=2,states=2,actions=2,constraints=1"]
    flags += ["--episodes", "30", "--seeds", "6", "--out", str(tmp_path / "a")]
    assert cli.main(["run", *flags, "--dry-run"]) == 0
    assert "optcmdp" in capsys.readouterr().out
    assert cli.main(["run", *flags, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ran"] == 3
    (table,) = load_runs([Store(tmp_path / "a")])
    cmdp = cp.envs.make("random", layers=2, states=2, actions=2, constraints=1)
    assert_same(table.result, run(["optcmdp", "uniform"], cmdp, episodes=30, seeds=6))


def test_the_registry_knows_which_run_on_the_host() -> None:
    assert {name for name in base.names() if not base.get(name).compiled} >= {"optcmdp", "optcmdp_bonus"}
    assert base.get("cpdpo").compiled
