"""numba's functions, called from inside XLA's program through its C interface (`jax.ffi`).

`choice.compiled_kernel` says where this path is used; every kernel has a pure JAX form as well.
"""

from __future__ import annotations

import functools
import re
import threading
from pathlib import Path
from typing import Any

import jax
import numpy as np
from numba import cfunc, types  # pyright: ignore[reportPrivateImportUsage]

from cpdpo_jax.kernels.cpu import handlers
from cpdpo_jax.kernels.cpu.frame import KNOWN
from cpdpo_jax.kernels.cpu.switch import warn_once

Target = tuple[str, str, tuple[bool, ...]]  # a kernel: its name, precision, and form


def runtime_version() -> tuple[int, int]:
    """(major, minor) of the C interface of the jaxlib that is installed, as its header says."""
    header = Path(jax.ffi.include_dir()) / "xla" / "ffi" / "api" / "c_api.h"
    text = header.read_text(encoding="utf-8", errors="replace")
    found = [re.search(rf"^#define XLA_FFI_API_{part} (\d+)", text, re.MULTILINE) for part in ("MAJOR", "MINOR")]
    if None in found:
        raise RuntimeError(f"{header} does not say its version")
    major, minor = (int(match[1]) for match in found if match)
    return major, minor


def prepare(name: str, dtype: np.dtype) -> None:
    """Compile the kernel of that name for a precision: raises whatever stands in its way."""
    _check_version()
    _target("visited_rows" if name in _OF_SEVERAL_FORMS else name, dtype)  # those are made for the sizes of a call


def call(name: str) -> Any:
    """The function that calls the kernel of that name."""
    return _CALLS[name]


def targets_in(executable: bytes) -> list[Target]:
    """The kernels that a compiled program calls, of those that are known."""
    return [target for name, target in sorted(_TARGETS.items()) if name.encode() in executable]


def make_known(targets: list[Target]) -> None:
    """Compile these kernels for a program that was compiled elsewhere, and make them known to XLA."""
    _check_version()
    for name, dtype, form in targets:
        _target(name, np.dtype(dtype), *form)


def _check_version() -> None:
    if runtime_version() not in KNOWN:
        known = " and ".join(f"{major}.{minor}" for major, minor in KNOWN)
        installed = ".".join(map(str, runtime_version()))
        raise RuntimeError(f"XLA's C interface is version {installed}, these kernels know {known}")


def _target(name: str, dtype: np.dtype, *form: bool) -> str:
    """Compile a handler for a precision, once, and make it known to XLA; its name there."""
    with _ONE_AT_A_TIME:
        return _made(name, dtype, *form)


_ONE_AT_A_TIME = threading.Lock()  # threads that trace programs side by side want the same kernels


@functools.cache
def _made(name: str, dtype: np.dtype, *form: bool) -> str:
    handler = handlers.HANDLERS[name](np.float32 if dtype == np.float32 else np.float64, handlers.source(), *form)
    compiled = _compiled(handler)
    _KEPT.append(compiled)
    target = "_".join(["cpdpo_jax", name, str(dtype), *(str(int(one)) for one in form)])
    jax.ffi.register_ffi_target(target, jax.ffi.pycapsule(compiled.ctypes), platform="cpu")
    _TARGETS[target] = name, str(dtype), form
    return target


def _compiled(handler: Any) -> Any:
    """The machine code, from numba's cache if it can be used: one that is not writable or damaged must not hinder."""
    signature = types.int64(types.int64)
    try:
        return cfunc(signature, cache=True)(handler)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        warn_once(
            "cache",
            f"numba's cache can not be used ({reason}), so the kernels of wide layers are compiled anew in every "
            "process; set NUMBA_CACHE_DIR to a directory that can be written, or empty the one that is used.",
        )
        return cfunc(signature)(handler)


_KEPT: list[Any] = []  # the machine code must outlive the programs that call it
_TARGETS: dict[str, Target] = {}  # by their names in XLA


def occupancy_bounds(policy, lower, spread, slack, excess):
    """All with one trailing axis B; see `occupancy.occupancy_bounds_in_box`."""
    bound = jax.ShapeDtypeStruct((*policy.shape[:2], policy.shape[3]), policy.dtype)
    call = jax.ffi.ffi_call(_target("occupancy_bounds", policy.dtype), (bound, bound), vmap_method="sequential")
    return call(policy, lower, spread, slack, excess)


def dilated_bonus(policy, bonus, dilation, lower, spread, slack):
    """All with one trailing axis B; see `bonus.dilated_bonus_in_box`."""
    result = jax.ShapeDtypeStruct(policy.shape, policy.dtype)
    call = jax.ffi.ffi_call(_target("dilated_bonus", policy.dtype), (result,), vmap_method="sequential")
    return call(policy, bonus, dilation, lower, spread, slack)


def walk(policy, last_action, arrival, payoff, uniforms):
    """See `episode_form.walk`: states and actions [L,B], mean payoffs [K,L,B]."""
    steps = jax.ShapeDtypeStruct((policy.shape[0], policy.shape[3]), np.int32)
    mean = jax.ShapeDtypeStruct((payoff.shape[0], *steps.shape), policy.dtype)
    return jax.ffi.ffi_call(_target("walk", policy.dtype), (steps, steps, mean), vmap_method="sequential")(
        policy, last_action, arrival, payoff, uniforms
    )


def observe(states, actions, payoffs, visits, transitions, total, carry):
    """See `episode_form.observe`: visits, transitions, total and carry after the episode, in the same memory."""
    return _observed(False, (states, actions, payoffs), (visits, transitions, total, carry))


def observe_whole(states, actions, payoffs, visits, transitions, total, carry):
    """The same for payoffs that are 0 or 1; the carry stays as it is."""
    return *_observed(True, (states, actions, payoffs), (visits, transitions, total)), carry


def _observed(whole, seen, counted):
    call = jax.ffi.ffi_call(
        _target("observe", counted[2].dtype, whole),
        tuple(jax.ShapeDtypeStruct(array.shape, array.dtype) for array in counted),
        input_output_aliases={len(seen) + i: i for i in range(len(counted))},
        vmap_method="sequential",
    )
    return call(*seen, *counted)


def visited_rows(states, actions, table):
    """See `episode_form.visited_rows`: [L-1,S,B] int32."""
    n_steps, n_states, *_, n_lanes = table.shape
    result = jax.ShapeDtypeStruct((n_steps, n_states, n_lanes), table.dtype)
    call = jax.ffi.ffi_call(_target("visited_rows", np.dtype(np.float32)), (result,), vmap_method="sequential")
    return call(states, actions, table)


def root_value(transition, policy, payoff):
    """See `episode_form.root_value`: [K,B]."""
    result = jax.ShapeDtypeStruct((payoff.shape[0], policy.shape[3]), policy.dtype)
    target = _target("root_value", policy.dtype, _by_three(payoff), payoff.shape[4] > 1)
    return jax.ffi.ffi_call(target, (result,), vmap_method="sequential")(transition, policy, payoff)


def truncated_evaluation(counts, per_visit, policy, payoff, ceiling):
    """See `episode_form.truncated_evaluation`: action values [K,L,S,A,B], values [K,B]."""
    return _evaluated(False, counts, per_visit, policy, payoff, ceiling)


def optimistic_evaluation(counts, visits, policy, total, scale):
    """See `episode_form.optimistic_evaluation`: action values [K,L,S,A,B], values [K,B]."""
    return _evaluated(True, counts, visits, policy, total, scale)


def _evaluated(optimistic, counts, visits, policy, payoff, last):
    results = payoff.shape, (payoff.shape[0], payoff.shape[4])
    call = jax.ffi.ffi_call(
        _target("evaluation", policy.dtype, _by_three(payoff), optimistic),
        tuple(jax.ShapeDtypeStruct(result, policy.dtype) for result in results),
        vmap_method="sequential",
    )
    return call(counts, visits, policy, payoff, last)


def _by_three(payoff) -> bool:
    """Whether payoffs are evaluated three at a time, or two."""
    return payoff.shape[0] % 3 == 0


_SEVERAL_FORMS = observe, observe_whole, root_value, truncated_evaluation, optimistic_evaluation
_OF_SEVERAL_FORMS = tuple(call.__name__ for call in _SEVERAL_FORMS)
_CALLS = {call.__name__: call for call in (occupancy_bounds, dilated_bonus, walk, visited_rows, *_SEVERAL_FORMS)}
