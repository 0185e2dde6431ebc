"""What can be asked of `cpdpo`: a frozen dataclass for every command. Importing this does not import jax."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, make_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import Positional, arg, subcommand

from cpdpo_jax.simulation.options import Options

Many = tuple[str, ...]
Imports = Annotated[Many, arg(name="import", metavar="FILE.py|MODULE...", help_behavior_hint="")]


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
class Where:
    """Where blocks run; needs `pip install cpdpo_jax[dask]`. See docs/clusters.md."""

    on: Annotated[str, _flag("local:N|tcp://HOST:PORT|tls://HOST:PORT|slurm:N")] = ""
    """workers of dask instead of the threads of this process"""
    no_shared: Annotated[bool, _flag("")] = False
    """workers do not see the run directory: results are sent back"""
    tls_ca: Annotated[str, _flag("FILE")] = ""
    """certificate of the authority, for tls://"""
    tls_cert: Annotated[str, _flag("FILE")] = ""
    """our certificate"""
    tls_key: Annotated[str, _flag("FILE")] = ""
    """its key"""


@dataclass(frozen=True)
class Demo(Common):
    """Our own learner, CPD-PO and two rivals on two small CMDPs: table, figures and report in some minutes.

    example: cpdpo demo
    """

    out: Path = Path("runs/demo")
    """run directory"""
    episodes: Annotated[str, _flag("T")] = "50000"
    """number of episodes (50000)"""
    seeds: Annotated[str, _flag("N|LIST")] = "64"
    """how many seeds, or which (64)"""


@dataclass(frozen=True)
class Run(Common):
    """Run a sweep into a directory; what is finished there is not run again. Flags go before the file's values.

    examples:
      cpdpo run sweep.toml
      cpdpo run --learner cpdpo uniform --env media_streaming random:layers=4,rho=0.5 --episodes 1e5 --seeds 64

    keys of the file (TOML; whole numbers may be written 1e5):
      learners      names (`cpdpo list`)
      environments  names, or tables with name, the environment's parameters, and grid = { PARAMETER = [...] }
      episodes      T, or a list: a run for each
      seeds         how many, or a list
      settings      "tuned", "theory", { HYPERPARAMETER = value, list or "x2" }, a list of these, or a table by learner
      imports       files or modules of your own that register learners and environments
      block         seeds of a block, a multiple of 32
      slurm         a table for --on slurm: jobs, partition, account, time, memory, ... (docs/clusters.md)
      key, checkpoints, rho, delta, horizon, monitor, safety, dtype: as the flags of these names
    """

    file: Positional[Annotated[str, _flag("FILE.toml")]] = ""
    """TOML file with the keys above"""
    learner: Annotated[Many, _flag("NAME...")] = ()
    """learners (`cpdpo list`)"""
    env: Annotated[Many, _flag("NAME[:PARAMETER=VALUE,...]...")] = ()
    """environments (`cpdpo list`)"""
    episodes: Annotated[Many, _flag("T...")] = ()
    """number of episodes; several: one run for each"""
    seeds: Annotated[str, _flag("N|LIST")] = ""
    """how many seeds, or which: 64, or 5,7,9, or 64-127"""
    setting: Annotated[Many, _flag("PRESET...")] = ()
    """tuned, theory, or both"""
    set: Annotated[Many, _flag("NAME=VALUE[,VALUE...]...")] = ()
    """hyperparameters of all learners, a grid if several: learning_rate=x0.5,x1,x2"""
    imports: Imports = ()
    """code of your own that registers learners or environments"""
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
    shard: Annotated[str, _flag("I/N")] = ""
    """run only this share of the blocks (0/N to N-1/N), beside others of the same N"""
    no_lock: Annotated[bool, _flag("")] = False
    """for file systems that cannot lock files: nobody else must run this there"""
    where: Where = field(default_factory=Where)
    """where blocks run"""
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
    shard: Annotated[str, _flag("I/N")] = ""
    """run only this share of the blocks (0/N to N-1/N), beside others of the same N"""
    no_lock: Annotated[bool, _flag("")] = False
    """for file systems that cannot lock files: nobody else must run this there"""
    where: Where = field(default_factory=Where)
    """where blocks run"""
    json: Annotated[bool, _flag("")] = False
    """print JSON"""


@dataclass(frozen=True)
class Status(Common):
    """How far a run has come; several directories of one run (shards) count as one.

    example: cpdpo status runs/sweep --json
    """

    directories: Positional[Annotated[tuple[Path, ...], _flag("DIR...")]]
    """run directories"""
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
    no_figures: Annotated[bool, _flag("")] = False
    """no figures, only report.html"""
    csv: Annotated[bool, _flag("")] = False
    """also curves.csv: every seed at every checkpoint"""
    units: Annotated[Literal["source", "learner"], _flag("source|learner")] = "source"
    """of the CMDP's source, or the learner's, where rewards and costs lie in [0, 1]"""
    json: Annotated[bool, _flag("")] = False
    """print the summary table as JSON"""


@dataclass(frozen=True)
class Solve(Common):
    """Exact optimum, multipliers and Slater margin of an environment.

    example: cpdpo solve media_streaming --json
    """

    environment: Positional[Annotated[str, _flag("ENV")]]
    """NAME[:PARAMETER=VALUE,...] or an .npz file"""
    imports: Imports = ()
    """code of your own that registers environments"""
    json: Annotated[bool, _flag("")] = False
    """print JSON"""


@dataclass(frozen=True)
class List(Common):
    """Environments and learners; with a name, an environment's parameters or a learner's hyperparameters.

    example: cpdpo list random
    """

    name: Positional[Annotated[str, _flag("NAME")]] = ""
    """an environment or a learner"""
    imports: Imports = ()
    """code of your own, listed with the rest"""
    json: Annotated[bool, _flag("")] = False
    """print JSON"""


@dataclass(frozen=True)
class Bench(Common):
    """Speed: CPD-PO and CPD-OPPO beside hand-written anchors and naive programs, all learners, where the time goes.

    examples:
      cpdpo bench --quick
      cpdpo bench --anchor cpdpo=a.cpp cpd_oppo=b.cpp --sizes 5,5,3,2 8,8,4,2 --seeds 8 512
      cpdpo bench --scaling
    """

    anchor: Annotated[Many, _flag("LEARNER=FILE.cpp...")] = ()
    """C++ programs to compare learners with (FILE.cpp alone: cpdpo); needs a C++ compiler"""
    sizes: Annotated[Many, _flag("L,S,A,M...")] = ()
    """layers, states, actions and constraints (seven sizes from 3,3,2,1 to 20,20,5,1)"""
    seeds: Annotated[Many, _flag("N...")] = ()
    """numbers of seeds; up to 8 run on one core (8 64 512)"""
    part: Annotated[Many, _flag("NAME...")] = ()
    """only these: speed, naive, baselines, flame, device"""
    target: Annotated[str, _flag("h100|a100")] = ""
    """part device: compile for this GPU (needs jax's CUDA plugin, no GPU); else a stand-in is counted"""
    learner: Annotated[Many, _flag("NAME...")] = ()
    """parts speed, flame, and device with a target: of these learners (cpdpo cpd_oppo)"""
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
COMMANDS = ("demo", "run", "resume", "status", "report", "solve", "list", "bench")
