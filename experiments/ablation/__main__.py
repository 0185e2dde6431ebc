"""What does each part of CPD-PO do? One thing changed at a time, and the dual's choice against a gradient step.

Runs what is not stored yet, then writes table.txt, table.md and the figures beside the results and prints the table.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import cpdpo_jax as cp
from experiments import common
from experiments.ablation import analysis, sweep
from experiments.ablation.gradient import GRADIENT


def run(directory: Path, scale: str) -> None:
    cp.learners.register(GRADIENT)
    common.run(directory, sweep.cells(scale))


def main(arguments: Sequence[str] | None = None) -> int:
    return common.main("ablation", __doc__, run, analysis.analyse, arguments)


if __name__ == "__main__":
    sys.exit(main())
