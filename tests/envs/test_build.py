"""make_cmdp refuses what is wrong in one sentence and keeps what is right; stack and unstack are inverse."""

import dataclasses
from typing import Any

import chex
import jax
import numpy as np
import pytest

from cpdpo_jax.common.types import CMDP, Units
from cpdpo_jax.envs.build import make_cmdp, stack, unstack

L, S, A, M = 3, 4, 2, 2


def arrays(seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        "transition": rng.dirichlet(np.ones(S), size=(L - 1, S, A)),
        "reward": rng.random((L, S, A)),
        "cost": rng.random((M, L, S, A)),
        "threshold": np.array([1.0, 2.0]),
    }


def with_value(field: str, index: tuple[int, ...], value: float) -> dict[str, Any]:
    given = arrays()
    given[field][index] = value
    return given


def mask(shape: tuple[int, ...], *false: tuple) -> np.ndarray:
    made = np.ones(shape, bool)
    for index in false:
        made[index] = False
    return made


ONE_START = ((0, slice(1, None)),)

BAD = {
    "row sum": (with_value("transition", (1, 2, 1), 0.2), ["transition[1, 2, 1]", "0.8", "sum to 1"]),
    "negative": (with_value("transition", (1, 2, 1, 3), -0.25), ["transition[1, 2, 1, 3]", "-0.25", "at least 0"]),
    "nan transition": (with_value("transition", (0, 0, 1, 2), np.nan), ["transition[0, 0, 1, 2]", "nan"]),
    "nan reward": (with_value("reward", (2, 1, 0), np.nan), ["reward[2, 1, 0]", "nan", "[0, 1]"]),
    "reward above": (with_value("reward", (2, 1, 0), 1.5), ["reward[2, 1, 0]", "1.5", "[0, 1]", "from_episodic"]),
    "reward below": (with_value("reward", (2, 1, 0), -2), ["reward[2, 1, 0]", "-2", "[0, 1]"]),
    "cost above": (with_value("cost", (1, 2, 1, 0), 7), ["cost[1, 2, 1, 0]", "7", "[0, 1]"]),
    "threshold above": (with_value("threshold", (1,), 3.25), ["threshold[1]", "3.25", "[0, L = 3]"]),
    "threshold below": (with_value("threshold", (0,), -0.5), ["threshold[0]", "-0.5", "[0, L = 3]"]),
    "reward shape": (arrays() | {"reward": np.zeros((S, A))}, ["reward", "(4, 2)", "[L, S, A]"]),
    "ragged": (arrays() | {"reward": [[1.0], [1.0, 2.0]]}, ["reward", "rectangular array"]),
    "cost shape": (arrays() | {"cost": np.zeros((M, L, S, 5))}, ["cost", "(2, 3, 4, 5)", "(2, 3, 4, 2)"]),
    "cost axes": (arrays() | {"cost": np.zeros((L, S, A))}, ["cost", "(3, 4, 2)", "cost[None]"]),
    "no cost": (arrays() | {"cost": np.zeros((0, L, S, A))}, ["cost", "(0, 3, 4, 2)", "M at least 1"]),
    "threshold shape": (arrays() | {"threshold": [1.0]}, ["threshold", "(1,)", "(2,)", "each constraint"]),
    "transition shape": (arrays() | {"transition": np.ones((L, S, A, S)) / S}, ["transition", "(3, 4, 2, 4)", "(2, 4"]),
    "action_mask shape": (arrays() | {"action_mask": np.ones((S, A))}, ["action_mask", "(4, 2)", "[L, S, A]"]),
    "action_mask value": (arrays() | {"action_mask": np.full((L, S, A), 2)}, ["action_mask[0, 0, 0]", "2", "True"]),
    "state without action": (
        arrays() | {"state_mask": mask((L, S), *ONE_START), "action_mask": mask((L, S, A), (1, 3))},
        ["action_mask[1, 3]", "False", "allow one"],
    ),
    "two first states": (
        arrays() | {"state_mask": mask((L, S), (0, 1), (0, 3))},
        ["state_mask[0, 2]", "True", "first layer", "from_episodic"],
    ),
    "no x_0": (arrays() | {"action_mask": mask((L, S, A), (0, 0))}, ["action_mask[0, 0]", "x_0", "unmask"]),
    "masked x_0": (arrays() | {"state_mask": mask((L, S), *ONE_START, (0, 0))}, ["state_mask[0, 0]", "x_0"]),
    "empty layer": (arrays() | {"state_mask": mask((L, S), *ONE_START, (2,))}, ["state_mask[2]", "layer 2 is empty"]),
    "no action in a layer": (arrays() | {"action_mask": mask((L, S, A), (1,))}, ["action_mask[1]", "layer 1 is empty"]),
    "into padding": (
        arrays() | {"transition": np.full((L - 1, S, A, S), 0.25), "state_mask": mask((L, S), *ONE_START, (1, 2))},
        ["transition[0, 0, 0, 2]", "0.25", "state 2 of layer 1", "unmask"],
    ),
    "noise": (arrays() | {"noise": "gauss"}, ["noise", "'gauss'", "bernoulli"]),
    "concentration": (arrays() | {"concentration": 0.0}, ["concentration", "0.0", "positive"]),
    "units": (arrays() | {"units": Units(*map(np.asarray, (1.0, 0.0, [1.0], [0.0])))}, ["units.cost_scale", "(1,)"]),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_named_in_one_sentence(case: str):
    given, words = BAD[case]
    with pytest.raises(ValueError, match=r".") as caught:
        make_cmdp(**given)
    message = str(caught.value)
    assert "\n" not in message
    assert message.endswith(".")
    for word in words:
        assert word in message, message


def leaves(cmdp: CMDP) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(cmdp)]


def assert_same(*pairs: tuple[CMDP, CMDP]) -> None:
    """Arrays to the bit; the structure of a CMDP's tree holds its noise and names."""
    assert pairs
    for single, other in pairs:
        chex.assert_trees_all_equal(single, other, strict=True)


def test_result_is_float64_numpy_and_keeps_the_numbers():
    given = arrays()
    cmdp = make_cmdp(**given, name="toy")
    assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(cmdp))
    assert {leaf.dtype for leaf in leaves(cmdp)} == {np.dtype(np.float64), np.dtype(bool)}
    assert np.array_equal(cmdp.reward[1:], given["reward"][1:])
    assert np.array_equal(cmdp.cost[:, 0, 0], given["cost"][:, 0, 0])
    assert (cmdp.n_layers, cmdp.n_states, cmdp.n_actions, cmdp.n_constraints) == (L, S, A, M)
    assert cmdp.state_mask.tolist() == [[True, False, False, False], [True] * S, [True] * S]
    assert (int(cmdp.real_states), int(cmdp.real_actions), cmdp.name) == (1 + S + S + 1, A, "toy")


def test_what_stands_at_padding_does_not_matter():
    action_mask = mask((L, S, A), (1, 0, 1), (1, 3))  # state 3 of layer 1 has no action left: padding
    given = arrays()
    given["transition"][0, :, :, 3] = 0
    given["transition"] /= given["transition"].sum(axis=-1, keepdims=True)
    clean = make_cmdp(**given, action_mask=action_mask)
    rubbish = arrays() | {"transition": given["transition"].copy()}
    for index in ((0, slice(1, None)), (1, 0, 1), (1, 3)):
        for field in ("transition", "reward"):
            rubbish[field][index] = np.nan
        rubbish["cost"][(slice(None), *index)] = 99.0
    assert_same((clean, make_cmdp(**rubbish, action_mask=action_mask)))
    explicit = mask((L, S), *ONE_START, (1, 3))
    assert_same((clean, make_cmdp(**rubbish, action_mask=action_mask, state_mask=explicit)))
    assert not clean.action_mask[1, 3].any()
    assert clean.transition[1, 3].sum() == 0
    assert clean.reward[1, 0, 1] == 0


def test_rows_are_renormalised():
    given = arrays()
    given["transition"] *= 1 + 9e-7
    rows = make_cmdp(**given).transition.sum(axis=-1)
    assert np.abs(rows[1] - 1).max() <= 1e-15
    given["transition"] *= 1 + 9e-7
    with pytest.raises(ValueError, match="sums to"):
        make_cmdp(**given)


@pytest.mark.parametrize("transition", [None, [], np.zeros((0, S, A, S))])
def test_one_layer(transition):
    cmdp = make_cmdp(transition, np.ones((1, S, A)), np.ones((M, 1, S, A)), [0.5, 1.0])
    assert cmdp.transition.shape == (0, S, A, S)
    assert cmdp.n_layers == 1
    assert int(cmdp.real_states) == 2


def test_stack_and_unstack_are_inverse():
    ones = [make_cmdp(**arrays(i), name=f"toy-{i}") for i in range(3)]
    batch = stack(ones)
    assert batch.batch_shape == (3,)
    assert batch.transition.shape == (L - 1, S, A, S, 3)
    assert batch.units.cost_scale.shape == (M, 3)
    assert batch.names == ("toy-0", "toy-1", "toy-2")
    assert_same(*zip(ones, unstack(batch), strict=True))
    assert_same((stack([batch, ones[0]]), stack([*ones, ones[0]])))
    assert unstack(ones[0]) == [ones[0]]
    grid = jax.tree.map(lambda leaf: leaf.reshape(*leaf.shape[:-1], 3, 1), batch)
    assert_same(*zip(ones, unstack(grid), strict=True))
    with pytest.raises(AssertionError):
        assert_same((ones[0], dataclasses.replace(ones[0], names=("other",))))


def test_stack_says_what_differs():
    single = make_cmdp(**arrays())
    wide = make_cmdp(None, np.ones((1, S, A)), np.ones((M, 1, S, A)), [0.5, 1.0])
    fewer = make_cmdp(**arrays() | {"cost": np.zeros((1, L, S, A)), "threshold": [1.0]})
    for other, words in (
        (wide, [r"cmdps\[1\].reward", r"\(1, 4, 2\)"]),
        (fewer, [r"cmdps\[1\].cost", r"\(1, 3, 4, 2\)"]),
        (dataclasses.replace(single, noise="beta"), [r"cmdps\[1\].noise", "'beta'"]),
    ):
        with pytest.raises(ValueError, match=".*".join(words)):
            stack([single, other])
    with pytest.raises(ValueError, match="at least one"):
        stack([])
