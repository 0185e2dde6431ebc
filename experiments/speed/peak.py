"""How far an episode is from the limits of one core: operations and bytes by formula, peaks as measured.

Operations are additions, multiplications, divisions, roots, exponentials, minima and maxima, each counted as one; those
of the integers (draws, counts) and a new epoch's set are left out. Bytes are the least that can be moved: each table of
a lane read once, and what changes everywhere written once. The model is shared by the lanes and costs nothing.

    P = L S A pairs,   R = (L-1) S A S rows' entries,   K = 1 + m payoffs
    policy, its check and its new weights                   12 P
    exact values of the policy, and CPD-OPPO's optimistic   2 K (R + P) each
    widths and payoffs of CPD-OPPO, its Lagrangian          (10 + 8 K + 2 m) P
    P_hat, widths and dual values of CPD-PO                 R + 6 K P + 2 m (R + P)
    occupancy bounds, dilated bonus (see below)             of order L^2 S^4 A, or L^2 S^3 A by sorting
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import NamedTuple

from cpdpo_jax.kernels.machines.sizes import MAX_BREAKPOINTS, MAX_UNROLLED_STATES, MAX_UNROLLED_TERMS
from experiments.speed import anchor
from experiments.speed.timing import Size

SOURCE = Path(__file__).with_name("peak.cpp")
LEARNERS = ("cpdpo", "cpd_oppo")
WORD = 4  # bytes of a float32 or an int32


class Work(NamedTuple):
    """The work of one episode of one lane."""

    operations: float
    bytes: float


def work(learner: str, size: Size) -> Work:
    """The work of an episode of `cpdpo` or `cpd_oppo`; a ValueError for other learners."""
    if learner not in LEARNERS:
        raise ValueError(f"learners = {learner!r} has no part 'peak'; choose from {', '.join(LEARNERS)}.")
    n_layers, n_states, n_actions, m = size
    pairs, k = n_layers * n_states * n_actions, 1 + m
    rows = (n_layers - 1) * n_states * n_actions * n_states
    operations = 12 * pairs + 2 * k * (rows + pairs)
    if learner == "cpd_oppo":
        operations += 2 * k * (rows + pairs) + (10 + 8 * k + 2 * m) * pairs
    else:
        operations += rows + 6 * k * pairs + 2 * m * (rows + pairs)
        operations += occupancy_operations(size) + bonus_operations(size)
    tables = 1 if learner == "cpd_oppo" else 3  # the counts; and the confidence set's two bounds
    read, written = tables * rows + (2 + k) * pairs, 2 * pairs  # visits, sums of payoffs, weights; weights and policy
    return Work(operations, WORD * (read + written))


def occupancy_operations(size: Size) -> int:
    """Both bounds of all targets: one extreme expectation per pair and target, in every layer before it."""
    n_layers, n_states, n_actions, _ = size
    total = 3 * (n_layers - 1) * n_states * n_actions * n_states  # the boxes
    for k in range(n_layers - 1):
        sources = n_actions * (n_states if k else 1)
        targets = 2 * (n_layers - 2 - k) * n_states  # of the layers after the next
        if sorts(size):
            total += targets * (n_states**2 + sources * (6 * n_states + 3))
        else:
            total += targets * (n_states**2 // 2 + sources * (2 * n_states**2 + 5 * n_states + 3))
        total += 2 * n_states * sources * 5  # targets in the next layer
    return total


def bonus_operations(size: Size) -> int:
    """The exploration bonus, and one extreme expectation per pair."""
    n_layers, n_states, n_actions, _ = size
    per_breakpoint = 2 if n_states <= MAX_BREAKPOINTS else 4  # operations for each next state
    extreme = per_breakpoint * n_states**2 + 5 * n_states
    return n_layers * n_states * n_actions * 14 + (n_layers - 1) * n_states * n_actions * (extreme + 4)


def sorts(size: Size) -> bool:
    """Whether the occupancy bounds are computed by sorting."""
    terms = size.layers * size.actions * size.states**2
    few = size.states <= MAX_BREAKPOINTS and terms <= MAX_UNROLLED_TERMS
    return size.states > MAX_UNROLLED_STATES and not few


def peaks(directory: str, moved: int) -> Work:
    """Operations and bytes per second of one core; bytes are copied within `moved` bytes of memory."""
    program = Path(directory) / "peak"
    if not program.exists():
        subprocess.run([anchor.compiler(), *anchor.FLAGS, "-o", str(program), str(SOURCE)], check=True)
    done = subprocess.run([str(program), str(moved)], capture_output=True, text=True, check=True)
    measured = json.loads(done.stdout)
    return Work(measured["operations_per_second"], measured["bytes_per_second"])
