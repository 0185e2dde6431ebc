"""Do violations and savings cancel? Weak against strong metrics, and who oscillates.

Runs what is not stored yet, then writes table.txt, table.md and the figures beside the results and prints the table.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from experiments import common
from experiments.cancellation import analysis, sweep


def run(directory: Path, scale: str) -> None:
    common.run(directory, sweep.cells(scale))


def main(arguments: Sequence[str] | None = None) -> int:
    return common.main("cancellation", __doc__, run, analysis.analyse, arguments)


if __name__ == "__main__":
    sys.exit(main())
