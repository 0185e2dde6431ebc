"""User mistakes on the command line, in a TOML file and in Python: one sentence each, and nothing is written."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import cpdpo_jax as cp
from experiments.faults.rows import Row, command, not_longer_than

GOOD = {"learners": '["uniform"]', "environments": '["factored"]', "episodes": "50", "seeds": "2"}
FLAGS = {"--learner": "uniform", "--env": "factored", "--episodes": "50", "--seeds": "2"}

# values that are wrong for every key, then values that are wrong for one key
EVERYWHERE = ["{}", "[]", "[[1]]", "-1", "1979-05-27", "{ a = 1 }", "[{ a = [] }]", "nan"]
TOML = {
    "learners": ['""', '"cpdop"', "3", '["uniform", "uniform"]', "true", '["uniform", 3]'],
    "environments": ['""', '"nowhere"', "3", '["factored", "factored"]',
                     '[{ layers = 3 }]', '[{ name = "random", layers = 0 }]',
                     '[{ name = "random", grid = 3 }]', '[{ name = "random", rho = "x" }]', '["nowhere.npz"]'],
    "episodes": ["0", "1.5", '"x"', "true", "[50, 50]", "1e400", "99999999999999"],
    "seeds": ["0", "1.5", '"x"', "true", "[1, 1]", "[-1]", "[1.5]", "99999999999999999999"],
    "hparams": ['"tunde"', "3", "true", '{ nothing = 1 }', '{ preset = 3 }', '["tuned", "tuned"]'],
    "key": ["1.5", '"x"', "true", "99999999999999999999999"],
    "checkpoints": ["0", "1.5", '"lin"', "[0]", "[1.5]", "[60]", "true"],
    "rho": ["0", '"estimate:"', '"estimate:x"', '"guess"', "[0.1, -1]", "inf",
            "[]", "[0.1, 0.1]", '[0.1, "estimate:9"]', "[0.1, [0.2]]", "[[1], [[1], [1, 2]]]",
            "{ per_instance = 0.1 }", "{ per_instance = [[1], [1, 2]] }", "{ per_instance = [0.1, 0.2, 0.3] }"],
    "delta": ["0", "1", "2", '"x"', "true", "[]", "[0.1, 2]"],
    "horizon": ["3", '"guess"', "true"],
    "monitor": ["3", '"yes"', "1.5"],
    "dtype": ["3", '"float16"', "true"],
    "block": ["0", "31", "1.5", '"x"', "true"],
    "imports": ["3", '"nowhere.py"', '["nowhere"]', "true"],
}  # fmt: skip
BROKEN = [
    "learners = [",
    "learners = ['a'",
    "= 3",
    "[[[",
    "seeds = 2\nseeds = 3",
    "\x00",
    "é = 1",
    "learner = 3",
    "a.b.c = 1",
]

WORDS = [
    [], ["rnu"], ["run", "--lerner", "x"], ["run"], ["run", "."], ["run", "nowhere.toml"], ["run", "--learner"],
    ["status"], ["status", "nowhere"], ["status", "."], ["resume"], ["resume", "nowhere"], ["resume", "."], ["report"],
    ["report", "nowhere"], ["report", "."], ["solve"], ["solve", "nowhere"], ["solve", "random:layers=0"],
    ["solve", "random:layers"], ["solve", "nowhere.npz"], ["list", "nowhere"], ["bench"], ["info", "x"],
    ["demo", "--episodes", "0"], ["demo", "--seeds", "x"], ["demo", "--seeds", "0"], ["demo", "--out", "file"],
    ["status", "file"], ["run", "file"], ["solve", "file"], ["resume", "file"], ["report", "file"],
]  # fmt: skip
OPTIONS = [
    ["--seeds", "x"], ["--seeds", "1.5"], ["--seeds", "0"], ["--episodes", "1e99"], ["--episodes", "nan"],
    ["--episodes", "-5"], ["--learner", "x"], ["--learner", ""], ["--env", ""], ["--env", ":"], ["--env", "random:=3"],
    ["--env", "random:layers=3,layers=4"], ["--hparams", "x"], ["--hparams", "=1"], ["--hparams", "a="],
    ["--hparams", "a=1", "a=2"], ["--key", "x"], ["--key", "-1"], ["--rho", "x"], ["--rho", "-1"], ["--delta", "2"],
    ["--delta", "x"], ["--horizon", "x"], ["--monitor", "x"], ["--dtype", "x"], ["--checkpoints", "x"],
    ["--checkpoints", "0"], ["--checkpoint-every", "0"], ["--checkpoint-every", "x"], ["--checkpoint-every", "nan"],
    ["--out", "file"], ["--out", "file/x"], ["--out", "full"], ["--shard", "3/3"], ["--shard", "x"], ["--import", "x"],
    ["--json", "--json"], ["--seeds", "2", "--seeds", "3"], ["--learner", "uniform", "--learner", "cpdpo"],
]  # fmt: skip


def _python() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Wrong arguments from Python."""
    cmdp = cp.envs.make("factored")

    def simulate(**changed: Any) -> Callable[[], Any]:
        given = {"learner": "uniform", "cmdp": cmdp, "episodes": 5, "seeds": 2, "progress": False} | changed
        return lambda: cp.simulate(**given)

    values: list[Any] = [None, "", -1, 0, 1.5, float("nan"), [], {}, (), object(), np.zeros((2, 2)), [None], b"x", True]
    fine = {
        ("hparams", "{}"), ("hparams", "()"), ("checkpoints", "1"), ("key", "0"), ("monitor", "True"),
        ("block", "None"),
        ("rho", "1.5"), ("rho", "array([[0., 0.],\n       [0., 0.]])"), ("rho", "True"),
        ("key", "b'x'"), ("checkpoints", "'log'"),
    }  # fmt: skip
    for name in ("learner", "cmdp", "episodes", "seeds", "hparams", "key", "checkpoints", "rho", "delta", "horizon",
                 "monitor", "dtype", "block"):  # fmt: skip
        for value in values:
            if (name, repr(value)) not in fine:
                yield f"simulate {name} = {value!r}", simulate(**{name: value})
    yield "no such option", simulate(epsiodes=3)
    yield "run without a table", lambda: cp.run(None, out="out")  # pyright: ignore[reportArgumentType]
    yield "run of an empty table", lambda: cp.run({}, out="out")
    yield "load_run of nothing", lambda: cp.load_run("nowhere")
    yield "Result.load of nothing", lambda: cp.Result.load("nowhere")
    yield "load_cmdp of a text", lambda: cp.load_cmdp("file")
    yield "save_cmdp nowhere", lambda: cp.save_cmdp("nowhere/a.npz", cmdp)
    yield "no such environment", lambda: cp.envs.make("nowhere")
    yield "no such parameter", lambda: cp.envs.make("random", layer=3)
    for name, value in (("layers", 0), ("states", "x"), ("rho", -1), ("key", -1), ("instances", 0), ("actions", 1.5)):
        yield f"random {name} = {value!r}", lambda name=name, value=value: cp.envs.make("random", **{name: value})


def run(quick: bool, place: Path) -> list[Row]:
    """Three rows: flags, files, Python."""
    here = Path.cwd()
    work = place / "mistakes"
    (work / "full").mkdir(parents=True)
    (work / "full" / "precious").write_text("data")
    (work / "file").write_text("text")
    os.chdir(work)
    try:
        step = 5 if quick else 1
        return [_flags(step, work), _files(step, work), _calls(step, work)]
    finally:
        os.chdir(here)


def _judge(words: list[str], work: Path, before: set[str]) -> str | None:
    """The problem in the reaction to a mistake; None if there is none."""
    code, out, err = command(words)
    left = _names(work) - before
    if code != 2:
        return f"code {code}: {err[-200:]}"
    sentences = [line for line in err.splitlines() if line.startswith("cpdpo: ")]  # without remarks
    if out or len(sentences) != 1 or "Traceback" in err or "internal error" in err:
        return f"not one sentence: {out[-100:]}{err[-300:]}"
    return f"left {left}" if left else None


def _names(work: Path) -> set[str]:
    return {str(path) for path in work.rglob("*")}


def _count(what: str, tried: int, wrong: list[str]) -> Row:
    for problem in wrong:
        print(f"  {what}: {problem}")
    return Row(f"mistakes {what}", tried, len(wrong), "one sentence each, code 2, nothing written")


def _flags(step: int, work: Path) -> Row:
    commands = [words for words in WORDS if words]
    for words in OPTIONS:
        base = [part for flag, value in FLAGS.items() if flag != words[0] for part in (flag, value)]
        commands.append(["run", *base, *words, *([] if "--out" in words else ["--out", "out"])])
    before = _names(work)
    found = [(words, _judge(words, work, before)) for words in commands[::step]]
    return _count("in flags", len(found), [f"{' '.join(words)}: {bad}" for words, bad in found if bad])


def _files(step: int, work: Path) -> Row:
    texts = list(BROKEN)
    for key, values in TOML.items():
        fine = {"hparams": {"{}"}, "imports": {"[]"}}.get(key, set())
        for value in [*values, *(fixed for fixed in EVERYWHERE if fixed not in fine)]:
            texts.append("\n".join(f"{name} = {given}" for name, given in (GOOD | {key: value}).items()))
    wrong, tried = [], 0
    for text in texts[::step]:
        path = work / "sweep.toml"
        path.write_text(text)
        before = _names(work)
        bad = _judge(["run", "sweep.toml", "--out", "out"], work, before)
        path.unlink()
        tried += 1
        if bad:
            wrong.append(f"{text.splitlines()[-1] if text.splitlines() else text!r}: {bad}")
    return _count("in a file", tried, wrong)


def _calls(step: int, work: Path) -> Row:
    wrong, tried, before = [], 0, _names(work)
    for name, call in list(_python())[::step]:
        tried += 1
        try:
            with not_longer_than(60), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                call()
            wrong.append(f"{name}: taken")
        except (ValueError, FileNotFoundError) as error:
            if len(str(error)) < 15:  # an array in the message may have several lines
                wrong.append(f"{name}: not a sentence: {str(error)[:200]}")
        except Exception as error:
            wrong.append(f"{name}: {type(error).__name__}: {str(error)[:200]}")
    wrong += [f"left {name}" for name in _names(work) - before]
    what = _count("in Python", tried, wrong)
    return what._replace(detail="a ValueError of one sentence each, nothing written")
