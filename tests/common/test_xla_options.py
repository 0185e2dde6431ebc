"""XLA's options: set once, those of the user kept, and none that this jaxlib may not know."""

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from cpdpo_jax.common import xla_options

ROOT = Path(__file__).parents[2]
UNROLL = "-unroll-full-max-count=15"


@pytest.fixture(autouse=True)
def _state_of_its_own(monkeypatch):
    """What `set_options` records here is not what other tests of the process read."""
    monkeypatch.setattr(xla_options, "_state", dict(xla_options._state))


@pytest.fixture
def flags(monkeypatch):
    """The flags after `set_options` in a process with these flags, this version of jaxlib and these plugins."""

    def set_with(before="", version=(0, 10), plugins=()):
        monkeypatch.setenv("XLA_FLAGS", before)
        monkeypatch.setattr(xla_options, "_backend_started", lambda: False)
        monkeypatch.setattr(xla_options, "jaxlib_version", lambda: version)
        monkeypatch.setattr(xla_options.util, "find_spec", lambda name: name if name in plugins else None)
        monkeypatch.setattr(xla_options, "_state", {})
        xla_options.set_options()
        return os.environ["XLA_FLAGS"]

    return set_with


def test_the_options_of_a_known_version_are_set_once(flags):
    once = flags()
    assert xla_options.describe() == "set"
    assert UNROLL in once
    assert flags(once) == once


def test_an_unknown_version_gets_no_option_that_would_end_the_process(flags):
    given = flags(version=(99, 0))
    assert xla_options.LOOP_BYTES in given
    assert "unroll" not in given
    assert "vector" not in given


@pytest.mark.parametrize("plugin", ["jax_plugins", "libtpu"])
def test_the_compiler_of_an_accelerator_gets_no_option_of_llvm(flags, plugin):
    given = flags(plugins=[plugin])
    assert xla_options.LOOP_BYTES in given
    assert "unroll" not in given


def test_options_of_the_user_stay(flags):
    own = "--xla_backend_extra_options=xla_cpu_optimize_for_size=true"
    assert flags(own).split()[0] == own
    assert xla_options.describe() != "set"


def test_a_threshold_of_the_user_is_not_taken_for_the_packages(flags):
    own = f"--xla_backend_extra_options={xla_options.LOOP_BYTES}=1"
    assert flags(own).split()[0] == own
    assert xla_options.describe() == "not set: XLA_FLAGS has xla_backend_extra_options of its own"


@pytest.mark.parametrize("name", ["/home/me/flags.txt", " flags"])
def test_the_name_of_a_file_of_flags_stays(flags, name):
    """XLA reads the file; with options behind its name it would look for another file and end the process."""
    assert flags(name) == name
    assert xla_options.describe() == "not set: XLA_FLAGS names a file of flags"


@pytest.mark.parametrize("switch", ["0", "false", "OFF", " no "])
def test_they_are_turned_off(flags, monkeypatch, switch):
    monkeypatch.setenv(xla_options.VARIABLE, switch)
    assert flags("--xla_a=1") == "--xla_a=1"
    assert xla_options.describe() == f"not set: CPDPO_XLA_OPTIONS = {switch!r}"
    monkeypatch.setenv(xla_options.VARIABLE, "1")
    assert flags("--xla_a=1").startswith("--xla_a=1 ")
    assert xla_options.describe() == "set"


def test_they_are_not_set_too_late(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_a=1")
    monkeypatch.setattr(xla_options, "_backend_started", lambda: True)
    monkeypatch.setattr(xla_options, "_state", {})
    xla_options.set_options()
    assert os.environ["XLA_FLAGS"] == "--xla_a=1"
    assert "import cpdpo_jax first" in xla_options.describe()
    assert xla_options.were_too_late()


@pytest.mark.parametrize("own", [False, True])
def test_options_that_jax_read_before_the_import_are_recognised(flags, monkeypatch, own):
    """Such as those inherited from a process that has imported the package."""
    before = "--xla_backend_extra_options=xla_cpu_optimize_for_size=true" if own else flags()
    monkeypatch.setattr(xla_options, "_backend_started", lambda: True)
    monkeypatch.setenv("XLA_FLAGS", before)
    xla_options.set_options()
    assert os.environ["XLA_FLAGS"] == before
    assert (xla_options.describe() == "set") == (not own)
    assert not xla_options.were_too_late()


@pytest.mark.parametrize(("version", "is_known"), [((0, 10), True), ((0, 9), False), ((1, 10), False), ((), False)])
def test_the_width_of_vectors_is_set_where_jaxlib_knows_it(flags, version, is_known):
    assert ("--xla_cpu_prefer_vector_width=512" in flags(version=version)) == is_known
    assert flags("--xla_cpu_prefer_vector_width=256", version).count("vector_width") == 1


def test_the_version_is_that_of_the_installed_jaxlib():
    major, minor = metadata.version("jaxlib").split(".")[:2]
    assert xla_options.jaxlib_version() == (int(major), int(minor))


CALLS = {
    "simulate": "cp.simulate('uniform', 'hard', episodes=1, seeds=1, progress=False)",
    "make_train": "cp.make_train('uniform', 'hard', episodes=1)",
    "run": "cp.run({'learners': ['uniform'], 'environments': ['hard'], 'episodes': 1, 'seeds': 1}, sys.argv[1])",
}


@pytest.mark.parametrize(("calls", "variables", "expected"), [
    (["simulate", "make_train"], {}, 1),
    (["simulate", "make_train"], {xla_options.VARIABLE: "0"}, 0),
    *(pytest.param(*case, marks=pytest.mark.exhaustive) for case in [
        (["make_train", "simulate"], {}, 1),
        (["run"], {}, 1),
        (["run"], {xla_options.VARIABLE: "0"}, 0),
        (["simulate"], {"XLA_FLAGS": "--xla_backend_extra_options=xla_cpu_optimize_for_size=true"}, 0),
        (["simulate"], {"XLA_FLAGS": xla_options.EXTRA}, 0),
    ]),
])  # fmt: skip
def test_an_import_after_the_first_computation_is_one_warning_at_the_users_line(tmp_path, calls, variables, expected):
    lines = ["import sys, jax", "jax.numpy.ones(3).sum()", "import cpdpo_jax as cp", *(CALLS[call] for call in calls)]
    (tmp_path / "program.py").write_text("\n".join(lines))
    kept = {name: value for name, value in os.environ.items() if name not in ("XLA_FLAGS", xla_options.VARIABLE)}
    command = [sys.executable, str(tmp_path / "program.py"), str(tmp_path / "run")]
    environment = kept | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"} | variables
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found = [line for line in done.stderr.splitlines() if "RuntimeWarning" in line]
    assert len(found) == expected, done.stderr
    for line in found:
        assert f"{tmp_path}/program.py:4: RuntimeWarning" in line
        assert "Import cpdpo_jax before the first computation, or set CPDPO_XLA_OPTIONS=0 to silence" in line
