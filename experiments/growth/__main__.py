"""Does sqrt(T) show? Strong regret and violation across runs of different T, each with its own learning rates."""

import sys

from experiments import common
from experiments.growth import analysis, sweep

main = common.command("growth", __doc__, sweep.cells, analysis.analyse)

if __name__ == "__main__":
    sys.exit(main())
