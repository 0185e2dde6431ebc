"""Does sqrt(T) show? Strong regret and violation across runs of different T, each with its own learning rates."""

import sys

from experiments.experiment import Experiment
from experiments.growth import analysis, sweep

EXPERIMENT = Experiment("growth", __doc__, sweep.cells, analysis.analyse, partial=True)

if __name__ == "__main__":
    sys.exit(EXPERIMENT.main())
