"""What can be asked of `cpdpo`: a frozen dataclass for every command. Importing this does not import jax."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, make_dataclass
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg, subcommand

from cpdpo_jax.simulation.options import Options

Many = tuple[str, ...]


def _flag(metavar: str) -> Any:
    """How a flag that may be left out shows in the help."""
    return arg(metavar=metavar, help_behavior_hint="")


def _option_flag(option: Any) -> tuple[str, Any, str]:
    shown, means = option.metadata["shown"], option.metadata["means"]
    return option.name, Annotated[str, arg(metavar=shown, help=means, help_behavior_hint="")], ""


OptionFlags: Any = make_dataclass(
    "OptionFlags", [_option_flag(option) for option in fields(Options)], frozen=True
)  # the options of `simulate`, each a flag; what is not given is left to the file, or to its default


@dataclass(frozen=True)
class Common:
    """What every command takes."""

    debug: Annotated[bool, _flag("")] = field(default=False, kw_only=True)
    """show the stack trace of an error"""


@dataclass(frozen=True)
class Demo(Common):
    """Our own learner, CPD-PO and two rivals on two small CMDPs: table, figures and report in some minutes.

    example: cpdpo demo
    """

    out: Path = Path("runs/demo")
    """run directory"""
    episodes: int = 50_000
    """T"""
    seeds: int = 64
    """independent runs"""


@dataclass(frozen=True)
class Run(Common):
    """Run a sweep into a directory; what is finished there is not run again. Flags go before the file's values.

    examples:
      cpdpo run sweep.toml
      cpdpo run --learner cpdpo uniform --env media_streaming random:layers=4,rho=0.5 --episodes 100000 --seeds 64
    """

    file: Positional[Annotated[str, _flag("FILE.toml")]] = ""
    """TOML file; see the README for its keys"""
    learner: Annotated[Many, _flag("NAME...")] = ()
    """learners (`cpdpo list`)"""
    env: Annotated[Many, _flag("NAME[:PARAMETER=VALUE,...]...")] = ()
    """environments (`cpdpo list`)"""
    episodes: Annotated[Many, _flag("T...")] = ()
    """number of episodes; several: one run for each"""
    seeds: Annotated[str, _flag("N")] = ""
    """number of seeds"""
    setting: Annotated[Many, _flag("PRESET...")] = ()
    """tuned, theory, or both"""
    set: Annotated[Many, _flag("NAME=VALUE[,VALUE...]...")] = ()
    """hyperparameters of all learners, a grid if several: learning_rate=x0.5,x1,x2"""
    simulation: OptionFlags = field(default_factory=OptionFlags)  # pyright: ignore[reportInvalidTypeForm]
    """how it is run; also keys of the file"""
    out: Annotated[str, _flag("DIR")] = ""
    """run directory (runs/NAME_OF_FILE)"""
    dry_run: Annotated[bool, _flag("")] = False
    """only say what would run, how long, how much disk"""
    any_version: Annotated[bool, _flag("")] = False
    """go on in a directory of another version"""
    checkpoint_every: float = 5.0
    """seconds between snapshots"""
    json: Annotated[bool, _flag("")] = False
    """print JSON"""


@dataclass(frozen=True)
class Resume(Common):
    """Go on with a run that was stopped, killed or ran out of disk.

    example: cpdpo resume runs/sweep
    """

    directory: Positional[Annotated[Path, _flag("DIR")]]
    """run directory"""
    any_version: Annotated[bool, _flag("")] = False
    """go on in a directory of another version"""
    checkpoint_every: float = 5.0
    """seconds between snapshots"""
    json: Annotated[bool, _flag("")] = False
    """print JSON"""


@dataclass(frozen=True)
class Status(Common):
    """How far a run has come.

    example: cpdpo status runs/sweep --json
    """

    directory: Positional[Annotated[Path, _flag("DIR")]]
    """run directory"""
    json: Annotated[bool, _flag("")] = False
    """print JSON"""


@dataclass(frozen=True)
class Report(Common):
    """Figures (PDF and PNG) and one report.html of one or several runs, from what is finished.

    example: cpdpo report runs/sweep
    """

    directories: Positional[Annotated[tuple[Path, ...], _flag("DIR...")]]
    """run directories"""
    out: Annotated[str, _flag("DIR")] = ""
    """where to (the first run directory)"""
    json: Annotated[bool, _flag("")] = False
    """print the summary table as JSON"""


@dataclass(frozen=True)
class Solve(Common):
    """Exact optimum, multipliers and Slater margin of an environment.

    example: cpdpo solve media_streaming --json
    """

    environment: Positional[Annotated[str, _flag("ENV")]]
    """NAME[:PARAMETER=VALUE,...] or an .npz file"""
    json: Annotated[bool, _flag("")] = False
    """print JSON"""


@dataclass(frozen=True)
class List(Common):
    """Environments and learners; with a name, an environment's parameters or a learner's hyperparameters.

    example: cpdpo list random
    """

    name: Positional[Annotated[str, _flag("NAME")]] = ""
    """an environment or a learner"""
    json: Annotated[bool, _flag("")] = False
    """print JSON"""


@dataclass(frozen=True)
class Bench(Common):
    """Speed: CPD-PO beside a hand-written anchor and naive programs, all learners, where the time goes.

    examples:
      cpdpo bench --quick
      cpdpo bench --anchor anchor.cpp --sizes 5,5,3,2 8,8,4,2 --seeds 8 512
      cpdpo bench --scaling
    """

    anchor: Annotated[str, _flag("FILE.cpp")] = ""
    """C++ program to compare with; needs a C++ compiler"""
    sizes: Annotated[Many, _flag("L,S,A,M...")] = ()
    """layers, states, actions and constraints (five sizes from 3,3,2,1 to 20,20,5,1)"""
    seeds: Annotated[Many, _flag("N...")] = ()
    """numbers of seeds; up to 8 run on one core (8 64 512)"""
    part: Annotated[Many, _flag("NAME...")] = ()
    """only these: speed, naive, baselines, flame, device"""
    scaling: Annotated[bool, _flag("")] = False
    """only throughput against seeds (1 to 4096) and cores"""
    memory: Annotated[bool, _flag("")] = False
    """only peak memory against T"""
    quick: Annotated[bool, _flag("")] = False
    """two small sizes, short measurements, compiled programs from the cache"""
    seconds: Annotated[float, _flag("S")] = 0.0
    """of one measurement (1, quick: 0.2)"""
    json: Annotated[bool, _flag("")] = False
    """print JSON"""


Command = (
    Annotated[Demo, subcommand("demo")]
    | Annotated[Run, subcommand("run")]
    | Annotated[Resume, subcommand("resume")]
    | Annotated[Status, subcommand("status")]
    | Annotated[Report, subcommand("report")]
    | Annotated[Solve, subcommand("solve")]
    | Annotated[List, subcommand("list")]
    | Annotated[Bench, subcommand("bench")]
)
