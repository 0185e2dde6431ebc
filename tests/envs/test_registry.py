"""`make`, `names`, `help`: every name builds, errors say what is near and allowed, nothing heavy is imported."""

import subprocess
import sys

import numpy as np
import pytest

import cpdpo_jax as cp

SMALL = {"random": {"layers": 3, "states": 3}, "small_rho": {"rhos": (0.2, 0.05)}}


def test_the_names_of_the_literature_come_first():
    assert cp.envs.names()[:12] == (
        "media_streaming", "inventory", "factored", "simple", "difficult", "cliff", "mars_rover", "box",
        "random_uniform_pac", "random_episode_wise", "streaming_episode_wise", "grid_three_constraints",
    )  # fmt: skip


@pytest.mark.parametrize("name", cp.envs.names())
def test_every_name_builds_a_valid_cmdp_and_has_help(name):
    cmdp = cp.envs.make(name, **SMALL.get(name, {}))
    ahead = np.asarray(cmdp.action_mask)[:-1]
    np.testing.assert_allclose(cmdp.transition.sum(axis=3)[ahead], 1.0, atol=1e-12)
    assert np.isfinite(cmdp.threshold).all()
    assert cmdp.names[0].startswith(name)
    text = cp.envs.help(name)
    assert all(f"{key} = " in text for key in cp.envs.defaults(name))
    assert name in cp.envs.help()


@pytest.mark.parametrize("name", ["random", "garnet", "hard", "streaming_episode_wise", "random_episode_wise"])
def test_a_batch_holds_the_instances_that_stand_alone(name):
    three = cp.envs.make(name, key=5, instances=3)
    five = cp.envs.make(name, key=5, instances=5)
    assert three.batch_shape == (3,)
    for a, b in zip(cp.unstack(three), cp.unstack(five)[:3], strict=True):
        np.testing.assert_array_equal(a.transition, b.transition)
        np.testing.assert_array_equal(a.threshold, b.threshold)
    alone = cp.envs.make(name, key=5)
    assert alone.batch_shape == ()
    np.testing.assert_array_equal(alone.cost, three.cost[..., 0])
    assert (
        np.abs(three.cost[..., 0] - three.cost[..., 1]).max()
        + np.abs(three.transition[..., 0] - three.transition[..., 1]).max()
        > 0
    )
    other = cp.envs.make(name, key=6)
    assert not np.array_equal(alone.transition, other.transition)


@pytest.mark.parametrize(
    ("name", "parameters", "parts"),
    [
        ("media_streming", {}, ["'media_streming'", "did you mean media_streaming", "mars_rover", ".npz"]),
        ("streaming", {}, ["media_streaming", "streaming_episode_wise"]),
        ("rover", {}, ["did you mean mars_rover"]),
        ("zzz", {}, ["'zzz'; choose one of media_streaming"]),
        ("cliff", {"horzon": 3}, ["cliff has no parameter 'horzon'", "did you mean horizon", "threshold, rows"]),
        ("cliff", {"horizon": 0}, ["horizon = 0", "whole number of at least 1"]),
        ("cliff", {"horizon": 2.5}, ["horizon = 2.5"]),
        ("cliff", {"horizon": True}, ["horizon = True"]),
        ("media_streaming", {"fast": 1.2}, ["fast = 1.2", "[0, 1]"]),
        ("media_streaming", {"threshold": -1}, ["threshold", "-1", "[0, 10]"]),
        ("media_streaming", {"noise": "gauss"}, ["noise", "'gauss'", "bernoulli"]),
        ("grid_three_constraints", {"threshold": 1.0}, ["threshold = 1.0", "3 finite numbers"]),
        ("inventory", {"demand": (0.5, 0.6)}, ["demand", "sum to 1"]),
        ("mars_rover", {"map": ("S0", "0G", "0")}, ["map", "equal length"]),
        ("mars_rover", {"map": ("S0", "00")}, ["map", "no goal"]),
        ("box", {"map": ("S0", "XG")}, ["map", "surrounded by walls"]),
        ("random", {"rho": -1}, ["rho = -1", "(0, 6]"]),
        ("random", {"rho": 20, "layers": 4}, ["rho = 20", "(0, 4]"]),
        ("random", {"tightness": 1.0}, ["tightness = 1.0", "(0, 1)"]),
        ("random", {"concentration": "x"}, ["concentration = 'x'", "(0, inf)"]),
        ("random", {"key": -1}, ["key = -1", "at least 0"]),
        ("random", {"instances": 0}, ["instances = 0", "at least 1"]),
        ("garnet", {"branching": 11}, ["branching = 11", "from 1 to 10"]),
        ("small_rho", {"rhos": (0.1, 0.0)}, ["rhos[1] = 0.0", "(0, 6]"]),
        ("streaming_episode_wise", {"leave": (0.5, 0.2)}, ["leave", "a <= b in [0, 1]"]),
        ("hard", {"share": 1.0}, ["share = 1.0", "(0, 1)"]),
        ("my.npz", {"horizon": 3}, ["takes no parameters", "horizon"]),
    ],
)  # fmt: skip
def test_errors_name_the_parameter_the_value_and_the_range(name, parameters, parts):
    with pytest.raises(ValueError, match=r".") as error:
        cp.envs.make(name, **parameters)
    for part in parts:
        assert part in str(error.value)


def test_importing_and_listing_stay_light():
    code = (
        "import sys, cpdpo_jax as cp; cp.envs.names(); cp.envs.make; "
        "print([m for m in ('jax', 'gymnasium', 'matplotlib', 'scipy', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=600)
    assert done.stdout.strip() == "[]"


def test_making_one_loads_neither_gymnasium_nor_matplotlib():
    code = (
        "import sys, cpdpo_jax as cp; cp.envs.make('factored').describe(); "
        "print([m for m in ('gymnasium', 'matplotlib') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=600)
    assert done.stdout.strip() == "[]"


def test_unknown_attributes_say_what_there_is():
    with pytest.raises(AttributeError, match="make"):
        cp.envs.build_me  # noqa: B018  # pyright: ignore[reportAttributeAccessIssue]
    assert "best_fixed_policy" in dir(cp.envs)
