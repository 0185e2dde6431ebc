"""PO-DB and UOB-REPS on losses that switch, drift and chase the learner; BV-OPS and S-OPS with constraints."""

import sys

from experiments.adversarial import analysis, measure, sweep
from experiments.experiment import Experiment

EXPERIMENT = Experiment("adversarial", __doc__, sweep.cells, analysis.analyse, run=measure.run, read=measure.read)

if __name__ == "__main__":
    sys.exit(EXPERIMENT.main())
