"""Random damage to every kind of input file: it is refused by name, recomputed, or irrelevant.

These must not happen: an error of any other kind, a hang, a message without the file's name, results that differ.
"""

from __future__ import annotations

import itertools
import random
import shutil
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import numpy as np

import cpdpo_jax as cp
from cpdpo_jax.simulation import blocks
from cpdpo_jax.sweeps import runner
from cpdpo_jax.sweeps.packing import Pack
from cpdpo_jax.sweeps.run import build_config
from cpdpo_jax.sweeps.specification import expand
from cpdpo_jax.sweeps.store import Store
from experiments.faults.rows import ENVIRONMENT, Row, command, not_longer_than, same

TABLE = {"learners": ["uniform"], "environments": [ENVIRONMENT], "episodes": [400, 600], "seeds": 3}

Mutation = Callable[[bytes, random.Random], bytes | None]  # None: the file is deleted


def _flip(content: bytes, rng: random.Random, times: int = 1) -> bytes:
    changed = bytearray(content)
    for _ in range(times):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _digit(content: bytes, rng: random.Random) -> bytes:
    places = [i for i, letter in enumerate(content) if 48 <= letter < 58] or [0]
    at = rng.choice(places)
    return content[:at] + bytes([48 + (content[at] - 47) % 10]) + content[at + 1 :]


def _without_a_line(content: bytes, rng: random.Random) -> bytes:
    lines = content.splitlines(keepends=True)
    del lines[rng.randrange(len(lines))]
    return b"".join(lines)


def _zeros(content: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(content))
    return content[:at] + bytes(min(512, len(content) - at)) + content[at + 512 :]


def _twice(content: bytes, rng: random.Random) -> bytes:
    at, n = rng.randrange(len(content)), rng.randrange(1, 200)
    return content[:at] + content[at : at + n] + content[at:]


MUTATIONS: dict[str, Mutation] = {
    "a bit": _flip,
    "200 bits": lambda content, rng: _flip(content, rng, 200),
    "cut": lambda content, rng: content[: rng.randrange(len(content))],
    "empty": lambda content, rng: b"",
    "zeros": _zeros,
    "a piece twice": _twice,
    "a digit": _digit,
    "without a line": _without_a_line,
    "more at the end": lambda content, rng: content + rng.randbytes(rng.randrange(1, 100)),
    "other bytes": lambda content, rng: rng.randbytes(len(content)),
    "{}": lambda content, rng: b"{}",
    "deleted": lambda content, rng: None,
}


def run(quick: bool, place: Path) -> list[Row]:
    """One row per kind of file."""
    rng, each = random.Random(0), 8 if quick else 40
    finished, stopped = place / "finished", place / "stopped"
    whole = cp.run(TABLE, out=finished, progress=False)
    _stop(stopped)
    cp.run(TABLE, out=place / "sharded", progress=False, shard="0/1")
    kinds = [
        ("block", finished, "blocks/*.nc"),
        ("snapshot", stopped, "checkpoints/*.npz"),
        ("manifest.json", finished, "manifest.json"),
        ("blocks.json", finished, "blocks.json"),
        ("config.toml", finished, "config.toml"),
        ("sessions of a shard", place / "sharded", "shards/*.json"),
    ]
    rows = [_directory(name, source, pattern, each, rng, whole, place) for name, source, pattern in kinds]
    rows.append(_result(each, rng, whole, place))
    rows.append(_cmdp(each, rng, place))
    rows.append(_toml(each, rng, place))
    return rows


def _stop(out: Path) -> None:
    """A run in which every block was stopped halfway."""
    config = build_config(TABLE)
    store, todo = Store(out), expand(config)
    out.mkdir()
    store.begin(config, todo)
    with mock.patch.object(blocks, "CALL_SECONDS", 1e-9):
        for key, block in todo.items():
            asks = itertools.count()
            runner.run_pack(store, Pack({key: block}, False), stop=lambda asks=asks: next(asks) >= 9)


def _mutated(path: Path, each: int, rng: random.Random) -> Iterator[tuple[str, bytes | None]]:
    """Write `count` mutations of a file to its path, one after the other."""
    content = path.read_bytes()
    for name, mutation in itertools.islice(itertools.cycle(MUTATIONS.items()), each):
        changed = mutation(content, rng)
        if changed is None:
            path.unlink()
        else:
            path.write_bytes(changed)
        yield name, changed
        path.write_bytes(content)


def _directory(name: str, source: Path, pattern: str, each: int, rng: random.Random, whole: list, place: Path) -> Row:
    """Damage in a run directory: the reactions of `status`, `report` and `resume`, and the results afterwards."""
    ends: Counter[str] = Counter()
    wrong: list[str] = []
    for i in range(each):
        copy = place / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(source, copy)
        path = rng.choice(sorted(copy.glob(pattern)))
        kind, mutation = list(MUTATIONS.items())[i % len(MUTATIONS)]
        content = path.read_bytes()
        changed = mutation(content, rng)
        path.unlink() if changed is None else path.write_bytes(changed)
        end = _seen(copy, path, whole)
        ends[end.partition(":")[0]] += 1
        if not end.startswith(("refused", "done again", "no change")):
            wrong.append(f"{kind}: {end}")
    for problem in wrong:
        print(f"  {name}: {problem}")
    return Row(f"damaged: {name}", each, len(wrong), ", ".join(f"{n} {end}" for end, n in sorted(ends.items())))


def _seen(copy: Path, path: Path, whole: list) -> str:
    """The reactions of the commands."""
    codes = []
    for words in (["status", str(copy)], ["resume", str(copy)], ["resume", str(copy), "--any-version"]):
        code, _, err = command(words)
        codes.append(code)
        if code not in (0, 2):
            return f"CODE {code}: {err[-300:]}"
        if code == 2 and path.name not in err and path.stem not in err and str(copy) not in err:
            return f"NOT NAMED: {err[-300:]}"
        if code == 2 and (err.count("\n") != 1 or "internal error" in err):
            return f"NOT ONE SENTENCE: {err[-300:]}"
        if code == 0 and words[0] == "resume":
            break
    try:
        loaded = cp.load_run(copy)
    except ValueError as error:
        return "refused" if str(copy) in str(error) else f"NOT NAMED: {error}"
    if not same(loaded, whole):
        return "WRONG DATA"
    if codes[-1] == 2:
        return "refused"
    return "no change" if codes[0] == 0 else "done again"


def _judged(read: Callable[[], object], name: str, equal: Callable[[object], bool]) -> str:
    try:
        with not_longer_than(60), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            got = read()
    except (ValueError, FileNotFoundError) as error:
        return "refused" if name in str(error) else f"NOT NAMED: {error}"
    except Exception as error:
        return f"TRACE: {type(error).__name__}: {error}"
    return "no change" if equal(got) else "WRONG DATA"


def _tally(what: str, ends: list[tuple[str, str]]) -> Row:
    wrong = [f"{kind}: {end}" for kind, end in ends if end not in ("refused", "no change", "another, valid")]
    for problem in wrong:
        print(f"  {what}: {problem}")
    counts = Counter(end.partition(":")[0] for _, end in ends)
    return Row(f"damaged: {what}", len(ends), len(wrong), ", ".join(f"{n} {end}" for end, n in sorted(counts.items())))


def _result(each: int, rng: random.Random, whole: list, place: Path) -> Row:
    path, data = place / "saved.nc", whole[0].result.data
    whole[0].result.save(path)
    ends = [
        (kind, _judged(lambda: cp.Result.load(path).data, path.name, lambda got: got.identical(data)))  # pyright: ignore
        for kind, _ in _mutated(path, each, rng)
    ]
    return _tally("a saved result", ends)


def _cmdp(each: int, rng: random.Random, place: Path) -> Row:
    before = cp.envs.make("factored")
    path = cp.save_cmdp(place / "saved.npz", before)

    def equal(got: object) -> bool:
        names = ("transition", "reward", "cost", "threshold", "action_mask", "concentration")
        arrays = all(np.array_equal(getattr(got, name), getattr(before, name)) for name in names)
        return arrays and (got.noise, got.names, got.unit_names) == (before.noise, before.names, before.unit_names)  # pyright: ignore

    ends = [(kind, _judged(lambda: cp.load_cmdp(path), path.name, equal)) for kind, _ in _mutated(path, each, rng)]
    return _tally("a saved CMDP", ends)


def _toml(each: int, rng: random.Random, place: Path) -> Row:
    """A user's file has no checksum: a change gives another sweep or an error."""
    path = place / "sweep.toml"
    path.write_text(
        'learners = ["uniform"]\nepisodes = [40, 60]\nseeds = 3\nhparams = "tuned"\nkey = 1\n'
        'environments = [{ name = "random", layers = 2, states = 2, grid = { rho = [0.1] } }]\n'
    )
    ends = []
    for kind, _ in _mutated(path, each, rng):
        code, _, err = command(["run", str(path), "--dry-run", "--json", "--out", str(place / "none")])
        good = code == 2 and err.count("\n") == 1 and "fault of" not in err
        ends.append((kind, "refused" if good else "another, valid" if code == 0 else f"CODE {code}: {err[-300:]}"))
    return _tally("a sweep's TOML", ends)
