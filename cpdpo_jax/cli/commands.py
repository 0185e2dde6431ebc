"""What each command does. Modules that need jax are imported where they are needed."""

from __future__ import annotations

import json
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

from cpdpo_jax.cli import arguments, demo, flags, status
from cpdpo_jax.cli.saying import say, warn
from cpdpo_jax.common.words import did_you_mean
from cpdpo_jax.sweeps import config as configuration
from cpdpo_jax.sweeps import fitting, imports
from cpdpo_jax.sweeps.config import Config
from cpdpo_jax.sweeps.shards import parse
from cpdpo_jax.sweeps.store import Store


def run(asked: Any) -> int:
    """Dispatch."""
    return _COMMANDS[type(asked)](asked)


def _demo(asked: arguments.Demo) -> int:
    from cpdpo_jax.sweeps.load import in_units, load_runs, rows

    size = {"episodes": flags.whole("episodes", asked.episodes), "seeds": flags.seeds(asked.seeds)}
    config = configuration.build(demo.TABLE | size)
    say("A CMDP on which averages deceive, and a random one: our own learner, CPD-PO and two rivals.")
    code = _execute(config, asked.out, arguments.Resume(asked.out))
    if code:
        return code
    print("\n" + demo.story(rows(in_units(load_runs([Store(asked.out)])))))
    return _report(arguments.Report(directories=(asked.out,)))


def _run(asked: arguments.Run) -> int:
    table = configuration.read(Path(asked.file)) if asked.file else {}
    table |= flags.table(asked)
    config = configuration.build(table, asked.file or "the command line")
    name = Path(asked.file).stem if asked.file else "-".join(config.learners)
    out = Path(asked.out) if asked.out else Path("runs") / name
    if asked.dry_run:
        return _dry_run(config, out, asked.json)
    return _execute(config, out, asked)


def _resume(asked: arguments.Resume) -> int:
    return _execute(Store(asked.directory).require().config, asked.directory, asked)


def _execute(config: Config, out: Path, asked: arguments.Run | arguments.Resume) -> int:
    """Run what is not finished; the table of what is finished goes to stdout."""
    from cpdpo_jax.sweeps.load import in_units, load_runs, rows, table_of
    from cpdpo_jax.sweeps.run import execute

    if not asked.checkpoint_every > 0:
        raise ValueError(f"--checkpoint-every {asked.checkpoint_every:g} is not a positive number of seconds.")
    shard, as_json = parse(asked.shard), asked.json
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    started = time.perf_counter()
    done = execute(
        config,
        out,
        any_version=asked.any_version,
        every=asked.checkpoint_every,
        shard=shard,
        lock=not asked.no_lock,
        where=_where(asked.where),
        say=say,
        warn=warn,
    )
    if not done.finished:
        say(f"stopped; go on with: cpdpo resume {out}{f' --shard {shard}' if shard else ''}")
        return 130
    table, ran = rows(in_units(load_runs([done.store]))), done.blocks - done.before
    if as_json:
        print(json.dumps({"directory": str(out), "blocks": done.blocks, "ran": ran, "rows": table}))
    else:
        print(table_of(table, shutil.get_terminal_size().columns if sys.stdout.isatty() else 0))
    say(f"{ran} blocks in {time.perf_counter() - started:.1f} s. Figures: cpdpo report {out}")
    bad = sum(row["non_finite"] for row in table)
    if bad:
        raise FloatingPointError(f"{bad} runs had values that are not finite; their curves end there.")
    return 0


def _where(asked: arguments.Where) -> Any:
    from cpdpo_jax.sweeps.engines import Where

    tls = {"ca": asked.tls_ca, "cert": asked.tls_cert, "key": asked.tls_key}
    return Where(on=asked.on, shared=not asked.no_shared, tls={name: path for name, path in tls.items() if path})


def _dry_run(config: Config, out: Path, as_json: bool) -> int:
    from cpdpo_jax.sweeps.packing import lanes_in_words
    from cpdpo_jax.sweeps.provenance import rounding
    from cpdpo_jax.sweeps.runner import probe
    from cpdpo_jax.sweeps.specification import expand, kind

    rounding()  # is jax there, with a device?
    blocks = expand(config)
    store = Store(out)
    fitting.check(store, config, blocks)
    todo = {key: block for key, block in blocks.items() if not (store.exists and store.is_done(key))}
    kinds = len({kind(block) for block in todo.values()})
    say(f"compiling {kinds} kinds of blocks, some seconds each, which the run need not do again, and trying each ...")
    measured, lanes = probe(todo), lanes_in_words(todo)
    if as_json:
        counts = {"directory": str(out), "blocks": len(blocks), "to_run": len(todo), "lanes": lanes}
        print(json.dumps(counts | measured._asdict()))
        return 0
    for line in lanes:
        print(f"  {line}")
    for name, value in measured.microseconds.items():
        print(f"  {name}: {value:.2f} microseconds per seed and episode on one core")
    print(
        f"{out}: {len(blocks)} blocks, {len(blocks) - len(todo)} finished, {len(todo)} to run; "
        f"{measured.compilations} compilations took {measured.compile_seconds:.1f} s here (kept for the run); "
        f"then about {_duration(measured.run_seconds)}; about {measured.megabytes:.1f} MB of results"
    )
    return 0


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def _report(asked: arguments.Report) -> int:
    from cpdpo_jax.sweeps import report

    if not asked.directories:
        raise ValueError("report needs a run directory; give the --out of a `cpdpo run`.")
    stores = [Store(path).require() for path in asked.directories]
    out = Path(asked.out) if asked.out else asked.directories[0]
    written = report.write(stores, out, say=say, units=asked.units, draw=not asked.no_figures, csv=asked.csv)
    if asked.json:
        print(json.dumps(written))
    else:
        print(f"report: {written['report']}" + (f", table: {written['csv']}" if asked.csv else ""))
    return 0


def _solve(asked: arguments.Solve) -> int:
    from cpdpo_jax import envs
    from cpdpo_jax.exact.optimum import solve

    imports.load(asked.imports)
    table = configuration.parse_environment(asked.environment)
    cmdp = envs.make(table.pop("name"), **table)
    if not asked.json:
        print(cmdp.describe())
        return 0
    solution = solve(cmdp)
    names = ("value", "slater_margin", "multipliers", "unconstrained_value", "gap", "violation")
    values = {name: getattr(solution, name) for name in names if hasattr(solution, name)}
    print(json.dumps({name: getattr(value, "tolist", lambda value=value: value)() for name, value in values.items()}))
    return 0


def _list(asked: arguments.List) -> int:
    from cpdpo_jax import envs
    from cpdpo_jax.cli import listing

    imports.load(asked.imports)
    if asked.name in envs.names():
        print(json.dumps(envs.defaults(asked.name), default=str) if asked.json else envs.help(asked.name))
        return 0
    from cpdpo_jax import learners

    if asked.name:
        if asked.name not in learners.names():
            known = [*envs.names(), *learners.names()]
            hint = did_you_mean(asked.name, known) or "cpdpo list names them all."
            raise ValueError(f"no learner and no environment is called {asked.name!r}; {hint}")
        learner = learners.get(asked.name)
        text, extra = listing.about(learner), learner.extra_knowledge
        if asked.json:
            found = listing.hyperparameters(learner)
            print(json.dumps({"name": learner.name, "about": text, "extra_knowledge": extra, "hyperparameters": found}))
        else:
            handed = f"\n\nExtra knowledge that it is handed: {extra}." if extra else ""
            print(f"{learner.name}: {text}{handed}\n\n{listing.table(learner)}")
    elif asked.json:
        extra = {name: learners.get(name).extra_knowledge for name in learners.names()}
        extra = {name: kind for name, kind in extra.items() if kind}
        known = {"environments": list(envs.names()), "learners": learners.names(), "extra_knowledge": extra}
        print(json.dumps(known))
    else:
        first = {name: envs.help(name).partition("\n")[0].removeprefix(f"{name}: ") for name in envs.names()}
        print("environments:\n" + listing.lines(first))
        of = {name: learners.get(name) for name in learners.names()}
        first = {name: listing.about(one).partition("\n")[0] for name, one in of.items()}
        handed = {name: f" (is handed {one.extra_knowledge})" for name, one in of.items() if one.extra_knowledge}
        print("learners:\n" + listing.lines({name: text + handed.get(name, "") for name, text in first.items()}))
        print("More on each, and what can be set: cpdpo list NAME")
    return 0


def _bench(asked: arguments.Bench) -> int:
    from cpdpo_jax.cli import bench

    return bench.run(asked)


_COMMANDS = {
    arguments.Demo: _demo,
    arguments.Run: _run,
    arguments.Resume: _resume,
    arguments.Status: status.run,
    arguments.Report: _report,
    arguments.Solve: _solve,
    arguments.List: _list,
    arguments.Bench: _bench,
}
