"""What does the Slater margin rho cost? Known, small, over- and underestimated, or estimated.

Runs what is not stored yet, then writes table.txt, table.md and the figures beside the results and prints the table.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from experiments import common
from experiments.slater import analysis, sweep


def run(directory: Path, scale: str) -> None:
    common.run(directory, sweep.cells(scale))


def main(arguments: Sequence[str] | None = None) -> int:
    return common.main("slater", __doc__, run, analysis.analyse, arguments)


if __name__ == "__main__":
    sys.exit(main())
