#!/usr/bin/env bash
# A part of the tests on the oldest dependencies that pyproject.toml declares, or on the newest to be had.
#   experiments/faults/versions.sh lowest|newest [PYTHON] [VENV]
# The rest of the tests, and the newest that pip finds, are .ci/run's.
set -euo pipefail
cd "$(dirname "$0")/../.."
which=${1:?lowest or newest}
python=${2:-python3}
venv=${3:-$(mktemp -d)/venv}
"$python" -m venv "$venv"
"$venv/bin/pip" install -q uv
case $which in
  lowest) "$venv/bin/uv" pip install -q --python "$venv/bin/python" --resolution lowest-direct -e ".[test]" ;;
  newest) "$venv/bin/uv" pip install -q --python "$venv/bin/python" --upgrade -e ".[test]" ;;
  *) echo "versions.sh: '$which' is neither lowest nor newest" >&2; exit 2 ;;
esac
"$venv/bin/uv" pip list -q --python "$venv/bin/python" 2>/dev/null |
  grep -iE '^(jax|jaxlib|chex|optax|numpy|numba|scipy|highspy|xarray|h5netcdf|h5py|matplotlib|tqdm|tyro) ' | tr -s ' ' | paste -sd, -
"$venv/bin/python" --version
# every library is used: netCDF, HiGHS, tyro, the compiled loop, numba's kernels, statistics, figures
"$venv/bin/python" -m pytest -q -p no:cacheprovider -W default tests/results tests/exact/test_lp.py tests/envs/test_files.py \
  tests/sweeps/test_integrity.py tests/kernels/machines tests/kernels/test_forms.py tests/cli/test_cli.py
