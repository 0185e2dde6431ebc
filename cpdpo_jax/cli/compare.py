"""`cpdpo compare`: paired comparisons of all learners of stored runs, and their ranks over environments."""

from __future__ import annotations

import json

from cpdpo_jax.cli.arguments import Compare


def run(args: Compare) -> int:
    """Print one table per environment and T, Holm-corrected over all tables, and ranks over several environments."""
    import pandas as pd

    from cpdpo_jax.results import comparison, significance, units
    from cpdpo_jax.sweeps.load import in_units, load_runs, shown
    from cpdpo_jax.sweeps.store import Store

    if not args.directories:
        raise ValueError("compare needs a run directory; give the --out of a `cpdpo run`.")
    tables = shown(in_units(load_runs([Store(path).require() for path in args.directories]), args.units))
    if not tables:
        raise ValueError(f"{', '.join(map(str, args.directories))}: no block is finished yet.")
    frames = {i: comparison.pairs_frame(table.result.data, args.metric) for i, table in enumerate(tables)}
    corrected = significance.with_holm(pd.concat(frames))
    instances = sum(table.result.data.sizes["instance"] for table in tables)
    runs = [(table.environment, table.result.data) for table in tables]
    ranks = comparison.rank_frame(runs, args.metric) if instances > 1 else None
    if args.json:
        records = [{"environment": tables[i].environment, "T": tables[i].episodes, **row}
                   for i in frames for row in corrected.loc[i].to_dict("records")]  # fmt: skip
        text = {"pairs": records, "ranks": [] if ranks is None else ranks.to_dict("records")}
        print(json.dumps(text, default=float).replace("NaN", "null"))  # JSON has no NaN
        return 0
    for i, table in enumerate(tables):
        head = ", ".join(filter(None, [table.environment, f"T = {table.episodes:,}", units.remark(table.result.data)]))
        print(comparison.pairs_table(corrected.loc[i], head, note=False) + "\n")
    if ranks is not None:
        print(comparison.rank_table(ranks) + "\n")
    print(comparison.explanation(len(corrected)))
    return 0
