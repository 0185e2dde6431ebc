"""Faults: kills, full disks, damaged files, mistakes, odd learners, many seeds and calls, with a table of the ends.

python -m experiments.faults [--quick] [PART...]        parts: mutations mistakes kills disk load files learners
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from experiments.faults import files, kills, learners, load, mistakes, mutations
from experiments.faults.rows import Row, markdown, table

QUICK_LEARNERS = 8


def odd_learners(quick: bool, place: Path) -> list[Row]:
    """One row: none may end the process, raise, or differ from the plain way."""
    names = list(learners.learners())[: QUICK_LEARNERS if quick else None]
    ends = [(one.name, one.ended, one.detail) for one in learners.outcomes(names)]
    wrong = [one for one in ends if one[1] != "ran"]
    for one in wrong:
        print(f"  odd learner: {': '.join(one)}")
    return [Row("odd learners", len(ends), len(wrong), "each in a process of its own, the bits of the plain way")]


PARTS: dict[str, Callable[[bool, Path], list[Row]]] = {
    "mutations": mutations.run,
    "mistakes": mistakes.run,
    "kills": kills.run,
    "disk": kills.disk,
    "load": load.run,
    "files": files.run,
    "learners": odd_learners,
}


def main(arguments: list[str] | None = None) -> int:
    """Run the parts and print the table; 1 if anything went wrong."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])  # pyright: ignore[reportOptionalMemberAccess]
    parser.add_argument("part", nargs="*", help=f"all without one: {' '.join(PARTS)}")
    parser.add_argument("--quick", action="store_true", help="a few of each, in some minutes")
    parser.add_argument("--markdown", action="store_true", help="the table as the README has it")
    asked = parser.parse_args(arguments)
    for name in asked.part:
        if name not in PARTS:
            parser.error(f"there is no part {name!r}; the parts are {', '.join(PARTS)}.")
    rows: list[Row] = []
    for name in asked.part or PARTS:
        started = time.perf_counter()
        with tempfile.TemporaryDirectory(prefix="cpdpo-faults-") as place:
            rows += PARTS[name](asked.quick, Path(place).resolve())
        print(f"{name}: {time.perf_counter() - started:.0f} s", flush=True)
    print(markdown(rows) if asked.markdown else table(rows))
    return int(any(row.wrong for row in rows))


if __name__ == "__main__":
    sys.exit(main())
