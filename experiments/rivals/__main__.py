"""All learners on three environments: strong and weak regret and violation, with intervals."""

import sys

from experiments.experiment import Experiment
from experiments.rivals import analysis, sweep

EXPERIMENT = Experiment(
    "rivals",
    __doc__,
    sweep.cells,
    analysis.analyse,
    measured=analysis.measured,
    learners=list(sweep.NOTEBOOK_LEARNERS.values()),
)

if __name__ == "__main__":
    sys.exit(EXPERIMENT.main())
