"""The arguments of `cpdpo`: a frozen dataclass for every command. Importing this does not import jax."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, make_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import Positional, arg, subcommand

from cpdpo_jax.simulation.options import Options

Many = tuple[str, ...]
Imports = Annotated[Many, arg(name="import", metavar="FILE.py|MODULE...", help_behavior_hint="")]


def _flag(metavar: str) -> Any:
    """An optional flag, shown in the help with `metavar` and without its default."""
    return arg(metavar=metavar, help_behavior_hint="")


def _option_flag(option: Any) -> tuple[str, Any, str]:
    shown, means = option.metadata["shown"], option.metadata["means"]
    return option.name, Annotated[str, arg(metavar=shown, help=means, help_behavior_hint="")], ""


# the options of `simulate` as flags; a missing flag leaves the value to the file or the default
OptionFlags: Any = make_dataclass("OptionFlags", [_option_flag(option) for option in fields(Options)], frozen=True)


@dataclass(frozen=True)
class Common:
    """Flags of every command."""

    debug: Annotated[bool, _flag("")] = field(default=False, kw_only=True)
    """show the stack trace of an error"""


@dataclass(frozen=True)
class Printing(Common):
    """Flags of commands that print a table."""

    json: Annotated[bool, _flag("")] = field(default=False, kw_only=True)
    """print JSON"""


@dataclass(frozen=True)
class EngineFlags:
    """Run on dask workers; needs `pip install cpdpo_jax[dask]`. See docs/clusters.md."""

    on: Annotated[str, _flag("local:N|tcp://HOST:PORT|tls://HOST:PORT|slurm:N")] = ""
    """use dask workers instead of the threads of this process"""
    no_shared: Annotated[bool, _flag("")] = False
    """workers cannot see the run directory and send results back"""
    tls_ca: Annotated[str, _flag("FILE")] = ""
    """certificate of the certificate authority, for tls://"""
    tls_cert: Annotated[str, _flag("FILE")] = ""
    """certificate of this client"""
    tls_key: Annotated[str, _flag("FILE")] = ""
    """key of that certificate"""


@dataclass(frozen=True)
class ExecutionFlags:
    """How blocks run and are stored."""

    any_version: Annotated[bool, _flag("")] = False
    """resume a directory of another version"""
    checkpoint_every: float = 5.0
    """seconds between snapshots"""
    shard: Annotated[str, _flag("I/N")] = ""
    """run only shard I of N (0/N to N-1/N); the other shards may run in parallel"""
    no_lock: Annotated[bool, _flag("")] = False
    """do not lock the directory (for file systems without locks); make sure that no other process runs in it"""


@dataclass(frozen=True)
class Demo(Common):
    """Run cpd_oppo, cpdpo and two rivals on two small CMDPs; write tables, figures and a report in a few minutes.

    example: cpdpo demo
    """

    out: Path = Path("runs/demo")
    """run directory"""
    episodes: Annotated[str, _flag("T")] = "50000"
    """number of episodes (50000)"""
    seeds: Annotated[str, _flag("N|LIST")] = "64"
    """number of seeds, or a list (64)"""


@dataclass(frozen=True)
class Run(Printing):
    """Run a sweep into a directory; finished blocks are not run again. Flags override the file.

    examples:
      cpdpo run sweep.toml
      cpdpo run --learner cpdpo uniform --env media_streaming random:layers=4,rho=0.5 --episodes 1e5 --seeds 64

    keys of the file (TOML; whole numbers may be written 1e5):
      learners      names (`cpdpo list`)
      environments  names, or tables with name, the environment's parameters, and grid = { PARAMETER = [...] }
      episodes      T, or a list with a separate run for each T
      seeds         a number, or a list
      hparams       "tuned", "theory", { HYPERPARAMETER = value, list or "x2" }, a list of these, or a table by learner
      imports       your own files or modules that register learners and environments
      block         seeds per block, a multiple of 32
      slurm         a table for --on slurm: jobs, partition, account, time, memory, ... (docs/clusters.md)
      key, checkpoints, rho, delta, horizon, monitor, safety, dtype: same as the flags
    """

    file: Positional[Annotated[str, _flag("[FILE.toml]")]] = ""
    """TOML file with the keys above"""
    learner: Annotated[Many, _flag("NAME...")] = ()
    """learners (`cpdpo list`)"""
    env: Annotated[Many, _flag("NAME[:PARAMETER=VALUE,...]...")] = ()
    """environments (`cpdpo list`)"""
    episodes: Annotated[Many, _flag("T...")] = ()
    """number of episodes; several values give separate runs"""
    seeds: Annotated[str, _flag("N|LIST")] = ""
    """number of seeds, or a list: 64, or 5,7,9, or 64-127"""
    hparams: Annotated[Many, _flag("tuned|theory|NAME=VALUE[,VALUE...]...")] = ()
    """presets, and values that override them for all learners; several values form a grid: learning_rate=x0.5,x1,x2"""
    imports: Imports = ()
    """your own code that registers learners or environments"""
    simulation: OptionFlags = field(default_factory=OptionFlags)  # pyright: ignore[reportInvalidTypeForm]
    """options of the simulation, also keys of the file"""
    out: Annotated[str, _flag("DIR")] = ""
    """run directory (runs/NAME_OF_FILE)"""
    dry_run: Annotated[bool, _flag("")] = False
    """only print what would run, with estimates of time and disk space"""
    execution: ExecutionFlags = field(default_factory=ExecutionFlags)
    """how blocks run and are stored"""
    engine: EngineFlags = field(default_factory=EngineFlags)
    """run on dask workers"""


@dataclass(frozen=True)
class Resume(Printing):
    """Resume a run that was interrupted, killed or ran out of disk space.

    example: cpdpo resume runs/sweep
    """

    directory: Positional[Annotated[Path, _flag("DIR")]]
    """run directory"""
    execution: ExecutionFlags = field(default_factory=ExecutionFlags)
    """how blocks run and are stored"""
    engine: EngineFlags = field(default_factory=EngineFlags)
    """run on dask workers"""


@dataclass(frozen=True)
class Status(Printing):
    """Show the progress of a run; several directories (shards of one run) are added up.

    example: cpdpo status runs/sweep --json
    """

    directories: Positional[Annotated[tuple[Path, ...], _flag("DIR...")]]
    """run directories"""


@dataclass(frozen=True)
class Report(Printing):
    """Write figures (PDF and PNG) and one report.html for the finished blocks of one or several runs.

    example: cpdpo report runs/sweep
    """

    directories: Positional[Annotated[tuple[Path, ...], _flag("DIR...")]]
    """run directories"""
    out: Annotated[str, _flag("DIR")] = ""
    """output directory (the first run directory)"""
    no_figures: Annotated[bool, _flag("")] = False
    """no figures, only report.html"""
    csv: Annotated[bool, _flag("")] = False
    """also curves.csv: every seed at every checkpoint"""
    latex: Annotated[bool, _flag("")] = False
    """also table.tex: means at T with intervals, for LaTeX with booktabs"""
    metric: Annotated[Many, _flag("NAME...")] = ("strong_regret", "strong_violation")
    """metrics of table.tex: strong_regret, weak_regret, strong_violation, weak_violation (both strong metrics)"""
    units: Annotated[Literal["source", "learner"], _flag("source|learner")] = "source"
    """original units of the CMDP, or the learner's, in which rewards and costs lie in [0, 1]"""


@dataclass(frozen=True)
class Compare(Printing):
    """Compare all pairs of learners of one or several runs: differences, effect sizes, corrected p values, ranks.

    example: cpdpo compare runs/sweep
    """

    directories: Positional[Annotated[tuple[Path, ...], _flag("DIR...")]]
    """run directories"""
    metric: Annotated[Many, _flag("NAME...")] = ("strong_regret", "strong_violation")
    """strong_regret, weak_regret, strong_violation, weak_violation (both strong metrics)"""
    units: Annotated[Literal["source", "learner"], _flag("source|learner")] = "source"
    """original units of the CMDP, or the learner's, in which rewards and costs lie in [0, 1]"""


@dataclass(frozen=True)
class Solve(Printing):
    """Print the exact optimum, multipliers and Slater margin of an environment.

    example: cpdpo solve media_streaming --json
    """

    environment: Positional[Annotated[str, _flag("ENV")]]
    """NAME[:PARAMETER=VALUE,...] or an .npz file"""
    imports: Imports = ()
    """your own code that registers environments"""


@dataclass(frozen=True)
class List(Printing):
    """List environments and learners, or the parameters of an environment or hyperparameters of a learner.

    example: cpdpo list random
    """

    name: Positional[Annotated[str, _flag("[NAME]")]] = ""
    """an environment or a learner (all if omitted)"""
    imports: Imports = ()
    """your own code, which is listed too"""


@dataclass(frozen=True)
class Info(Printing):
    """Print versions, devices, the kernels in use, caches and a quick benchmark (for bug reports).

    example: cpdpo info --json
    """


Command = (
    Annotated[Demo, subcommand("demo")]
    | Annotated[Run, subcommand("run")]
    | Annotated[Resume, subcommand("resume")]
    | Annotated[Status, subcommand("status")]
    | Annotated[Report, subcommand("report")]
    | Annotated[Compare, subcommand("compare")]
    | Annotated[Solve, subcommand("solve")]
    | Annotated[List, subcommand("list")]
    | Annotated[Info, subcommand("info")]
)
COMMANDS = ("demo", "run", "resume", "status", "report", "compare", "solve", "list", "info")
