"""How fast is the simulator, compared with hand-written C++ and naive programs, and where does the time go?

    python -m experiments.speed
    python -m experiments.speed --part speed --anchor cpdpo=a.cpp cpd_oppo=b.cpp --sizes 5,5,3,2 8,8,4,2 --seeds 64 512
    python -m experiments.speed --part gpu --target h100        # needs jax's CUDA plugin, not a GPU

parts: speed (learners against their anchors), naive (plain vmap, NumPy loops), learners (all of them), flame (parts of
an episode); and, only on request, scaling (throughput against seeds and cores), peak (percent of this machine's peak)
and gpu (XLA's program for a GPU).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import cpdpo_jax as cp
from cpdpo_jax.common.machine import cores, cpu_type
from experiments.speed import anchor, gpu
from experiments.speed.parts import PARTS, Request
from experiments.speed.tables import show
from experiments.speed.timing import Size, instance

DEFAULT = ("speed", "naive", "learners", "flame")


def size(text: str) -> Size:
    """LAYERS,STATES,ACTIONS,CONSTRAINTS."""
    numbers = text.split(",")
    if len(numbers) != 4 or not all(number.isdecimal() and int(number) > 0 for number in numbers):
        raise argparse.ArgumentTypeError(f"{text!r} is not LAYERS,STATES,ACTIONS,CONSTRAINTS, such as 5,5,3,2")
    return Size(*map(int, numbers))


def count(text: str) -> int:
    """An integer of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def source(text: str) -> tuple[str, Path]:
    """LEARNER=FILE.cpp."""
    learner, equals, name = text.partition("=")
    if not equals or not Path(name).is_file():
        raise argparse.ArgumentTypeError(f"{text!r} is not LEARNER=FILE.cpp with an existing file")
    return learner, Path(name)


def duration(text: str) -> float:
    """Seconds of one measurement."""
    if not 0 < (seconds := float(text)) < 1000:
        raise argparse.ArgumentTypeError(f"{text!r} is not between 0 and 1000 seconds")
    return seconds


def machine() -> str:
    """The processor, its load, and versions."""
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    return f"{cpu_type()}, {cores()} cores{load}; jax {metadata.version('jax')}, cpdpo_jax {cp.__version__}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the chosen parts and print one table per part, or a JSON of all."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.speed", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--part", nargs="+", choices=PARTS, default=DEFAULT, metavar="NAME", help=", ".join(PARTS))
    parser.add_argument("--anchor", nargs="+", type=source, default=(), metavar="LEARNER=FILE.cpp",
                        help="C++ programs to compare learners with; needs a C++ compiler")  # fmt: skip
    parser.add_argument("--sizes", nargs="+", type=size, default=(), metavar="L,S,A,M",
                        help="layers, states, actions and constraints")  # fmt: skip
    parser.add_argument("--seeds", nargs="+", type=count, default=(), metavar="N",
                        help="numbers of seeds; up to 8 run on one core")  # fmt: skip
    parser.add_argument("--learners", nargs="+", choices=cp.learners.names(), default=(), metavar="NAME")
    parser.add_argument("--seconds", type=duration, default=1.0, help="of one measurement (default: %(default)s)")
    parser.add_argument("--target", choices=gpu.names(), default="h100", help="of the part gpu (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    chosen = parser.parse_args(arguments)
    sizes, learners = tuple(chosen.sizes), tuple(chosen.learners)
    request = Request(sizes, tuple(chosen.seeds), learners, dict(chosen.anchor), chosen.seconds, chosen.target)
    results = {}
    try:
        if request.anchors:
            anchor.compiler()
        for each in request.sizes:
            instance(each)  # raises for a size without an instance, before any measurement
        if not chosen.json:
            print(machine())
        for part in chosen.part:
            results[part] = PARTS[part](request)
            if not chosen.json:
                print("\n" + show(part, results[part]), flush=True)
    except KeyboardInterrupt:
        return 130
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if chosen.json:
        print(json.dumps({"machine": machine(), **results}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
