"""The commands of `cpdpo`. Modules that need jax are imported where they are used."""

from __future__ import annotations

import json
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cpdpo_jax.cli import arguments, compare, demo, flags, status
from cpdpo_jax.cli.stderr import log, warn
from cpdpo_jax.common.text import counted, did_you_mean
from cpdpo_jax.sweeps import compatibility, config_text, imports
from cpdpo_jax.sweeps import config as configuration
from cpdpo_jax.sweeps.config import Config
from cpdpo_jax.sweeps.shards import parse
from cpdpo_jax.sweeps.store import Store

if TYPE_CHECKING:
    from cpdpo_jax.sweeps.engine_spec import EngineSpec


def run(args: Any) -> int:
    """Run the command of the parsed arguments and return its exit code."""
    return _COMMANDS[type(args)](args)


def _demo(args: arguments.Demo) -> int:
    from cpdpo_jax.sweeps.load import in_units, load_runs, rows

    size = {"episodes": flags.parse_integer("episodes", args.episodes), "seeds": flags.parse_seeds(args.seeds)}
    config = configuration.build(demo.TABLE | size)
    log("Running cpd_oppo, cpdpo and two rivals on a CMDP with misleading averages and on a random CMDP.")
    code = _execute(config, args.out, arguments.Resume(args.out))
    if code:
        return code
    tables = in_units(load_runs([Store(args.out)]))
    print("\n" + "\n".join(filter(None, [demo.story(rows(tables)), demo.slow_reward(tables)])))
    return _report(arguments.Report(directories=(args.out,)))


def _run(args: arguments.Run) -> int:
    table = config_text.read(Path(args.file)) if args.file else {}
    table |= flags.table(args)
    config = configuration.build(table, args.file or "the command line", warn)
    name = Path(args.file).stem if args.file else "-".join(config.learners)
    out = Path(args.out) if args.out else Path("runs") / name
    if args.dry_run:
        return _dry_run(config, out, args.json)
    return _execute(config, out, args)


def _resume(args: arguments.Resume) -> int:
    store = Store(args.directory).require()
    config = store.config
    compatibility.check_owner(store, config)
    return _execute(config, args.directory, args)


def _execute(config: Config, out: Path, args: arguments.Run | arguments.Resume) -> int:
    """Run the unfinished blocks; print the table of the finished ones to stdout."""
    from cpdpo_jax.sweeps.load import format_rows, in_units, load_runs, rows, shown
    from cpdpo_jax.sweeps.run import execute

    how, as_json = args.execution, args.json
    if not how.checkpoint_every > 0:
        raise ValueError(f"--checkpoint-every is {how.checkpoint_every:g}; give a positive number of seconds.")
    shard = parse(how.shard)
    started = time.perf_counter()
    done = execute(
        config,
        out,
        any_version=how.any_version,
        every=how.checkpoint_every,
        shard=shard,
        lock=not how.no_lock,
        engine_spec=_engine_spec(args.engine),
        log=log,
        warn=warn,
    )
    if not done.finished:
        log(f"stopped; resume with: cpdpo resume {out}{f' --shard {shard}' if shard else ''}")
        return 130
    table, ran = rows(shown(in_units(load_runs([done.store])))), done.blocks - done.before
    if as_json:
        print(json.dumps({"directory": str(out), "blocks": done.blocks, "ran": ran, "rows": table}))
    else:
        print(format_rows(table, shutil.get_terminal_size().columns if sys.stdout.isatty() else 0))
    log(f"{counted(ran, 'block')} in {time.perf_counter() - started:.1f} s. Figures: cpdpo report {out}")
    bad = sum(row["non_finite"] for row in table)
    if bad:
        raise FloatingPointError(f"{counted(bad, 'run')} with non-finite values: the curves end at the first one.")
    return 0


def _engine_spec(args: arguments.EngineFlags) -> EngineSpec:
    from cpdpo_jax.sweeps.engine_spec import EngineSpec

    tls = {"ca": args.tls_ca, "cert": args.tls_cert, "key": args.tls_key}
    return EngineSpec(on=args.on, shared=not args.no_shared, tls={name: path for name, path in tls.items() if path})


def _dry_run(config: Config, out: Path, as_json: bool) -> int:
    from cpdpo_jax.simulation.workers import worker_count
    from cpdpo_jax.sweeps.packing import describe_lanes, make_packs
    from cpdpo_jax.sweeps.provenance import rounding
    from cpdpo_jax.sweeps.runner import probe
    from cpdpo_jax.sweeps.specification import expand

    rounding()  # raises if jax has no device
    blocks = expand(config, log)
    store = Store(out)
    compatibility.check(store, config, blocks)
    todo = {key: block for key, block in blocks.items() if not (store.exists and store.is_done(key))}
    packs = make_packs(todo, dict.fromkeys(todo, 0), worker_count())
    programs = len({pack.program for pack in packs})
    log(f"compiling and timing {counted(programs, 'program')}, a few seconds each; the run reuses them ...")
    measured, lanes = probe(todo, packs), describe_lanes(packs)
    if as_json:
        counts = {"directory": str(out), "blocks": len(blocks), "to_run": len(todo), "lanes": lanes}
        print(json.dumps(counts | measured._asdict()))
        return 0
    for line in lanes:
        print(f"  {line}")
    for name, value in measured.microseconds.items():
        print(f"  {name}: {value:.2f} microseconds per seed and episode on one core")
    print(
        f"{out}: {counted(len(blocks), 'block')}, {len(blocks) - len(todo)} finished, {len(todo)} to run; "
        f"{counted(measured.compilations, 'compilation')} took {measured.compile_seconds:.1f} s (cached for the run); "
        f"then about {_duration(measured.run_seconds)}; about {measured.megabytes:.1f} MB of results"
    )
    return 0


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def _report(args: arguments.Report) -> int:
    from cpdpo_jax.sweeps import report

    if not args.directories:
        raise ValueError("report needs a run directory; give the --out of a `cpdpo run`.")
    stores = [Store(path).require() for path in args.directories]
    out = Path(args.out) if args.out else args.directories[0]
    written = report.write(
        stores,
        out,
        log=log,
        units=args.units,
        draw=not args.no_figures,
        csv=args.csv,
        latex=args.latex,
        metrics=args.metric,
    )
    if args.json:
        print(json.dumps(written))
    else:
        print(", ".join(f"{name}: {written[name]}" for name in ("report", "csv", "latex") if name in written))
    return 0


def _solve(args: arguments.Solve) -> int:
    from cpdpo_jax import envs
    from cpdpo_jax.exact.optimum import solve

    imports.load(args.imports)
    table = config_text.parse_environment(args.environment)
    cmdp = envs.make(table.pop("name"), **table)
    if not args.json:
        print(cmdp.describe())
        return 0
    solution = solve(cmdp)
    names = ("value", "slater_margin", "multipliers", "unconstrained_value", "gap", "violation")
    values = {name: getattr(solution, name) for name in names if hasattr(solution, name)}
    print(json.dumps({name: getattr(value, "tolist", lambda value=value: value)() for name, value in values.items()}))
    return 0


def _list(args: arguments.List) -> int:
    from cpdpo_jax import envs
    from cpdpo_jax.cli import listing

    imports.load(args.imports)
    if args.name in envs.names():
        print(json.dumps(envs.defaults(args.name), default=str) if args.json else envs.help(args.name))
        return 0
    from cpdpo_jax import learners

    if args.name:
        if args.name not in learners.names():
            known = [*envs.names(), *learners.names()]
            hint = did_you_mean(args.name, known) or "cpdpo list shows all names."
            raise ValueError(f"there is no learner or environment named {args.name!r}; {hint}")
        learner = learners.get(args.name)
        text, extra = listing.about(learner), learner.extra_knowledge
        if args.json:
            rows = listing.hyperparameters(learner)
            print(json.dumps({"name": learner.name, "about": text, "extra_knowledge": extra, "hyperparameters": rows}))
        else:
            required = f"\n\nExtra knowledge required: {extra}." if extra else ""
            print(f"{learner.name}: {text}{required}\n\n{listing.table(learner)}")
    elif args.json:
        extra = {name: learners.get(name).extra_knowledge for name in learners.names()}
        extra = {name: kind for name, kind in extra.items() if kind}
        known = {"environments": list(envs.names()), "learners": learners.names(), "extra_knowledge": extra}
        print(json.dumps(known))
    else:
        first = {name: envs.help(name).partition("\n")[0].removeprefix(f"{name}: ") for name in envs.names()}
        print("environments:\n" + listing.lines(first))
        known = [learners.get(name) for name in learners.names()]
        required = {x.name: f" (requires {x.extra_knowledge})" if x.extra_knowledge else "" for x in known}
        first = {x.name: listing.about(x).partition("\n")[0] + required[x.name] for x in known}
        print("learners:\n" + listing.lines(first))
        print("For details and options: cpdpo list NAME")
    return 0


def _info(args: arguments.Info) -> int:
    from cpdpo_jax.cli import info

    return info.run(args)


_COMMANDS = {
    arguments.Demo: _demo,
    arguments.Run: _run,
    arguments.Resume: _resume,
    arguments.Status: status.run,
    arguments.Report: _report,
    arguments.Compare: compare.run,
    arguments.Solve: _solve,
    arguments.List: _list,
    arguments.Info: _info,
}
