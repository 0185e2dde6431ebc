"""The command line: `cpdpo demo`, `cpdpo solve`, `cpdpo list`; also `python -m cpdpo_jax`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; a user's mistake is one line on stderr and exit code 2."""
    parser = argparse.ArgumentParser(
        prog="cpdpo", description="Online learning in constrained MDPs, simulated in batches (CPD-PO and its rivals)."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    demo = commands.add_parser("demo", help="CPD-PO on a small CMDP: table and figure", epilog="example: cpdpo demo")
    demo.add_argument("--episodes", type=int, default=100_000, help="T (default: %(default)s)")
    demo.add_argument("--seeds", type=int, default=64, help="independent runs (default: %(default)s)")
    demo.add_argument("--out", type=Path, default=Path("runs/demo"), help="where results go (default: %(default)s)")
    solve = commands.add_parser(
        "solve", help="exact optimum, multipliers, Slater margin", epilog="example: cpdpo solve media_streaming"
    )
    solve.add_argument("environment", help="a name (see `cpdpo list`) or an .npz file")
    commands.add_parser("list", help="environments and learners", epilog="example: cpdpo list")
    chosen = parser.parse_args(arguments)
    try:
        if chosen.command == "demo":
            _demo(chosen.episodes, chosen.seeds, chosen.out)
        elif chosen.command == "solve":
            import cpdpo_jax as cp

            print(cp.envs.make(chosen.environment).describe())
        else:
            _list()
    except (ValueError, OSError) as error:
        print(f"cpdpo: {error}", file=sys.stderr)
        return 2
    return 0


def _list() -> None:
    import cpdpo_jax as cp

    print("environments:", *cp.envs.names(), sep="\n  ")
    print("learners:", *cp.learners.names(), sep="\n  ")


def _demo(episodes: int, seeds: int, out: Path) -> None:
    """The embedded default: a random CMDP of 4 layers, 3 states, 3 actions and one binding constraint."""
    import matplotlib as mpl

    import cpdpo_jax as cp

    mpl.use("Agg")
    cmdp = cp.envs.make("random", layers=4, states=3, actions=3, constraints=1, key=7, rho=0.5)
    print(cmdp.describe(), flush=True)
    out.mkdir(parents=True, exist_ok=True)
    result = cp.simulate(["cpdpo", "podb", "uniform"], cmdp, episodes=episodes, seeds=seeds)
    print(f"\n{result.summary()}\n")
    result.save(out / "result.nc")
    for suffix in ("png", "pdf"):
        result.plot(title="CPD-PO, PO-DB without constraints, uniform").savefig(out / f"curves.{suffix}", dpi=150)
    rate = episodes * seeds * 3 / result.data.attrs["seconds"]
    print(f"{rate:,.0f} episodes a second with compilation; results in {out}: result.nc, curves.png, curves.pdf")


if __name__ == "__main__":
    sys.exit(main())
