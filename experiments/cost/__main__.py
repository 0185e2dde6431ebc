"""The cost of an episode: microseconds per episode and seed of every learner as each size grows.

Run it on a quiet machine: timings are of all cores together.
"""

import sys

from experiments.cost import analysis, measure, sweep
from experiments.experiment import Experiment

EXPERIMENT = Experiment("cost", __doc__, sweep.cells, analysis.analyse, run=measure.run, read=measure.read)

if __name__ == "__main__":
    sys.exit(EXPERIMENT.main())
