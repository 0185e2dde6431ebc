"""`make_train`: the curves of `simulate` as a pure function, mapped or inside other programs."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cpdpo_jax as cp
from tests.support import OPTIMISED, random_cmdp

pytestmark = pytest.mark.optimised
compiled = functools.partial(jax.jit, compiler_options=OPTIMISED)

T = 60
POINTS = [1, 7, 20, T]
NAMES = (
    "strong_regret",
    "strong_violation",
    "weak_regret",
    "weak_violation",
    "regret_gap",
    "violation_gap",
    "multiplier",
    "epochs",
    "final_policy",
    "first_non_finite",
)


@functools.cache
def instance(seed=5):
    return random_cmdp(2, 2, 2, 1, seed=seed)


@functools.cache
def made(learner="cpdpo"):
    return cp.make_train(learner, instance(), episodes=T, checkpoints=POINTS)


@functools.cache
def simulated(seeds=40, block=64):
    """The same width of blocks as in `train`: a program of another width may round differently."""
    common = {"episodes": T, "checkpoints": POINTS, "progress": False}
    data = cp.simulate("cpdpo", instance(), seeds=seeds, block=block, **common).data
    return data.isel(learner=0, instance=0, hparams=0)


@functools.cache
def mapped():
    """`made` over 40 seeds, 64 lanes with padding, compiled: several tests compare with it."""
    return compiled(jax.vmap(made()))(made().keys(40))


def assert_same(curves, data):
    """Bit-identical to `simulate`, in the type of the curves (`simulate` stores float64)."""
    for name in NAMES:
        ours = np.asarray(getattr(curves, name))
        np.testing.assert_array_equal(ours, data[name].values.astype(ours.dtype), err_msg=name)
    # the mean is divided in float32 here and in float64 there: one rounding each, and the sum's own
    np.testing.assert_allclose(curves.multiplier_mean, data.multiplier_mean, rtol=float(4 * np.finfo(np.float32).eps))


def test_jit_of_vmap_is_simulate_bit_for_bit():
    """40 seeds: a block of 64 lanes in both, padded."""
    assert_same(mapped(), simulated())
    assert np.asarray(mapped().strong_regret)[:, -1].std() > 0


def test_lanes_are_cut_into_blocks_without_a_change_of_bits(monkeypatch):
    """Three blocks of 32 lanes, one after the other, the last padded."""
    monkeypatch.setattr("cpdpo_jax.kernels.machines.programs.max_lanes", lambda shape: 32)
    other = cp.make_train("cpdpo", instance(), episodes=T, checkpoints=POINTS)
    curves = compiled(jax.vmap(other))(other.keys(70))
    assert_same(curves, simulated(seeds=70, block=32))


def test_one_key_and_lax_map():
    """Without a mapped axis it runs one seed; `lax.map` runs them one after the other: blocks of 32 lanes."""
    keys = made().keys([3, 17])
    each = compiled(lambda keys: jax.lax.map(made(), keys))(keys)
    assert_same(each, simulated(seeds=70, block=32).isel(seed=[3, 17]))


def test_inside_another_program():
    """Inside a user's jitted function, whose scan trains twice and computes with the result."""
    train = made()

    @compiled
    def program(keys):
        def twice(total, factor):
            curves = jax.vmap(train)(keys)
            return total + factor * curves.strong_regret[:, -1], curves.epochs

        return jax.lax.scan(twice, jnp.zeros(len(keys)), jnp.arange(1.0, 3.0))

    total, epochs = program(train.keys(40))
    np.testing.assert_array_equal(total, 3 * np.asarray(mapped().strong_regret[:, -1]))
    np.testing.assert_array_equal(epochs[1], mapped().epochs)


def test_nested_over_instances_hparams_and_seeds_is_simulate():
    batch = cp.stack([instance(seed) for seed in (5, 6)])
    grid = {"learning_rate": ["x0.5", "x1", "x4"]}
    common = {"episodes": T, "checkpoints": POINTS, "hparams": grid, "key": 7}
    train = cp.make_train("cpdpo", batch, **common)
    over_hparams = jax.vmap(jax.vmap(train, (0, None, None)), (None, 0, None))
    same_vectors = {"xla_cpu_prefer_vector_width": 512}  # as `simulate` compiles: another width rounds differently
    program = jax.jit(jax.vmap(over_hparams), compiler_options=OPTIMISED | same_vectors)
    curves = program(train.keys(12), train.hyper, train.instance)
    assert curves.strong_regret.shape == (2, 3, 12, len(POINTS))
    data = cp.simulate("cpdpo", batch, seeds=12, block=64, progress=False, **common).data.isel(learner=0)
    assert_same(curves, data)
    assert len(np.unique(data.weak_regret[..., -1])) > 5


def test_over_hyperparameters_alone_with_one_key():
    train = made()
    rates = jnp.array([0.5, 1.0]) * train.hyper.learning_rate
    axes = (None, type(train.hyper)(**dict.fromkeys(train.hyper._fields))._replace(learning_rate=0))
    curves = compiled(jax.vmap(train, in_axes=axes))(train.keys([3])[0], train.hyper._replace(learning_rate=rates))
    assert_same(jax.tree.map(lambda leaf: leaf[1], curves), simulated(seeds=70, block=32).isel(seed=3))
    assert (curves.final_policy[0] != curves.final_policy[1]).any()


def test_keys_of_instance_0_under_key_0_are_fold_in():
    np.testing.assert_array_equal(
        jax.random.key_data(made().keys(4)),
        jax.random.key_data(jax.vmap(jax.random.fold_in, (None, 0))(jax.random.key(0), jnp.arange(4))),
    )


@pytest.mark.parametrize(
    ("learner", "given", "message"),
    [
        ("cpdpo", {"horizon": "doubling"}, "horizon = 'doubling' restarts the learner from the host"),
        ("cpdpo", {"rho": "estimate:10"}, "rho = 'estimate:10' restarts the learner from the host"),
        ("cpdpo", {"rho": [0.1, 0.2]}, r"rho = \[0.1, 0.2\] is an axis; use simulate"),
        ("optcmdp", {}, "learner 'optcmdp' runs on the host"),
        (["cpdpo"], {}, "is not a learner"),
        ("cpdpo", {"checkpoint": 3}, "there is no option 'checkpoint'"),
    ],
)
def test_unsupported_options_are_refused(learner, given, message):
    with pytest.raises(ValueError, match=message):
        cp.make_train(learner, instance(), episodes=T, **given)


@pytest.mark.parametrize(("layers", "states", "actions"), [(1, 1, 1), (2, 1, 2)])
def test_the_smallest_shapes(layers, states, actions):
    """Empty and unused arrays would crash the process inside a single function."""
    train = cp.make_train("cpdpo", random_cmdp(layers, states, actions, 1, seed=5), episodes=5, rho=0.5)
    assert np.isfinite(compiled(jax.vmap(train))(train.keys(3)).strong_regret).all()


def test_several_must_be_mapped_over():
    train = cp.make_train("cpdpo", instance(), episodes=T, hparams=["tuned", "theory"])
    with pytest.raises(ValueError, match=r"map over train\.hyper"):
        train(train.keys(1)[0])
    with pytest.raises(ValueError, match=r"use jax\.vmap for several keys"):
        made()(made().keys(2))


def test_monitored_curves_are_simulates():
    common = {"episodes": T, "checkpoints": POINTS, "monitor": True}
    train = cp.make_train("cpdpo", instance(), **common)
    curves = compiled(jax.vmap(train))(train.keys(8))
    data = cp.simulate("cpdpo", instance(), seeds=8, block=32, progress=False, **common).data.isel(
        learner=0, instance=0, hparams=0
    )
    assert curves.failures.shape[:2] == (8, len(POINTS))
    np.testing.assert_array_equal(curves.failures, data.failures.values)
    np.testing.assert_array_equal(curves.watched_sum, data.watched_sum.values.astype(np.float32))
