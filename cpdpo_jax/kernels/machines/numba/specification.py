"""Which arrays each kernel takes and returns: the one description that calls and machine code are generated from.

A specification is a line of words, one per array: a letter for its type and one per axis. Types: `f` float32, `d`
float64, `i` int32, `b` bool; in the table below `f` is the run's precision. Axes: L layers, T = L-1 steps, S states,
A actions, K payoffs, U uniforms, B lanes (last), M and N lanes or 1, `1` itself. Results follow `->`; an argument
marked `&` is updated in place and returned.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cpdpo_jax.kernels.machines.sizes import SIMD_LANES

_TABLE = {
    "occupancy_bounds": "fLSAB fTSASB fTSASB -> fLSB fLSB",
    "sample_path": "fLSAB bLSAN fTSASM fKLSAM fLUB -> iLB iLB fKLB",
    "count_episode": "iLB iLB fKLB &iLSAB &iTSASB &fKLSAB &fKLSAB ->",
    "count_whole_episode": "iLB iLB fKLB &iLSAB &iTSASB &fKLSAB ->",
    "visited_rows": "iLB iLB iTSASB -> iTSB",
    "root_value": "fTSASM fLSAB fKLSAM -> fKB",
    "truncated_evaluation": "iTSASB fLSAB fLSAB fKLSAB fKL1 -> fKLSAB fKB",
    "optimistic_evaluation": "iTSASB iLSAB fLSAB fKLSAB fLB -> fKLSAB fKB",
}
_EVALUATIONS = ("root_value", "truncated_evaluation", "optimistic_evaluation")
_TYPES = {"f": np.dtype(np.float32), "d": np.dtype(np.float64), "i": np.dtype(np.int32), "b": np.dtype(np.bool_)}


class Specification(NamedTuple):
    """A specification taken apart; arrays are (type, axes)."""

    form: str  # the kernel's name in `handlers.KERNELS`
    arguments: list[tuple[np.dtype, str]]
    results: list[tuple[np.dtype, str]]
    in_place: dict[int, int]  # number of the result by number of the argument


def parse(text: str) -> Specification:
    """The parts of `form argument ... -> result ...`."""
    form, *words = text.split()
    arguments, results = words[: words.index("->")], words[words.index("->") + 1 :]
    updated = [i for i, word in enumerate(arguments) if word.startswith("&")]
    results = [arguments[i] for i in updated] + results

    def typed(part: list[str]) -> list[tuple[np.dtype, str]]:
        return [(_TYPES[word[0]], word[1:]) for word in (marked.strip("&") for marked in part)]

    return Specification(form, typed(arguments), typed(results), {i: j for j, i in enumerate(updated)})


def specialise(name: str, arrays: tuple[Any, ...]) -> str:
    """The specification of the kernel's form for these arrays; ValueError if no form takes them."""
    if name == "count_episode" and len(arrays) == 6:  # payoffs of 0 and 1: their sums need no carry
        name = "count_whole_episode"
    words = _TABLE[name]
    if any(array.dtype == np.float64 for array in arrays):
        words = words.replace("f", "d")
    sizes = axis_sizes(parse(f"{name} {words}"), arrays)
    if name in _EVALUATIONS:
        if sizes["B"] % SIMD_LANES:
            raise ValueError(f"{name} takes {SIMD_LANES} lanes or a multiple, not {sizes['B']}.")
        if sizes.get("M", 1) > 1:
            name += "_own"
    return f"{name} {words}"


def axis_sizes(specification: Specification, arrays: tuple[Any, ...]) -> dict[str, int]:
    """The size of every axis by its letter; ValueError if an array has another type, rank or size than specified."""
    name, arguments = specification.form, specification.arguments
    if len(arrays) != len(arguments):
        raise ValueError(f"{name} takes {len(arguments)} arrays, not {len(arrays)}.")
    sizes = {"1": 1}
    for i, (array, (dtype, axes)) in enumerate(zip(arrays, arguments, strict=True)):
        fits = array.dtype == dtype and len(array.shape) == len(axes)
        if not fits or any(sizes.setdefault(axis, n) != n for axis, n in zip(axes, array.shape, strict=True)):
            given = f"{array.dtype}{list(array.shape)}"
            raise ValueError(f"argument {i} of {name} is {given}; it must be {dtype}[{axes}] with {sizes}.")
    models = {sizes.get(axis, 1) for axis in "MN"}
    if ("T" in sizes and sizes["T"] != sizes["L"] - 1) or not models <= {1, sizes["B"]}:
        raise ValueError(f"{name} has the sizes {sizes}; T must be L - 1, and M and N must be 1 or B.")
    return sizes
