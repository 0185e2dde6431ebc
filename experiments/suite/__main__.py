"""Which learner on which problem? Every learner on every environment, one table."""

import sys

from experiments import common
from experiments.suite import analysis, sweep

main = common.command("suite", __doc__, sweep.cells, analysis.analyse)

if __name__ == "__main__":
    sys.exit(main())
