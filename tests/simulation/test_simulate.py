"""The interface of `simulate`: results, their independence of the execution, and error messages."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cpdpo_jax as cp
from cpdpo_jax.common import interrupts as interrupting
from cpdpo_jax.exact.lp import evaluate
from cpdpo_jax.learners import Info, Learner, NoHyperparameters
from cpdpo_jax.simulation import blocks
from tests.support import random_cmdp

simulating = importlib.import_module("cpdpo_jax.simulation.simulate")  # the name in the package is the function
CURVES = ("strong_regret", "weak_regret", "strong_violation", "weak_violation", "epochs", "multiplier_mean")


@pytest.fixture(scope="module")
def cmdp():
    return random_cmdp(3, 3, 2, 2, seed=5)


def run(*arguments, **keywords):
    return cp.simulate(*arguments, **({"progress": False, "episodes": 300} | keywords))


def assert_same(actual, other):
    for name in (*CURVES, "final_policy"):
        np.testing.assert_array_equal(actual.data[name].values, other.data[name].values, err_msg=name)


@pytest.mark.optimised
def test_a_seed_does_not_depend_on_its_batch_or_block(cmdp):
    """Bit by bit, in float32."""
    alone = run("cpdpo", cmdp, seeds=[3])
    for keywords in ({"seeds": 7}, {"seeds": 256}, {"seeds": 70, "block": 32}, {"seeds": 70, "block": 96}):
        many = run("cpdpo", cmdp, **keywords)
        assert_same(alone, cp.Result(many.data.sel(seed=[3])))


@pytest.mark.optimised
@pytest.mark.parametrize(
    ("learner", "states"),
    [
        ("cpdpo", 11),
        *(
            pytest.param(*each, marks=pytest.mark.exhaustive)
            for each in [("cpdpo", 9), ("cpd_oppo", 11), ("optprimaldual", 11)]
        ),
    ],
)
def test_nor_in_wide_layers_where_few_seeds_go_to_all_workers(learner, states):
    cmdp = random_cmdp(3, states, 2, 1, seed=5)
    few = run(learner, cmdp, seeds=5)
    assert_same(few, cp.Result(run(learner, cmdp, seeds=40).data.sel(seed=range(5))))
    assert_same(few, run(learner, cmdp, seeds=5, block=32))


@pytest.mark.optimised
def test_a_seed_does_not_depend_on_the_other_instances_and_hparams(cmdp):
    alone = run("cpdpo", cmdp, seeds=[1])
    other = random_cmdp(3, 3, 2, 2, seed=6)
    many = run("cpdpo", [cmdp, other], seeds=3, hparams=["tuned", "theory"])
    assert_same(alone, cp.Result(many.data.sel(seed=[1], hparams=["tuned"], instance=[0])))


@pytest.mark.exhaustive
@pytest.mark.optimised
def test_two_devices_give_the_same(cmdp, tmp_path):
    script = (
        "import sys; sys.path.insert(0, '.')\n"
        "import numpy as np, cpdpo_jax as cp\n"
        "from tests.support import random_cmdp\n"
        "import jax; assert len(jax.devices()) == 2\n"
        "r = cp.simulate('cpdpo', random_cmdp(3, 3, 2, 2, seed=5), episodes=300, seeds=70, block=32, progress=False)\n"
        f"r.save(r'{tmp_path}/two.nc')\n"
    )
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=2"
    subprocess.run([sys.executable, "-c", script], check=True, env={**os.environ, "XLA_FLAGS": flags}, timeout=600)
    assert_same(run("cpdpo", cmdp, seeds=70, block=32), cp.Result.load(tmp_path / "two.nc"))


def test_metrics_of_fixed_policies(cmdp):
    """The uniform policy's sums are T times its gaps; strong is at least weak, always."""
    result = run("uniform", cmdp, seeds=2, checkpoints=[10, 300])
    uniform = np.asarray(cmdp.action_mask) / np.maximum(np.asarray(cmdp.action_mask).sum(2, keepdims=True), 1)
    value, *costs = evaluate(cmdp.transition, uniform, np.concatenate([cmdp.reward[None], cmdp.cost]))
    gaps = np.array([cp.solve(cmdp).value - value, *(np.array(costs) - cmdp.threshold)])
    for at, t in enumerate((10, 300)):
        data = result.data.isel(learner=0, instance=0, hparams=0, episode=at)
        weak = np.column_stack([data.weak_regret, data.weak_violation])
        strong = np.column_stack([data.strong_regret, data.strong_violation])
        np.testing.assert_allclose(weak, np.tile(t * gaps, (2, 1)), rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(strong, np.tile(t * np.maximum(gaps, 0), (2, 1)), rtol=1e-5, atol=1e-5)


def test_strong_is_at_least_weak(cmdp):
    data = run("cpdpo", cmdp, seeds=4, hparams={"learning_rate": ["x1", "x100"]}).data
    assert (data.strong_regret >= data.weak_regret - 1e-9).all()
    assert (data.strong_violation >= data.weak_violation - 1e-9).all()
    assert (data.strong_violation.diff("episode") >= 0).all()


def test_the_optimal_policy_has_no_regret_and_no_violation(cmdp):
    """To 1e-6 x L per episode, the float32 noise floor."""
    data = run("lp_optimal", cmdp, seeds=2, episodes=2000).data.isel(episode=-1)
    floor = 1e-6 * cmdp.n_layers * 2000
    assert float(data.strong_regret.max()) <= floor
    assert float(data.strong_violation.max()) <= floor


def test_the_unconstrained_optimum_earns_more_and_violates(cmdp):
    data = run("unconstrained_optimal", [cmdp, random_cmdp(3, 3, 2, 2, seed=6)], seeds=1).data.isel(episode=-1)
    for i, instance in enumerate((cmdp, random_cmdp(3, 3, 2, 2, seed=6))):
        solution = cp.solve(instance)
        expected = 300 * float(solution.value - solution.unconstrained_value)
        assert float(data.weak_regret.isel(instance=i).max()) == pytest.approx(expected, rel=1e-4, abs=1e-3)
        assert float(data.strong_violation.isel(instance=i).max()) > 0


def test_grids_label_their_hparams_and_do_what_they_say(cmdp):
    result = run("cpdpo", cmdp, seeds=2, hparams={"learning_rate": ["x1", "x2"], "bonus_scale": [0.0, 0.5]})
    data = result.data
    assert data.sizes["hparams"] == 4
    rates = data.hyper_learning_rate.isel(learner=0, instance=0).values
    assert rates[2] == pytest.approx(2 * rates[0])
    assert sorted(set(data.hyper_bonus_scale.values.ravel())) == [0.0, 0.5]
    alone = run("cpdpo", cmdp, seeds=2, hparams={"learning_rate": float(rates[2]), "bonus_scale": 0.5})
    np.testing.assert_array_equal(data.strong_regret.values[:, :, 3:], alone.data.strong_regret.values)


def test_rho_and_horizon_options(cmdp):
    solved = run("cpdpo", cmdp, seeds=2)
    true = float(cp.solve(cmdp).slater_margin)
    assert float(solved.data.believed_slater_margin.max()) == pytest.approx(true)
    assert_same(solved, run("cpdpo", cmdp, seeds=2, rho=true))
    doubled = run("cpdpo", cmdp, seeds=2, rho=2 * true)
    assert not np.array_equal(doubled.data.strong_regret, solved.data.strong_regret)
    estimated = run("cpdpo", cmdp, seeds=3, episodes=3000, rho="estimate:2000")
    believed = estimated.data.believed_slater_margin.values.ravel()
    assert len(set(believed)) == 3  # each seed its own
    assert np.abs(believed - true).max() < 0.2  # 2,000 uniform episodes: every pair some 300 times, cost to 3 %
    uniform = run("uniform", cmdp, seeds=3, episodes=3000, checkpoints=[2000])
    first = estimated.data.strong_regret.sel(episode=2000, method="ffill")
    assert float(first.episode) <= 2000
    np.testing.assert_allclose(
        run("cpdpo", cmdp, seeds=3, episodes=3000, rho="estimate:2000", checkpoints=[2000])
        .data.strong_regret.sel(episode=2000).values,
        uniform.data.strong_regret.sel(episode=2000).values,
    )  # fmt: skip
    restarted = run("cpdpo", cmdp, seeds=2, episodes=1024, horizon="doubling")
    assert_same(restarted, run("cpdpo", cmdp, seeds=2, episodes=1024))  # the first phase knows its own T
    longer = run("cpdpo", cmdp, seeds=2, episodes=1500, horizon="doubling", checkpoints=[1024])
    np.testing.assert_array_equal(
        longer.data.strong_regret.sel(episode=1024), restarted.data.strong_regret.isel(episode=-1)
    )


@pytest.fixture
def interrupts():
    """Ctrl-C as in a terminal, because a process started in the background ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def _interrupt() -> None:
    """Ctrl-C, and wait until the main thread has handled it."""
    os.kill(os.getpid(), signal.SIGINT)
    deadline = time.monotonic() + 60
    while not (interrupting._ACTIVE is not None and interrupting._ACTIVE.requested) and time.monotonic() < deadline:
        time.sleep(0.01)


def test_ctrl_c_returns_what_is_done(cmdp, interrupts, monkeypatch):
    calls, advance = [], blocks.advance

    def interrupted(learner, environment, inputs, state, first, last):
        calls.append(first)
        if first >= 5 and max(calls[:-1]) < 5:  # the first call after the first checkpoint
            _interrupt()
        return advance(learner, environment, inputs, state, first, last)

    monkeypatch.setattr(blocks, "advance", interrupted)
    result = run("cpdpo", cmdp, seeds=16, block=16, episodes=10**8, checkpoints=[5, 10**8])  # one block
    assert result.interrupted
    regret = result.data.strong_regret.isel(learner=0, instance=0, hparams=0)
    assert np.isfinite(regret.isel(episode=0)).all()
    assert np.isnan(regret.isel(episode=-1)).all()
    assert "interrupted" in result.summary()


@pytest.mark.parametrize("first", [True, False])
def test_ctrl_c_while_it_compiles_returns_what_there_is(cmdp, interrupts, monkeypatch, first):
    """The first program, when nothing has run, or the second."""
    learners = ["uniform", "cpdpo"]
    compile_block = simulating.compile_block

    def compiling(plan, lane):
        if plan.learner.name == learners[0 if first else 1]:
            _interrupt()
        compile_block(plan, lane)

    monkeypatch.setattr(simulating, "compile_block", compiling)
    result = run(learners, cmdp, seeds=2, episodes=20)
    assert result.interrupted
    assert np.isnan(result.data.strong_regret.isel(learner=1)).all()
    assert "interrupted" in result.summary()


def test_a_value_that_is_not_finite_is_located(cmdp):
    def update(problem, hyper, state, policy, trajectory):
        return state + 1, Info(problem.threshold * 0, state.astype(jnp.int32))

    broken = Learner(
        name="broken after 40",
        hyperparameters=lambda problem, preset: NoHyperparameters(),
        init=lambda problem, hyper: problem.threshold[0] * 0,
        policy=lambda problem, hyper, state: jnp.where(
            state >= 40, jnp.nan, problem.action_mask.astype(state.dtype) / 2
        ),
        update=update,
    )
    with pytest.raises(cp.NonFiniteError, match=r"'broken after 40'.*episode 41.*seed 0.*'cmdp'") as error:
        run(broken, cmdp, seeds=2)
    regret = error.value.result.data.strong_regret
    assert np.isfinite(regret.sel(episode=slice(1, 30))).all()


def test_what_is_not_a_policy_is_refused(cmdp):
    improper = Learner(
        name="improper",
        hyperparameters=lambda problem, preset: NoHyperparameters(),
        init=lambda problem, hyper: problem.threshold[0] * 0,
        policy=lambda problem, hyper, state: problem.action_mask.astype(state.dtype) * 0.75,
        update=lambda problem, hyper, state, policy, trajectory: (
            state,
            Info(problem.threshold * 0, trajectory.state[0] * 0),
        ),
    )
    with pytest.raises(
        ValueError, match=r"'improper' does not play a policy, first in episode 1 of seed .* from 1 by 0.5;"
    ):
        run(improper, cmdp, seeds=2)


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"episodes": 0}, "episodes = 0"),
        ({"episodes": 2.5}, "episodes = 2.5"),
        ({"seeds": -1}, "seeds = -1"),
        ({"seeds": [1, 1]}, "twice"),
        ({"learner": "cpdop"}, "did you mean cpdpo"),
        ({"hparams": "tunde"}, "no preset 'tunde'"),
        ({"hparams": {"learning_rat": 1}}, "no hyperparameter 'learning_rat'"),
        ({"hparams": {"learning_rate": -1}}, "learning_rate = -1"),
        ({"hparams": ["tuned", "tuned"]}, "twice"),
        ({"rho": 0}, "rho = 0"),
        ({"rho": "guess"}, "rho = 'guess'"),
        ({"rho": []}, r"rho = \[\] is empty; give each value once"),
        ({"rho": [0.1, 0.1]}, "has a value twice"),
        ({"rho": [0.1, -1]}, "rho = -1 is not positive"),
        ({"rho": [[0.1, 0.2], [0.3, 0.4]]}, "is ambiguous; give a list of values for an axis, or {'per_instance'"),
        (
            {"rho": [0.1, {"per_instance": [0.1]}]},
            "is ambiguous; give a list of values for an axis, or {'per_instance'",
        ),
        ({"rho": np.ones((2, 2))}, r"rho has shape \(2, 2\), which is ambiguous; give a list for an axis, or an array"),
        ({"rho": [0.1, "estimate:10"]}, "has 'estimate:10' in a list; run it alone and join with cp.concat"),
        ({"rho": {"per_instances": [0.1]}}, "rho = {'per_instances': .* is not valid; give {'per_instance'"),
        ({"rho": np.array([0.1, 0.2])}, "has 2 margins for 1 instances; give one each, or a list for an axis"),
        ({"delta": [0.1, 2]}, "delta = 2 is not a confidence"),
        ({"delta": np.array([0.1, 0.2])}, "delta = array.* is not a confidence"),
        ({"safety": [0.1, [0.2]]}, r"safety = \[0.1, \[0.2\]\] is ambiguous; give a list of values for an axis\."),
        ({"rho": "estimate:300"}, "explores for all 300"),
        ({"delta": 1.5}, "delta = 1.5"),
        ({"horizon": "unknown"}, "horizon = 'unknown'"),
        ({"checkpoints": [500]}, "checkpoints"),
        ({"dtype": "float16"}, "dtype = 'float16'"),
        ({"hparams": None}, "hparams = None is not valid; give 'tuned'"),
        ({"hparams": 3}, "hparams = 3 is not valid; give 'tuned'"),
        ({"hparams": [3]}, r"hparams = \[3\] is not valid; give 'tuned'"),
        ({"hparams": []}, r"hparams = \[\] is empty"),
        ({"hparams": {"learning_rate": []}}, "is empty"),
        ({"hparams": {"learning_rate": None}}, "learning_rate = None is not a finite number"),
        ({"hparams": {"learning_rate": np.ones((2, 2))}}, r"learning_rate is an array of shape \(2, 2\)"),
        ({"hparams": {"cpdpo": None}}, "hparams = None is not valid; give 'tuned'"),
        (
            {"hparams": {"cpdop": {"learning_rate": 1}}},
            "given for 'cpdop', which is not a learner of this run; did you",
        ),
        ({"hparams": {"cpdop": "theory"}}, "cpdop = 'theory'"),
        ({"key": 1.7}, "key = 1.7 is not a whole number"),
        ({"key": -1}, "key = -1 is not"),
        ({"key": 2**64}, "key = 18446744073709551616 is not"),
        ({"key": None}, "key = None is not"),
        ({"key": np.zeros((2, 2), np.uint32)}, r"key has shape \(2, 2\); give a whole number, or one jax key"),
        ({"checkpoints": [1.7, 5]}, "checkpoints = 1.7 is not a whole number"),
        ({"cmdp": 3}, "cmdp is a int"),
        ({"cmdp": "medya_streaming"}, "did you mean media_streaming"),
        ({"learner": "uniform", "monitor": True}, r"no learner has an analysis \(uniform\); add"),
    ],
)
def test_mistakes_are_named(cmdp, keywords, message):
    keywords = {"learner": "cpdpo", "cmdp": cmdp, "seeds": 2} | keywords
    with pytest.raises(ValueError, match=message):
        run(keywords.pop("learner"), keywords.pop("cmdp"), **keywords)


def test_a_key_may_be_jaxs_own(cmdp):
    """Typed or as its two words, with all 64 bits."""
    number = run("cpdpo", cmdp, seeds=2, key=7)
    assert_same(run("cpdpo", cmdp, seeds=2, key=jax.random.key(7)), number)
    assert_same(run("cpdpo", cmdp, seeds=2, key=jax.random.PRNGKey(7)), number)
    large = run("cpdpo", cmdp, seeds=2, key=2**63 + 7)
    assert_same(run("cpdpo", cmdp, seeds=2, key=np.array([2**31, 7], np.uint32)), large)
    assert not np.array_equal(large.data.strong_regret, number.data.strong_regret)


def test_a_grid_may_be_an_array(cmdp):
    """Arrays of NumPy or jax, with zero axes or one."""
    given = {"learning_rate": np.array([0.1, 0.2]), "bonus_scale": jnp.float32(0.5)}
    data = run("cpdpo", cmdp, seeds=1, episodes=5, hparams=given).data
    assert data.hyper_learning_rate.values.ravel().tolist() == [0.1, 0.2]
    assert data.hyper_bonus_scale.values.ravel().tolist() == [0.5, 0.5]


def test_an_instance_without_slater_is_refused():
    cost = np.zeros((1, 1, 1, 1))
    flat = cp.make_cmdp(None, np.ones((1, 1, 1)), cost, [0.0], name="no margin")
    with pytest.raises(ValueError, match="'no margin' has Slater margin rho = 0"):
        run("cpdpo", flat, seeds=1)
