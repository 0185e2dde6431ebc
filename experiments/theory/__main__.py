"""What do the theory's own constants do? Events and bounds of the analysis, and the T at which learning begins."""

import sys

from experiments.experiment import Experiment
from experiments.theory import analysis, free, sweep

EXPERIMENT = Experiment(
    "theory",
    __doc__,
    sweep.cells,
    analysis.analyse,
    measured=analysis.measured,
    learners=list(free.EXACT_LEARNERS.values()),
)

if __name__ == "__main__":
    sys.exit(EXPERIMENT.main())
