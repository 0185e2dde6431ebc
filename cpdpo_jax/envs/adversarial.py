"""Losses that change with the episode (switching, drifting, periodic, chasing the learner), and regret in hindsight.

Every sequence except `chasing` has the form loss_t = sum_j w_j(t) table_j with few tables. So nothing of size T is
stored, a jitted loop can compute the losses of any episode, and the mean over all episodes is exact and cheap.
`chasing` depends on the policies played before t and remembers a single table. `simulation.adversarial` plays a learner
on them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from cpdpo_jax.common.types import CMDP
from cpdpo_jax.envs.parameters import integer, number
from cpdpo_jax.envs.streams import stream
from cpdpo_jax.exact.lp import evaluate, plan

_CHUNK = 2**16  # episodes whose weights are summed at once


@dataclass(frozen=True, eq=False)
class Losses:
    """A sequence of losses in [0, 1] over T episodes: `losses(t)` is `[L, S, A]`, t = 0..T-1, an integer or traced."""

    tables: np.ndarray  # [J, L, S, A]; 0 at padding
    weights: Callable[[Any], Any]  # t -> [J]; an array [n] -> [J, n]
    episodes: int  # T
    name: str  # shown in results

    def __call__(self, t: Any) -> Any:
        """The losses of episode t, `[L, S, A]`."""
        return sum(weight * table for weight, table in zip(self.weights(t), self.tables, strict=True))

    def mean(self) -> np.ndarray:
        """(1/T) sum_t loss_t, `[L, S, A]`."""
        total = np.zeros(len(self.tables))
        for first in range(0, self.episodes, _CHUNK):
            total += self.weights(np.arange(first, min(first + _CHUNK, self.episodes))).sum(axis=1)
        return np.tensordot(total / self.episodes, self.tables, 1)


@dataclass(frozen=True, eq=False)
class AdaptiveLosses:
    """Losses in [0, 1] that depend on the policies played before: an adversary with a memory.

    `losses(t, memory)` is the table `[L, S, A, *B]` of episode t, `start` the memory before the first episode, and
    `remember(memory, policy)` the memory after a policy `[L, S, A, *B]` was played; all with the lanes *B last.
    """

    table: np.ndarray  # [L, S, A] the part that does not depend on the learner; 0 at padding
    share: float  # the share of the part that does
    window: float  # length of the memory in episodes
    episodes: int  # T
    name: str  # shown in results

    def start(self, policy: Any) -> Any:
        """The initial memory, 1/2 everywhere, in the shape of a policy `[L, S, A, *B]`."""
        return 0 * policy + 0.5

    def __call__(self, t: Any, memory: Any) -> Any:
        """(1 - share) table + share memory, 0 at padding."""
        lanes = (1,) * (memory.ndim - 3)
        table, real = self.table.reshape(*self.table.shape, *lanes), (self.table > 0).reshape(*self.table.shape, *lanes)
        return (1 - self.share) * table.astype(memory.dtype) + self.share * memory * real.astype(memory.dtype)

    def remember(self, memory: Any, policy: Any) -> Any:
        """memory + (policy - memory) / window: the recent probability of every action."""
        return memory + (policy - memory) / self.window


class BestFixed(NamedTuple):
    """The best fixed policy in hindsight."""

    value: float  # its mean loss per episode
    policy: np.ndarray  # [L, S, A], deterministic


def switching(cmdp: CMDP, *, episodes: int, switches: int = 9, tables: int = 2, key: int = 0) -> Losses:
    """Losses that switch to the next of `tables` random tables after every T / (switches + 1) episodes, rounded up."""
    episodes, count = integer("episodes", episodes, 1), integer("tables", tables, 1)
    length = -(-episodes // (1 + integer("switches", switches, 0, episodes - 1)))

    def weights(t: Any) -> Any:
        now = (t // length) % count
        xp = _namespace(t)
        return xp.stack([xp.where(now == j, 1.0, 0.0) for j in range(count)])

    return Losses(tables=_tables(cmdp, key, count), weights=weights, episodes=episodes, name="switching")


def drifting(cmdp: CMDP, *, episodes: int, key: int = 0) -> Losses:
    """Losses that move linearly from a random table to another over the T episodes."""
    episodes = integer("episodes", episodes, 1)

    def weights(t: Any) -> Any:
        done = t / max(1, episodes - 1)
        return _namespace(t).stack([1 - done, done])

    return Losses(tables=_tables(cmdp, key, 2), weights=weights, episodes=episodes, name="drifting")


def periodic(cmdp: CMDP, *, episodes: int, period: float = 100.0, key: int = 0) -> Losses:
    """Losses 1/2 + 1/2 sin(2 pi t / period + phase), with a random phase and height for each (x, a).

    sin(u + phase) = cos(phase) sin(u) + sin(phase) cos(u): three tables.
    """
    episodes = integer("episodes", episodes, 1)
    period = number("period", period, 1, np.inf)
    phase, height = _tables(cmdp, key, 2)
    phase, real = 2 * np.pi * phase, np.asarray(cmdp.action_mask, float)
    waves = np.stack([0.5 * real, 0.5 * height * np.cos(phase) * real, 0.5 * height * np.sin(phase) * real])

    def weights(t: Any) -> Any:
        xp = _namespace(t)
        angle = (2 * np.pi / period) * (xp.asarray(t, float) % period)
        return xp.stack([xp.ones_like(angle), xp.sin(angle), xp.cos(angle)])

    return Losses(tables=waves, weights=weights, episodes=episodes, name="periodic")


def chasing(
    cmdp: CMDP, *, episodes: int, share: float = 0.5, window: float | None = None, key: int = 0
) -> AdaptiveLosses:
    """Losses that grow where the learner has been recently: (1 - share) table + share (mean of pi(a|x) over a window).

    The table is random; the window is in episodes, T / 20 by default. Actions that the learner prefers become
    expensive.
    """
    episodes = integer("episodes", episodes, 1)
    share = number("share", share, 0.0, 1.0)
    window = number("window", max(1.0, episodes / 20) if window is None else window, 1.0, np.inf)
    table = np.where(cmdp.action_mask, np.maximum(_tables(cmdp, key, 1)[0], 1e-12), 0.0)  # above 0: a real pair
    return AdaptiveLosses(table=table, share=share, window=window, episodes=episodes, name="chasing")


def best_fixed_policy(cmdp: CMDP, losses: Losses) -> BestFixed:
    """min_pi (1/T) sum_t V^pi(loss_t) = min_pi V^pi(mean loss), by backward induction on the mean loss."""
    value, policy = plan(cmdp.transition, -losses.mean(), cmdp.action_mask)
    return BestFixed(value=-value, policy=policy)


def fixed_policy_regret(cmdp: CMDP, losses: Losses, policies: Iterable[np.ndarray]) -> np.ndarray:
    """sum_{s <= t} V^{pi_s}(loss_s) - V^{best}(loss_s), `[n]` after each of the given policies `[L, S, A]`.

    The best fixed policy is that of all T episodes, so the regret may be negative before the end.
    """
    best, gaps = best_fixed_policy(cmdp, losses).policy, []
    for t, policy in enumerate(policies):
        loss = losses(t)[None]
        gaps.append(evaluate(cmdp.transition, policy, loss)[0] - evaluate(cmdp.transition, best, loss)[0])
    if len(gaps) > losses.episodes:
        raise ValueError(
            f"policies has {len(gaps)} entries, but losses has {losses.episodes} episodes; give at most those."
        )
    return np.cumsum(gaps)


def _tables(cmdp: CMDP, key: int, count: int) -> np.ndarray:
    """`count` tables of losses ~ U(0, 1), 0 at padding, `[J, L, S, A]`."""
    if cmdp.batch_shape:
        raise ValueError(f"cmdp is a batch of shape {cmdp.batch_shape}; give one instance (see unstack).")
    return stream(key, 0).random((count, *cmdp.action_mask.shape)) * cmdp.action_mask


def _namespace(t: Any) -> Any:
    """NumPy for integers and NumPy arrays, jax.numpy for traced ones."""
    return t.__array_namespace__() if hasattr(t, "__array_namespace__") else np
