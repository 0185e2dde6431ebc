"""Every numba kernel through a real XLA call against plain NumPy, and call frames that no kernel may read."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cpdpo_jax.kernels.machines.numba import calls, ffi_frame, specification
from tests.reference import kernels_numpy as reference

Arrays = dict[str, np.ndarray]
L, S, A, B = 4, 5, 3, 16  # all axes differ, so that no two can be confused


@functools.cache
def arrays(n_payoffs: int = 2, n_models: int = 1) -> Arrays:
    """Random arrays in float64, by the names of the kernels' arguments."""
    rng = np.random.default_rng([n_payoffs, n_models])
    box = (L - 1, S, A, S)
    transition = np.moveaxis(rng.dirichlet(np.ones(S), (L - 1, S, A, n_models)), -1, 3)
    arrival = np.cumsum(transition, axis=3)
    arrival[:, :, :, -1] = 2
    counts = rng.integers(0, 4, (*box, B)).astype(np.int32)
    visits = np.concatenate([counts.sum(axis=3), rng.integers(0, 5, (1, S, A, B))]).astype(np.int32)
    visits[:, 1] = counts[:, 1] = 0
    last_action = np.zeros((L, S, A, 1), bool)
    last_action[:, :, -1] = last_action[:, 2] = True
    return {
        "policy": np.moveaxis(rng.dirichlet(np.ones(A), (L, S, B)), -1, 2),
        "transition": transition,
        "lower": np.maximum(np.broadcast_to(transition[..., :1], (*box, B)) - 0.1, 0),
        "upper": np.minimum(np.broadcast_to(transition[..., :1], (*box, B)) + rng.uniform(0.1, 0.3, B), 1),
        "payoff": rng.random((n_payoffs, L, S, A, n_models)),
        "last_action": last_action,
        "arrival": arrival,
        "uniforms": rng.random((L, 2 + n_payoffs, B)),
        "states": rng.integers(0, S, (L, B)).astype(np.int32),
        "actions": rng.integers(0, A, (L, B)).astype(np.int32),
        "payoffs": rng.random((n_payoffs, L, B)),
        "counts": counts,
        "visits": visits,
        "per_visit": 1 / np.maximum(visits, 1),
        "payoff_sum": rng.random((n_payoffs, L, S, A, B)) * visits,
        "payoff_carry": np.zeros((n_payoffs, L, S, A, B)),
        "scale": rng.random((L, B)) * 1.5,
        "ceiling": rng.random((n_payoffs, L, 1)) * 3,
    }


def evaluated(of: Arrays, rows: np.ndarray, payoff: np.ndarray, ceiling: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Q clipped to [0, ceiling] and V(x_0): rows [L-1,S,A,S,B], payoff [K,L,S,A,B], ceiling [K,L]."""
    q = np.zeros(payoff.shape)
    value = np.zeros((len(payoff), S, B))
    for k in reversed(range(L)):
        ahead = np.einsum("xayb,iyb->ixab", np.broadcast_to(rows[k], (S, A, S, B)), value) if k < L - 1 else 0
        q[:, k] = np.clip(payoff[:, k] + ahead, 0, ceiling[:, k, None, None, None])
        value = np.einsum("xab,ixab->ixb", of["policy"][k], q[:, k])
    return q, value[:, 0]


def bounds(of: Arrays) -> tuple[np.ndarray, ...]:
    policy, lower, upper = (of[name][..., :2] for name in ("policy", "lower", "upper"))  # the reference is slow
    return reference.occupancy_bounds(policy, lower, upper, reference.extremes_vertices)


def sampled_path(of: Arrays) -> tuple[np.ndarray, ...]:
    states, actions = np.zeros((L, B), int), np.zeros((L, B), int)
    mean = np.zeros((len(of["payoff"]), L, B))
    for b in range(B):
        model = b if of["payoff"].shape[-1] > 1 else 0
        for k in range(L):
            x, a = states[k, b], 0
            while not of["last_action"][k, x, a, 0] and of["policy"][k, x, : a + 1, b].sum() <= of["uniforms"][k, 0, b]:
                a += 1
            actions[k, b], mean[:, k, b] = a, of["payoff"][:, k, x, a, model]
            if k < L - 1:
                states[k + 1, b] = np.argmax(of["arrival"][k, x, a, :, model] > of["uniforms"][k, 1, b])
    return states, actions, mean


def counted(of: Arrays) -> tuple[np.ndarray, ...]:
    visits, counts, total = of["visits"].copy(), of["counts"].copy(), of["payoff_sum"].copy()
    for k, b in np.ndindex(L, B):
        x, a = of["states"][k, b], of["actions"][k, b]
        visits[k, x, a, b] += 1
        total[:, k, x, a, b] += of["payoffs"][:, k, b]
        if k < L - 1:
            counts[k, x, a, of["states"][k + 1, b], b] += 1
    return visits, counts, total


def rows(of: Arrays) -> tuple[np.ndarray, ...]:
    found = np.zeros((L - 1, S, B))
    for k, b in np.ndindex(L - 1, B):
        found[k, :, b] = of["counts"][k, of["states"][k, b], of["actions"][k, b], :, b]
    return (found,)


def valued(of: Arrays) -> tuple[np.ndarray, ...]:
    payoff = np.broadcast_to(of["payoff"], (*of["payoff"].shape[:4], B))
    return (evaluated(of, of["transition"], payoff, np.full(payoff.shape[:2], np.inf))[1],)


def truncated(of: Arrays) -> tuple[np.ndarray, ...]:
    return evaluated(of, of["counts"] * of["per_visit"][:-1, :, :, None], of["payoff_sum"], of["ceiling"][..., 0])


def optimistic(of: Arrays) -> tuple[np.ndarray, ...]:
    n, unseen = np.maximum(of["visits"], 1), of["visits"] == 0
    beta = np.where(unseen, 1, np.minimum(1, of["scale"][-1] / np.sqrt(n)))
    w = np.where(unseen, 2, np.minimum(2, of["scale"][:, None, None] / np.sqrt(n)))
    left = np.arange(L, 0, -1.0)
    reach, mean = (left - 1).reshape(L, 1, 1, 1) * w / 2, of["payoff_sum"] / n
    payoff = np.concatenate([np.minimum(1, mean[:1] + beta) + reach, np.maximum(0, mean[1:] - beta) - reach])
    return evaluated(of, of["counts"] / n[:-1, :, :, None], payoff, np.broadcast_to(left, payoff.shape[:2]))


PATH = "policy last_action arrival payoff uniforms"
COUNT = "states actions payoffs visits counts payoff_sum"
TRUNCATED, OPTIMISTIC = "counts per_visit policy payoff_sum ceiling", "counts visits policy payoff_sum scale"
CASES: dict[str, tuple[str, str, Callable[[Arrays], tuple[np.ndarray, ...]], tuple[int, int]]] = {
    "occupancy_bounds": ("occupancy_bounds", "policy lower upper", bounds, (2, 1)),
    "sample_path": ("sample_path", PATH, sampled_path, (2, 1)),
    "sample_path, own models": ("sample_path", PATH, sampled_path, (2, B)),
    "count_episode": ("count_episode", f"{COUNT} payoff_carry", counted, (2, 1)),
    "count_whole_episode": ("count_episode", COUNT, counted, (2, 1)),
    "visited_rows": ("visited_rows", "states actions counts", rows, (2, 1)),
    **{
        f"{name}, {n} payoffs": (name, names, expected, (n, 1))
        for n in (2, 3, 5, 6)
        for name, names, expected in (
            ("root_value", "transition policy payoff", valued),
            ("truncated_evaluation", TRUNCATED, truncated),
            ("optimistic_evaluation", OPTIMISTIC, optimistic),
        )
    },
    "root_value by two, own models": ("root_value", "transition policy payoff", valued, (2, B)),
    "root_value by three, own models": ("root_value", "transition policy payoff", valued, (3, B)),
}


def given(case: str, dtype: str) -> tuple[str, list[jax.Array]]:
    """The kernel's name and its arguments."""
    name, names, _, sizes = CASES[case]
    chosen = (arrays(*sizes)[argument] for argument in names.split())
    return name, [jnp.asarray(x, dtype if x.dtype == np.float64 else x.dtype) for x in chosen]


DOUBLES = (
    "root_value, 2 payoffs",
    "count_episode",
)  # in double precision the others take seconds to compile: exhaustive


@pytest.mark.parametrize(("case", "dtype"), [
    pytest.param(case, dtype, marks=[pytest.mark.exhaustive] * (dtype == "float64" and case not in DOUBLES))
    for case in CASES for dtype in ("float32", "float64")
])  # fmt: skip
def test_every_kernel_reads_its_arrays_from_the_frame(case, dtype):
    with jax.enable_x64(dtype == "float64"):
        name, inputs = given(case, dtype)
        call = calls.find(name, *inputs)
        assert call is not None
        results = jax.jit(call)(*inputs)
        expected = CASES[case][2](arrays(*CASES[case][3]))
    tolerance = 1e-12 if dtype == "float64" else 2e-5
    for i, right in enumerate(expected):
        assert results[i].dtype in (dtype, "int32")
        np.testing.assert_allclose(results[i][..., : right.shape[-1]], right, rtol=tolerance, atol=tolerance)


@functools.cache
def handlers() -> dict[str, Any]:
    """The machine code of every form, by its specification."""
    for case in CASES:
        name, inputs = given(case, "float32")
        assert calls.find(name, *inputs) is not None
    return dict(calls._HANDLERS)


def test_every_form_has_a_case():
    from cpdpo_jax.kernels.machines.numba.handlers import KERNELS

    assert {text.split()[0] for text in handlers()} == set(KERNELS)


def test_the_version_query_is_answered():
    for handler in handlers().values():
        metadata = np.array([32, 0, 0, 0], np.int64)
        extension = np.array([32, 1, 0, metadata.ctypes.data], np.int64)
        frame = np.array([8 * 21, extension.ctypes.data, *[0] * 19], np.int64)
        assert handler.ctypes(frame.ctypes.data) == 0
        assert (int(metadata[3]) & 0xFFFFFFFF, int(metadata[3]) >> 32) == ffi_frame.VERSION


ERROR = 4711


class Frame:
    """An XLA_FFI_CallFrame with empty buffers of the given specification; `message` is what a refusal reported."""

    def __init__(self, text: str) -> None:
        parts = specification.parse(text)
        self.message, self.kept = "", []
        create = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.POINTER(ctypes.c_int64))(self._create)
        api = self.words([0] * 6 + [ctypes.cast(create, ctypes.c_void_p).value])
        self.kept.append(create)
        self.buffers = [self._buffers(typed) for typed in (parts.arguments, parts.results)]
        self.frame = self.words([8 * 21, 0, api.ctypes.data, 0, 0, *[0] * 16])

    def words(self, values: list[Any]) -> np.ndarray:
        self.kept.append(np.array(values, np.int64))
        return self.kept[-1]

    def _buffers(self, typed: list[tuple[np.dtype, str]]) -> list[np.ndarray]:
        codes = {"bool": 1, "int32": 4, "float32": 11, "float64": 12}
        dims = self.words([0] * 8)
        return [self.words([48, 0, codes[d.name], dims.ctypes.data, len(axes), dims.ctypes.data]) for d, axes in typed]

    def _create(self, arguments: Any) -> int:
        assert (arguments[0], arguments[3]) == (28, 12)
        self.message = ctypes.string_at(arguments[2]).decode()
        return ERROR

    def call(self, handler: Any) -> int:
        for start, buffers in ((5, self.buffers[0]), (10, self.buffers[1])):
            pointers = self.words([buffer.ctypes.data for buffer in buffers])
            if not self.frame[start]:
                self.frame[start : start + 5] = 40, 0, len(buffers), 0, pointers.ctypes.data
        return handler.ctypes(self.frame.ctypes.data)


def test_a_known_frame_is_accepted():
    """The negative control of the next test: the same frames, unchanged."""
    text = next(text for text in handlers() if text.startswith("visited_rows"))
    frame = Frame(text)
    assert frame.call(handlers()[text]) == 0
    assert not frame.message


@pytest.mark.parametrize("change", ["size", "arguments", "results", "count", "rank", "type"])
def test_an_unknown_frame_is_refused(change):
    for text, handler in handlers().items():
        frame = Frame(text)
        if change == "size":
            frame.frame[0] -= 8
        elif change in ("arguments", "results"):
            start = 5 if change == "arguments" else 10
            frame.frame[start : start + 5] = 48, 0, 0, 0, 0
        elif change == "count":
            frame.buffers[1].append(frame.buffers[1][0])
        else:
            frame.buffers[0][-1][{"rank": 4, "type": 2}[change]] += 1
        assert frame.call(handler) == ERROR, text
        assert "unknown layout" in frame.message
