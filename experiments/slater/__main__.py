"""What does the Slater margin rho cost? Known, small, over- and underestimated, or estimated."""

import sys

from experiments.experiment import Experiment
from experiments.slater import analysis, sweep

EXPERIMENT = Experiment("slater", __doc__, sweep.cells, analysis.analyse)

if __name__ == "__main__":
    sys.exit(EXPERIMENT.main())
