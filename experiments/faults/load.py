"""Many seeds, instances and calls: the peak memory of each in a separate process, and its growth over calls."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from experiments.faults.rows import Row

BEGIN = """
import gc, json, resource, time
import cpdpo_jax as cp
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
def now():
    gc.collect()
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize() / 2**20
"""
SEEDS = """
cmdp = cp.envs.make("random", layers=3, states=3, actions=2, constraints=1)
started = time.perf_counter()
result = cp.simulate(["uniform", "cpdpo"], cmdp, episodes=EPISODES, seeds=SEEDS, checkpoints=10, progress=False)
simulated = time.perf_counter() - started
text = result.summary()
summary = time.perf_counter() - started - simulated
print(json.dumps([peak(), simulated, summary, int(result.data.strong_regret.notnull().all())]))
"""
INSTANCES = """
cmdp = cp.envs.make("random", layers=3, states=3, actions=2, constraints=1, instances=COUNT, rho=0.1)
started = time.perf_counter()
result = cp.simulate("cpdpo", cmdp, episodes=EPISODES, seeds=4, checkpoints=10, progress=False)
print(json.dumps([peak(), time.perf_counter() - started, 0, int(result.data.strong_regret.notnull().all())]))
"""
CALLS = """
cmdp = cp.envs.make("random", layers=2, states=2, actions=2, constraints=1)
sizes = []
for i in range(CALLS):
    result = cp.simulate("cpdpo", cmdp, episodes=50, seeds=8, key=i, progress=False)
    result.summary()
    result.save("call.nc"); cp.Result.load("call.nc")
    sizes.append(now())
print(json.dumps(sizes))
"""
GROWTH = 8.0  # maximum growth in MB over 50 calls after the first ten


def run(quick: bool, place: Path) -> list[Row]:
    """Three rows."""
    seeds, instances, calls = (2000, 50, 15) if quick else (20_000, 500, 50)
    rows = []
    for what, n, text in (
        ("seeds in one call", seeds, SEEDS.replace("SEEDS)", "0)")),
        ("instances in one call", instances, INSTANCES.replace("COUNT", str(instances))),
    ):
        text = text.replace("seeds=SEEDS", f"seeds={seeds}").replace("EPISODES", "200")
        code, got = _python(text, place)
        if code:
            rows.append(Row(what, n, 1, got[-200:]))
            continue
        megabytes, simulated, summary, whole = json.loads(got)
        detail = f"peak {megabytes:,.0f} MB, {simulated:.0f} s" + (f", summary() {summary:.1f} s" if summary else "")
        rows.append(Row(what, n, 1 - whole, detail))
    code, got = _python(CALLS.replace("CALLS", str(calls)), place)
    sizes = [0.0, 1e9] if code else json.loads(got)
    first = sizes[min(10, len(sizes) // 2) :]
    grown = first[-1] - first[0]
    detail = got[-200:] if code else f"{first[0]:,.0f} MB after 10 calls, {first[-1]:,.0f} MB at the end"
    return [*rows, Row("repeated calls", calls, int(grown > GROWTH), detail)]


def _python(text: str, place: Path) -> tuple[int, str]:
    done = subprocess.run([sys.executable, "-c", BEGIN + text], cwd=place, capture_output=True, text=True, timeout=600)
    return done.returncode, done.stdout if not done.returncode else done.stderr
