"""The command line as a person meets it: mistakes, help, listing, solving, start-up."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import signal
import subprocess
import sys
import typing

import numpy as np
import pytest

import cpdpo_jax as cp
from cpdpo_jax import cli
from cpdpo_jax.cli import arguments, commands, entry
from cpdpo_jax.common.errors import WorkerError
from cpdpo_jax.common.interrupts import exit_immediately
from cpdpo_jax.sweeps import config, config_text

GOOD = {"--learner": "uniform", "--env": "factored", "--episodes": "50", "--seeds": "2", "--out": "out"}
TOML = 'learners = ["uniform"]\nenvironments = ["factored"]\nepisodes = 50\nseeds = 2\n'


def run_with(**changed):
    """`cpdpo run` with good flags, some changed."""
    flags = GOOD | {f"--{name.replace('_', '-')}": value for name, value in changed.items()}
    return ["run", *(part for flag, value in flags.items() if value is not None for part in (flag, *value.split()))]


MISTAKES = {
    "no such command": (["rnu", "good.toml"], "there is no command 'rnu'; did you mean run?"),
    "no such flag": (["run", "--lerner", "cpdpo"], "--lerner is not known; did you mean --learner?; see cpdpo run"),
    "a flag like none": (["run", "--zzz"], "--zzz is not known; see cpdpo run --help"),
    "a flag without its value": (["run", "--monitor"], "--monitor needs a value; see cpdpo run --help"),
    "no environment to solve": (["solve"], "Missing from cpdpo solve: ENV"),
    "two files": (["run", "good.toml", "text.toml"], "text.toml is not known"),
    "an environment for a learner": (run_with(learner="factored"), "'factored' is an environment; give a learner"),
    "a learner for an environment": (run_with(env="uniform"), "'uniform' is a learner; give an environment"),
    "a learner in capitals": (run_with(learner="CPDPO"), "did you mean cpdpo?"),
    "the former and the present name of a key": (
        ["run", "both.toml"],
        "both.toml has both 'hparams' and its former name 'settings'; give 'hparams' alone",
    ),
    "list of nothing": (["list", "media-streaming"], "there is no learner or environment named 'media-streaming'; di"),
    "T of the demo that is no number": (["demo", "--episodes", "abc"], "episodes = 'abc' is not a whole number"),
    "T with a comma": (run_with(episodes="1,000"), "episodes = '1,000' is not a whole number; write 1000"),
    "unknown learner": (run_with(learner="cpdop"), "did you mean cpdpo"),
    "the same learner twice": (run_with(learner="uniform uniform"), "twice"),
    "unknown environment": (run_with(env="medya_streaming"), "did you mean media_streaming"),
    "unknown parameter": (run_with(env="random:layer=3"), "did you mean layers"),
    "parameter without a value": (run_with(env="random:layers"), "write PARAMETER=VALUE"),
    "parameter that is no number": (run_with(env="random:layers=four"), "layers = 'four'"),
    "infeasible threshold": (run_with(env="mars_rover:threshold=0"), "infeasible"),
    "T = 0": (run_with(episodes="0"), "episodes = 0"),
    "T that is no number": (run_with(episodes="many"), "episodes = 'many'"),
    "negative seeds": (run_with(seeds="-3"), "seeds = -3"),
    "no seeds given": (run_with(seeds=None), "--seeds"),
    "unknown preset": (run_with(hparams="tunde"), "no preset 'tunde'"),
    "unknown hyperparameter": (run_with(learner="cpdpo", hparams="learning_rat=1"), "no hyperparameter 'learning_rat'"),
    "negative hyperparameter": (run_with(learner="cpdpo", hparams="learning_rate=-1"), "learning_rate = -1"),
    "rho = 0": (run_with(rho="0"), "rho = 0"),
    "unknown horizon": (run_with(horizon="guess"), "horizon = 'guess'"),
    "missing file": (["run", "nowhere.toml"], "there is no file 'nowhere.toml'; give a TOML file"),
    "missing .npz": (run_with(env="nowhere.npz"), "nowhere.npz"),
    "misspelt key in the TOML": (["run", "misspelt.toml"], "did you mean episodes?"),
    "a file that is not TOML": (["run", "broken.toml"], "is not TOML"),
    "a text for a number in the TOML": (["run", "text.toml"], "episodes = 'x' is not a whole number"),
    "out is a file": (run_with(out="good.toml"), "holds no run"),
    "out is inside a file": (run_with(out="good.toml/run"), "good.toml"),
    "out holds something else": (run_with(out="full"), "holds no run"),
    "status of no run": (["status", "full"], "not a run directory"),
    "resume of nothing": (["resume", "nowhere"], "does not exist"),
    "report of nothing": (["report"], "directory"),
    "solve of nothing": (["solve", "nothing"], "no environment is called 'nothing'"),
    "a flag twice": ([*run_with(), "--seeds", "3"], "--seeds is given twice"),
    "a flag of several values twice": (
        [*run_with(), "--learner", "cpdpo"],
        "give all its values at once: --learner A B",
    ),
    "a metric twice": (["report", "full", "--metric", "a", "--metric", "b"], "at once: --metric A B"),
    "a flag twice, spelt differently": ([*run_with(), "--checkpoint-every=3", "--checkpoint_every", "4"], "twice"),
    "a hyperparameter twice": (run_with(learner="cpdpo", hparams="dilation=1 dilation=2"), "'dilation' twice"),
    "a parameter twice": (run_with(env="random:layers=3,layers=4"), "'layers' twice"),
    "negative key in the TOML": (["run", "key.toml", "--out", "out"], "key = -1"),
    "no hparams in the TOML": (["run", "hparams.toml", "--out", "out"], "hparams = [] is empty"),
    "an empty grid in the TOML": (["run", "grid.toml", "--out", "out"], "is not a table of non-empty lists"),
    "in the grid and outside it": (["run", "outside.toml", "--out", "out"], "'states' both as a key and in its grid"),
    "the former bench": (["bench", "--quick"], "`cpdpo bench` is now `python -m experiments.speed`"),
}


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A directory to make mistakes in."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.toml").write_text(TOML)
    (tmp_path / "misspelt.toml").write_text(TOML.replace("episodes", "epsiodes"))
    (tmp_path / "broken.toml").write_text("learners = [")
    (tmp_path / "text.toml").write_text(TOML.replace("50", '"x"'))
    (tmp_path / "both.toml").write_text(TOML + 'hparams = "tuned"\nsettings = "tuned"\n')
    (tmp_path / "key.toml").write_text(TOML + "key = -1\n")
    (tmp_path / "hparams.toml").write_text(TOML + "hparams = []\n")
    grid = '{ name = "random", states = 3, grid = { states = [3, 4] } }'
    (tmp_path / "outside.toml").write_text(TOML.replace('"factored"', grid))
    (tmp_path / "grid.toml").write_text(
        TOML.replace('"factored"', '"factored", { name = "random", grid = { states = [] } }')
    )
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "precious").write_text("data")
    return tmp_path


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_and_writes_nothing(place, capsys, mistake):
    before = sorted(place.rglob("*"))
    arguments, message = MISTAKES[mistake]
    assert cli.main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert err.startswith("cpdpo: ")
    assert err.count("\n") == 1
    assert sorted(place.rglob("*")) == before


def test_debug_shows_the_trace(place):
    with pytest.raises(FileNotFoundError):
        cli.main(["run", "nowhere.toml", "--debug"])


def test_list_and_solve_for_people_and_programs(capsys):
    assert cli.main(["list"]) == 0
    listed = capsys.readouterr().out
    assert cli.main(["list", "--json"]) == 0
    named = json.loads(capsys.readouterr().out)
    assert set(named["environments"]) == set(cp.envs.names())
    assert set(named["learners"]) == set(cp.learners.names())
    assert all(name in listed for name in (*named["environments"], *named["learners"]))
    assert cli.main(["list", "random"]) == 0
    assert "layers" in capsys.readouterr().out
    assert cli.main(["list", "cpdpo"]) == 0
    assert "Algorithm 2" in capsys.readouterr().out
    for name in cp.learners.names():
        (line,) = re.findall(rf"^  {name} .*(?:\n   .*)*", listed, re.MULTILINE)
        extra = cp.learners.get(name).extra_knowledge
        assert (f"(requires {extra})" in " ".join(line.split())) == bool(extra), name
        assert named["extra_knowledge"].get(name) == extra
    assert cli.main(["list", "dope", "--json"]) == 0
    described = json.loads(capsys.readouterr().out)
    assert (described["name"], described["extra_knowledge"]) == ("dope", cp.learners.get("dope").extra_knowledge)
    assert described["about"].startswith("DOPE")
    assert "safe_episodes" in {row["name"] for row in described["hyperparameters"]}
    assert cli.main(["solve", "factored", "--json"]) == 0
    solved = json.loads(capsys.readouterr().out)
    assert solved["value"] == pytest.approx(float(cp.solve(cp.envs.make("factored")).value))
    assert cli.main(["solve", "factored"]) == 0
    assert "Slater margin" in capsys.readouterr().out


def test_every_command_has_help_with_an_example(capsys):
    assert cli.main(["--help"]) == 0
    (listed,) = re.findall(r"\{([a-z,]+)\}", capsys.readouterr().out)
    commands = listed.split(",")
    assert len(commands) >= 8
    for command in commands:
        assert cli.main([command, "--help"]) == 0
        assert f"cpdpo {command}" in capsys.readouterr().out.partition("example")[2], command


def test_help_does_not_wait_for_jax():
    """What makes a start slow is what it imports: none of it is loaded to print help."""
    slow = {"jax", "scipy", "numba", "xarray", "h5py", "matplotlib", "distributed"}
    code = f"import sys; from cpdpo_jax.cli import main; main(['--help']); sys.exit(str({slow} & set(sys.modules)))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=600)
    assert "cpdpo" in ended.stdout
    assert ended.stderr.strip() == "set()"


def test_a_config_is_the_same_after_writing_and_reading(tmp_path):
    table = {
        "learners": ["cpdpo", "uniform"],
        "environments": ["random:layers=3,cost_range=[0.1, 0.9]", {"name": "box", "grid": {"a": [1, 2], "b": [0.5]}}],
        "episodes": [10, 20],
        "seeds": [1, 5],
        "hparams": {"cpdpo": {"learning_rate": ["x1", "x2"], "preset": "theory"}, "uniform": "tuned"},
        "monitor": False,
    }
    built = config.build(table)
    assert built.environments[0]["cost_range"] == [0.1, 0.9]
    assert [e["a"] for e in built.environments[1:]] == [1, 2]
    (tmp_path / "c.toml").write_text(config_text.to_toml(built.table()))
    other = config.build(config_text.read(tmp_path / "c.toml"))
    assert other == built
    assert other.digest == built.digest


def test_dry_run_writes_nothing(place, capsys):
    before = sorted(place.rglob("*"))
    assert cli.main([*run_with(seeds="40"), "--dry-run", "--json"]) == 0
    out, err = capsys.readouterr()
    assert err.splitlines()[-1].startswith("compiling and timing 1 program, a few seconds each")
    estimate = json.loads(out)
    assert (estimate["blocks"], estimate["to_run"], estimate["compilations"]) == (2, 2, 1)
    assert np.isfinite(estimate["run_seconds"])
    assert estimate["megabytes"] > 0
    assert sorted(place.rglob("*")) == before


def test_ctrl_c_while_it_is_imported_is_silent(monkeypatch, capsys):
    class Interrupted:
        """A module whose import is ended by Ctrl-C, as NumPy reports it."""

        def __getattr__(self, name):
            raise KeyboardInterrupt if name != "run" else ImportError("a part is missing") from KeyboardInterrupt()

    monkeypatch.setitem(sys.modules, "cpdpo_jax.cli.commands", Interrupted())
    assert cli.main(["list"]) == 130
    monkeypatch.setitem(sys.modules, "cpdpo_jax.cli.entry", Interrupted())
    monkeypatch.delattr("cpdpo_jax.cli.entry")
    assert cli.main(["list"]) == 130
    assert capsys.readouterr() == ("", "")


def test_a_reader_that_has_enough_ends_a_command_in_silence(tmp_path, monkeypatch, capsys):
    """Python would flush stdout again as it ends: it is then the null device."""

    def closed(_):
        raise BrokenPipeError

    monkeypatch.setattr(commands, "run", closed)
    with open(tmp_path / "stdout", "w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        assert entry.main(["list"]) == 0
        stream.write("lost")
    monkeypatch.undo()
    assert (tmp_path / "stdout").read_text() == ""
    assert capsys.readouterr().err == ""


def test_errors_in_a_sentence():
    """The message of what a user can cause; of an internal error also the type."""
    for error in (ValueError("wrong"), ZeroDivisionError("wrong"), OSError("wrong"), WorkerError("wrong")):
        assert entry._sentence(error) == "wrong"
    assert entry._sentence(FileNotFoundError(2, "No such file", "a.toml")) == "a.toml: No such file."
    assert entry._sentence(KeyError("x")) == "KeyError: 'x' (an internal error; --debug shows the stack trace)"
    assert entry._sentence(OSError(errno.ENOSPC, "full")).startswith("the disk is full; free some space")
    assert entry._sentence(OSError(errno.ENOSPC, "full", "runs/a")).endswith("then run: cpdpo resume runs/a")


@pytest.mark.parametrize("as_program", [False, True])
def test_handlers_of_signals(monkeypatch, as_program):
    """A program ends at once, but an ignored signal stays ignored; a call from Python changes no handler."""
    seen = []

    def handlers(*_):
        return [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]

    monkeypatch.setattr(entry, "main", lambda _: seen.append(handlers()) or 7)
    before = handlers()
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        assert cli.main(None if as_program else ["list"]) == 7
        after = handlers()
    finally:
        for number, handler in zip((signal.SIGINT, signal.SIGTERM), before, strict=True):
            signal.signal(number, handler)
    assert seen == [[signal.SIG_IGN, exit_immediately if as_program else signal.SIG_DFL]]
    assert after == [signal.SIG_IGN, signal.SIG_IGN if as_program else signal.SIG_DFL]


def test_a_terminal_of_few_letters_shows_the_table(monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), "ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    entry._replace_unprintable()
    print("1.5 ± 0.2 größer")
    stream.flush()
    assert stream.buffer.getvalue() == b"1.5 ? 0.2 gr??er\n"  # pyright: ignore[reportAttributeAccessIssue]


def test_without_docstrings_and_without_a_gpu(tmp_path):
    """`python -OO` lists all the same; a platform that is not there is one sentence, and nothing is written."""
    command = [sys.executable, "-m", "cpdpo_jax.cli"]
    bare = os.environ | {"PYTHONOPTIMIZE": "2", "JAX_PLATFORMS": "cuda"}
    done = subprocess.run([*command, "list"], env=bare, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "media_streaming" in done.stdout
    flags = run_with(out=str(tmp_path / "out"))
    done = subprocess.run([*command, *flags], env=bare, capture_output=True, text=True, timeout=600)
    assert done.returncode == 2
    assert "JAX_PLATFORMS = 'cuda' has no device here" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()


def test_help_and_version_are_understood_as_words(capsys):
    for words in ([], ["help"], ["--help"]):
        assert cli.main(words) == 0
        assert "Start with: cpdpo demo" in " ".join(capsys.readouterr().out.split())
    assert cli.main(["version"]) == cli.main(["--version"]) == 0


def test_the_commands_are_those_of_the_parser():
    members = typing.get_args(arguments.Command)
    assert tuple(typing.get_args(member)[1].name for member in members) == arguments.COMMANDS


def test_the_help_of_run_names_every_key_of_the_file(capsys):
    assert cli.main(["run", "--help"]) == 0
    keys = capsys.readouterr().out.partition("keys of the file")[2].partition("positional arguments")[0]
    assert [key for key in config.KEYS if not re.search(rf"^\s+(\w+, )*{key}\b", keys, re.MULTILINE)] == []
