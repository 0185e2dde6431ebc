"""On an existing SLURM: `--on slurm` with a killed job, and `--shard` as an array job with a requeued task.

`bash experiments/clusters/slurm.sh` sets one up on this machine and calls this.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from experiments.clusters.compare import tell

TOML = """learners = ["uniform"]
environments = ["random:layers=2,states=2,actions=2,constraints=1,instances=4"]
episodes = 600_000
seeds = 40

[slurm]
jobs = 2
time = "0:10:00"
memory = "1500MB"
"""
SCRIPT = """#!/bin/bash
#SBATCH --array=0-2 --requeue --open-mode=append --output={out}.%a.log
#SBATCH --cpus-per-task=1 --mem=1000M --time=0:10:00
#SBATCH --signal=TERM@60
srun {cpdpo} run {file} --out {out} --checkpoint-every 0.2 --shard $SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT
[ $? = 130 ] && scontrol requeue $SLURM_JOB_ID
"""


def slurm(*command: str) -> str:
    """The output of a SLURM command."""
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def until(there, seconds: float = 300) -> None:
    """Wait until a condition holds."""
    started = time.monotonic()
    while not there():
        if time.monotonic() - started > seconds:
            raise TimeoutError("waited too long")
        time.sleep(0.1)


def on_slurm(cpdpo: list[str], file: Path, out: Path) -> None:
    """Two jobs, of which one is killed during a block."""
    command = [*cpdpo, "run", str(file), "--out", str(out), "--on", "slurm", "--checkpoint-every", "0.2"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    until(lambda: process.poll() is not None or any(out.glob("checkpoints/*.npz")))
    jobs = slurm("squeue", "-h", "-t", "R", "-o", "%A").split()
    done = len(list(out.glob("blocks/*.nc")))
    slurm("scancel", "--signal=KILL", "--full", jobs[0])
    print(f"--on slurm: job {jobs[0]} of {jobs} killed when {done} blocks were finished", flush=True)
    code = process.wait()
    seen = sorted(path.stem for path in (out / "slurm").glob("*.out"))
    print(f"--on slurm: exit code {code}; jobs that ran: {seen}; queue now: {slurm('squeue', '-h')!r}", flush=True)


def as_array(cpdpo: list[str], file: Path, out: Path) -> None:
    """Three shards as an array job; the second is requeued during its run, as after a preemption."""
    script = out.with_suffix(".sbatch")
    script.write_text(SCRIPT.format(out=out, file=file, cpdpo=" ".join(cpdpo)))
    job = slurm("sbatch", "--parsable", str(script))
    locks = out / "lock-1-of-3"
    until(lambda: locks.is_file() and locks.read_text() and any(out.glob("checkpoints/*.npz")))
    slurm("scontrol", "requeue", f"{job}_1")
    print(f"--shard: {job}_1 requeued when {len(list(out.glob('blocks/*.nc')))} blocks were finished", flush=True)
    until(lambda: not slurm("squeue", "-h", "-j", job), 400)
    sessions = [path.read_text().count("started") for path in sorted((out / "shards").glob("*.json"))]
    print(f"--shard: sessions of each shard: {sessions}", flush=True)


def main() -> int:
    folder = Path(sys.argv[1]).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    cpdpo = [sys.executable, "-m", "cpdpo_jax.cli"]
    file = folder / "sweep.toml"
    file.write_text(TOML)
    threads = folder / "threads"
    subprocess.run([*cpdpo, "run", str(file), "--out", str(threads)], check=True, stdout=subprocess.DEVNULL)
    on_slurm(cpdpo, file, folder / "dask")
    good = tell("--on slurm, against threads", folder / "dask", threads)
    as_array(cpdpo, file, folder / "array")
    return 0 if tell("--shard as an array job, against threads", folder / "array", threads) and good else 1


if __name__ == "__main__":
    sys.exit(main())
