"""A learner against losses that change with the episode: its loss and its regret against the best fixed policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np

from cpdpo_jax.common.types import CMDP
from cpdpo_jax.envs.adversarial import AdaptiveLosses, Losses
from cpdpo_jax.envs.build import unstack
from cpdpo_jax.exact.optimum import solve
from cpdpo_jax.learners.base import Learner, Payoffs
from cpdpo_jax.learners.hparams import HparamsLike
from cpdpo_jax.results.adversarial import AdversarialRun
from cpdpo_jax.simulation.blocks import advance, begin
from cpdpo_jax.simulation.lanes import describe_lane, lane_inputs, pad_block
from cpdpo_jax.simulation.losses import Adversary, NoisyCosts
from cpdpo_jax.simulation.options import Options
from cpdpo_jax.simulation.plan import prepare
from cpdpo_jax.simulation.policy_check import raise_if_improper
from cpdpo_jax.simulation.workers import use_compilation_cache


def play_losses(
    learner: str | Learner,
    cmdp: CMDP,
    losses: Losses | AdaptiveLosses,
    *,
    seeds: int | Sequence[int],
    hparams: HparamsLike = "tuned",
    constraints: bool = False,
    noisy_costs: bool = False,
    key: int = 0,
    checkpoints: int | str | Sequence[int] = 50,
) -> AdversarialRun:
    """Run a learner for T = losses.episodes episodes against losses, such as `envs.switching(cmdp, episodes=T)`.

    learner      a name or a `Learner`
    cmdp         one instance; its transitions are used, and its rewards are replaced by 1 - loss
    losses       `envs.switching`, `drifting`, `periodic` or `chasing`, or your own `envs.Losses`
    seeds        how many, or which
    hparams      one choice: "tuned", "theory" or values
    constraints  whether the best fixed policy must meet the constraints of the CMDP; False: it is the best of all
    noisy_costs  whether costs are sampled with the noise of the CMDP; False: they are observed exactly
    key          random seed; all learners have common random numbers
    checkpoints  a number of evenly spaced episodes, "log" (20 per decade), or a list of episodes

    Feedback is bandit feedback: the learner observes losses and costs of the pairs it visits. Losses have no noise;
    with `noisy_costs=True` this is the setting of BV-OPS and S-OPS, adversarial losses and stochastic costs. The losses
    may depend on its earlier policies (`chasing`), so the best fixed policy is the one for the realised losses.
    """
    options = Options(key=key, checkpoints=checkpoints)
    prepared = prepare(learner, cmdp, episodes=losses.episodes, seeds=seeds, hparams=hparams, options=options)
    plan, n_seeds = prepared.learners[0], len(prepared.seeds)
    if plan.cmdp.batch_shape != (1,) or len(plan.hparams) != 1:
        raise ValueError("play_losses takes one instance and one choice of hparams; call it once for each.")
    use_compilation_cache()
    n_layers, points = float(plan.cmdp.n_layers), [int(point) for point in plan.checkpoints]
    # OPT - V(1 - loss) is the expected loss if OPT = L; losses are not 0 or 1, so their sums are not exact
    plan = replace(plan, problems=[plan.problems[0]._replace(payoffs=Payoffs())], optimum=np.full(1, n_layers))
    zeros = np.zeros(n_seeds, int)
    block = pad_block(zeros, zeros, prepared.seeds, n_seeds)
    lanes = lane_inputs(plan, block, plan.phases[0], plan.believed(zeros, zeros))
    environment = NoisyCosts(losses, plan.cmdp.noise) if noisy_costs else losses
    state, loss, violation, tables = begin(plan.learner, environment, lanes), [], [], []
    for first, last in zip([0, *points], points, strict=False):
        state = advance(plan.learner, environment, lanes, state, first, last)
        adversary = cast(Adversary, state.adversary)
        raise_if_improper(state.policy_check, plan.learner.name, lambda b: describe_lane(plan, block, b))
        loss.append(_total(state.sums.weak[0], state.carry.weak[0]))
        violation.append(_total(state.sums.strong[1:], state.carry.strong[1:]).max(axis=0))
        tables.append(_total(adversary.tables, adversary.carry))
    (instance,) = unstack(plan.cmdp)
    best = np.array([[point * least_loss(instance, table[..., b] / point, constraints) for b in range(n_seeds)]
                     for point, table in zip(points, tables, strict=True)])  # fmt: skip
    total = np.stack(loss)
    return AdversarialRun(
        learner=plan.learner.name,
        hparams=plan.hparams[0].label,
        episodes=plan.checkpoints,
        loss=total,
        best=best,
        regret=total - best,
        violation=np.stack(violation),
    )


def _total(compensated: Any, carry: Any) -> np.ndarray:
    return np.asarray(compensated, float) - np.asarray(carry, float)


def least_loss(cmdp: CMDP, mean: np.ndarray, constraints: bool = False) -> float:
    """min of V(mean loss), [L,S,A], over all policies or those that meet the constraints: the certified LP of `solve`.

    The reward of the LP is 1 - loss.
    """
    n_layers = len(mean)
    reward = np.where(cmdp.action_mask, np.clip(1 - mean, 0.0, 1.0), 0.0)
    inactive = np.full(np.shape(cmdp.threshold), float(n_layers))
    threshold = cmdp.threshold if constraints else inactive
    return n_layers - float(solve(replace(cmdp, reward=reward, threshold=threshold)).value)
