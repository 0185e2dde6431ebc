"""Confidence widths: phi and xi, the paper's epsilon, and the confidence set of PO-DB's epochs.

Every `log_term` is a logarithm, already times its multiplier: ln(T|X||A|/delta), with m inside for the costs.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from cpdpo_jax.kernels.shapes import batch_shape, per_lane


def hoeffding_width(visits: jax.Array, log_term: jax.Array) -> jax.Array:
    """min(1, sqrt(4 log / max(1, N))): phi_t of Lemma 1 and xi_t of Lemma 2; the shape of `visits`."""
    visits = _as_number(visits, log_term)
    return jnp.minimum(1, jnp.sqrt(4 * per_lane(log_term, visits.ndim) / jnp.maximum(visits, 1)))


def bernstein_width(estimate: jax.Array, visits: jax.Array, log_term: jax.Array) -> jax.Array:
    """The paper's epsilon_t (Appendix, confidence set): 2 sqrt(p log / max(1,N-1)) + 14 log / (3 max(1,N-1)).

    estimate (P_hat) [L-1,S,A,S,*B], visits [L-1,S,A,*B] -> [L-1,S,A,S,*B]. Analysis only: not PO-DB's set.
    """
    pairs = visits.shape[:3]
    batch_shape(visits.ndim - 3, estimate=(estimate, (*pairs, None)), visits=(visits, pairs))
    n = jnp.maximum(_as_number(visits, log_term) - 1, 1)[:, :, :, None]
    log_term = per_lane(log_term, estimate.ndim)
    return 2 * jnp.sqrt(estimate * log_term / n) + 14 * log_term / (3 * n)


def confidence_set(
    visits: jax.Array, transition_counts: jax.Array, next_state_mask: jax.Array, log_term: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """PO-DB's set at the start of an epoch: |P - P_bar| <= 4 sqrt(P_bar log / N) + 28 log / (3 N), within [0, 1].

    visits [L-1,S,A,*B], transition_counts [L-1,S,A,S,*B], next_state_mask [L-1,S,*B] (states of layers 1..L-1)
    -> (lower, upper) [L-1,S,A,S,*B]. Padded next states get 0. Deviation: unseen-pairs. A pair never visited has the
    whole simplex of real next states, whatever the multiplier of the logarithm: P_bar = 0 with a narrow width would be
    an empty set.
    """
    log_term = per_lane(jnp.asarray(log_term), transition_counts.ndim)
    pairs = visits.shape[:3]
    batch_shape(
        visits.ndim - 3,
        visits=(visits, pairs),
        transition_counts=(transition_counts, (*pairs, next_state_mask.shape[1])),
        next_state_mask=(next_state_mask, (pairs[0], None)),
    )
    per_visit = (
        1 / jnp.maximum(visits, 1).astype(log_term.dtype)[:, :, :, None]
    )  # one division a pair, not three a state
    estimate = transition_counts.astype(log_term.dtype) * per_visit
    width = 4 * jnp.sqrt(estimate * (log_term * per_visit)) + 28 / 3 * (log_term * per_visit)
    unseen = (visits == 0)[:, :, :, None]
    real = next_state_mask[:, None, None]
    zero = jnp.zeros_like(width)
    lower = jnp.where(unseen, zero, jnp.maximum(estimate - width, 0))
    upper = jnp.where(unseen, 1, jnp.minimum(estimate + width, 1))
    return jnp.where(real, lower, zero), jnp.where(real, upper, zero)


def _as_number(counts: jax.Array, like: jax.Array) -> jax.Array:
    """Integer counts in the precision of `like`."""
    return counts.astype(jnp.asarray(like).dtype) if jnp.issubdtype(counts.dtype, jnp.integer) else counts
