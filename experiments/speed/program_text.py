"""Reads programs compiled by XLA: launches, copies, moved bytes and host synchronisations of an episode.

The text is that of `compiled.as_text()`. Loops inside an episode count with their iterations, a conditional with
its cheaper branch (no new epoch).
"""

from __future__ import annotations

import re
from typing import NamedTuple

FREE = {"parameter", "constant", "get-tuple-element", "tuple", "bitcast", "after-all", "partition-id", "replica-id"}
INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = (\(.*?\)|\S+) ([a-z][\w\-]*)\((?!\*)(.*)$")
COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) .*\{\s*$")
ARRAY = re.compile(r"\b(pred|[a-z]+(\d+)[a-z0-9]*)\[([\d,]*)\]")
ITERATIONS = re.compile(r'known_trip_count":\{"n":"(\d+)"')


class Count(NamedTuple):
    """Counts of one loop iteration."""

    kernels: float = 0  # launches without copies
    copies: float = 0
    conditionals: float = 0  # the host waits for each
    open_loops: float = 0  # iterations of loops of unknown length: the host waits for each
    moved_bytes: float = 0  # operands and results of all kernels, an upper bound

    def plus(self, other: Count, times: float = 1) -> Count:
        """The sum with `times` times the other."""
        return Count(*(mine + times * its for mine, its in zip(self, other, strict=True)))


class Instruction(NamedTuple):
    """A line of a program."""

    name: str
    shape: str
    opcode: str
    rest: str  # operands and attributes


def computations(text: str) -> dict[str, list[Instruction]]:
    """The instructions of each computation by its name; those of the entry under ''."""
    instructions: dict[str, list[Instruction]] = {}
    current: list[Instruction] = []
    for line in text.splitlines():
        opened = COMPUTATION.match(line)
        matched = INSTRUCTION.match(line)
        if opened:
            current = instructions.setdefault("" if opened[1] else opened[2], [])
        elif matched:
            current.append(Instruction(*matched.groups()))
    return instructions


def one_iteration(text: str, depth: int = 1) -> tuple[Count, int | None]:
    """One iteration of the loop over episodes at `depth`, and the number of iterations if the host knows it."""
    bodies = computations(text)
    inside, iterations = bodies[""], None
    for _ in range(depth):
        loop = next((line for line in inside if line.opcode == "while"), None)
        if loop is None:
            raise ValueError("the compiled program has no loop over episodes; its text cannot be counted.")
        inside, iterations = bodies[_named(loop, "body")], ITERATIONS.search(loop.rest)
    return _count(inside, bodies), int(iterations[1]) if iterations else None


def array_bytes(shape: str) -> int:
    """Bytes of an array's or a tuple's type, such as (f32[5,4096]{1,0}, pred[])."""
    total = 0
    for kind, bits, sizes in ARRAY.findall(shape):
        size = 1 if kind == "pred" else max(1, int(bits) // 8)
        for length in filter(None, sizes.split(",")):
            size *= int(length)
        total += size
    return total


def _count(lines: list[Instruction], bodies: dict[str, list[Instruction]]) -> Count:
    sizes = {line.name: array_bytes(line.shape) for line in lines}
    total = Count()
    for line in lines:
        if line.opcode == "while":
            iterations = ITERATIONS.search(line.rest)
            counted = _count(bodies[_named(line, "body")], bodies)
            counted = counted if iterations else counted._replace(open_loops=counted.open_loops + 1)
            total = total.plus(counted, int(iterations[1]) if iterations else 1)
        elif line.opcode == "call":
            total = total.plus(_count(bodies[_named(line, "to_apply")], bodies))
        elif line.opcode == "conditional":
            branches = [_count(bodies[name], bodies) for name in _branches(line)]
            total = total.plus(min(branches, key=lambda branch: (branch.kernels, branch.copies)))
            total = total._replace(conditionals=total.conditionals + 1)
        elif line.opcode in ("copy", "copy-start"):
            total = total.plus(Count(copies=1, moved_bytes=2 * array_bytes(line.shape)))
        elif line.opcode not in FREE:
            operands = re.findall(r"%([\w.\-]+)", line.rest.split("), ")[0])
            moved = array_bytes(line.shape) + sum(sizes.get(name, 0) for name in set(operands))
            total = total.plus(Count(kernels=1, moved_bytes=moved))
    return total


def _named(line: Instruction, attribute: str) -> str:
    """The computation to which an instruction refers."""
    match = re.search(rf"\b{attribute}=%?([\w.\-]+)", line.rest)
    return match[1] if match else ""


def _branches(line: Instruction) -> list[str]:
    listed = re.search(r"branch_computations=\{([^}]*)\}", line.rest)
    if listed:
        return [name.strip().lstrip("%") for name in listed[1].split(",")]
    return [_named(line, "true_computation"), _named(line, "false_computation")]
