"""The basic types: a constrained MDP and an episode, as arrays.

Axes, everywhere in the package (the problem's axes come first, batch axes last):

    L   layers 0..L-1 in which an action is taken (the paper's x_L is implicit)
    S   states of a layer, padded to the widest layer
    A   actions of a state, padded to the largest number
    M   constraints, the paper's m
    K   payoffs evaluated together
    *B  batch axes, always last: seeds, instances, hparams; size 1 broadcasts

Signs: rewards are maximised, costs are bounded from above, V(g_i) <= threshold_i.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import jax

Array = Any  # a jax.Array in traced code, a float64 np.ndarray on the host
SUM_TOLERANCE = 1e-3  # of sum_a pi(a|x) = 1: far above float32 rounding errors


class Units(NamedTuple):
    """Conversion to the units of the source: original value = scale * value + offset.

    A negative scale means the opposite sense: the source minimises the objective, or bounds a utility from below.
    """

    reward_scale: Array  # [*B]
    reward_offset: Array  # [*B]
    cost_scale: Array  # [M, *B]
    cost_offset: Array  # [M, *B]


class Trajectory(NamedTuple):
    """An episode as observed by the learner (Algorithm 1): bandit feedback at the visited pairs only."""

    state: Array  # [L, *B] int32, index of x_k in its layer
    action: Array  # [L, *B] int32, a_k
    reward: Array  # [L, *B] the sampled reward of (x_k, a_k)
    cost: Array  # [M, L, *B] the sampled costs of (x_k, a_k)


@dataclass(frozen=True, eq=False)
class CMDP:
    """A loop-free episodic constrained MDP, or a batch of several with the same shape (Section 3.1).

    Create it with `make_cmdp` or `from_episodic`, which validate, and combine several with `stack`. Arrays are float64
    NumPy arrays. It is a pytree whose static part is `noise`, `names` and `unit_names`.
    """

    transition: Array  # [L-1, S, A, S, *B] P(x'|x,a) from layer k to k+1; rows of padded pairs are 0
    reward: Array  # [L, S, A, *B] mean rewards in [0, 1]
    cost: Array  # [M, L, S, A, *B] mean costs in [0, 1]
    threshold: Array  # [M, *B] alpha in [0, L]
    action_mask: Array  # [L, S, A, *B] bool, True for a real state's allowed action
    concentration: Array  # [*B] for "beta" noise only
    units: Units  # the conversion to the units of the source
    noise: str = "bernoulli"  # "bernoulli", "deterministic" or "beta"
    names: tuple[str, ...] = ("cmdp",)  # one per instance
    unit_names: tuple[str, ...] = ()  # units of the source: of the reward, then of each constraint; () if unknown

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
        """|X| per instance, [*B]: real states including x_0 and x_L, without padding."""
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
        """Sizes, OPT in the units of the source, rho, and active constraints, with a warning about inactive ones."""
        from cpdpo_jax.envs.describe import describe  # the only upward import: it solves the CMDP

        return describe(self)

    def __repr__(self) -> str:
        """The sizes, without the arrays."""
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
