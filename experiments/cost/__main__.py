"""What does an episode cost? Microseconds per episode and seed of every learner as the sizes grow, one at a time.

Measures what is not stored yet, then writes table.txt, table.md and the figure beside the results and prints the table.
Run it on a quiet machine: timings are of all cores together.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from cpdpo_jax.common import files
from experiments import common
from experiments.cost import analysis, measure, sweep


def run(directory: Path, scale: str) -> None:
    of = sweep.SCALES[scale]
    for learner in sweep.learners(scale):
        for axis in of.axes:
            over = None  # the size that took too long: larger ones are not tried
            for sizes in sweep.line(scale, axis):
                name = sweep.name(learner, sizes)
                path = directory / f"{name}.json"
                if not path.is_file():
                    common.say(name)
                    if over:
                        answer = {"learner": learner, "sizes": sizes, "skipped": f"not tried after {over}"}
                    elif of.limit is None:
                        answer = measure.measure(learner, sizes, of.lanes, of.seconds)
                    else:
                        answer = measure.apart(learner, sizes, of.lanes, of.seconds, of.limit)
                    if "skipped" in answer:
                        common.say(f"  skipped: {answer['skipped']}")
                    files.write(path, json.dumps(answer, indent=1))
                if "skipped" in json.loads(path.read_text()):
                    over = over or name


def main(arguments: Sequence[str] | None = None) -> int:
    return common.main("cost", __doc__, run, analysis.analyse, arguments)


if __name__ == "__main__":
    sys.exit(main())
