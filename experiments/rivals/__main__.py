"""All learners on three environments: strong and weak regret and violation, with intervals.

Runs what is not stored yet, then writes table.txt, table.md and the figure beside the results and prints the table.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from experiments import common
from experiments.rivals import analysis, sweep


def run(directory: Path, scale: str) -> None:
    common.run(directory, sweep.cells(scale))


def main(arguments: Sequence[str] | None = None) -> int:
    return common.main("rivals", __doc__, run, analysis.analyse, arguments)


if __name__ == "__main__":
    sys.exit(main())
