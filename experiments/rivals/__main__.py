"""All learners on three environments: strong and weak regret and violation, with intervals."""

import sys

from experiments import common
from experiments.rivals import analysis, sweep

main = common.command("rivals", __doc__, sweep.cells, analysis.analyse)

if __name__ == "__main__":
    sys.exit(main())
