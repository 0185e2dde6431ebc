"""PO-DB and UOB-REPS on losses that switch, drift and chase the learner: regret against the best fixed policy.

Runs what is not stored yet, then writes table.txt, table.md and the figure beside the results and prints the table.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from experiments import common
from experiments.adversarial import analysis, measure, sweep


def run(directory: Path, scale: str) -> None:
    measure.run(directory, sweep.cells(scale))


def main(arguments: Sequence[str] | None = None) -> int:
    return common.main("adversarial", __doc__, run, analysis.analyse, arguments)


if __name__ == "__main__":
    sys.exit(main())
