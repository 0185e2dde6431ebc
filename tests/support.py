"""CMDPs and runs that several test files share."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import cpdpo_jax as cp
from cpdpo_jax.common import xla_options
from cpdpo_jax.learners import base, optimistic
from cpdpo_jax.learners.base import Learner
from cpdpo_jax.learners.estimates import Estimates
from cpdpo_jax.simulation import compiled_loop, host_loop, knowledge
from cpdpo_jax.simulation.options import Options
from cpdpo_jax.simulation.plan import prepare
from cpdpo_jax.simulation.randomness import update_key
from cpdpo_jax.simulation.rollout import make_model

# XLA's options in tests (see conftest.py), and those that give its defaults back to one program. An unknown flag ends
# the process, so with other versions of jax everything is compiled as for users, and the suite takes longer.
FAST = os.environ.get(xla_options.VARIABLE) != "0" and jax.__version__.startswith("0.10.")
FAST_COMPILE: Any = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_use_fusion_emitters": False,
}
OPTIMISED: Any = {
    "xla_backend_optimization_level": 3,
    "xla_llvm_disable_expensive_passes": False,
    "xla_cpu_use_fusion_emitters": True,
} if FAST else {}  # fmt: skip


def random_cmdp(
    layers: int, states: int, actions: int, constraints: int, seed: int, *, masked: bool = False, **keywords: Any
) -> cp.CMDP:
    """Dirichlet(1) transitions, uniform payoffs, thresholds midway between the least cost and the uniform policy's."""
    rng = np.random.default_rng(seed)
    mask = np.ones((layers, states, actions), bool)
    mask[0, 1:] = False
    if masked:  # a padded state, an action missing at the end and one at the front
        mask[1, states - 1] = False
        mask[2, 0, actions - 1] = False
        mask[2, 1, 0] = False
    transition = (
        rng.dirichlet(np.ones(states), size=(layers - 1, states, actions)) * np.asarray(mask[1:].any(2))[:, None, None]
    )
    transition /= transition.sum(axis=-1, keepdims=True)
    reward, cost = rng.random((layers, states, actions)), rng.random((constraints, layers, states, actions))
    loose = cp.make_cmdp(transition, reward, cost, np.full(constraints, float(layers)), action_mask=mask)
    uniform = mask / np.maximum(mask.sum(axis=2, keepdims=True), 1)
    slater = cp.solve(loose).slater_policy
    from cpdpo_jax.exact.optimum import evaluate

    ends = [evaluate(loose.transition, policy, loose.cost) for policy in (uniform, slater)]
    return cp.make_cmdp(transition, reward, cost, np.mean(ends, axis=0), action_mask=mask, **keywords)


def lanes_for(
    learner: Learner,
    cmdp: cp.CMDP,
    *,
    episodes: int,
    preset: str,
    rho: float,
    dtype: Any,
    n_lanes: int = 1,
    **changed: float,
) -> compiled_loop.LaneInputs:
    """The device arrays of `n_lanes` lanes of one instance, and OPT = 0 (gaps are then -V)."""
    problem = base.make_problem(cp.stack([cmdp]), episodes=episodes, delta=0.05, slater_margin=np.array([rho]))
    if learner.extra_knowledge:
        batch = cp.stack([cmdp])
        problem = knowledge.problem_for(learner, problem, batch, cp.solve(batch), safety=0.5)
    hyper = learner.hyperparameters(problem, preset)
    hyper = hyper._replace(**{name: np.array([value]) for name, value in changed.items()})

    def put(array: Any) -> jax.Array:
        array = np.repeat(np.asarray(array), n_lanes, axis=-1)
        return jnp.asarray(array if array.dtype == bool else array.astype(dtype))

    return compiled_loop.LaneInputs(
        model=make_model(cmdp, None, dtype),
        problem=jax.tree.map(put, problem),
        hyper=jax.tree.map(put, hyper),
        keys=jnp.zeros((2, n_lanes), jnp.uint32),
        optimum=jnp.zeros(n_lanes, dtype),
    )


def replay(
    learner: Learner,
    noise: str,
    lanes: compiled_loop.LaneInputs,
    draws: jax.Array | np.ndarray,
    record: Callable[[Any], Any] = lambda state: None,
) -> tuple[Any, compiled_loop.Episode, Any]:
    """Episodes on given draws [n,L,3+M,B], everything kept: (last state, episodes [n,...], records [n,...]).

    `record` says what to keep of the learner's state after each update.
    """

    def step(state: Any, given: tuple[jax.Array, jax.Array]) -> tuple[Any, tuple[compiled_loop.Episode, Any]]:
        draw, t = given
        state, played = compiled_loop.play_episode(learner, noise, lanes, state, draw, t)
        return state, (played, record(state))

    times = jnp.arange(len(draws), dtype=jnp.int32)
    state, (episodes, records) = jax.lax.scan(
        step, compiled_loop.init_learner(learner, lanes, 0), (jnp.asarray(draws), times)
    )
    return state, episodes, records


def replay_on_host(
    learner: Learner, noise: str, lanes: compiled_loop.LaneInputs, draws: Any
) -> tuple[Any, compiled_loop.Episode]:
    """`replay` for a host learner: (last state [...,B], episodes [n,...,B])."""
    ends, played = [], []
    for b in range(draws.shape[-1]):
        one, episodes = host_loop.select_lane(lanes, b), []
        state = host_loop.init_learner(learner, one, 0)
        for t, draw in enumerate(np.asarray(draws, float)[..., b]):
            policy = learner.policy(one.problem, one.hyper, state)
            trajectory = host_loop.rollout(one.model, policy, draw, noise)
            key = (update_key(one.keys, t),) * learner.randomness
            state, info = learner.update(one.problem, one.hyper, state, policy, trajectory, *key)
            episodes.append(compiled_loop.Episode(policy, trajectory, np.zeros(0), info))  # pyright: ignore[reportArgumentType]
        ends.append(state)
        played.append(jax.tree.map(lambda *leaves: np.stack(leaves), *episodes))
    return tuple(jax.tree.map(lambda *leaves: np.stack(leaves, axis=-1), *each) for each in (ends, played))  # pyright: ignore


def planned(learner: Any, cmdp: Any, *, episodes: int, seeds: int, hparams: Any = "tuned", **options: Any) -> Any:
    """What `simulate` would run, with its options by name."""
    return prepare(learner, cmdp, episodes=episodes, seeds=seeds, hparams=hparams, options=Options.from_values(options))


def statistics_from(estimates: Estimates) -> optimistic.Statistics:
    """`optimistic.Statistics` of counts made elsewhere."""
    return optimistic.Statistics(
        estimates, optimistic.deviation_of(estimates.transitions, estimates.payoff_sum.dtype, axis=3)
    )
