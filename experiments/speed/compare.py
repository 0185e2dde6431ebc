"""Compare the time of two checkouts, such as a release and the working tree.

    git worktree add /tmp/old v0.4.0
    python -m experiments.speed.compare /tmp/old . --learners cpdpo triple_q --sizes 5,5,3,1 10,30,3,1 --seeds 1 64
    python -m experiments.speed.compare /tmp/old . --old-python /tmp/jax010/bin/python --markdown

Each checkout runs in a separate process on the same core, with the preset "tuned". The processes alternate, and the
best times up to two episodes are subtracted, as in the part `speed`. The first call, which compiles, is reported
separately.
"""

from __future__ import annotations

import argparse
import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from cpdpo_jax.results.tables import format_table
from experiments.speed.__main__ import count, duration, machine, size
from experiments.speed.timing import Job, Size, per_episode, span

# A process that reads numbers of episodes and answers with seconds. It uses nothing of this checkout.
PROGRAM = """
import os, sys
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
import cpdpo_jax as cp
learner, *numbers = sys.argv[1:]
layers, states, actions, constraints, seeds = map(int, numbers)
for rho in (0.5, 0.2, 0.05):
    try:
        cmdp = cp.envs.make(
            "random", layers=layers, states=states, actions=actions, constraints=constraints, rho=rho, key=1)
        break
    except ValueError as error:
        reason = error
else:
    raise reason
for line in sys.stdin:
    result = cp.simulate(learner, cmdp, episodes=int(line), seeds=seeds, checkpoints=1, progress=False)
    print(float(result.data.attrs["seconds"]), flush=True)
"""
HEADER = ["learner", "size", "seeds", "old us", "new us", "new / old", "first call s, old", "new"]


class Side(NamedTuple):
    """A checkout and the interpreter that runs it."""

    tree: Path
    python: str = sys.executable


@contextmanager
def running(side: Side, job: Job) -> Iterator[Callable[[int], float]]:
    """A function from a number of episodes to the seconds of `simulate` in a separate process."""
    command = [side.python, "-c", PROGRAM, job.learner, *map(str, job.size), str(job.seeds)]
    env = os.environ | {"PYTHONPATH": str(side.tree)}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=env, cwd=side.tree, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdin
        assert process.stdout

        def seconds(episodes: int) -> float:
            try:
                print(episodes, file=process.stdin, flush=True)
                return float(process.stdout.readline())  # pyright: ignore[reportOptionalMemberAccess]
            except (BrokenPipeError, ValueError):
                process.kill()
                lines = process.communicate()[1].strip().splitlines()
                raise ValueError(f"{side.tree}: {lines[-1] if lines else 'the process ended'}") from None

        try:
            yield seconds
        finally:
            process.kill()


def compare(old: Side, new: Side, job: Job, seconds: float) -> dict[str, Any]:
    """A row of the table: microseconds per episode of all seeds together, and seconds of the first calls."""
    with ExitStack() as stack:
        runs = {name: stack.enter_context(running(side, job)) for name, side in (("old", old), ("new", new))}
        first = {name: run(1) - run(1) for name, run in runs.items()}
        over = min((span(run, seconds) for run in runs.values()), key=lambda episodes: episodes.last)
        spent = per_episode(runs, over)
    return {"job": job, "old": 1e6 * spent["old"], "new": 1e6 * spent["new"], "first": first}


def cells(row: dict[str, Any]) -> list[str]:
    """A row as text; a job that cannot run in one of the checkouts has its error instead of times."""
    job = row["job"]
    start = [job.learner, f"{' x '.join(map(str, job.size[:3]))}, {job.size.constraints}", str(job.seeds)]
    if "error" in row:
        return [*start, row["error"], *[""] * 4]
    times = [f"{row['old']:.3g}", f"{row['new']:.3g}", f"{row['new'] / row['old']:.2f}"]
    return start + times + [f"{row['first'][name]:.1f}" for name in ("old", "new")]


def show(rows: Sequence[dict[str, Any]], markdown: bool) -> str:
    """The table, for a terminal or in Markdown."""
    table = [HEADER, *map(cells, rows)]
    if not markdown:
        return format_table(table)
    lines = [f"| {' | '.join(line)} |" for line in table]
    return "\n".join([lines[0], "|" + "---|" * len(HEADER), *lines[1:]])


def checkout(text: str) -> Path:
    """A directory with the package."""
    path = Path(text).resolve()
    if not (path / "cpdpo_jax" / "__init__.py").is_file():
        raise argparse.ArgumentTypeError(f"{text!r} has no cpdpo_jax/__init__.py; give a checkout of the repository")
    return path


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.speed.compare",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("old", type=checkout)
    parser.add_argument("new", type=checkout)
    parser.add_argument("--old-python", default=sys.executable, metavar="FILE", help="its interpreter")
    parser.add_argument("--new-python", default=sys.executable, metavar="FILE")
    parser.add_argument("--learners", nargs="+", default=["cpdpo", "cpd_oppo"], metavar="NAME")
    parser.add_argument("--sizes", nargs="+", type=size, default=[Size(5, 5, 3, 1)], metavar="L,S,A,M")
    parser.add_argument("--seeds", nargs="+", type=count, default=[1, 64], metavar="N")
    parser.add_argument("--seconds", type=duration, default=1.0, help="of one measurement (default: %(default)s)")
    parser.add_argument("--markdown", action="store_true", help="print a table in Markdown")
    chosen = parser.parse_args(arguments)
    measure = partial(compare, Side(chosen.old, chosen.old_python), Side(chosen.new, chosen.new_python))
    rows = []
    for learner, each, seeds in itertools.product(chosen.learners, chosen.sizes, chosen.seeds):
        job = Job(each, seeds, learner)
        try:
            rows.append(measure(job, chosen.seconds))
        except ValueError as error:
            rows.append({"job": job, "error": str(error)})
        except KeyboardInterrupt:
            break
        print("  ".join(cells(rows[-1])), file=sys.stderr, flush=True)
    print(f"one core, microseconds per episode of all seeds; this interpreter: {machine()}\n\n"
          f"{show(rows, chosen.markdown)}")  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
