"""Do violations and savings cancel? Weak against strong metrics, and who oscillates."""

import sys

from experiments import common
from experiments.cancellation import analysis, sweep

main = common.command("cancellation", __doc__, sweep.cells, analysis.analyse)

if __name__ == "__main__":
    sys.exit(main())
