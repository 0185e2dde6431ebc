"""From a tabular Gymnasium environment to a CMDP: transitions are read from its table `P`, costs come from you."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from cpdpo_jax.common.types import CMDP
from cpdpo_jax.envs.episodic import from_episodic

Cost = Callable[[int, int, int], Any]  # of state, action, next state: a number, or one for each constraint


class Tabular(NamedTuple):
    """A Gymnasium table as arrays for `from_episodic` and `layer_states`; the last state S is the end of an episode."""

    transition: np.ndarray  # [S+1, A, S+1]
    reward: np.ndarray  # [S+1, A] means
    cost: np.ndarray  # [M, S+1, A] means
    action_mask: np.ndarray  # [S+1, A] bool; the end has one action
    initial: Any  # a state, or a distribution [S+1]


def from_gymnasium(
    env: Any,
    *,
    cost: Cost | Any,
    threshold: Any,
    horizon: int,
    initial: Any = None,
    sense: str | Sequence[str] = "<=",
    noise: str = "bernoulli",
    name: str | None = None,
    reward_unit: str | None = None,
    cost_units: str | Sequence[str] | None = None,
) -> CMDP:
    """A CMDP from a tabular Gymnasium environment such as FrozenLake, Taxi or CliffWalking.

    A step that terminates leads to an added state in which every later reward and cost is 0, so values are sums over
    at most `horizon` steps of an episode of the environment. States are laid out in one layer per step, each with those
    that can be reached there; a single first state (`initial`) keeps the layers of Taxi small. The rest is as in
    `from_episodic`: payoffs are scaled to [0, 1], and results are shown in the environment's units.

    Args:
        env: an environment with `env.unwrapped.P`, or such a table: P[state][action] is a list of
            (probability, next state, reward, terminated).
        cost: a function (state, action, next state) -> cost, or costs, one for each constraint; or mean costs as an
            array `[S, A]` or `[M, S, A]`.
        threshold: `[M]`, or a number for one constraint.
        horizon: H, the number of steps; Gymnasium's time limit is not used.
        initial: the first state, or a distribution `[S]`; None: the environment's own, state 0 for a table.
        sense: as in `from_episodic`.
        noise: as in `from_episodic`.
        name: as in `from_episodic`; None: the environment's id.
        reward_unit: as in `from_episodic`.
        cost_units: as in `from_episodic`.

    Returns:
        A `CMDP`, as from `from_episodic`; `cp.envs.layer_states(cp.envs.tabulate(env, cost))` maps its states to the
        environment's.
    """
    tables = tabulate(env, cost, initial=initial)
    return from_episodic(
        tables.transition,
        tables.reward,
        tables.cost,
        np.atleast_1d(np.asarray(threshold, float)),
        horizon=horizon,
        initial=tables.initial,
        sense=sense,
        action_mask=tables.action_mask,
        noise=noise,
        name=name or _name(env),
        reward_unit=reward_unit,
        cost_units=cost_units,
    )


def tabulate(env: Any, cost: Cost | Any, *, initial: Any = None) -> Tabular:
    """The table of an environment as arrays, with an absorbing end; the arguments are those of `from_gymnasium`."""
    table = _table(env)
    n_states, n_actions = len(table), max(len(table[s]) for s in range(len(table)))
    transition = np.zeros((n_states + 1, n_actions, n_states + 1))
    reward, mask = np.zeros((n_states + 1, n_actions)), np.zeros((n_states + 1, n_actions), bool)
    transition[-1, 0, -1], mask[-1, 0] = 1.0, True
    for s in range(n_states):
        for a in table[s]:
            mask[s, a] = True
            for p, following, payoff, terminated in table[s][a]:
                transition[s, a, n_states if terminated else following] += p
                reward[s, a] += p * payoff
    return Tabular(transition, reward, _costs(table, cost, n_actions), mask, _initial(env, initial, n_states))


def _table(env: Any) -> Any:
    """P of an environment, or the table itself."""
    table = getattr(getattr(env, "unwrapped", env), "P", env)
    if not isinstance(table, Mapping | Sequence) or isinstance(table, str) or not len(table):
        raise ValueError(
            f"env is a {type(env).__name__} without a table P; give a tabular environment such as "
            "gymnasium.make('FrozenLake-v1'), or P[state][action] = [(probability, next state, reward, terminated)]."
        )
    return table


def _costs(table: Any, cost: Cost | Any, n_actions: int) -> np.ndarray:
    """Mean costs [M, S+1, A], 0 at the end."""
    n_states = len(table)
    if callable(cost):
        try:
            inspect.signature(cost).bind(0, 0, 0)
        except TypeError:
            raise ValueError(
                "cost does not accept three arguments; give a function of state, action and next state, such as "
                "lambda s, a, y: float(a == 0)."
            ) from None
        except ValueError:  # a builtin without a signature
            pass
        m = np.asarray(cost(0, next(iter(table[0])), 0), float).size
        costs = np.zeros((m, n_states, n_actions))
        for s in range(n_states):
            for a in table[s]:
                for p, following, _, _ in table[s][a]:
                    costs[:, s, a] += p * np.reshape(np.asarray(cost(s, a, int(following)), float), m)
    else:
        costs = np.asarray(cost, float)
        costs = costs[None] if costs.ndim == 2 else costs
        if costs.ndim != 3 or costs.shape[1:] != (n_states, n_actions):
            raise ValueError(
                f"cost has shape {costs.shape}; give [S, A] = {(n_states, n_actions)}, [M, S, A], or a function of "
                "state, action and next state."
            )
    return np.concatenate([costs, np.zeros((len(costs), 1, n_actions))], axis=1)


def _initial(env: Any, initial: Any, n_states: int) -> Any:
    """The first state, or the distribution [S+1] of it."""
    if initial is None:
        initial = getattr(getattr(env, "unwrapped", env), "initial_state_distrib", 0)
    if np.ndim(initial) == 0:
        return initial
    start = np.asarray(initial, float)
    if start.shape != (n_states,):
        raise ValueError(f"initial has shape {start.shape}; give a state, or a distribution [S] = ({n_states},).")
    return np.append(start, 0.0)


def _name(env: Any) -> str | None:
    """The environment's id."""
    return getattr(getattr(env, "spec", None), "id", None)
