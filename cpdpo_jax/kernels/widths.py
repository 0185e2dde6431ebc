"""Confidence widths: phi and xi, the paper's epsilon, and the confidence sets of PO-DB's epochs.

Every `log_term` is a logarithm times its multiplier: ln(T|X||A|/delta), and ln(mT|X||A|/delta) for the costs.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from cpdpo_jax.kernels.machines.forms import kernel
from cpdpo_jax.kernels.shapes import batch_shape, per_lane


def hoeffding_width(visits: jax.Array, log_term: jax.Array) -> jax.Array:
    """min(1, sqrt(4 log / max(1, N))): phi_t of Lemma 1 and xi_t of Lemma 2; same shape as `visits`."""
    visits = _as_float(visits, log_term)
    return jnp.minimum(1, jnp.sqrt(4 * per_lane(log_term, visits.ndim) / jnp.maximum(visits, 1)))


def bernstein_width(estimate: jax.Array, visits: jax.Array, log_term: jax.Array) -> jax.Array:
    """The paper's epsilon_t (Appendix, confidence set): 2 sqrt(p log / max(1,N-1)) + 14 log / (3 max(1,N-1)).

    estimate (P_hat) [L-1,S,A,S,*B], visits [L-1,S,A,*B] -> [L-1,S,A,S,*B]. Analysis only: not PO-DB's set.
    """
    pairs = visits.shape[:3]
    batch_shape(visits.ndim - 3, estimate=(estimate, (*pairs, None)), visits=(visits, pairs))
    n = jnp.maximum(_as_float(visits, log_term) - 1, 1)[:, :, :, None]
    log_term = per_lane(log_term, estimate.ndim)
    return 2 * jnp.sqrt(estimate * log_term / n) + 14 * log_term / (3 * n)


def confidence_set(
    visits: jax.Array, transition_counts: jax.Array, next_state_mask: jax.Array, log_term: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """PO-DB's set at the start of an epoch: |P - P_bar| <= 4 sqrt(P_bar log / N) + 28 log / (3 N), within [0, 1].

    visits [L-1,S,A,*B], transition_counts [L-1,S,A,S,*B], next_state_mask [L-1,S,*B] (states of layers 1..L-1)
    -> (lower, upper) [L-1,S,A,S,*B]. Padded next states get 0. Deviation: unseen-pairs. The set of an unvisited pair
    is the whole simplex of real next states, whatever the multiplier of the logarithm: P_bar = 0 with a narrow width
    would give an empty set.
    """
    log_term = per_lane(jnp.asarray(log_term), transition_counts.ndim)
    pairs = visits.shape[:3]
    batch_shape(
        visits.ndim - 3,
        visits=(visits, pairs),
        transition_counts=(transition_counts, (*pairs, next_state_mask.shape[1])),
        next_state_mask=(next_state_mask, (pairs[0], None)),
    )
    # one division per pair instead of three per next state
    per_visit = 1 / jnp.maximum(visits, 1).astype(log_term.dtype)[:, :, :, None]
    estimate = transition_counts.astype(log_term.dtype) * per_visit
    width = 4 * jnp.sqrt(estimate * (log_term * per_visit)) + 28 / 3 * (log_term * per_visit)
    unseen = (visits == 0)[:, :, :, None]
    real = next_state_mask[:, None, None]
    zero = jnp.zeros_like(width)
    lower = jnp.where(unseen, zero, jnp.maximum(estimate - width, 0))
    upper = jnp.where(unseen, 1, jnp.minimum(estimate + width, 1))
    return jnp.where(real, lower, zero), jnp.where(real, upper, zero)


class Epoch(NamedTuple):
    """An epoch of PO-DB: the confidence set {P : lower <= P <= upper} and the visits at its start."""

    lower: jax.Array  # [L-1,S,A,S,*B]
    upper: jax.Array  # [L-1,S,A,S,*B]
    visits: jax.Array  # [L,S,A,*B] int32


@kernel(sizes="visits")
def renew_epoch(
    fresh: jax.Array,
    epoch: Epoch,
    visits: jax.Array,
    transition_counts: jax.Array,
    next_state_mask: jax.Array,
    log_term: jax.Array,
) -> Epoch:
    """A new epoch with these counts in the lanes where `fresh` [*B] is True, the current epoch in the others.

    visits [L,S,A,*B], the other arguments as for `confidence_set`.
    """
    new = Epoch(*confidence_set(visits[:-1], transition_counts, next_state_mask, log_term), visits)
    return Epoch(
        *(jnp.where(per_lane(fresh, after.ndim), after, before) for after, before in zip(new, epoch, strict=True))
    )


def _as_float(counts: jax.Array, like: jax.Array) -> jax.Array:
    """Integer counts converted to the type of `like`."""
    return counts.astype(jnp.asarray(like).dtype) if jnp.issubdtype(counts.dtype, jnp.integer) else counts
