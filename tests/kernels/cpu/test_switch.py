"""The one switch of the CPU's accelerations, and what happens where numba or XLA's interface is not as expected."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cpdpo_jax import kernels
from cpdpo_jax.kernels.cpu.single_function import single_cpu_function

ROOT = Path(__file__).parents[3]

# Runs both wide kernels and prints: how often numba's form is in the program, a checksum, the warnings.
SCRIPT = """
import warnings
import jax, jax.numpy as jnp, numpy as np
from cpdpo_jax import kernels
rng = np.random.default_rng(0)
p = np.moveaxis(rng.dirichlet(np.ones(11), (2, 11, 2, 3)), -1, 3)
policy = jnp.asarray(np.full((3, 11, 2, 3), 0.5), jnp.float32)
lower, upper = (jnp.asarray(x, jnp.float32) for x in (np.maximum(p - 0.1, 0), np.minimum(p + 0.1, 1)))
bonus = jnp.ones((3, 11, 3), jnp.float32)
def wide(policy, lower, upper, bonus):
    low, up = kernels.occupancy_bounds(policy, lower, upper)
    return low, up, kernels.dilated_bonus(policy, bonus, lower, upper, jnp.float32(1.2))
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    calls = str(jax.make_jaxpr(wide)(policy, lower, upper, bonus)).count("ffi_call[")
    total = sum(float(x.sum()) for x in jax.jit(wide)(policy, lower, upper, bonus))
told = [w for w in caught if issubclass(w.category, RuntimeWarning)]
print(calls, total, len(told), *(str(w.message).replace("\\n", " ") for w in told))
"""


def run(before: str = "", **environment: str) -> tuple[int, float, int, str]:
    """The script in a process of its own: (calls of numba's kernels, checksum, warnings, their text)."""
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu", **environment}
    done = subprocess.run(
        [sys.executable, "-c", before + SCRIPT], env=variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    calls, total, told, *text = done.stdout.split()
    return int(calls), float(total), int(told), " ".join(text)


@pytest.fixture(scope="module")
def accelerated() -> tuple[int, float, int, str]:
    return run()


def test_by_default_numba_is_used_without_a_word(accelerated):
    assert accelerated[0] == 2
    assert accelerated[2] == 0


@pytest.mark.parametrize("value", ["0", "off"])
def test_the_environment_variable_turns_it_off_without_a_word(value, accelerated):
    calls, total, told, _ = run(CPDPO_CPU_ACCELERATION=value)
    assert (calls, told) == (0, 0)
    assert total == pytest.approx(accelerated[1], rel=1e-6)


def test_without_numba_there_is_one_warning_and_the_same_answer(accelerated):
    calls, total, told, text = run("import sys; sys.modules['numba'] = None\n")
    assert (calls, told) == (0, 1)
    assert "numba" in text
    assert "slower" in text
    assert total == pytest.approx(accelerated[1], rel=1e-6)


def test_another_version_of_the_interface_is_refused(accelerated, tmp_path):
    """The header of a jaxlib to come, found in its place."""
    header = tmp_path / "xla" / "ffi" / "api" / "c_api.h"
    header.parent.mkdir(parents=True)
    header.write_text("#define XLA_FFI_API_MAJOR 0\n\n#define XLA_FFI_API_MINOR 99\n")
    calls, total, told, text = run(f"import jax.ffi; jax.ffi.include_dir = lambda: {str(tmp_path)!r}\n")
    assert (calls, told) == (0, 1)
    assert "version 0.99" in text
    assert total == pytest.approx(accelerated[1], rel=1e-6)


def test_a_call_frame_of_another_size_is_an_error_not_a_wrong_answer(tmp_path):
    before = "from cpdpo_jax.kernels.cpu import frame; frame._FRAME = 10**6\n"
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu", "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", before + SCRIPT], env=variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "a call frame of XLA's C interface that it does not know" in done.stderr


def test_a_cache_that_can_not_be_written_costs_a_warning(accelerated):
    """The other places that numba would try are taken from it."""
    only = (
        "from numba.core.caching import CacheImpl\n"
        "CacheImpl._locator_classes = [c for c in CacheImpl._locator_classes if 'UserProvided' in c.__name__]\n"
    )
    calls, total, told, text = run(only, NUMBA_CACHE_DIR=f"{os.devnull}/nowhere")
    assert calls == 2
    assert told == 1
    assert "NUMBA_CACHE_DIR" in text
    assert total == accelerated[1]


def test_a_damaged_cache_costs_a_warning(accelerated, tmp_path):
    assert run(NUMBA_CACHE_DIR=str(tmp_path))[:3] == accelerated[:3]
    stored = [path for path in tmp_path.rglob("*") if path.suffix in (".nbi", ".nbc")]
    assert stored
    for path in stored:
        path.write_bytes(b"garbage")
    calls, total, told, text = run(NUMBA_CACHE_DIR=str(tmp_path))
    assert calls == 2
    assert told == 1
    assert "cache" in text
    assert total == accelerated[1]


def test_the_context_nests_and_is_part_of_what_tells_programs_apart():
    rng = np.random.default_rng(0)
    p = np.moveaxis(rng.dirichlet(np.ones(11), (1, 11, 1, 2)), -1, 3)
    arrays = jnp.ones((2, 11, 1, 2)), jnp.asarray(p * 0.5), jnp.asarray(np.minimum(2 * p, 1))

    @jax.jit
    def wide(*arrays):
        traced.append(kernels.cpu_acceleration_enabled())
        return kernels.occupancy_bounds(*arrays)

    traced: list[bool] = []
    wide(*arrays)
    with kernels.cpu_acceleration(False):
        wide(*arrays)
        with kernels.cpu_acceleration(True):
            wide(*arrays)
    assert traced == [True, False]


def test_the_loop_is_one_function_only_where_acceleration_is_on():
    def program(x):
        return single_cpu_function(lambda x: jax.lax.fori_loop(0, 10, lambda i, x: x * 0.5 + 1, x), x)

    x = jnp.ones(8)
    assert "xla_cpu_small_call" in jax.jit(program).lower(x).as_text()
    with kernels.cpu_acceleration(False):
        assert "xla_cpu_small_call" not in jax.jit(program).lower(x).as_text()
