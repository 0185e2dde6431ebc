"""Which learner on which problem? Every learner on every environment, one table.

Runs what is not stored yet, then writes table.txt, table.md and the figures beside the results and prints the table.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from experiments import common
from experiments.suite import analysis, sweep


def run(directory: Path, scale: str) -> None:
    common.run(directory, sweep.cells(scale))


def main(arguments: Sequence[str] | None = None) -> int:
    return common.main("suite", __doc__, run, analysis.analyse, arguments)


if __name__ == "__main__":
    sys.exit(main())
