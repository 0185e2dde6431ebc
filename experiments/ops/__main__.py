"""Does the mixture of S-OPS ever violate a constraint, and how do both metrics of BV-OPS grow with T?"""

import sys

from experiments.experiment import Experiment
from experiments.ops import analysis, sweep

EXPERIMENT = Experiment("ops", __doc__, sweep.cells, analysis.analyse, measured=analysis.measured)

if __name__ == "__main__":
    sys.exit(EXPERIMENT.main())
