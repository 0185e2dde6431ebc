"""The sizes of a CMDP and of a batch of CMDPs."""

from __future__ import annotations

import numpy as np

import cpdpo_jax as cp


def small(name: str, n_masked: int) -> cp.CMDP:
    """L = 3, S = 4, A = 2 and two constraints; the last `n_masked` states of the last layer are padding."""
    mask = np.ones((3, 4, 2), bool)
    mask[0, 1:], mask[2, 4 - n_masked :] = False, False
    mask[1, :, 1] = False
    transition = np.ones((2, 4, 2, 4)) * mask[:-1, :, :, None] * np.any(mask[1:], axis=2)[:, None, None]
    transition /= np.maximum(transition.sum(axis=3, keepdims=True), 1)
    payoff = np.full((3, 4, 2), 0.5)
    return cp.make_cmdp(transition, payoff, np.stack([payoff] * 2), [1.0, 2.0], action_mask=mask, name=name)


def test_sizes():
    one, other = small("one", 1), small("other", 3)
    assert (one.n_layers, one.n_states, one.n_actions, one.n_constraints, one.batch_shape) == (3, 4, 2, 2, ())
    assert (int(one.real_states), int(one.real_actions)) == (1 + 4 + 3 + 1, 2)
    assert one.state_mask.sum(axis=1).tolist() == [1, 4, 3]
    assert (one.name, repr(one)) == (
        "one", "CMDP('one', layers=3, states=4, actions=2, constraints=2, noise='bernoulli')"
    )  # fmt: skip
    both = cp.stack([one, other])
    assert (both.n_states, both.batch_shape, both.name) == (4, (2,), "one, other")
    assert both.real_states.tolist() == [9, 7]
    assert both.real_actions.tolist() == [2, 2]
    assert repr(both).startswith("CMDP('one, ...', layers=3,")
    assert repr(both).endswith(", batch=2)")
    assert repr(cp.stack([one, one])).startswith("CMDP('one', layers=3,")
