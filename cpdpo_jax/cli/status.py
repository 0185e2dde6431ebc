"""`cpdpo status`: the progress of run directories."""

from __future__ import annotations

import json

from cpdpo_jax.cli import arguments
from cpdpo_jax.cli.stderr import warn
from cpdpo_jax.common.text import counted
from cpdpo_jax.sweeps import config_text, integrity, snapshots
from cpdpo_jax.sweeps.store import Store


def run(args: arguments.Status) -> int:
    """Print the progress of the directories, the processes that run in them, and damaged files."""
    if not args.directories:
        raise ValueError("status needs a run directory; give the --out of a `cpdpo run`.")
    stores = [Store(path).require() for path in args.directories]
    damaged = [entry for store in stores for entry in integrity.verify_run(store)]
    bad = {path for path, _ in damaged}
    blocks = {key: block for store in stores for key, block in store.blocks.items()}
    done = {key for key in blocks if any(store.is_done(key) and store.result_path(key) not in bad for store in stores)}
    begun = {
        key: max(0 if store.checkpoint_path(key) in bad else snapshots.episodes_done(store, key) for store in stores)
        for key in blocks
        if key not in done
    }
    begun = {key: n for key, n in begun.items() if n}
    total = sum(block["episodes"] * len(block["seeds"]) for block in blocks.values())
    ran = sum(blocks[key]["episodes"] * len(blocks[key]["seeds"]) for key in done)
    ran += sum(n * len(blocks[key]["seeds"]) for key, n in begun.items())
    running = "; ".join(holder for store in stores if (holder := store.holder())) or None
    directories = " ".join(map(str, args.directories))
    if args.json:
        state = "running" if running else "finished" if len(done) == len(blocks) else "stopped"
        counts = {"blocks": len(blocks), "finished": len(done), "begun": begun, "fraction": ran / max(total, 1)}
        counts["damaged"] = [str(path) for path, _ in damaged]
        print(json.dumps({"directory": directories, "state": state, "running": running, **counts}))
        return 2 if damaged else 0
    finished = f"{len(done)} of {counted(len(blocks), 'block')} finished"
    print(f"{directories}: {finished}, {len(begun)} started; {ran / total:.1%} of episodes")
    for key, n in begun.items():
        block = blocks[key]
        name = f"{block['learner']} on {config_text.environment_label(block['environment'])}"
        print(f"  {name}, {block['hparams']['label']}, seeds {block['seeds'][0]}-{block['seeds'][-1]}: "
              f"{n:,} of {block['episodes']:,} episodes")  # fmt: skip
    if running:
        print(f"running: {running}")
    elif len(done) < len(blocks):
        print(f"not running; resume with: cpdpo resume {directories}")
    for store in stores:
        if store.machine_kind_count > 1:
            print(f"{store.path} was run on {store.machine_kind_count} kinds of machine, which may round differently")
    for _, message in damaged:
        warn(message)
    return 2 if damaged else 0
