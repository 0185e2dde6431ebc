"""Which learner on which problem? Every learner on every environment, one table."""

import sys

from experiments.experiment import Experiment
from experiments.suite import analysis, sweep

EXPERIMENT = Experiment("suite", __doc__, sweep.cells, analysis.analyse, partial=True)

if __name__ == "__main__":
    sys.exit(EXPERIMENT.main())
