"""The update of the UOpt-RPGPD authors' notebook, reimplemented for a comparison with `uopt_rpgpd`.

The notebook knows rewards and utilities, so each instance has its own learner, which knows them; only transitions
are learnt. In its form (utility u = 1 - g, V^u >= L - alpha), episode t = 0, 1, ..., pi_0 uniform, lambda_0 = 0:

    n counts the episode;  P_hat = its frequencies, uniform where nothing was seen;  phi^2 = psi(n) / max(1, n)
    bonus = 0.001 (phi sum_y sqrt(P_hat(y)) + 5 phi^2),  psi(n) = 2 ln ln max(2n, e) + 2 ln(48 S^2 A L / delta)
    Q^r_h = min((1 + tau ln A)(L - h), r + bonus + P_hat V^r),   V^r = sum_a pi (Q^r + tau entr(pi)),  entr(p) = -p ln p
    Q^u_h = min(L - h, u + bonus + P_hat V^u),                   V^u = sum_a pi Q^u
    pi <- prop. to pi^(1 - eta tau) exp(eta (Q^r + lambda Q^u)),   eta = (t+3)^-0.53,  tau = (t+3)^-0.4
    lambda <- [lambda + eta (L - alpha - V^u(x_0) - tau lambda)]_+,  V^u(x_0) with the new pi and the old Q^u

Its horizon has a step after the last action, of which it learns the transition (here to a uniform state); the value
after that is tau entr(pi) of the last step's policy. Two flags turn this program into the package's learner: with
`bounds_if_unseen` a pair never seen has its ceiling, as in `uopt_rpgpd`; `as_defined` counts the entropy once, drops
the step after the last, takes the dual step with the old pi, and has |X| for S.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import cpdpo_jax as cp
from cpdpo_jax.common.types import Array, Trajectory
from cpdpo_jax.kernels import uniforms
from cpdpo_jax.learners import Info, Learner, Problem

SCALE = 1e-3  # of the bonus


class Hyperparameters(NamedTuple):
    """Both 0: the notebook."""

    bounds_if_unseen: Array
    as_defined: Array


class State(NamedTuple):
    """Before an episode."""

    counts: jax.Array  # [L,S,A,S,B] int32, with the step after the last
    log_weights: jax.Array  # [L,S,A,B] ln pi + a constant per state
    multiplier: jax.Array  # [B]
    episode: jax.Array  # [B] int32, t


def hyperparameters(problem: Problem, preset: str = "tuned") -> Hyperparameters:
    """The notebook's, in both presets."""
    zero = np.zeros_like(problem.episodes)
    return Hyperparameters(zero, zero)


def init(problem: Problem, hyper: Hyperparameters, key: jax.Array) -> State:
    """Nothing seen."""
    shape, none = problem.action_mask.shape, jnp.zeros(problem.threshold.shape[1:], jnp.int32)
    weights = jnp.zeros(shape, problem.threshold.dtype)
    counts = jnp.zeros((*shape[:3], shape[1], *shape[3:]), jnp.int32)
    return State(counts, weights, none.astype(weights.dtype), none)


def policy(problem: Problem, hyper: Hyperparameters, state: State) -> jax.Array:
    """Softmax; all actions are allowed in every real state."""
    return jnp.where(problem.action_mask, jax.nn.softmax(state.log_weights, axis=2), 0)


def step(
    payoffs: np.ndarray, slack: float, union: jax.Array, hyper: Any, state: State, pi: jax.Array, path: Any, last: Any
) -> State:
    """One episode of one lane: payoffs [2,L,S,A] (reward, utility), slack = L - alpha, path = states and actions."""
    n_layers, n_states, n_actions = pi.shape
    defined, dtype = hyper.as_defined > 0, pi.dtype
    arrivals = jnp.append(path[0][1:], last)
    counts = state.counts.at[jnp.arange(n_layers), path[0], path[1], arrivals].add(1)
    n = counts.sum(axis=3)
    visits = jnp.maximum(n, 1).astype(dtype)
    rows = jnp.where(n[..., None] > 0, counts.astype(dtype) / visits[..., None], 1 / n_states)
    per_visit = (2 * jnp.log(jnp.log(jnp.maximum(2 * visits, np.e))) + 2 * jnp.log(union)) / visits
    bonus = SCALE * (jnp.sqrt(rows).sum(axis=3) * jnp.sqrt(per_visit) + 5 * per_visit)
    bonus = bonus.at[-1].multiply(jnp.where(defined, 0, 1).astype(dtype))
    unseen = (n == 0) & (hyper.bounds_if_unseen > 0)
    log_pi = jax.nn.log_softmax(state.log_weights, axis=2)
    surprise = jnp.where(defined, -log_pi, -pi * log_pi)
    time = (state.episode + 3).astype(dtype)
    eta, tau = time**-0.53, time**-0.4

    def evaluate(payoff: np.ndarray, entropy: jax.Array | float, ceiling: jax.Array | float) -> jax.Array:
        found: list[jax.Array] = []
        for h in reversed(range(n_layers)):
            after = min(h + 1, n_layers - 1)  # the index is clamped
            ahead = (pi[after] * ((found[-1] if found else 0) + entropy * surprise[after])).sum(axis=1)
            ahead = ahead if found else jnp.where(defined, 0, ahead)
            q = jnp.minimum(jnp.asarray(payoff[h], dtype) + bonus[h] + rows[h] @ ahead, ceiling * (n_layers - h))
            found.append(jnp.where(unseen[h], ceiling * (n_layers - h), q))
        return jnp.stack(found[::-1])

    reward = evaluate(payoffs[0], tau, 1 + tau * float(np.log(n_actions)))
    utility = evaluate(payoffs[1], 0.0, 1.0)
    weights = (1 - eta * tau) * log_pi + eta * (reward + state.multiplier * utility)
    used = jnp.where(defined, pi[0, 0], jax.nn.softmax(weights[0, 0]))
    ascent = slack - (used * utility[0, 0]).sum() - tau * state.multiplier
    return State(counts, weights, jnp.maximum(state.multiplier + eta * ascent, 0), state.episode + 1)


def learner(name: str, environment: dict[str, Any]) -> Learner:
    """The notebook's update with the rewards and utilities of that instance."""

    def update(
        problem: Problem, hyper: Hyperparameters, state: State, pi: jax.Array, trajectory: Trajectory, key: jax.Array
    ) -> tuple[State, Info]:
        cmdp = cp.envs.make(environment["name"], **{of: x for of, x in environment.items() if of != "name"})
        payoffs, n_layers = np.stack([cmdp.reward, 1 - np.asarray(cmdp.cost[0])]), cmdp.n_layers
        states = jnp.where(hyper.as_defined > 0, problem.n_states, cmdp.n_states)
        union = 48 * states**2 * problem.n_actions * n_layers / problem.delta
        last = (uniforms(key, 0, (1,))[0] * cmdp.n_states).astype(jnp.int32)
        one = partial(step, payoffs, n_layers - float(cmdp.threshold[0]))
        lanes = (union, hyper, state, pi, (trajectory.state, trajectory.action), last)
        after = jax.vmap(one, in_axes=-1, out_axes=-1)(*lanes)
        return after, Info(state.multiplier[None], jnp.zeros_like(state.episode))

    return Learner(name=name, hyperparameters=hyperparameters, init=init, policy=policy, update=update, randomness=True)
