"""Does sqrt(T) show? Strong regret and violation across runs of different T, each with its own learning rates.

Runs what is not stored yet, then writes table.txt, table.md and the figures beside the results and prints the table.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from experiments import common
from experiments.growth import analysis, sweep


def run(directory: Path, scale: str) -> None:
    common.run(directory, sweep.cells(scale))


def main(arguments: Sequence[str] | None = None) -> int:
    return common.main("growth", __doc__, run, analysis.analyse, arguments)


if __name__ == "__main__":
    sys.exit(main())
