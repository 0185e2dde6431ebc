"""Arguments and options at the ends of their ranges, without a simulation."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

from cpdpo_jax.learners import base
from cpdpo_jax.simulation import inputs
from cpdpo_jax.simulation.options import LEAST_DELTA, Options, integer


@pytest.mark.parametrize("numbers", [[0], [2**32 - 1], [7, 3], np.array([1, 2], np.uint8), (4,)])
def test_seeds_of_a_list(numbers):
    assert inputs.seeds(numbers).tolist() == list(numbers)


@pytest.mark.parametrize("numbers", [[2**32], [-1], [], [[1, 2]], [1.5], [True, False], [3, 3]])
def test_what_are_no_seeds(numbers):
    with pytest.raises(ValueError, match=r"^seeds = "):
        inputs.seeds(numbers)


def test_a_number_of_seeds():
    assert inputs.seeds(3).tolist() == [0, 1, 2]


def test_whole_numbers():
    assert [integer("n", value) for value in (1, 2**31 - 1, 1e5, np.int64(3))] == [1, 2**31 - 1, 100_000, 3]
    for value in (0, 2**31, 1.5, True, "3", None, float("nan")):
        with pytest.raises(ValueError, match=r"^n = .* is not a whole number; give an integer from 1 to 2147483647\."):
            integer("n", value)


VALID: dict[str, list[tuple[Any, Any]]] = {
    "key": [
        (0, 0), (2**64 - 1, 2**64 - 1), (np.array([1, 2], np.uint32), 2**32 + 2), (np.array(5), 5),
        (jax.numpy.int32(4), 4),
    ],
    "delta": [(LEAST_DELTA, LEAST_DELTA), (0.999, 0.999), ([0.1, 0.2], [0.1, 0.2])],
    "safety": [(1, 1.0), (1e-9, 1e-9), ([0.5, 1], [0.5, 1.0])],
    "rho": [
        ("solve", "solve"), ("estimate:1", "estimate:1"), (0.5, 0.5), ([0.1, "solve"], [0.1, "solve"]),
        (np.array([0.1, 0.2]), {"per_instance": [0.1, 0.2]}), ({"per_instance": (0.5,)}, {"per_instance": [0.5]}),
    ],
    "horizon": [("known", "known"), ("doubling", "doubling")],
    "monitor": [(True, True), (np.bool_(False), False)],
    "dtype": [("float64", "float64"), (np.float32, "float32")],
    "checkpoints": [("log", "log"), (5, 5), ([3, 1e3], [3, 1000]), (np.array([2, 4]), [2, 4])],
}  # fmt: skip
INVALID: dict[str, list[Any]] = {
    "key": [-1, 2**64, np.zeros(3, np.uint32), np.zeros(2, np.int64), np.array(1.5)],
    "delta": [LEAST_DELTA / 2, 1, 0, True, "0.1"],
    "safety": [0, 1.001, True],
    "rho": ["estimate:0", "estimate:", "1", 0, np.inf, {"per_instance": [0.1], "x": 1}, {"per_instance": 0.1}],
    "horizon": ["unknown", None],
    "monitor": [1, "true"],
    "dtype": ["float16", None, "x", int],
    "checkpoints": ["linear", 0, [], [[1]], [0]],
}


@pytest.mark.parametrize("name", VALID)
def test_valid_options(name):
    for value, stored in VALID[name]:
        found = getattr(Options.from_values({name: value}), name)
        assert (found, type(found)) == (stored, type(stored))


@pytest.mark.parametrize("name", INVALID)
def test_invalid_options(name):
    for value in INVALID[name]:
        with pytest.raises(ValueError, match=f"^{name} "):
            Options.from_values({name: value})


def test_combinations_of_axes():
    options = Options(rho=[0.1, 0.2], delta=[0.3, 0.4], key=5)
    assert options.axes == {"rho": [0.1, 0.2], "delta": [0.3, 0.4]}
    expected = [(rho, delta) for rho in (0.1, 0.2) for delta in (0.3, 0.4)]
    assert [(values["rho"], values["delta"]) for values, _ in options.combinations()] == expected
    assert [(case.rho, case.delta, case.key) for _, case in options.combinations()] == [(*x, 5) for x in expected]


@pytest.mark.parametrize(
    ("value", "episodes", "points"),
    [
        (4, 100, [25, 50, 75, 100]),
        (4, 3, [1, 2, 3]),
        (1, 7, [7]),
        ([5, 2, 5], 7, [2, 5, 7]),
        ([7], 7, [7]),
        ("log", 1, [1]),
        ("log", 3, [1, 2, 3]),
    ],
)
def test_checkpoints_end_with_the_last_episode(value, episodes, points):
    assert inputs.checkpoints(value, episodes).tolist() == points


def test_twenty_checkpoints_per_decade():
    points = inputs.checkpoints("log", 10_000)
    assert (points[0], points[-1]) == (1, 10_000)
    steps = np.diff(np.log10(points[points > 1000]))
    np.testing.assert_allclose(steps, 4 / 79, rtol=0.02)  # 80 points from 1 to 10^4
    with pytest.raises(ValueError, match=r"checkpoints = \[5, 8\] exceed episodes = 7; give episodes from 1 to 7"):
        inputs.checkpoints([5, 8], 7)


def test_the_margin_that_learners_are_given():
    cmdp: Any = SimpleNamespace(names=["first", "second"])
    solution: Any = SimpleNamespace(slater_margin=np.array([0.5, 1e-12]))
    uniform, cpdpo = base.get("uniform"), base.get("cpdpo")
    margin, explored = inputs.slater_margin("solve", cmdp, solution, [uniform])
    assert (margin.tolist(), explored) == ([0.5, 1.0], 0)
    with pytest.raises(ValueError, match=r"learner 'cpdpo' needs .* instance 'second' has Slater margin rho = 1e-12"):
        inputs.slater_margin("solve", cmdp, solution, [uniform, cpdpo])
    margin, explored = inputs.slater_margin("estimate:30", cmdp, solution, [cpdpo])
    assert (margin.tolist(), explored) == ([1, 1], 30)
    assert inputs.slater_margin(0.2, cmdp, solution, [cpdpo])[0].tolist() == [0.2, 0.2]
    assert inputs.slater_margin({"per_instance": [0.2, 0.3]}, cmdp, solution, [cpdpo])[0].tolist() == [0.2, 0.3]
