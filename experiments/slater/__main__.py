"""What does the Slater margin rho cost? Known, small, over- and underestimated, or estimated."""

import sys

from experiments import common
from experiments.slater import analysis, sweep

main = common.command("slater", __doc__, sweep.cells, analysis.analyse)

if __name__ == "__main__":
    sys.exit(main())
