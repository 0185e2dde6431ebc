"""What does each part of CPD-OPPO do? One thing changed at a time, and the dual's choice against a gradient step."""

import sys

from experiments import common
from experiments.ablation import analysis, sweep
from experiments.ablation.gradient import GRADIENT

main = common.command("ablation", __doc__, sweep.cells, analysis.analyse, learners=[GRADIENT])

if __name__ == "__main__":
    sys.exit(main())
