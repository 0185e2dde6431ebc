"""CPD-OPPO with a learnt cap: no rho, no T, no Slater policy. This project's own algorithm, not peer-reviewed.

`cpd_oppo` needs rho only to choose a cap above an optimal multiplier. Here the cap starts at kappa_0 and is doubled
when the optimistic violation of a phase exceeds what a sufficient cap would allow. Each phase restarts the exponential
weights and keeps the counts. One more truncated value function per episode than `cpd_oppo`: O((2+m) L S^2 A).
Guarantee ("theory"): with Lambda the least sup-norm of an optimal dual solution, finite for every feasible CMDP,
violation O~((1/kappa_0 + m) sqrt(J) L |X| sqrt(|A| T)) and regret O~((1 + m kappa_0 + m Lambda + Lambda/kappa_0)
sqrt(J) L |X| sqrt(|A| T)), strong metrics, for all T at once, with probability 1 - delta; J <= 1 + ceil(log2(2 Lambda /
kappa_0))^+ phases, and no cap from 2 Lambda on is doubled. See docs/cpd_oppo.md for the theorem and its proof.

    beta = min(1, sqrt(ln(8 t(t+1)|X||A|m/delta) / n)),   n = max(1, N), counts of all phases including episode t
    w = min(2, sqrt(2 (|X_{k+1}| ln 2 + ln(8 t(t+1)|X||A|/delta)) / n)), 0 in the last layer
    Q^r, Q^{g_i}, V^r, V^{g_i}    as in `cpd_oppo`
    b_k = min(L-k, 2 beta + (L-k-1) w + P_hat Bv_{k+1}),   Bv_k = sum_a pi_t b_k,   B_t = Bv_0(x_0)
    lambda_i = kappa_j if V^{g_i}(x_0) > alpha_i else 0
    pi prop. to exp(eta_n sum of the phase's earlier Q),  eta_n = sqrt(8 ln|A| / n) / (L (1 + kappa_j m)), n-th episode
    vtilde(n) = sum over the phase of sum_i [V^{g_i}_t - alpha_i]^+
    Z(n) = 1.5 (1 + kappa_j m) L^2 sqrt(n ln|A| / 2) + (1 + kappa_j m) sum over the phase of B_t        (form B)
    Z(n) = sum_k max_x [max_a sum Q(x,a) - sum <pi, Q>(x)] + (1 + kappa_j m) sum over the phase of B_t  (form R)
    kappa_{j+1} = 2 kappa_j and a new phase after the episode if vtilde(n) > 2 Z(n) / kappa_j

Union bound: N <= t, so t(t+1) >= n(n+1), and sum 1/(n(n+1)) = 1. Two-sided Hoeffding for 1 + m payoffs at |X||A|
pairs fails with probability at most 2(1+m)/(8m) delta <= delta/2; Weissman's L1 bound for the rows with at most
delta/8; the supermartingale of the proof's last step with delta/4. Both forms of Z are covered by the proof with the
rates above; form R also keeps a sufficient cap for any other rates. "tuned" adds rare_width ln(t/n) / n to beta, which
keeps the values optimistic and B_t valid.
On an infeasible CMDP the cap of "theory" would double up to `NO_CEILING`; `simulate` refuses such a CMDP. "tuned" has a
low ceiling, and phases that at least double in length.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cpdpo_jax.common.types import Array, Trajectory
from cpdpo_jax.kernels import dual_max, recentred, softmax_policy, truncated_evaluation
from cpdpo_jax.kernels.loops import unrolled_sum
from cpdpo_jax.kernels.sums import compensated_add
from cpdpo_jax.learners import base, cpd_oppo_evaluation, cpd_oppo_free_analysis, optimistic
from cpdpo_jax.learners.base import Info, Learner, Problem
from cpdpo_jax.learners.cpd_oppo_evaluation import Evaluation
from cpdpo_jax.learners.estimates import Estimates, empty, observe

NO_CEILING = 1e30  # no cap reaches it on a feasible CMDP; on an infeasible one it keeps the state finite


class Hyperparameters(NamedTuple):
    """All [B], traced: sweeping them does not recompile."""

    first_cap: Array  # kappa_0
    largest_cap: Array  # the cap stays at or below it
    rate_scale: Array  # multiplies eta_n
    rate_delay: Array  # added to n in eta_n: early episodes of a phase explore more
    bound_scale: Array  # multiplies Z(n); small values double the cap early
    realised: Array  # 1: form R of Z(n), from the realised regret of the exponential weights; 0: form B
    guarded: Array  # 1: a phase lasts at least as long as all earlier phases together
    transition_confidence: Array  # multiplies the logarithms in w
    payoff_confidence: Array  # multiplies the logarithm in beta
    rare_width: Array  # times ln(t/n) / n, added to beta: wide only where a pair is visited rarely

    @property
    def anytime(self) -> bool:
        """The widths use t(t+1) in place of T (read by `evaluate`)."""
        return True


class Phase(NamedTuple):
    """The part of the state that is reset to zero when the cap is doubled."""

    length: jax.Array  # [B] int32, n
    advantage: jax.Array  # [L,S,A,B] sum of Q, shifted so that the maximum over allowed actions is 0
    regret: jax.Array  # [L,S,B] max_a sum Q(x,a) - sum <pi, Q>(x)
    sums: jax.Array  # [2,B] vtilde(n) and the sum of B_t
    carry: jax.Array  # [2,B] rounding error of the sums


class State(NamedTuple):
    """The learner's state."""

    estimates: Estimates
    phase: Phase
    cap: jax.Array  # [B] kappa_j
    phases: jax.Array  # [B] int32, begun so far; reported as `epochs`
    before: jax.Array  # [B] int32, episodes before the phase
    allowance: jax.Array  # [B] `bound_scale` Z(n) after the last episode, of the phase that this belonged to


def hyperparameters(problem: Problem, preset: str = "tuned") -> Hyperparameters:
    """The constants of the proof ("theory"), or these rescaled by `experiments/tuning` ("tuned").

    Deviation: tuned. The rate and the test for a new phase differ from the proof's, and the widths have another term,
    rare_width ln(t/n) / n. Without it, pairs of the optimal policy with 1 to 100 visits and unlucky payoffs are never
    played again (`experiments/tuning`).
    """
    ones = np.ones_like(problem.delta)
    theory = Hyperparameters(
        first_cap=ones,
        largest_cap=NO_CEILING * ones,
        rate_scale=ones,
        rate_delay=0 * ones,
        bound_scale=ones,
        realised=0 * ones,
        guarded=0 * ones,
        transition_confidence=ones,
        payoff_confidence=ones,
        rare_width=0 * ones,
    )
    if preset == "theory":
        return theory
    return theory._replace(
        first_cap=3 * ones,
        largest_cap=1024 * ones,
        rate_scale=8 * ones,
        rate_delay=1e4 * ones,
        bound_scale=0.31 * ones,
        realised=ones,
        guarded=ones,
        transition_confidence=1e-5 * ones,
        payoff_confidence=2e-4 * ones,
        rare_width=0.3 * ones,
    )


def init(problem: Problem, hyper: Hyperparameters) -> State:
    """The start of the first phase."""
    advantage = jnp.zeros(problem.action_mask.shape, problem.threshold.dtype)
    none = jnp.zeros(problem.threshold.shape[1:], jnp.int32)
    cap = jnp.broadcast_to(hyper.first_cap, none.shape).astype(advantage.dtype)
    sums = jnp.zeros((2, *none.shape), cap.dtype)
    phase = Phase(length=none, advantage=advantage, regret=advantage[:, :, 0], sums=sums, carry=sums)
    zero = jnp.zeros_like(cap)
    return State(empty(problem, as_sampled=True), phase=phase, cap=cap, phases=none + 1, before=none, allowance=zero)


def policy(problem: Problem, hyper: Hyperparameters, state: State) -> jax.Array:
    """pi(a|x) prop. to exp(eta_n sum of the phase's earlier Q(x,a)), [L,S,A,B]."""
    n_layers, n_constraints = problem.action_mask.shape[0], problem.threshold.shape[0]
    n = (state.phase.length + 1).astype(state.cap.dtype) + hyper.rate_delay
    root = jnp.sqrt(8 * jnp.log(problem.n_actions) / n)
    eta = hyper.rate_scale * root / (n_layers * (1 + n_constraints * state.cap))
    return softmax_policy(eta * state.phase.advantage, problem.action_mask)


def update(
    problem: Problem, hyper: Hyperparameters, state: State, policy: jax.Array, trajectory: Trajectory
) -> tuple[State, Info]:
    """Count the episode, evaluate its policy, dual max, exponential weights; then decide whether the phase ends."""
    estimates = observe(state.estimates, trajectory)
    evaluation = evaluate(problem, hyper, estimates, policy)
    multipliers = dual_max(evaluation.values[1:], problem.threshold, state.cap)
    q = optimistic.lagrangian(evaluation.action_values, multipliers)

    old, excess = state.phase, jnp.maximum(evaluation.values[1:] - problem.threshold, 0)
    violation = unrolled_sum(len(excess), lambda i: excess[i])
    terms = jnp.stack([violation, value_width(estimates, evaluation, policy)])
    sums, carry = compensated_add(old.sums, old.carry, terms)
    advantage = old.advantage + q
    phase = Phase(
        length=old.length + 1,
        advantage=recentred(advantage, problem.action_mask),
        regret=old.regret + _best(advantage, problem.action_mask) - _average(policy, q),
        sums=sums,
        carry=carry,
    )

    allowed = allowance(problem, hyper, phase, state.cap)
    exceeds = sums[0] * state.cap > 2 * allowed
    long_enough = (hyper.guarded == 0) | (phase.length >= state.before)
    doubles = exceeds & long_enough & (state.cap < hyper.largest_cap)
    after = State(
        estimates=estimates,
        phase=jax.tree.map(lambda array: jnp.where(doubles, jnp.zeros_like(array), array), phase),
        cap=jnp.where(doubles, jnp.minimum(2 * state.cap, hyper.largest_cap), state.cap),
        phases=state.phases + doubles.astype(jnp.int32),
        before=jnp.where(doubles, state.before + phase.length, state.before),
        allowance=allowed,
    )
    return after, Info(multipliers, state.phases)


def evaluate(problem: Problem, hyper: Hyperparameters, estimates: Estimates, policy: jax.Array) -> Evaluation:
    """`cpd_oppo_evaluation.evaluate` with beta + rare_width ln(t/n) / n in place of beta."""
    n = jnp.maximum(estimates.visits, 1).astype(policy.dtype)
    t = unrolled_sum(policy.shape[2], lambda a: estimates.visits[0, 0, a]).astype(policy.dtype)
    extra = hyper.rare_width * jnp.log(jnp.maximum(t / n, 1))
    shift = jnp.stack([extra, *[-extra] * len(problem.threshold)])  # of the sums: n times that of the means
    shifted = estimates._replace(payoff_sum=estimates.payoff_sum + shift)
    evaluation = cpd_oppo_evaluation.evaluate(problem, hyper, shifted, policy)
    return evaluation._replace(payoff_width=jnp.minimum(1, evaluation.payoff_width + extra / n))


def value_width(estimates: Estimates, evaluation: Evaluation, policy: jax.Array) -> jax.Array:
    """B_t, [B]: bounds the distance of optimistic and true values of x_0 if the confidence widths hold."""
    layers = jnp.arange(len(policy), 0, -1, dtype=policy.dtype).reshape(-1, *(1,) * (policy.ndim - 1))  # L - k
    widths = (2 * evaluation.payoff_width + (layers - 1) * evaluation.transition_width)[None]
    visits = jnp.maximum(estimates.visits, 1).astype(policy.dtype)
    return truncated_evaluation(estimates.transitions, visits, policy, widths, optimistic.steps_to_go(widths))[1][0]


def allowance(problem: Problem, hyper: Hyperparameters, phase: Phase, cap: jax.Array) -> jax.Array:
    """`bound_scale` Z(n), [B]: the bound on the sum of x_t + e_t over the phase."""
    n_layers = len(phase.regret)
    span = 1 + cap * problem.threshold.shape[0]
    bound = 1.5 * span * n_layers**2 * jnp.sqrt(phase.length.astype(cap.dtype) * jnp.log(problem.n_actions) / 2)
    real = problem.action_mask.any(axis=2)
    worst = jnp.where(real, phase.regret, -jnp.inf).max(axis=1)  # [L,B]
    realised = unrolled_sum(n_layers, lambda k: worst[k])
    primal = jnp.where(hyper.realised > 0, realised, bound)
    return hyper.bound_scale * (primal + span * phase.sums[1])


def _best(advantage: jax.Array, action_mask: jax.Array) -> jax.Array:
    """The largest allowed entry of each state, 0 at padding: [L,S,A,B] -> [L,S,B]."""
    best = jnp.where(action_mask, advantage, -jnp.inf).max(axis=2)
    return jnp.where(action_mask.any(axis=2), best, 0)


def _average(policy: jax.Array, q: jax.Array) -> jax.Array:
    """sum_a pi(a|x) Q(x,a), [L,S,A,B] -> [L,S,B]."""
    return unrolled_sum(policy.shape[2], lambda a: policy[:, :, a] * q[:, :, a])


LEARNER = base.register(
    Learner(
        name="cpd_oppo_free",
        hyperparameters=hyperparameters,
        init=init,
        policy=policy,
        update=update,
        analysis=cpd_oppo_free_analysis.analysis(evaluate, value_width),
    )
)
