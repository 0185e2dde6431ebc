"""User code for tests: a learner and an environment in a file, and the modules that it imports."""

from __future__ import annotations

from pathlib import Path

MINE = '''"""Plays the first actions more often."""
import jax.numpy as jnp
import cpdpo_jax as cp
from cpdpo_jax.learners import Info, Learner, NoHyperparameters
from neighbour import WEIGHT

def policy(problem, hyper, state):
    first = jnp.arange(problem.action_mask.shape[2]) == 0
    weights = problem.action_mask * (1.0 + WEIGHT * first[None, None, :, None])
    return weights / jnp.maximum(weights.sum(axis=2, keepdims=True), 1)

def update(problem, hyper, state, policy, trajectory):
    return state, Info(jnp.zeros_like(problem.threshold), jnp.zeros(problem.delta.shape, jnp.int32))

cp.learners.register(Learner("mine", lambda problem, preset: NoHyperparameters(),
                             lambda problem, hyper: jnp.zeros_like(problem.delta), policy, update))

@cp.envs.register
def corridor(layers: int = 3):
    "A small one of my own."
    return cp.envs.make("random", layers=layers, states=2, actions=2, constraints=1)
'''

LIBRARY = {
    "package": ("from mylib.core import WEIGHT", {"mylib/__init__.py": "", "mylib/core.py": "WEIGHT = 1.0\n"}),
    "namespace package": ("from mylib.core import WEIGHT", {"mylib/core.py": "WEIGHT = 1.0\n"}),
    "subpackage": (
        "from mylib import WEIGHT",
        {"mylib/__init__.py": "from .sub import WEIGHT\n", "mylib/sub/__init__.py": "from .deep import WEIGHT\n",
         "mylib/sub/deep.py": "WEIGHT = 1.0\n"},
    ),
    "neighbour's neighbour": (
        "from mylib import WEIGHT", {"mylib.py": "from far import WEIGHT\n", "far.py": "WEIGHT = 1.0\n"},
    ),
    "inside a function": (
        "def late():\n    import far\n    return far.WEIGHT\nWEIGHT = late()", {"far.py": "WEIGHT = 1.0\n"},
    ),
    "another folder": (
        "import sys, pathlib\nsys.path.append(str(pathlib.Path(__file__).parent / 'lib'))\nfrom far import WEIGHT",
        {"lib/far.py": "WEIGHT = 1.0\n"},
    ),
    "no module in sys.modules": (
        "import importlib.util, pathlib\npath = pathlib.Path(__file__).parent / 'far.py'\n"
        "spec = importlib.util.spec_from_file_location('anything', path)\n"
        "far = importlib.util.module_from_spec(spec)\nspec.loader.exec_module(far)\nWEIGHT = far.WEIGHT",
        {"far.py": "WEIGHT = 1.0\n"},
    ),
    "runpy": (
        "import pathlib, runpy\npath = pathlib.Path(__file__).parent / 'lib' / 'far.py'\n"
        "WEIGHT = runpy.run_path(str(path))['WEIGHT']",
        {"lib/far.py": "WEIGHT = 1.0\n"},
    ),
    "exec of text": (
        "import pathlib\nexec((pathlib.Path(__file__).parent / 'far.py').read_text())", {"far.py": "WEIGHT = 1.0\n"},
    ),
    "exec of a file": (
        "import pathlib\npath = pathlib.Path(__file__).parent / 'far.py'\n"
        "exec(compile(path.read_text(), path, 'exec'))",
        {"far.py": "WEIGHT = 1.0\n"},
    ),
    "a computed name": (
        "import importlib\nWEIGHT = importlib.import_module('f' + 'ar').WEIGHT", {"far.py": "WEIGHT = 1.0\n"},
    ),
}  # fmt: skip


def table(path: Path | str) -> dict:
    return {"learners": ["mine", "uniform"], "environments": ["corridor"], "episodes": 40, "seeds": 3,
            "imports": [str(path)]}  # fmt: skip
