"""The vocabulary: what a constrained MDP is, in arrays.

Axes, everywhere in the package (the problem's axes lead, the batch trails):

    L   layers 0..L-1 in which an action is taken (the paper's x_L is implicit)
    S   states of a layer, padded to the widest layer
    A   actions of a state, padded to the largest number
    M   constraints, the paper's m
    K   payoffs evaluated together
    *B  batch axes, always last: seeds, instances, hyperparameter settings; size 1 broadcasts

Signs: rewards are maximised, costs are bounded from above, V(g_i) <= threshold_i.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import jax

from cpdpo_jax.common import describing

Array = Any  # a jax.Array where traced, a float64 np.ndarray on the host: the same structures serve both


class Units(NamedTuple):
    """The way back to the units of the source: original value = scale * value + offset.

    A negative scale says that the original is of the other sense: an objective that is
    minimised, a utility that is bounded from below.
    """

    reward_scale: Array  # [*B]
    reward_offset: Array  # [*B]
    cost_scale: Array  # [M, *B]
    cost_offset: Array  # [M, *B]


class Trajectory(NamedTuple):
    """One episode as the learner sees it (Algorithm 1): bandit feedback, the visited pairs only."""

    state: Array  # [L, *B] int32, x_k within its layer
    action: Array  # [L, *B] int32, a_k
    reward: Array  # [L, *B] the sampled reward of (x_k, a_k)
    cost: Array  # [M, L, *B] its sampled costs


@dataclass(frozen=True, eq=False)
class CMDP:
    """A loop-free episodic constrained MDP, or a batch of several of one shape (Section 3.1).

    Build it with `make_cmdp` or `from_episodic`, which validate; stack several with `stack`.
    The arrays are float64 NumPy; a pytree whose static part is `noise`, `names` and `unit_names`.
    """

    transition: Array  # [L-1, S, A, S, *B] P(x'|x,a) from layer k to k+1; rows of padded pairs are 0
    reward: Array  # [L, S, A, *B] mean rewards in [0, 1]
    cost: Array  # [M, L, S, A, *B] mean costs in [0, 1]
    threshold: Array  # [M, *B] alpha in [0, L]
    action_mask: Array  # [L, S, A, *B] bool, True for a real state's allowed action
    concentration: Array  # [*B] of the "beta" noise; unused by the others
    units: Units
    noise: str = "bernoulli"  # "bernoulli", "deterministic" or "beta"
    names: tuple[str, ...] = ("cmdp",)  # one per instance
    unit_names: tuple[str, ...] = ()  # of the source: the reward's, then one per constraint; () says none

    @property
    def n_layers(self) -> int:
        """L, the number of actions taken in an episode."""
        return self.reward.shape[0]

    @property
    def n_states(self) -> int:
        """S, the padded width of a layer."""
        return self.reward.shape[1]

    @property
    def n_actions(self) -> int:
        """A, the padded number of actions."""
        return self.reward.shape[2]

    @property
    def n_constraints(self) -> int:
        """M, the number of constraints (the paper's m)."""
        return self.cost.shape[0]

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The trailing axes: () for one instance, (n,) for a stack of n."""
        return self.reward.shape[3:]

    @property
    def state_mask(self) -> Array:
        """[L, S, *B] bool, True for real states: those with an allowed action."""
        return self.action_mask.any(axis=2)

    @property
    def real_states(self) -> Array:
        """|X| per instance, [*B]: real states with x_0 and x_L, never padding."""
        return self.state_mask.sum(axis=(0, 1)) + 1

    @property
    def real_actions(self) -> Array:
        """|A| per instance, [*B]: the largest number of allowed actions."""
        return self.action_mask.sum(axis=2).max(axis=(0, 1))

    @property
    def name(self) -> str:
        """The instance's name, or all names of a batch."""
        return ", ".join(self.names)

    def describe(self) -> str:
        """Sizes, OPT in the units of the source, rho, which constraints bind; a warning for one that does not."""
        return describing.describe(self)

    def __repr__(self) -> str:
        """Sizes only: the arrays would fill the screen."""
        batch = f", batch={self.batch_shape[0]}" if self.batch_shape else ""
        label = self.names[0] if len(set(self.names)) == 1 else f"{self.names[0]}, ..."
        return (
            f"CMDP({label!r}, layers={self.n_layers}, states={self.n_states}, actions={self.n_actions}, "
            f"constraints={self.n_constraints}, noise={self.noise!r}{batch})"
        )


jax.tree_util.register_dataclass(
    CMDP,
    data_fields=[f.name for f in fields(CMDP) if f.name not in ("noise", "names", "unit_names")],
    meta_fields=["noise", "names", "unit_names"],
)
