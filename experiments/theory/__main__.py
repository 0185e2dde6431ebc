"""What do the theory's own constants do? Events and bounds of the analysis, and the T at which learning begins."""

import sys

from experiments import common
from experiments.theory import analysis, sweep

main = common.command("theory", __doc__, sweep.cells, analysis.analyse)

if __name__ == "__main__":
    sys.exit(main())
