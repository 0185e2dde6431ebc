"""The slack of every event and the sums of every analysis are the formulas of their modules, in plain NumPy.

Every quantity is drawn at random, so that none can stand for another: the learner's state before and after its update,
the true model, the policy and the multipliers.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cpdpo_jax import learners
from cpdpo_jax.learners import cpd_oppo_analysis, cpd_oppo_free_analysis, cpdpo_analysis
from cpdpo_jax.learners.base import Info, Problem, Watched
from cpdpo_jax.learners.estimates import Estimates
from tests.reference import kernels_numpy

L, S, A, M, B = 4, 3, 2, 2, 6


def rows(rng: np.random.Generator, *lead: int) -> np.ndarray:
    """Random distributions over S states, [*lead, S, B]."""
    return np.moveaxis(rng.dirichlet(np.ones(S), size=(*lead, B)), -2, -1)


def counted(rng: np.random.Generator) -> Estimates:
    """Random counts; some pairs were never visited."""
    transitions = rng.integers(0, 6, (L - 1, S, A, S, B)) * (rng.random((L - 1, S, A, 1, B)) < 0.6)
    visits = np.concatenate([transitions.sum(axis=3), rng.integers(0, 9, (1, S, A, B))])
    payoff = rng.random((1 + M, L, S, A, B)) * visits
    return Estimates(visits.astype(np.int32), transitions.astype(np.int32), payoff, None)  # pyright: ignore[reportArgumentType]


def watched(seed: int) -> Watched:
    """A random episode; one action is not allowed, and one state of the last layer is padding."""
    rng = np.random.default_rng(seed)
    mask = np.ones((L, S, A, B), bool)
    mask[0, 1:], mask[1, 1, 1], mask[3, 2] = False, False, False
    policies = [np.moveaxis(rng.dirichlet(np.ones(A), (L, S, B)), -1, 2) * mask for _ in range(2)]
    policies = [policy / np.maximum(policy.sum(axis=2, keepdims=True), 1e-9) for policy in policies]
    transition = rows(rng, L - 1, S, A)
    transition[2, :, :, 2] = 0
    transition = transition / transition.sum(axis=3, keepdims=True) * mask[:-1, :, :, None]
    sets = []
    for _ in range(2):  # before and after the update
        lower = np.maximum(transition - rng.uniform(0, 0.3, transition.shape), 0)
        sets.append(
            SimpleNamespace(lower=lower, upper=np.minimum(transition + rng.uniform(0, 0.3, transition.shape), 1))
        )
    states = [
        SimpleNamespace(
            estimates=counted(rng), primal=SimpleNamespace(epoch=each), cap=rng.uniform(1, 4, B),
            phase=SimpleNamespace(length=rng.integers(0, 2, B)), allowance=rng.uniform(1, 2, B),
        )
        for each in sets
    ]  # fmt: skip
    states[1].cap = states[0].cap * rng.choice([1, 2], B)
    problem = Problem(
        action_mask=mask, threshold=rng.uniform(0.5, 2, (M, B)), n_states=np.full(B, 6.0), n_actions=np.full(B, 2.0),
        episodes=np.full(B, 50.0), delta=np.full(B, 0.05), slater_margin=rng.uniform(0.2, 0.8, B),
    )  # fmt: skip
    return Watched(
        problem=problem,
        hyper=SimpleNamespace(dual_cap=np.array([1.0, 30, 40, 2, 50, 60]), narrow=rng.uniform(0.5, 1, B)),
        before=states[0],
        after=states[1],
        policy=policies[0],
        info=Info(rng.uniform(0, 3, (M, B)), np.ones(B)),
        gaps=rng.normal(0, 0.5, (1 + M, B)),
        transition=transition,
        payoff=rng.random((1 + M, L, S, A, B)),
        optimum=rng.uniform(1, 2, B),
        slater_margin=rng.uniform(0.5, 1, B),
        optimal_policy=policies[1],
        optimal_reach=rng.random((L, S, B)),
        optimal_cost=rng.uniform(0, 2, (M, B)),
        multiplier_norm=rng.uniform(0.5, 5, B),
        sums=rng.normal(0, 20, (3, B)),
    )


def on_device(tree: Any) -> Any:
    """The same with JAX's arrays, also inside of namespaces."""
    if isinstance(tree, SimpleNamespace):
        return SimpleNamespace(**{name: on_device(value) for name, value in vars(tree).items()})
    if isinstance(tree, tuple):
        return type(tree)(*map(on_device, tree)) if hasattr(tree, "_fields") else tree  # pyright: ignore[reportAttributeAccessIssue]
    return jnp.asarray(tree) if isinstance(tree, np.ndarray) else tree


def p_hat(counts: Any) -> np.ndarray:
    return counts.transitions / np.maximum(counts.visits[:-1], 1)[:, :, :, None]


def lane(array: Any, b: int) -> np.ndarray:
    return np.asarray(array)[..., b]


def optimal_lagrangian(seen: Watched, b: int) -> float:
    """L(pi*, lambda_t)."""
    excess = lane(seen.optimal_cost, b) - lane(seen.problem.threshold, b)
    return float(lane(seen.optimum, b) - lane(seen.info.multipliers, b) @ excess)


def widths(problem: Any, hyper: Any, visits: Any) -> tuple[Any, Any]:
    """phi and xi, which differ."""
    return hyper.narrow / visits, (1.5 * hyper.narrow) / visits


@pytest.mark.parametrize("past_counts", [False, True])
def test_cpdpo(x64: None, past_counts: bool) -> None:
    for seed in range(3):
        seen = watched(seed)
        slack, sums = cpdpo_analysis.observe(widths, past_counts, on_device(seen))
        for b in range(B):
            expected, total = cpdpo_by_hand(seen, past_counts, b)
            np.testing.assert_allclose(slack[:, b], expected, rtol=1e-9, atol=1e-9, err_msg=f"lane {b}")
            np.testing.assert_allclose(sums[:, b], total, rtol=1e-9)


def cpdpo_by_hand(seen: Watched, past_counts: bool, b: int) -> tuple[list[Any], list[Any]]:
    """The slack of the six events and V(phi_t), V(xi_t), for a lane."""
    counts = (seen.before if past_counts else seen.after).estimates
    mask, policy, p = (lane(x, b) for x in (seen.problem.action_mask, seen.policy, seen.transition))
    visits = np.maximum(lane(counts.visits, b), 1)
    width = [factor * lane(seen.hyper.narrow, b) / visits for factor in (1, 1.5)]
    error = np.abs(lane(counts.payoff_sum, b) / visits - lane(seen.payoff, b))
    reward = (width[0] - error[0])[mask].min()
    cost = min((width[1] - error[1 + i])[mask].min() for i in range(M))
    epoch = seen.before.primal.epoch
    low, high = lane(epoch.lower, b), lane(epoch.upper, b)
    pairs = [(k, x, a, y) for k, x, a, y in np.ndindex(*p.shape) if mask[k, x, a] and mask[k + 1, y].any()]
    inside = min(min(p[i] - low[i], high[i] - p[i]) for i in pairs) + 1e-6
    q = kernels_numpy.occupancy(p, policy)
    least, most = kernels_numpy.occupancy_bounds(
        policy[..., None], low[..., None], high[..., None], kernels_numpy.extremes_vertices
    )
    reach = min((q - least[..., 0]).min(), (most[..., 0] - q).min()) + 1e-5
    apart = np.abs(kernels_numpy.occupancy(lane(p_hat(counts), b), policy) - q).sum()
    values = [kernels_numpy.policy_value(p, policy, each[None])[0, 0, 0] for each in width]
    multipliers, gaps = lane(seen.info.multipliers, b), lane(seen.gaps, b)
    best, dual = optimal_lagrangian(seen, b), float(multipliers @ gaps[1:])
    value, unit = lane(seen.optimum, b) - gaps[0], L * M / lane(seen.slater_margin, b)
    scale = 1e-5 * (1 + abs(dual) + abs(best))
    first = best - (value - dual) + 4 * unit * values[1] + 8 * unit * apart + scale
    second = best - (value - dual * L / (L + 1)) + 2 * unit * values[1] + 4 * unit * apart + scale
    return [reward, cost, inside, reach, first, second], values


def evaluated(problem: Any, hyper: Any, counts: Any, policy: Any) -> Any:
    """Random widths and values that depend on the counts."""
    rng = np.random.default_rng(int(np.asarray(counts.visits).sum()))
    return SimpleNamespace(
        payoff_width=jnp.asarray(rng.random((1 + M, L, S, A, B))),
        transition_width=jnp.asarray(rng.uniform(0, 1.5, (L, S, A, B))),
        action_values=jnp.asarray(rng.normal(size=(1 + M, L, S, A, B))),
        values=jnp.asarray(rng.normal(1, 1, (1 + M, B))),
    )


def terms_by_hand(seen: Watched, cap: float, b: int) -> tuple[list[float], float, float, float, float]:
    """The slack of the six events that both analyses share, and x_t, e_t, v_t and the rounding, for a lane."""
    counts, mask = seen.after.estimates, lane(seen.problem.action_mask, b)
    own = {name: lane(x, b) for name, x in vars(evaluated(None, None, counts, None)).items()}
    error = np.abs(lane(counts.payoff_sum, b) / np.maximum(lane(counts.visits, b), 1) - lane(seen.payoff, b))
    reward = (own["payoff_width"][0] - error[0])[mask].min() + 1e-6
    cost = min((own["payoff_width"][1 + i] - error[1 + i])[mask].min() for i in range(M)) + 1e-6
    distance = np.abs(lane(p_hat(counts), b) - lane(seen.transition, b)).sum(axis=3)
    distance[lane(counts.visits, b)[:-1] == 0] = 0
    transition = (own["transition_width"][:-1] - distance)[mask[:-1]].min() + 1e-6
    multipliers, values, gaps = lane(seen.info.multipliers, b), own["values"], lane(seen.gaps, b)
    threshold = lane(seen.problem.threshold, b)
    x = optimal_lagrangian(seen, b) - (values[0] - multipliers @ (values[1:] - threshold))
    e = values[0] - (lane(seen.optimum, b) - gaps[0]) + cap * (gaps[1:] + threshold - values[1:]).sum()
    v = np.maximum(gaps[1:], 0).sum()
    q = own["action_values"][0] - np.einsum("i,ikxa->kxa", multipliers, own["action_values"][1:])
    better = ((lane(seen.optimal_policy, b) - lane(seen.policy, b)) * q).sum(axis=2)
    gain = (lane(seen.optimal_reach, b) * better).sum()
    size = 1e-5 * L * (1 + cap * M)
    return [reward, cost, transition, gain - x + size, e + size, x + e - gaps[0] - cap * v + size], x, e, v, size


def test_cpd_oppo(x64: None) -> None:
    """The cap exceeds L / rho in some lanes and not in others."""
    applied = []
    for seed in range(10):
        seen = watched(seed)
        slack, sums = cpd_oppo_analysis.observe(evaluated, on_device(seen))
        for b in range(B):
            cap = seen.hyper.dual_cap[b]
            expected, x, e, v, size = terms_by_hand(seen, cap, b)
            bound = L / seen.slater_margin[b]  # pyright: ignore[reportIndexIssue]
            regret, violation = x + e + size - max(seen.gaps[0, b], 0), x + e + size - (cap - bound) * v  # pyright: ignore
            expected += [regret, violation] if cap > bound else [np.inf, np.inf]
            np.testing.assert_allclose(slack[:, b], expected, rtol=1e-9, atol=1e-9, err_msg=f"lane {b}")
            np.testing.assert_allclose(sums[:, b], [x, e], rtol=1e-9)
            applied.append(cap > bound)
    assert 0 < sum(applied) < len(applied)


def test_cpd_oppo_free(x64: None) -> None:
    """The cap is doubled in some lanes, and the phase is the first in some."""

    def value_width(counts: Any, evaluation: Any, policy: Any) -> Any:
        return evaluation.values[0] ** 2 + counts.visits.sum(axis=(0, 1, 2)) / 100 + policy[0, 0, 0]

    for seed in range(10):
        seen = watched(seed)
        before, after = seen.before, seen.after
        slack, sums = cpd_oppo_free_analysis.observe(evaluated, value_width, on_device(seen))
        for b in range(B):
            cap, norm = before.cap[b], lane(seen.multiplier_norm, b)
            expected, x, e, v, size = terms_by_hand(seen, cap, b)
            own = lane(evaluated(None, None, after.estimates, None).values, b)
            width = own[0] ** 2 + lane(after.estimates.visits, b).sum() / 100 + lane(seen.policy, b)[0, 0, 0]
            expected += [
                (1 + cap * M) * width - e + size,
                x + e + (norm - cap) * v - max(lane(seen.gaps, b)[0], 0) + size,
                x + e - (cap - norm) * v + size,
                2 * norm - cap if after.cap[b] > cap else np.inf,
            ]
            begun, earlier = before.phase.length[b] > 0, lane(seen.sums, b)[2]
            total = x + e + (earlier if begun else 0)
            expected.append(after.allowance[b] - total + (before.phase.length[b] + 1) * size)
            z = after.allowance[b] - (before.allowance[b] if begun else 0)
            np.testing.assert_allclose(slack[:, b], expected, rtol=1e-9, atol=1e-9, err_msg=f"lane {b}")
            np.testing.assert_allclose(sums[:, b], [x + e, z, total - earlier], rtol=1e-9)


@pytest.mark.parametrize(
    ("name", "events", "sums"),
    [
        ("cpdpo", "reward cost transition occupancy lagrangian lagrangian_cor", ["reward width", "cost width"]),
        ("cpd_oppo", "reward cost transition improvement error exchange regret violation", ["x", "e"]),
        (
            "cpd_oppo_free",
            "reward cost transition improvement error exchange width regret violation cap phase",
            ["x + e", "Z", "x + e of the phase"],
        ),
    ],
)
def test_names_of_events_and_sums(name: str, events: str, sums: list[str]) -> None:
    """In the order of the formulas above."""
    analysis = learners.get(name).analysis
    assert analysis is not None
    assert (analysis.events, list(analysis.sums)) == (tuple(events.split()), sums)


ROOTS = np.array([10.0, 20, 40, 20, 10])  # sqrt(|A| T) of the problems below


def problems() -> Problem:
    """L = 2, m = 3, |X| = 3, |A| = 4; five values of T and rho."""
    lanes = np.ones(5)
    return Problem(
        action_mask=np.ones((2, 3, 4, 5), bool), threshold=np.ones((3, 5)), n_states=3 * lanes, n_actions=4 * lanes,
        episodes=ROOTS**2 / 4, delta=0.05 * lanes, slater_margin=np.array([0.5, 2, 1, 0.5, 0.25]),
    )  # fmt: skip


def test_order_terms_by_hand() -> None:
    rho, norm = problems().slater_margin, np.array([0.5, 2, 0, 1, 3])
    regret, violation = cpd_oppo_analysis.order_terms(problems(), 3, None)
    np.testing.assert_allclose(violation, 3 * 4 * 3 * ROOTS)
    np.testing.assert_allclose(regret, violation / rho)
    regret, violation = cpd_oppo_free_analysis.order_terms(problems(), 3, norm)
    np.testing.assert_allclose(violation, 4 * 2 * 3 * ROOTS)
    np.testing.assert_allclose(regret, (4 + 4 * norm) * 6 * ROOTS)
    regret, violation = cpdpo_analysis.order_terms(problems(), 3, None)
    np.testing.assert_allclose(violation, 3 * (8 * 3 * ROOTS + 32))
    np.testing.assert_allclose(regret, violation / rho)


def test_bounds_of_the_sums_by_hand() -> None:
    """At t = 16; the logarithm has T."""
    found = cpdpo_analysis.concentration_bounds(problems(), None, 3, 16)
    azuma = 2 * np.sqrt(2 * 16 * np.log(20))
    for row, m in zip(found, (1, 3), strict=True):
        inside = ROOTS**2 / 4 * 12 * 20 * m
        np.testing.assert_allclose(row, 4 * np.sqrt(2 * 12 * 16 * np.log(inside)) + azuma)
    cap, rate = np.array([2.0, 1, 3, 1, 4]), np.array([0.5, 0.25, 0.1, 1, 2])
    zero, one = np.zeros(5), np.array([0.0, 1, 0, 1, 0])
    hyper = SimpleNamespace(dual_cap=cap, policy_rate=rate, anytime=zero, adaptive_rate=zero)
    found = cpd_oppo_analysis.bounds(problems(), hyper, 3, 16)
    np.testing.assert_allclose(found[0], 2 * (np.log(4) / rate + rate * (2 * (1 + 3 * cap)) ** 2 * 16 / 8))
    assert np.isnan(found[1]).all()
    for name in ("anytime", "adaptive_rate"):
        changed = SimpleNamespace(**vars(hyper) | {name: one})
        assert np.isnan(cpd_oppo_analysis.bounds(problems(), changed, 3, 16)[0]).tolist() == one.astype(bool).tolist()
    found = cpd_oppo_free_analysis.bounds(problems(), None, 3, 16)
    assert np.isnan(found).all()
    assert found.shape == (3, 5)


def test_one_layer_has_no_transitions_to_check() -> None:
    """The slack of an event without entries has an entry per lane all the same."""
    seen = on_device(watched(0))
    counts = Estimates(
        seen.after.estimates.visits[:1], jnp.zeros((0, S, A, S, B)), seen.after.estimates.payoff_sum[:, :1],
        None,  # pyright: ignore[reportArgumentType]
    )  # fmt: skip
    one = seen._replace(
        problem=seen.problem._replace(action_mask=seen.problem.action_mask[:1]),
        after=SimpleNamespace(estimates=counts), policy=seen.policy[:1], transition=seen.transition[:0],
        payoff=seen.payoff[:, :1], optimal_policy=seen.optimal_policy[:1], optimal_reach=seen.optimal_reach[:1],
    )  # fmt: skip
    own = evaluated(None, None, counts, None)
    short = SimpleNamespace(
        payoff_width=own.payoff_width[:, :1], transition_width=own.transition_width[:1],
        action_values=own.action_values[:, :1], values=own.values,
    )  # fmt: skip
    slack, sums = jax.eval_shape(lambda: cpd_oppo_analysis.observe(lambda *_: short, one))
    assert (slack.shape, sums.shape) == ((8, B), (2, B))


def test_without_transitions_their_slack_is_infinite() -> None:
    assert np.isinf(cpdpo_analysis.least(jnp.zeros((0, 2, 3)), 3)).tolist() == [True] * 3
    assert cpdpo_analysis.least(jnp.array([[3.0, 1], [2, 5]])).tolist() == [2, 1]
