"""What each command does. Modules that need jax are imported where they are needed."""

from __future__ import annotations

import json
import signal
import sys
import time
from pathlib import Path
from typing import Any

from cpdpo_jax.cli import arguments, demo
from cpdpo_jax.sweeps import config as configuration
from cpdpo_jax.sweeps.config import Config
from cpdpo_jax.sweeps.store import Store


def run(asked: Any) -> int:
    """Dispatch."""
    return _COMMANDS[type(asked)](asked)


def _demo(asked: arguments.Demo) -> int:
    from cpdpo_jax.sweeps.load import load_runs, rows

    config = configuration.build(demo.TABLE | {"episodes": asked.episodes, "seeds": asked.seeds})
    _say("A CMDP on which averages deceive, and a random one: our own learner, CPD-PO and two rivals.")
    code = _execute(config, asked.out, quiet=False, as_json=False)
    if code:
        return code
    print("\n" + demo.story(rows(load_runs([Store(asked.out)]))))
    return _report(arguments.Report(directories=(asked.out,)))


def _run(asked: arguments.Run) -> int:
    if asked.checkpoint_every <= 0:
        raise ValueError(f"--checkpoint-every {asked.checkpoint_every:g} is not a positive number of seconds.")
    table = configuration.read(Path(asked.file)) if asked.file else {}
    table |= _flags(asked)
    config = configuration.build(table, asked.file or "the command line")
    name = Path(asked.file).stem if asked.file else "-".join(config.learners)
    out = Path(asked.out) if asked.out else Path("runs") / name
    if asked.dry_run:
        return _dry_run(config, out, asked.json)
    return _execute(config, out, as_json=asked.json, any_version=asked.any_version, every=asked.checkpoint_every)


def _flags(asked: arguments.Run) -> dict[str, Any]:
    """What was given by flags, under the names of the file."""
    table: dict[str, Any] = {}
    if asked.learner:
        table["learners"] = list(asked.learner)
    if asked.env:
        table["environments"] = [configuration.parse_environment(one) for one in asked.env]
    if asked.episodes:
        table["episodes"] = [_whole("episodes", one) for one in asked.episodes]
    if asked.setting or asked.set:
        table["settings"] = _settings(asked)
    if asked.seeds:
        table["seeds"] = _whole("seeds", asked.seeds)
    given = vars(asked.simulation).items()
    return table | {name: configuration.parse_value(text) for name, text in given if text}


def _settings(asked: arguments.Run) -> list[Any]:
    values: dict[str, Any] = {}
    for one in asked.set:
        name, equals, rest = one.partition("=")
        if not equals:
            raise ValueError(f"--set {one!r} is not NAME=VALUE.")
        values[name] = [configuration.parse_value(value) for value in rest.split(",")]
    presets = asked.setting or ("tuned",)
    return [{"preset": preset, **values} if values else preset for preset in presets]


def _whole(name: str, text: str) -> int:
    try:
        return int(float(text)) if float(text).is_integer() else int(text)
    except (ValueError, OverflowError):
        raise ValueError(f"{name} = {text!r} is not a whole number.") from None


def _resume(asked: arguments.Resume) -> int:
    store = Store(asked.directory).require()
    return _execute(
        store.config, asked.directory, as_json=asked.json, any_version=asked.any_version, every=asked.checkpoint_every
    )


def _execute(
    config: Config, out: Path, *, as_json: bool, quiet: bool = False, any_version: bool = False, every: float = 5.0
) -> int:
    """Run what is not finished; the table of what is finished goes to stdout."""
    from cpdpo_jax.sweeps.load import load_runs, rows, table_of
    from cpdpo_jax.sweeps.run import execute

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    started = time.perf_counter()
    done = execute(config, out, progress=not quiet, any_version=any_version, every=every, say=_say)
    if not done.finished:
        _say(f"stopped; go on with: cpdpo resume {out}")
        return 130
    table, ran = rows(load_runs([done.store])), done.blocks - done.before
    if as_json:
        print(json.dumps({"directory": str(out), "blocks": done.blocks, "ran": ran, "rows": table}))
    else:
        print(table_of(table))
    _say(f"{ran} blocks in {time.perf_counter() - started:.1f} s. Figures: cpdpo report {out}")
    bad = sum(row["non_finite"] for row in table)
    if bad:
        raise FloatingPointError(f"{bad} runs had values that are not finite; their curves end there.")
    return 0


def _dry_run(config: Config, out: Path, as_json: bool) -> int:
    from cpdpo_jax.sweeps.runner import probe
    from cpdpo_jax.sweeps.specification import expand

    blocks = expand(config)
    store = Store(out)
    store.check(config, blocks)
    todo = {key: block for key, block in blocks.items() if not (store.exists and store.is_done(key))}
    _say("measuring a fraction of a second of each kind of block ...")
    measured = probe(todo)
    if as_json:
        print(json.dumps({"directory": str(out), "blocks": len(blocks), "to_run": len(todo), **measured._asdict()}))
        return 0
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


def _status(asked: arguments.Status) -> int:
    store = Store(asked.directory).require()
    blocks = store.blocks
    done = [key for key in blocks if store.is_done(key)]
    begun = {key: store.episodes_done(key) for key in blocks if key not in set(done)}
    begun = {key: n for key, n in begun.items() if n}
    total = sum(block["episodes"] * len(block["seeds"]) for block in blocks.values())
    ran = sum(blocks[key]["episodes"] * len(blocks[key]["seeds"]) for key in done)
    ran += sum(n * len(blocks[key]["seeds"]) for key, n in begun.items())
    running = store.holder()
    if asked.json:
        state = "running" if running else "finished" if len(done) == len(blocks) else "stopped"
        counts = {"blocks": len(blocks), "finished": len(done), "begun": begun, "fraction": ran / max(total, 1)}
        print(json.dumps({"directory": str(asked.directory), "state": state, "running": running, **counts}))
        return 0
    print(
        f"{asked.directory}: {len(done)} of {len(blocks)} blocks finished, {len(begun)} begun; {ran / total:.1%} of all"
    )
    for key, n in begun.items():
        block = blocks[key]
        where = f"{block['learner']} on {configuration.show_environment(block['environment'])}"
        print(f"  {where}, {block['setting']['label']}, seeds {block['seeds'][0]}-{block['seeds'][-1]}: "
              f"{n:,} of {block['episodes']:,} episodes")  # fmt: skip
    if running:
        print(f"running: {running}")
    elif len(done) < len(blocks):
        print(f"not running; go on with: cpdpo resume {asked.directory}")
    return 0


def _report(asked: arguments.Report) -> int:
    from cpdpo_jax.sweeps import report

    if not asked.directories:
        raise ValueError("report needs a run directory; give the --out of a `cpdpo run`.")
    stores = [Store(path).require() for path in asked.directories]
    written = report.write(stores, Path(asked.out) if asked.out else asked.directories[0], say=_say)
    if asked.json:
        print(json.dumps(written))
    else:
        print(f"report: {written['report']}")
    return 0


def _solve(asked: arguments.Solve) -> int:
    from cpdpo_jax import envs
    from cpdpo_jax.exact.optimum import solve

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

    if asked.name in envs.names():
        print(json.dumps(envs.defaults(asked.name), default=str) if asked.json else envs.help(asked.name))
        return 0
    from cpdpo_jax import learners

    if asked.name:
        learner = learners.get(asked.name)
        text = _about(learner)
        print(json.dumps({"name": learner.name, "about": text}) if asked.json else f"{learner.name}: {text}")
    elif asked.json:
        print(json.dumps({"environments": list(envs.names()), "learners": learners.names()}))
    else:
        print("environments:\n  " + envs.help().replace("\n", "\n  "))
        print("learners:")
        for name in learners.names():
            print(f"  {name:24}{_about(learners.get(name)).partition(chr(10))[0]}")
    return 0


def _about(learner: Any) -> str:
    """The docstring of the module that a learner comes from; a user's own may have none."""
    module = sys.modules.get(learner.update.__module__ or "")
    return (getattr(module, "__doc__", None) or "a learner of your own").strip()


def _bench(asked: arguments.Bench) -> int:
    from cpdpo_jax.cli import bench

    return bench.run(asked)


def _say(text: str) -> None:
    """A remark for a person; results go to stdout."""
    if sys.stderr.isatty():
        print(text, file=sys.stderr, flush=True)


_COMMANDS = {
    arguments.Demo: _demo,
    arguments.Run: _run,
    arguments.Resume: _resume,
    arguments.Status: _status,
    arguments.Report: _report,
    arguments.Solve: _solve,
    arguments.List: _list,
    arguments.Bench: _bench,
}
