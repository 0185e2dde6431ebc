"""What does each part of CPD-OPPO do? One change at a time, and the dual max against a gradient step."""

import sys

from experiments.ablation import analysis, sweep
from experiments.ablation.gradient import GRADIENT
from experiments.experiment import Experiment

EXPERIMENT = Experiment("ablation", __doc__, sweep.cells, analysis.analyse, learners=[GRADIENT])

if __name__ == "__main__":
    sys.exit(EXPERIMENT.main())
