#!/usr/bin/env bash
# A real SLURM on this machine (munged, slurmctld and slurmd from Debian packages; as root), then `--on slurm` with a
# job killed and `--shard` as an array job with a requeue, each compared with the threads' run. Give PYTHON=... for
# another interpreter than `python`. Exit code 77 where the packages cannot be had.
set -euo pipefail
cd "$(dirname "$0")/../.."
PYTHON=${PYTHON:-python}
if ! command -v slurmctld >/dev/null; then
  [ "$(id -u)" = 0 ] || { echo "slurm is not installed, and only root can install it"; exit 77; }
  (apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq munge slurmctld slurmd slurm-client) \
    >/dev/null 2>&1 || { echo "slurm cannot be installed here"; exit 77; }
fi
WORK=$(mktemp -d /tmp/cpdpo-slurm-XXXXXX)
HOST=$(hostname -s)
CONF=$WORK/slurm.conf
mkdir -p "$WORK/state" "$WORK/spool" "$WORK/munge"
cat > "$CONF" <<END
ClusterName=one
SlurmctldHost=$HOST
SlurmUser=root
AuthType=auth/munge
StateSaveLocation=$WORK/state
SlurmdSpoolDir=$WORK/spool
SlurmctldPidFile=$WORK/slurmctld.pid
SlurmdPidFile=$WORK/slurmd.pid
SlurmctldLogFile=$WORK/slurmctld.log
SlurmdLogFile=$WORK/slurmd.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
SchedulerParameters=bf_interval=1
MinJobAge=30
KillWait=5
NodeName=$HOST NodeAddr=127.0.0.1 CPUs=$(nproc) RealMemory=4000 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
END
export SLURM_CONF=$CONF
dd if=/dev/urandom bs=1 count=1024 of="$WORK/munge/key" status=none
chmod 700 "$WORK/munge"; chmod 400 "$WORK/munge/key"
STARTED=()
stop() {
  for pid in "${STARTED[@]}"; do kill "$pid" 2>/dev/null || true; done
  [ -n "${KEEP:-}" ] || rm -rf "$WORK"
}
trap stop EXIT
if ! munge -n >/dev/null 2>&1; then
  mkdir -p /run/munge && chmod 755 /run/munge && chown root: /run/munge
  munged --force --foreground --key-file="$WORK/munge/key" --pid-file="$WORK/munge/pid" --log-file="$WORK/munge/log" \
    --seed-file="$WORK/munge/seed" 2>/dev/null & STARTED+=($!)
  sleep 1
fi
slurmctld -D -f "$CONF" >/dev/null 2>&1 & STARTED+=($!)
slurmd -D -f "$CONF" >/dev/null 2>&1 & STARTED+=($!)
for _ in $(seq 60); do sinfo -h -o %T 2>/dev/null | grep -q idle && break; sleep 1; done
sinfo --version; sinfo
"$PYTHON" -m experiments.clusters.slurm "$WORK/runs"
