"""Do violations and savings cancel? Weak against strong metrics, and which learners oscillate."""

import sys

from experiments.cancellation import analysis, sweep
from experiments.experiment import Experiment

EXPERIMENT = Experiment("cancellation", __doc__, sweep.cells, analysis.analyse, measured=analysis.measured)

if __name__ == "__main__":
    sys.exit(EXPERIMENT.main())
