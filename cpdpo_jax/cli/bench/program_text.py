"""Reading XLA's compiled programs: what one turn of the loop over episodes launches, copies, moves and waits for.

The text is that of `compiled.as_text()`, for a CPU or a GPU. Loops inside an episode count with their number of turns,
a choice with its cheaper side (no new epoch).
"""

from __future__ import annotations

import re
from typing import NamedTuple

FREE = {"parameter", "constant", "get-tuple-element", "tuple", "bitcast", "after-all", "partition-id", "replica-id"}
INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = (\(.*?\)|\S+) ([a-z][\w\-]*)\((?!\*)(.*)$")
COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) .*\{\s*$")
ARRAY = re.compile(r"\b(pred|[a-z]+(\d+)[a-z0-9]*)\[([\d,]*)\]")
TURNS = re.compile(r'known_trip_count":\{"n":"(\d+)"')


class Count(NamedTuple):
    """Of one turn of a loop."""

    kernels: float = 0  # launches, copies apart
    fusions: float = 0  # of the kernels
    copies: float = 0
    copied_bytes: float = 0
    conditionals: float = 0  # the host waits for each
    open_loops: float = 0  # turns of loops whose number the host does not know: it waits for each
    moved_bytes: float = 0  # operands and results of all kernels: at most this, a kernel may read a part of an operand

    def plus(self, other: Count, times: float = 1) -> Count:
        """The sum, the other counted so many times."""
        return Count(*(mine + times * its for mine, its in zip(self, other, strict=True)))


class Instruction(NamedTuple):
    """A line of a program."""

    name: str
    shape: str
    opcode: str
    rest: str  # operands and attributes


def computations(text: str) -> dict[str, list[Instruction]]:
    """The instructions of each computation by its name; the entry's under ''."""
    found: dict[str, list[Instruction]] = {}
    now: list[Instruction] = []
    for line in text.splitlines():
        opened = COMPUTATION.match(line)
        matched = INSTRUCTION.match(line)
        if opened:
            now = found.setdefault("" if opened[1] else opened[2], [])
        elif matched:
            now.append(Instruction(*matched.groups()))
    return found


def one_turn(text: str, depth: int = 1) -> tuple[Count, int | None]:
    """One turn of the loop over episodes, and how many turns it has if the host knows; `depth` of it among loops."""
    bodies = computations(text)
    inside, turns = bodies[""], None
    for _ in range(depth):
        loop = next((one for one in inside if one.opcode == "while"), None)
        if loop is None:
            raise ValueError("the compiled program has no loop over episodes; its text cannot be counted.")
        inside, turns = bodies[_named(loop, "body")], TURNS.search(loop.rest)
    return _count(inside, bodies), int(turns[1]) if turns else None


def array_bytes(shape: str) -> int:
    """Of an array's or a tuple's type, such as (f32[5,4096]{1,0}, pred[])."""
    total = 0
    for kind, bits, sizes in ARRAY.findall(shape):
        size = 1 if kind == "pred" else max(1, int(bits) // 8)
        for length in filter(None, sizes.split(",")):
            size *= int(length)
        total += size
    return total


def _count(lines: list[Instruction], bodies: dict[str, list[Instruction]]) -> Count:
    sizes = {one.name: array_bytes(one.shape) for one in lines}
    total = Count()
    for one in lines:
        if one.opcode == "while":
            turns = TURNS.search(one.rest)
            each = _count(bodies[_named(one, "body")], bodies)
            each = each if turns else each._replace(open_loops=each.open_loops + 1)
            total = total.plus(each, int(turns[1]) if turns else 1)
        elif one.opcode == "call":
            total = total.plus(_count(bodies[_named(one, "to_apply")], bodies))
        elif one.opcode == "conditional":
            sides = [_count(bodies[side], bodies) for side in _sides(one)]
            total = total.plus(min(sides, key=lambda side: (side.kernels, side.copies)))
            total = total._replace(conditionals=total.conditionals + 1)
        elif one.opcode in ("copy", "copy-start"):
            size = array_bytes(one.shape)
            total = total.plus(Count(copies=1, copied_bytes=size, moved_bytes=2 * size))
        elif one.opcode not in FREE:
            operands = re.findall(r"%([\w.\-]+)", one.rest.split("), ")[0])
            moved = array_bytes(one.shape) + sum(sizes.get(name, 0) for name in set(operands))
            total = total.plus(Count(kernels=1, fusions=one.opcode == "fusion", moved_bytes=moved))
    return total


def _named(one: Instruction, attribute: str) -> str:
    """The computation that an instruction refers to."""
    found = re.search(rf"\b{attribute}=%?([\w.\-]+)", one.rest)
    return found[1] if found else ""


def _sides(one: Instruction) -> list[str]:
    listed = re.search(r"branch_computations=\{([^}]*)\}", one.rest)
    if listed:
        return [name.strip().lstrip("%") for name in listed[1].split(",")]
    return [_named(one, "true_computation"), _named(one, "false_computation")]
