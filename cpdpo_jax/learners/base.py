"""What a learner is, what it may know, and the registry of learners by name."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np

from cpdpo_jax.common import plugins
from cpdpo_jax.common.text import did_you_mean, shown
from cpdpo_jax.common.types import CMDP, Array
from cpdpo_jax.kernels.softmax import recentred as recentred
from cpdpo_jax.kernels.softmax import softmax_policy as softmax_policy
from cpdpo_jax.kernels.softmax import uniform_policy as uniform_policy

PRESETS = ("tuned", "theory")  # every learner has hyperparameters for both
SAFE_POLICY = "a safe policy and its costs"  # the extra knowledge that a learner may declare


class SafePolicy(NamedTuple):
    """Extra knowledge, for learners that declare it: a strictly safe policy pi_b and its true costs."""

    policy: Array  # [L,S,A,B] pi_b, a distribution at every real state
    cost: Array  # [M,B] C_b = V^{pi_b}(g_i), below the thresholds


@jax.tree_util.register_static
@dataclass(frozen=True)
class Payoffs:
    """Static facts about the sampled payoffs, known when a program is traced."""

    exact_sums: bool = False  # all payoffs are 0 or 1, and the run is short enough to count them exactly in float32


class Problem(NamedTuple):
    """Everything a learner knows beforehand (Section 3.3): sizes, masks, thresholds, T, delta, rho. Never the model.

    Only learners that declare it (`Learner.extra_knowledge`) also receive `safe`.
    """

    action_mask: Array  # [L,S,A,B] bool
    threshold: Array  # [M,B]
    n_states: Array  # [B] |X|, real states with x_0 and x_L
    n_actions: Array  # [B] |A|, the largest number of allowed actions
    episodes: Array  # [B] T
    delta: Array  # [B] confidence
    slater_margin: Array  # [B] rho as the learner believes it
    safe: SafePolicy | None = None  # the safe policy; None unless the learner declares it
    payoffs: Payoffs = Payoffs()  # static facts about the sampled payoffs


class Info(NamedTuple):
    """What a learner reports after an update."""

    multipliers: Array  # [M,B] lambda_t
    epochs: Array  # [B] int32, confidence sets used so far, or LPs solved
    infeasible: Array = (
        None  # [B] int32: LPs so far without a feasible policy, or episodes so far in which pi_b was played
    )


class Watched(NamedTuple):
    """One episode with the true model: the input of `Analysis.observe`. No learner sees it."""

    problem: Problem  # the knowledge of the learner
    hyper: Any  # its hyperparameters
    before: Any  # the learner's state before its update
    after: Any  # the learner's state after its update
    policy: Array  # [L,S,A,B] pi_t
    info: Info  # of the update after the episode
    gaps: Array  # [1+M,B] OPT - V(r), then V(g_i) - alpha_i, of pi_t
    transition: Array  # [L-1,S,A,S,B or 1] the true P
    payoff: Array  # [1+M,L,S,A,B or 1] the true mean reward, then costs
    optimum: Array  # [B] OPT
    slater_margin: Array  # [B] the true rho; the learner may believe another
    optimal_policy: Array  # [L,S,A,B] pi*
    optimal_reach: Array  # [L,S,B] the probability of every state under pi*
    optimal_cost: Array  # [M,B] V(g_i) of pi*
    multiplier_norm: Array  # [B] the least ||lambda||_inf of an optimal dual solution
    sums: Array  # [sums,B] the sums of the analysis over earlier episodes


@dataclass(frozen=True)
class Analysis:
    """The events and inequalities of a learner's proof, checked in every episode by `simulate(monitor=True)`.

    observe(watched) -> (slack [events,B]: the slack of each event or inequality; negative: it failed;
                         terms [sums,B]: quantities to be summed over episodes)
    bounds(problem, hyper, n_constraints, t) -> [sums, instances]: the theory's bounds on the sums at episode t (or NaN)
    order_terms(problem, n_constraints, multiplier_norm) -> (regret, violation) [instances], the theorems' orders with
                         constant 1; the last argument is `Watched.multiplier_norm`
    """

    events: tuple[str, ...]  # names of the events and inequalities
    sums: tuple[str, ...]  # names of the quantities that are summed
    observe: Callable[[Watched], tuple[jax.Array, jax.Array]]  # the slacks and the terms of one episode
    bounds: Callable[[Problem, Any, int, float], Any]  # the theory's bounds on the sums
    order_terms: Callable[[Problem, int, Any], tuple[Any, Any]]  # the theorems' orders, for regret and violation


@dataclass(frozen=True)
class Learner:
    """A learner: four pure functions over lanes (the trailing axis B). See docs/own_learner.md for an example.

    hyperparameters(problem, preset) -> NamedTuple of [B] arrays, on the host in float64
    init(problem, hyper) -> state, any pytree of arrays whose last axis is B
    policy(problem, hyper, state) -> [L,S,A,B], a distribution over the allowed actions of each real state
    update(problem, hyper, state, policy, trajectory) -> (state, Info)

    With `compiled=False` a learner runs on the host: the last three functions receive float64 NumPy arrays of one lane,
    without B. With `randomness=True`, `init` and `update` receive a last argument `key`, [2,B] uint32, which differs
    between lanes and episodes: `kernels.uniforms(key, 0, shape)` draws [*shape,B] numbers from it. A host learner that
    draws a policy for each episode declares the distribution as `mixture`: (problem, hyper, state) -> (weights [K],
    policies [K,L,S,A]). The metrics are then sum_k weights_k V(policies_k). `check` tests all of this.
    """

    name: str  # unique in the registry
    hyperparameters: Callable[[Problem, str], Any]  # (problem, preset) -> NamedTuple
    init: Callable[..., Any]  # (problem, hyper) -> the first state
    policy: Callable[[Problem, Any, Any], Array]  # (problem, hyper, state) -> pi_t
    update: Callable[..., tuple[Any, Info]]  # (problem, hyper, state, policy, trajectory) -> (state, Info)
    needs_slater: bool = False  # refuses an instance without a strictly feasible policy
    plays: str | None = (
        None  # a reference, not a learner: the field of the exact `Solution` with the policy that it plays
    )
    analysis: Analysis | None = None  # the events of its proof, for monitored runs
    compiled: bool = True  # False: calls a solver, is not compiled, and runs on the host
    most_constraints: int | None = None  # it refuses instances with more constraints
    extra_knowledge: str | None = None  # `SAFE_POLICY` or None; shown with its results
    randomness: bool = False  # `init` and `update` receive a key
    mixture: Callable[[Problem, Any, Any], tuple[Array, Array]] | None = (
        None  # the distribution of the policy that it plays
    )

    def __post_init__(self) -> None:
        if self.mixture is not None and self.compiled:
            raise ValueError(
                f"learner {self.name!r} declares a mixture but compiled is True; set compiled=False: only the host "
                "loop evaluates mixtures."
            )


class NoHyperparameters(NamedTuple):
    """For learners without hyperparameters."""


def make_problem(cmdp: CMDP, *, episodes: int, delta: float, slater_margin: Array) -> Problem:
    """The `Problem` of a batch of instances: float64 on the host, instances on the last axis."""
    n = cmdp.batch_shape[0]
    return Problem(
        action_mask=np.asarray(cmdp.action_mask),
        threshold=np.asarray(cmdp.threshold, float),
        n_states=np.asarray(cmdp.real_states, float),
        n_actions=np.asarray(cmdp.real_actions, float),
        episodes=np.full(n, float(episodes)),
        delta=np.full(n, float(delta)),
        slater_margin=np.broadcast_to(np.asarray(slater_margin, float), (n,)),
        payoffs=Payoffs(exact_sums=cmdp.noise == "bernoulli" and episodes <= 2**24),
    )


_REGISTRY: dict[str, Learner] = {}


def register(learner: Learner) -> Learner:
    """Register a learner under its name, for `simulate` and the command line. Returns the learner.

        mine = cp.learners.register(dataclasses.replace(cp.learners.get("uniform"), name="mine", init=my_init))
        cp.simulate(["mine", "cpdpo"], "factored", episodes=1000, seeds=8)

    "Your own learner" in the documentation has a complete learner.
    """
    if not isinstance(learner, Learner):
        raise ValueError(f"learner is a {type(learner).__name__}; give a Learner.")
    if learner.name in _REGISTRY and _REGISTRY[learner.name] is not learner:
        raise ValueError(f"a learner named {learner.name!r} is registered already; choose another name.")
    if learner.extra_knowledge not in (None, SAFE_POLICY):
        raise ValueError(
            f"learner {learner.name!r} declares extra_knowledge = {learner.extra_knowledge!r}, which is not "
            f"available; declare {SAFE_POLICY!r}, or None."
        )
    _REGISTRY[learner.name] = learner
    return learner


def unregister(name: str) -> None:
    """Remove a learner from the registry, so that its name is free again."""
    if _REGISTRY.pop(name, None) is not None:
        plugins.clear_name_caches()


def registered() -> frozenset[str]:
    """The names of the learners passed to `register`."""
    return frozenset(_REGISTRY)


def names() -> list[str]:
    """The names of all registered learners, including those of installed packages."""
    return sorted({*_REGISTRY, *_installed()})


def get(learner: str | Learner) -> Learner:
    """The learner with that name; a `Learner` is returned unchanged."""
    if isinstance(learner, Learner):
        return learner
    if learner in _REGISTRY:
        return _REGISTRY[learner]
    if learner in _installed():
        return _installed()[learner].content
    hint = did_you_mean(str(learner), names()) or f"the known ones are {', '.join(names())}."
    raise ValueError(f"there is no learner named {shown(learner)}; {hint}")


def source(name: str) -> str | None:
    """The installed package and version of a learner; None if it is built in or registered here."""
    return None if name in _REGISTRY or name not in _installed() else _installed()[name].source


@functools.cache
def _installed() -> dict[str, plugins.Plugin]:
    """Learners of other packages under the entry point `cpdpo_jax.learners`, by name."""
    learners = {}
    for plugin in plugins.load_plugins("cpdpo_jax.learners"):
        if isinstance(plugin.content, Learner):
            learners[plugin.content.name] = plugin
        else:
            what = type(plugin.content).__name__
            warnings.warn(f"{plugin.name!r} of {plugin.source} is ignored: it is a {what}, not a Learner", stacklevel=2)
    return learners
