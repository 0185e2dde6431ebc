"""Forms inside loops of at most one iteration, each of which XLA's CPU compiler turns into a single function.

With wide layers, the loop over episodes calls numba's kernels and is not a single function. A loop around a recursion
is one, and a loop body that writes into its carry updates arrays in place. Derivatives are those of the paper's forms,
because a loop of unknown length has no reverse-mode derivative.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from cpdpo_jax.kernels.machines import unrolled
from cpdpo_jax.kernels.machines.forms import Kernel
from cpdpo_jax.kernels.machines.materialise import opaque_false
from cpdpo_jax.kernels.occupancy import occupancy_bounds as _occupancy_bounds
from cpdpo_jax.kernels.tracing import mark_varying
from cpdpo_jax.kernels.widths import Epoch
from cpdpo_jax.kernels.widths import renew_epoch as _renew_epoch


def _with_derivative_of(kernel: Kernel[..., Any]) -> Callable[[Callable[..., Any]], Any]:
    """Give a form the derivative of the paper's form of the kernel."""

    def decorate(form: Callable[..., Any]) -> Any:
        differentiable = jax.custom_jvp(form)
        differentiable.defjvp(lambda primals, tangents: jax.jvp(kernel.paper, primals, tangents))
        return differentiable

    return decorate


@_with_derivative_of(_renew_epoch)
def renew_epoch(fresh: jax.Array, epoch: Epoch, *counts: jax.Array) -> Epoch:
    """`kernels.renew_epoch`, computed only if some lane begins an epoch; `lax.cond` would copy unchanged arrays."""

    def renew(carry: tuple[jax.Array, Epoch]) -> tuple[jax.Array, Epoch]:
        return jnp.zeros_like(carry[0]), _renew_epoch.paper(fresh, carry[1], *counts)

    return jax.lax.while_loop(lambda carry: carry[0], renew, mark_varying((fresh.any(), epoch)))[1]


def _once(function: Callable[..., Any], *arguments: jax.Array) -> Any:
    """function(*arguments) inside a loop of one iteration, whose condition XLA cannot evaluate."""
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(function, *arguments))
    return jax.lax.while_loop(
        lambda carry: carry[0],
        lambda carry: (jnp.zeros_like(carry[0]), function(*arguments)),
        mark_varying((~opaque_false(arguments[0]), zeros)),
    )[1]


@_with_derivative_of(_occupancy_bounds)
def occupancy_bounds(policy: jax.Array, lower: jax.Array, upper: jax.Array) -> tuple[jax.Array, jax.Array]:
    """`kernels.occupancy_bounds`, unrolled."""
    return _once(unrolled.occupancy_bounds, policy, lower, upper)
