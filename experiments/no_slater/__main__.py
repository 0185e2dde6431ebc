"""Without a Slater point: how do strong regret and violation grow where no policy is strictly feasible?"""

import sys

from experiments.experiment import Experiment
from experiments.no_slater import analysis, sweep

EXPERIMENT = Experiment("no_slater", __doc__, sweep.cells, analysis.analyse, measured=analysis.measured)

if __name__ == "__main__":
    sys.exit(EXPERIMENT.main())
