"""Faults: kills, interrupts, full disks, damaged files, user mistakes, unusual learners and stale code, with a table.

python -m experiments.faults [--quick] [--interrupts N] [PART...]        the parts are the keys of PARTS
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from experiments.faults import files, interrupts, kills, learners, load, mistakes, mutations, stale, starts, trains
from experiments.faults.rows import Row, markdown, table

QUICK_LEARNERS = 8


def odd_learners(quick: bool, place: Path) -> list[Row]:
    """One row: no learner may end the process, raise, or differ from the plain evaluation."""
    names = list(learners.learners())[: QUICK_LEARNERS if quick else None]
    ends = [(end.name, end.ended, end.detail) for end in learners.outcomes(names)]
    wrong = [end for end in ends if end[1] != "ran"]
    for end in wrong:
        print(f"  odd learner: {': '.join(end)}")
    return [Row("odd learners", len(ends), len(wrong), "each in a separate process, the bits of the plain evaluation")]


PARTS: dict[str, Callable[[bool, Path], list[Row]]] = {
    "mutations": mutations.run,
    "mistakes": mistakes.run,
    "kills": kills.run,
    "disk": kills.disk,
    "load": load.run,
    "files": files.run,
    "learners": odd_learners,
    "stale": stale.stale,
    "contexts": stale.contexts,
    "interrupts": interrupts.run,
    "presets": starts.presets,
    "starts": starts.starts,
    "trains": trains.run,
}


def main(arguments: list[str] | None = None) -> int:
    """Run the parts and print the table; returns 1 if anything went wrong."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])  # pyright: ignore[reportOptionalMemberAccess]
    parser.add_argument("part", nargs="*", help=f"all without one: {' '.join(PARTS)}")
    parser.add_argument("--quick", action="store_true", help="a few of each, in a few minutes")
    parser.add_argument("--interrupts", type=int, help="number of single interrupts, and as many double ones")
    parser.add_argument("--markdown", action="store_true", help="the table in the README's format")
    args = parser.parse_args(arguments)
    for name in args.part:
        if name not in PARTS:
            parser.error(f"there is no part {name!r}; the parts are {', '.join(PARTS)}.")
    rows: list[Row] = []
    for name in args.part or PARTS:
        started = time.perf_counter()
        with tempfile.TemporaryDirectory(prefix="cpdpo-faults-") as place:
            if name == "interrupts" and args.interrupts:
                rows += interrupts.interrupts(args.interrupts, Path(place).resolve())
            else:
                rows += PARTS[name](args.quick, Path(place).resolve())
        print(f"{name}: {time.perf_counter() - started:.0f} s", flush=True)
    print(markdown(rows) if args.markdown else table(rows))
    return int(any(row.wrong for row in rows))


if __name__ == "__main__":
    sys.exit(main())
