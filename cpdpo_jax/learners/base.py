"""What a learner is, what it may know, and the registry of learners by name."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cpdpo_jax.common import plugins
from cpdpo_jax.common.types import CMDP, Array
from cpdpo_jax.common.words import did_you_mean
from cpdpo_jax.kernels.accelerator import together
from cpdpo_jax.kernels.target import for_accelerator

PRESETS = ("tuned", "theory")
SAFE_POLICY = "a safe policy and its costs"  # what a learner may declare as its `extra_knowledge`


class SafePolicy(NamedTuple):
    """Extra knowledge, for learners that declare it: a strictly safe policy pi_b and what it costs in truth."""

    policy: Array  # [L,S,A,B] pi_b, a distribution at every real state
    cost: Array  # [M,B] C_b = V^{pi_b}(g_i), below the thresholds


class Problem(NamedTuple):
    """All that a learner knows beforehand (Section 3.3): sizes, masks, thresholds, T, delta, rho. Never the model.

    `safe` is more than that, and only there for a learner that declares it (`Learner.extra_knowledge`).
    """

    action_mask: Array  # [L,S,A,B] bool
    threshold: Array  # [M,B]
    n_states: Array  # [B] |X|, real states with x_0 and x_L
    n_actions: Array  # [B] |A|, the largest number of allowed actions
    episodes: Array  # [B] T
    delta: Array  # [B] confidence
    slater_margin: Array  # [B] rho as the learner believes it
    safe: SafePolicy | None = None


class Info(NamedTuple):
    """What a learner shows of itself after an update."""

    multipliers: Array  # [M,B] lambda_t
    epochs: Array  # [B] int32, confidence sets used so far, or LPs solved
    infeasible: Array = None  # [B] int32: LPs so far that no policy satisfied; episodes so far that pi_b was played in


class Watched(NamedTuple):
    """One episode and what no learner knows: all that the analysis of a learner is checked with."""

    problem: Problem
    hyper: Any
    before: Any  # the learner's state when it played
    after: Any  # and after its update
    policy: Array  # [L,S,A,B] pi_t
    info: Info
    gaps: Array  # [1+M,B] OPT - V(r), then V(g_i) - alpha_i, of pi_t
    transition: Array  # [L-1,S,A,S,B or 1] the true P
    payoff: Array  # [1+M,L,S,A,B or 1] the true mean reward, then costs
    optimum: Array  # [B] OPT
    slater_margin: Array  # [B] the true rho, whatever the learner believes
    optimal_policy: Array  # [L,S,A,B] pi*
    optimal_reach: Array  # [L,S,B] the probability of every state under pi*
    optimal_cost: Array  # [M,B] V(g_i) of pi*


@dataclass(frozen=True)
class Analysis:
    """What the proof of a learner relies on, checked in every episode of a watched run (`simulate(monitor=True)`).

    observe(watched) -> (slack [events,B]: by how much each event or inequality held, negative: it failed;
                         terms [sums,B]: what is added up over the episodes)
    bounds(problem, hyper, n_constraints, t) -> [sums, instances]: what the theory allows the sums at episode t (or NaN)
    order_terms(problem, n_constraints) -> (regret, violation) [instances], the theorems' orders with constant 1
    """

    events: tuple[str, ...]
    sums: tuple[str, ...]
    observe: Callable[[Watched], tuple[jax.Array, jax.Array]]
    bounds: Callable[[Problem, Any, int, float], Any]
    order_terms: Callable[[Problem, int], tuple[Any, Any]]


@dataclass(frozen=True)
class Learner:
    """A learner: four pure functions over lanes (the trailing axis B). See `register` for an example.

    hyperparameters(problem, preset) -> NamedTuple of [B] arrays, on the host in float64
    init(problem, hyper) -> state, any pytree of arrays whose last axis is B
    policy(problem, hyper, state) -> [L,S,A,B], a distribution over the allowed actions of each real state
    update(problem, hyper, state, policy, trajectory) -> (state, Info)

    One with `compiled` False runs on the host: the last three are handed float64 NumPy arrays of one lane, without B.
    One with `randomness` True gets a key of each lane's own as one more, last argument of `init` and of `update`,
    [2,B] uint32, another one in every episode: `kernels.uniforms(key, 0, shape)` draws [*shape,B] numbers from it.
    `check` tries all of this out.
    """

    name: str
    hyperparameters: Callable[[Problem, str], Any]
    init: Callable[..., Any]
    policy: Callable[[Problem, Any, Any], Array]
    update: Callable[..., tuple[Any, Info]]
    needs_slater: bool = False  # refuses an instance without a strictly feasible policy
    plays: str | None = None  # a yardstick, not a learner: the policy of the exact `Solution` that it plays
    analysis: Analysis | None = None  # what its proof relies on, for a run that is watched
    compiled: bool = True  # False: calls a solver, is not compiled, and runs on the host
    most_constraints: int | None = None  # `hyperparameters` refuses an instance with more
    extra_knowledge: str | None = None  # beyond the paper's: `SAFE_POLICY`; shown wherever its results are
    randomness: bool = False  # draws for itself: `init` and `update` get a key


class NoHyperparameters(NamedTuple):
    """For learners that have nothing to set."""


def make_problem(cmdp: CMDP, *, episodes: int, delta: float, slater_margin: Array) -> Problem:
    """The learner's side of a batch of instances, float64 on the host, one entry per instance on the last axis."""
    n = cmdp.batch_shape[0]
    return Problem(
        action_mask=np.asarray(cmdp.action_mask),
        threshold=np.asarray(cmdp.threshold, float),
        n_states=np.asarray(cmdp.real_states, float),
        n_actions=np.asarray(cmdp.real_actions, float),
        episodes=np.full(n, float(episodes)),
        delta=np.full(n, float(delta)),
        slater_margin=np.broadcast_to(np.asarray(slater_margin, float), (n,)),
    )


def uniform_policy(action_mask: jax.Array, dtype) -> jax.Array:
    """The uniform distribution over the allowed actions, 0 at padding: [L,S,A,*B] bool -> [L,S,A,*B]."""
    allowed = action_mask.astype(dtype)
    return allowed / jnp.maximum(allowed.sum(axis=2, keepdims=True), 1)


def softmax_policy(
    log_weights: jax.Array, action_mask: jax.Array, exp: Callable[[jax.Array], jax.Array] = jnp.exp
) -> jax.Array:
    """pi(a|x) proportional to exp(w(x,a)) over the allowed actions; the largest allowed w must be 0. [L,S,A,*B].

    exp: for weights that are part of a state `exponential` is faster on a CPU; others would be written down for it.
    """
    weights = jnp.where(action_mask, exp(log_weights), 0)
    total = weights[:, :, 0]
    for a in range(1, weights.shape[2]):
        total = total + weights[:, :, a]
    return weights / jnp.maximum(total, 1)[:, :, None]  # total >= 1 at a real state, 0 at a padded one


def recentred(log_weights: jax.Array, action_mask: jax.Array) -> jax.Array:
    """Shift the weights per state so that the largest allowed one is 0; masked ones become 0. [L,S,A,*B].

    Float32 drifts else: the bonus is common to all actions of a state and would swallow their differences.
    """
    if for_accelerator():  # else made three times, of old weights that are copied for it
        log_weights = together(log_weights)
    allowed = jnp.where(action_mask, log_weights, -jnp.inf)
    largest = allowed[:, :, 0]
    for a in range(1, log_weights.shape[2]):
        largest = jnp.maximum(largest, allowed[:, :, a])
    return jnp.where(action_mask, log_weights - largest[:, :, None], 0)


_REGISTRY: dict[str, Learner] = {}


def register(learner: Learner) -> Learner:
    """Make a learner known by its name to `simulate` and the command line; returns it."""
    if not isinstance(learner, Learner):
        raise ValueError(f"learner is a {type(learner).__name__}; give a Learner.")
    if learner.name in _REGISTRY and _REGISTRY[learner.name] is not learner:
        raise ValueError(f"a learner named {learner.name!r} is registered already; choose another name.")
    if learner.extra_knowledge not in (None, SAFE_POLICY):
        raise ValueError(
            f"learner {learner.name!r} declares extra_knowledge = {learner.extra_knowledge!r}, which nobody can hand "
            f"to it; declare {SAFE_POLICY!r}, or None."
        )
    _REGISTRY[learner.name] = learner
    return learner


def unregister(name: str) -> None:
    """Forget a learner, so that another can have its name."""
    if _REGISTRY.pop(name, None) is not None:
        plugins.forget_names()


def registered() -> frozenset[str]:
    """The names of the learners that `register` was given."""
    return frozenset(_REGISTRY)


def names() -> list[str]:
    """The names of all registered learners, those of installed packages too."""
    return sorted({*_REGISTRY, *_installed()})


def get(learner: str | Learner) -> Learner:
    """The learner of that name, or the learner itself."""
    if isinstance(learner, Learner):
        return learner
    if learner in _REGISTRY:
        return _REGISTRY[learner]
    if learner in _installed():
        return _installed()[learner].content
    hint = did_you_mean(str(learner), names(), cutoff=0.4, show=repr) or f"the known ones are {', '.join(names())}."
    raise ValueError(f"there is no learner named {learner!r}; {hint}")


def source(name: str) -> str | None:
    """The installed package (and its version) that a learner comes from; None: our own, or registered here."""
    return None if name in _REGISTRY or name not in _installed() else _installed()[name].source


@functools.cache
def _installed() -> dict[str, plugins.Plugin]:
    """Learners that other packages bring along under the entry point `cpdpo_jax.learners`, by their names."""
    found = {}
    for plugin in plugins.installed("cpdpo_jax.learners"):
        if isinstance(plugin.content, Learner):
            found[plugin.content.name] = plugin
        else:
            what = type(plugin.content).__name__
            warnings.warn(
                f"{plugin.name!r} of {plugin.source} is left out: it is no Learner but a {what}", stacklevel=2
            )
    return found
