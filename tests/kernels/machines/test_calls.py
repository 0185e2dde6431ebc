"""`calls.find`: what it accepts, and what happens if a kernel cannot be compiled."""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numba
import numpy as np
import pytest

from cpdpo_jax.common import notices
from cpdpo_jax.kernels.machines.numba import calls, handlers
from cpdpo_jax.kernels.machines.numba.specification import specialise


def rows(lanes: int = 3, dtype: Any = np.int32) -> list[jax.ShapeDtypeStruct]:
    """Arguments of visited_rows."""
    shapes = (4, lanes), (4, lanes), (3, 5, 2, 5, lanes)
    return [jax.ShapeDtypeStruct(shape, dtype) for shape in shapes]


def values(n_lanes: int, n_models: int, n_payoffs: int = 2, dtype: Any = np.float32) -> list[jax.ShapeDtypeStruct]:
    """Arguments of root_value."""
    shapes = (3, 5, 2, 5, n_models), (4, 5, 2, n_lanes), (n_payoffs, 4, 5, 2, n_models)
    return [jax.ShapeDtypeStruct(shape, dtype) for shape in shapes]


@pytest.fixture
def unprepared(monkeypatch):
    """Simulate a process that has requested no kernel; XLA keeps the handlers that it has."""
    monkeypatch.setattr(calls, "_CALLS", {})
    monkeypatch.setattr(calls, "_HANDLERS", {})
    monkeypatch.setattr(notices, "_ISSUED", set())
    monkeypatch.setattr(jax.ffi, "register_ffi_target", lambda *given, **options: None)


def test_types_and_tracers_find_the_same_call():
    call = calls.find("visited_rows", *rows())
    assert call is not None
    assert call is calls.find("visited_rows", *(jnp.zeros(x.shape, x.dtype) for x in rows()))
    inside = []
    jax.eval_shape(lambda *arrays: inside.append(calls.find("visited_rows", *arrays)), *rows())
    assert inside == [call]


def test_the_form_follows_from_the_shapes():
    found = {
        specialise("root_value", tuple(values(32, n_models, n_payoffs, dtype))).split(" -> ")[0]
        for n_models in (1, 32)
        for n_payoffs in (2, 3)
        for dtype in (np.float32, np.float64)
    }
    types = [f"{t}TSASM {t}LSAB {t}KLSAM" for t in "fd"]
    assert found == {f"{form} {arrays}" for form in ("root_value", "root_value_own") for arrays in types}


@pytest.mark.parametrize(
    ("name", "arrays"),
    [
        ("visited_rows", rows(dtype=np.int16)),
        ("visited_rows", rows()[:2]),
        ("visited_rows", [*rows(4)[:2], *rows(3)[2:]]),
        ("root_value", values(16, 1, dtype=np.float16)),
        ("root_value", values(17, 1)),  # not whole vectors
        ("root_value", values(32, 16)),
        ("root_value", [*values(16, 1)[:2], *values(16, 16)[2:]]),
    ],
)
def test_other_arrays_have_no_kernel_and_no_warning(name, arrays):
    assert calls.find(name, *arrays) is None


def test_a_call_refuses_other_arrays_than_it_was_found_for():
    call = calls.find("visited_rows", *rows())
    assert call is not None
    with pytest.raises(ValueError, match="argument 2 of visited_rows"):
        call(*(jnp.zeros(x.shape, x.dtype) for x in (*rows(4)[:2], *rows(3)[2:])))


def test_a_kernel_that_cannot_be_compiled_is_one_warning_and_none(unprepared, monkeypatch):
    def compiled(specification: str, cache: bool) -> Any:
        raise TypeError("no implementation of add")

    monkeypatch.setattr(handlers, "compiled", compiled)
    with pytest.warns(
        RuntimeWarning, match=r"visited_rows could not be compiled \(TypeError: no impl.*slower"
    ) as caught:
        assert calls.find("visited_rows", *rows()) is None
    assert len(caught) == 1
    assert calls.find("visited_rows", *rows()) is None
    assert calls.find("root_value", *values(16, 1)) is None


def test_the_warning_names_the_cause_the_remedy_and_the_callers_line(unprepared, monkeypatch):
    """numba's errors contain others, the innermost of which is the cause."""

    @numba.njit
    def broken(x, y):
        x.nonsense()

    own = handlers.compiled
    monkeypatch.setitem(handlers.KERNELS, "broken", broken)
    monkeypatch.setattr(calls, "specialise", lambda name, arrays: "broken fLB -> fLB")
    monkeypatch.setattr(handlers, "compiled", lambda specification, cache: own(specification, cache=False))
    cause = r"broken could not be compiled \(TypingError: Unknown attribute 'nonsense' of type array\(float32"
    with pytest.warns(RuntimeWarning, match=f"{cause}.*set CPDPO_PAPER_FORMS=1 to silence this") as caught:
        assert calls.find("broken") is None
    assert caught[0].filename == __file__


def test_an_interrupted_compilation_is_repeated(unprepared, monkeypatch):
    def compiled(specification: str, cache: bool) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(handlers, "compiled", compiled)
        with pytest.raises(KeyboardInterrupt):
            calls.find("visited_rows", *rows())
    assert calls.is_usable()
    assert calls.find("visited_rows", *rows()) is not None


def test_an_unusable_cache_is_one_warning_and_the_kernel_works(unprepared, monkeypatch):
    own = handlers.compiled

    def compiled(specification: str, cache: bool) -> Any:
        if cache:
            raise OSError("read-only")
        return own(specification, cache)

    monkeypatch.setattr(handlers, "compiled", compiled)
    with pytest.warns(RuntimeWarning, match=r"cache is not usable \(OSError: read-only\)") as caught:
        assert calls.find("visited_rows", *rows()) is not None
    assert len(caught) == 1


def test_threads_compile_a_kernel_once(unprepared, monkeypatch):
    compiled, own = [], handlers.compiled
    monkeypatch.setattr(
        handlers, "compiled", lambda *given, **options: compiled.append(given) or own(*given, **options)
    )
    with warnings.catch_warnings(), ThreadPoolExecutor(4) as pool:
        found = set(pool.map(lambda _: calls.find("visited_rows", *rows()), range(8)))
    assert len(found) == len(compiled) == 1
    assert None not in found
