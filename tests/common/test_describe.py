"""`cmdp.describe()` wherever the CMDP comes from, in a process that has loaded nothing else."""

from __future__ import annotations

import inspect
import pickle
import re
import subprocess
import sys

import pytest

import cpdpo_jax as cp

ARRAYS = "np.full((1, 1, 2, 1), 1.0), np.ones((2, 1, 2)), np.full((1, 2, 1, 2), 0.5), [1.5]"
WAYS = {  # a statement that makes `cmdp`; `path` is that of a saved "factored", with a pickle in the same folder
    "make_cmdp": f"cmdp = cp.make_cmdp({ARRAYS})",
    "from_episodic": "cmdp = cp.from_episodic(np.ones((1, 2, 1)), np.ones((1, 2)), np.ones((1, 1, 2)), [2], horizon=2)",
    "from_arrays": "cmdp = cp.from_arrays(np.ones((2, 1, 1)), np.ones((1, 2)), [np.ones((1, 2))], [2], horizon=2)",
    "from_gymnasium": "cmdp = cp.from_gymnasium([{0: [(1.0, 0, 1.0, True)]}], cost=[[1]], threshold=1, horizon=1)",
    "load_cmdp": "cmdp = cp.load_cmdp(path)",
    "envs.make": "cmdp = cp.envs.make('factored')",
    "envs.make of a file": "cmdp = cp.envs.make(path)",
    "stack": "cmdp = cp.stack([cp.load_cmdp(path)] * 2)",
    "unstack": "cmdp = cp.unstack(cp.stack([cp.load_cmdp(path)] * 2))[1]",
    "CMDP": (
        "one = np.ones(())\n"
        "cmdp = cp.CMDP(np.ones((0, 1, 1, 1)), np.ones((1, 1, 1)), np.zeros((1, 1, 1, 1)), np.ones(1),\n"
        "    np.ones((1, 1, 1), bool), one, cp.Units(one, 0 * one, np.ones(1), np.zeros(1)))\n"
        "assert 'cpdpo_jax.envs' not in sys.modules"
    ),
    "pickle": (
        "import pickle; cmdp = pickle.load(open(path + '.pickle', 'rb')); assert 'cpdpo_jax.envs' not in sys.modules"
    ),
}


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> str:
    cmdp = cp.envs.make("factored")
    path = cp.save_cmdp(tmp_path_factory.mktemp("saved") / "saved.npz", cmdp)
    path.with_name("saved.npz.pickle").write_bytes(pickle.dumps(cmdp))
    return str(path)


FEW = ("make_cmdp", "CMDP", "pickle", "envs.make of a file")  # a process each


@pytest.mark.parametrize("way", [pytest.param(way, marks=[pytest.mark.exhaustive] * (way not in FEW)) for way in WAYS])
def test_every_public_way_to_a_cmdp_describes_it(way, path):
    code = (
        f"import sys\nimport numpy as np\nimport cpdpo_jax as cp\npath = {path!r}\n{WAYS[way]}\nprint(cmdp.describe())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "Slater margin rho = " in done.stdout
    assert "OPT " in done.stdout


def test_the_ways_are_those_that_are_public():
    """Every public function or class whose annotation says that it returns CMDPs."""
    public = {name: getattr(cp, name) for name in cp.__all__}
    makers = {
        name
        for name, function in public.items()
        if inspect.isfunction(function) and re.search(r"\bCMDP\b", str(inspect.signature(function).return_annotation))
    }
    assert makers | {"CMDP"} <= set(WAYS), makers


def test_the_package_and_its_envs_load_neither_jax_nor_matplotlib():
    code = (
        "import sys, cpdpo_jax, cpdpo_jax.envs\n"
        "print([name for name in ('jax', 'matplotlib', 'gymnasium') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=600)
    assert done.stdout == "[]\n"
