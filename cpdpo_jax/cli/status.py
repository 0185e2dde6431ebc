"""`cpdpo status`: how far run directories have come."""

from __future__ import annotations

import json

from cpdpo_jax.cli import arguments
from cpdpo_jax.cli.saying import warn
from cpdpo_jax.sweeps import config as configuration
from cpdpo_jax.sweeps import integrity, snapshots
from cpdpo_jax.sweeps.store import Store


def run(asked: arguments.Status) -> int:
    """How far some directories have come, what runs there, and what is damaged."""
    if not asked.directories:
        raise ValueError("status needs a run directory; give the --out of a `cpdpo run`.")
    stores = [Store(path).require() for path in asked.directories]
    bad = [one for store in stores for one in integrity.look(store)]
    lost = {path for path, _ in bad}
    blocks = {key: block for store in stores for key, block in store.blocks.items()}
    done = {key for key in blocks if any(store.is_done(key) and store.result_path(key) not in lost for store in stores)}
    begun = {
        key: max(0 if store.checkpoint_path(key) in lost else snapshots.episodes_done(store, key) for store in stores)
        for key in blocks
        if key not in done
    }
    begun = {key: n for key, n in begun.items() if n}
    total = sum(block["episodes"] * len(block["seeds"]) for block in blocks.values())
    ran = sum(blocks[key]["episodes"] * len(blocks[key]["seeds"]) for key in done)
    ran += sum(n * len(blocks[key]["seeds"]) for key, n in begun.items())
    running = "; ".join(holder for store in stores if (holder := store.holder())) or None
    where = " ".join(map(str, asked.directories))
    if asked.json:
        state = "running" if running else "finished" if len(done) == len(blocks) else "stopped"
        counts = {"blocks": len(blocks), "finished": len(done), "begun": begun, "fraction": ran / max(total, 1)}
        counts["damaged"] = [str(path) for path, _ in bad]
        print(json.dumps({"directory": where, "state": state, "running": running, **counts}))
        return 2 if bad else 0
    print(f"{where}: {len(done)} of {len(blocks)} blocks finished, {len(begun)} begun; {ran / total:.1%} of all")
    for key, n in begun.items():
        block = blocks[key]
        what = f"{block['learner']} on {configuration.show_environment(block['environment'])}"
        print(f"  {what}, {block['setting']['label']}, seeds {block['seeds'][0]}-{block['seeds'][-1]}: "
              f"{n:,} of {block['episodes']:,} episodes")  # fmt: skip
    if running:
        print(f"running: {running}")
    elif len(done) < len(blocks):
        print(f"not running; go on with: cpdpo resume {where}")
    for store in stores:
        if store.kinds_of_machine > 1:
            print(f"{store.path} was run on {store.kinds_of_machine} kinds of machine, which may round otherwise")
    for _, told in bad:
        warn(told)
    return 2 if bad else 0
