"""What a GPU would be asked to do, counted without one.

Kernels per episode are counted in the program that XLA's CPU compiler makes of the loop over episodes: a stand-in,
because its GPU compiler fuses otherwise. Loops inside count with their number of turns, a choice with its cheaper side
(no new epoch).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from cpdpo_jax.cli.bench import block as blocks
from cpdpo_jax.cli.bench.simulator import Size
from cpdpo_jax.kernels import cpu_acceleration
from cpdpo_jax.simulation import compiled_loop

FREE = {"parameter", "constant", "get-tuple-element", "tuple", "bitcast", "after-all", "partition-id", "replica-id"}
INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?[\w.\-]+ = (?:\(.*?\)|\S+) ([a-z][\w\-]*)\((?!\*)")
COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) .*\{\s*$")


def device(size: Size, lanes: int) -> dict[str, Any]:
    """Kernels per episode, and bytes per seed."""
    block = blocks.start(size, lanes)
    with cpu_acceleration(False):  # as for a GPU
        lowered = compiled_loop.program().lower(block.learner, block.noise, block.lanes, block.state, 0, 1)
        program = lowered.compile()
    kernels, fused = kernels_per_turn(program.as_text() or "")
    scratch = getattr(program.memory_analysis(), "temp_size_in_bytes", None)
    return {
        "size": list(size),
        "lanes": lanes,
        "kernels_per_episode": kernels,
        "of_which_fusions": fused,
        "state_bytes_per_seed": round(blocks.bytes_per_lane(block.state, lanes)),
        "constant_bytes_per_seed": round(blocks.bytes_per_lane(block.lanes, lanes)),
        "scratch_bytes_per_seed": None if scratch is None else round(scratch / lanes),
    }


def kernels_per_turn(text: str) -> tuple[int, int]:
    """Kernels in one turn of the outermost loop of a compiled program: all, and those that are fusions."""
    bodies = computations(text)
    entry = bodies[""]
    main = next((line for line in entry if opcode(line) == "while"), None)
    if main is None:
        raise ValueError("the compiled program has no loop over episodes; its text cannot be counted.")
    inside = bodies[_named(main, "body")[0]]
    return _count(inside, bodies, lambda op: op not in FREE), _count(inside, bodies, lambda op: op == "fusion")


def computations(text: str) -> dict[str, list[str]]:
    """The instructions of each computation by its name; the entry's under ''."""
    found: dict[str, list[str]] = {}
    now: list[str] = []
    for line in text.splitlines():
        opened = COMPUTATION.match(line)
        if opened:
            now = found.setdefault("" if opened[1] else opened[2], [])
        elif INSTRUCTION.match(line):
            now.append(line)
    return found


def opcode(line: str) -> str:
    """What an instruction does."""
    matched = INSTRUCTION.match(line)
    return matched[1] if matched else ""


def _count(lines: list[str], bodies: dict[str, list[str]], counts: Callable[[str], bool]) -> int:
    total = 0
    for line in lines:
        op = opcode(line)
        if op == "while":
            turns = re.search(r'known_trip_count":\{"n":"(\d+)"', line)
            total += (int(turns[1]) if turns else 1) * _count(bodies[_named(line, "body")[0]], bodies, counts)
        elif op == "call":
            total += _count(bodies[_named(line, "to_apply")[0]], bodies, counts)
        elif op == "conditional":
            sides = _named(line, "branch_computations") or [
                *_named(line, "true_computation"),
                *_named(line, "false_computation"),
            ]
            total += min(_count(bodies[side], bodies, counts) for side in sides)
        else:
            total += counts(op)
    return total


def _named(line: str, attribute: str) -> list[str]:
    """The computations that an instruction refers to."""
    found = re.search(attribute + r"=\{?((?:%?[\w.\-]+(?:, )?)+)\}?", line)
    return [name.strip().lstrip("%") for name in found[1].split(",") if name.strip()] if found else []
