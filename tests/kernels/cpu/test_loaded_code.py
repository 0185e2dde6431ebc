"""The fingerprint of loaded code: the same in every process, another one after any change, none for foreign code."""

from __future__ import annotations

import functools
import importlib
import inspect
import json
import os
import subprocess
import sys
from collections import deque
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from cpdpo_jax.kernels import dual, extreme, loops
from cpdpo_jax.kernels.cpu import ffi, loaded_code
from cpdpo_jax.kernels.cpu.loaded_code import fingerprint, read
from cpdpo_jax.learners import base, cpd_oppo, cpdpo, estimates, podb
from cpdpo_jax.learners.base import Learner
from cpdpo_jax.simulation import compiled_loop, rollout
from tests.support import lanes_for, random_cmdp

COMPILED = [one for _, one in sorted(base._REGISTRY.items()) if one.compiled and one.plays is None]


@pytest.fixture(autouse=True)
def _learners_broadcast():
    with jax.numpy_rank_promotion("allow"):
        yield


def of(learner: Learner = cpdpo.LEARNER) -> str | None:
    return fingerprint(compiled_loop.advance_whole, learner)


def all_of_them() -> list[str | None]:
    return [*map(of, COMPILED), fingerprint(ffi)]


def in_another_process(seed: int) -> list[str | None]:
    text = """
import json
import cpdpo_jax.sweeps.run, cpdpo_jax.simulation.train  # more than is needed
from tests.kernels.cpu.test_loaded_code import all_of_them
print(json.dumps(all_of_them()))"""
    environment = {"PYTHONHASHSEED": str(seed), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, env=environment, check=True)
    return json.loads(done.stdout)


def test_it_is_the_same_in_every_process_whatever_else_is_loaded():
    assert in_another_process(1) == in_another_process(2) == all_of_them()


def test_learners_have_their_own():
    found = [of(learner) for learner in COMPILED]
    assert None not in found
    assert len(set(found)) == len(found)


@pytest.mark.parametrize(
    ("place", "name", "value"),
    [
        (loops, "MAX_WRITTEN_OUT", 3),
        (cpdpo, "some_new_constant", np.arange(3.0)),
        (cpdpo, "some_new_constant", jnp.float32(1)),
        (cpdpo, "some_new_constant", {"a": [range(3), (1, {2, 3})]}),
        (extreme, "extreme_expectation", inspect.unwrap(extreme.extreme_expectation)),
        (podb, "softmax_policy", functools.partial(base.softmax_policy, 1)),  # pyright: ignore[reportArgumentType]
        (dual, "dual_max", rollout.rollout),
        (compiled_loop.Sums, "_fields", ("weak", "strong", "multipliers")),
        (compiled_loop.LearnerProgram, "__len__", compiled_loop.LearnerProgram.lower),
        (base.softmax_policy, "__defaults__", (base.recentred,)),
    ],
)
def test_what_is_replaced_at_run_time_is_another_fingerprint(monkeypatch, place, name, value):
    before = of()
    monkeypatch.setattr(place, name, value, raising=False)
    assert of() != before
    monkeypatch.undo()
    assert of() == before


def test_entries_of_a_constant_are_seen(monkeypatch):
    before, kernels_before = of(), fingerprint(ffi)
    assert None not in (before, kernels_before)
    monkeypatch.setitem(estimates._PURE, True, estimates._PURE[False])
    monkeypatch.setitem(ffi._CALLS, "root_value", ffi.walk)
    assert of() not in (before, None)
    assert fingerprint(ffi) not in (kernels_before, None)


def test_one_letter_inside_of_a_function_is_seen(monkeypatch):
    """Of the code that is loaded: the file stays as it is."""
    before = of()
    text = inspect.getsource(base.recentred).replace("jnp.maximum(", "jnp.minimum(")
    made = dict(vars(base))
    exec(text, made)
    monkeypatch.setattr(base.recentred, "__code__", made["recentred"].__code__)
    assert of() not in (before, None)


def test_the_text_of_a_module_is_seen(monkeypatch, tmp_path):
    """What leaves no trace in memory: the options of `jax.jit`, say."""
    before, copy = of(), tmp_path / "dual.py"
    copy.write_text(Path(str(dual.__file__)).read_text() + "\n# another text\n")
    os.utime(copy, (0, 0))
    monkeypatch.setattr(dual, "__file__", str(copy))
    assert of() not in (before, None)
    os.utime(copy, (2**32, 2**32))  # changed after it was loaded: what is in memory is not known
    assert of() is None


def made_by_exec() -> Any:
    spaces: dict = {}
    exec("def update(*given): pass", spaces)
    return spaces["update"]


FOREIGN: dict[str, Any] = {
    "lambda": lambda *given: dual.dual_max(*given),
    "mock": mock.MagicMock(),
    "partial": functools.partial(of),
    "jit": jax.jit(of),
    "looks like ours": functools.wraps(dual.dual_max)(lambda *_: None),
    "exec": made_by_exec(),
    "of a library, with values inside": optax.constant_schedule(1.0),
    "a bound method": deque([1]).append,
    "state": SimpleNamespace(a=1),
    "slice": slice(3),
    "fraction": Fraction(1, 2),
    "a key": jax.random.key(0),  # NumPy can not read it
    "an array that is gone": jnp.ones(3).at[0].set(2.0),
}


@pytest.mark.parametrize("what", FOREIGN)
def test_foreign_code_and_unknown_content_have_no_fingerprint(monkeypatch, what):
    """A function of the user's own reads what is not followed: his globals, the modules that he imports."""
    if what == "an array that is gone":
        FOREIGN[what].delete()
    monkeypatch.setattr(dual, "dual_max", FOREIGN[what])
    assert of() is None


def test_a_file_that_is_called_like_a_module_of_pythons_is_foreign(monkeypatch, tmp_path):
    """As a user's `trace.py` beside his script is, which hides Python's own."""
    (tmp_path / "trace.py").write_text("def update(*given): pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "trace", raising=False)
    loaded_code._is_known.cache_clear()
    try:
        assert of(replace(cpdpo.LEARNER, update=importlib.import_module("trace").update)) is None
    finally:
        loaded_code._is_known.cache_clear()


def test_what_is_put_into_a_library_is_foreign(monkeypatch):
    largest = jnp.maximum
    monkeypatch.setattr(jnp, "maximum", lambda *given: 1.5 * largest(*given))
    assert of() is None


def test_a_learner_or_a_method_of_ones_own_has_no_fingerprint(monkeypatch):
    update = functools.wraps(cpdpo.LEARNER.update)(lambda *given: cpdpo.LEARNER.update(*given))
    assert of(replace(cpdpo.LEARNER, update=update)) is None
    assert of(replace(cpdpo.LEARNER, update=functools.partial(update))) is None
    assert of(replace(cpdpo.LEARNER, update=made_by_exec())) is None
    monkeypatch.setattr(compiled_loop.LearnerProgram, "lower", lambda *_: None)
    assert of() is None


@pytest.mark.parametrize(
    ("learner", "states"),
    [*((one, 3) for one in COMPILED), (cpdpo.LEARNER, 11), (cpd_oppo.LEARNER, 11)],
    ids=lambda one: getattr(one, "name", one),
)
def test_all_code_that_a_program_is_traced_from_is_read(learner, states):
    """Every function of the package that runs while a loop is traced stands in a module that the fingerprint reads.

    But for numba's kernels, whose machine code is not part of a program, and the functions that call them (`ffi`),
    which have a fingerprint of their own in a program's file.
    """
    cmdp = random_cmdp(3, states, 2, 1, seed=5)
    given = lanes_for(learner, cmdp, episodes=100, preset="tuned", rho=0.5, dtype=np.float32, n_lanes=16)
    state = compiled_loop.begin(learner, given)
    seen: set[str] = set()

    def note(frame, event, _):
        if event == "call":
            seen.add(str(frame.f_globals.get("__name__", "")))

    jax.clear_caches()
    sys.setprofile(note)
    try:
        compiled_loop.LearnerProgram(compiled_loop.advance_whole, static_argnums=(0, 5)).lower(
            learner, "bernoulli", given, state, 0, 1
        )
    finally:
        sys.setprofile(None)
    _, modules = read(compiled_loop.advance_whole, learner)
    numba = ("ffi", "handlers", "frame", "vector", "lanes", "episode_form", "sorted_form")
    kernels = {f"cpdpo_jax.kernels.cpu.{name}" for name in numba}
    ran = {name for name in seen if name.startswith("cpdpo_jax.")}
    assert "cpdpo_jax.simulation.rollout" in ran
    assert ran - modules <= kernels
    if states == 11:
        assert ran & kernels <= read(ffi)[1]
