"""Input that no run can use: one sentence with the field and a remedy, before memory or time is spent on it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

import cpdpo_jax as cp
from cpdpo_jax import cli
from cpdpo_jax.envs import parameters
from cpdpo_jax.simulation.options import LEAST_DELTA
from cpdpo_jax.sweeps import config, config_text
from cpdpo_jax.sweeps.specification import expand

NINES = "9" * 5000
GRID = {"name": "random", "grid": {name: list(range(1, 401)) for name in ("layers", "states", "key")}}
TABLE = {"learners": ["uniform"], "environments": ["factored"], "episodes": 10, "seeds": 1}

FILES = {
    "deep": ("episodes = " + "[" * 5000 + "]" * 5000, r"bad\.toml: episodes nests lists or tables too deeply; give"),
    "less deep": ("hparams = " + "[" * 50 + "]" * 50, "hparams nests lists or tables too deeply; give at most 20"),
    "digits": (f"seeds = 3\nepisodes = {NINES}", r"bad\.toml: episodes has thousands of digits; give a whole"),
    "digits in a list": (f"episodes = [1, {NINES}]", r"bad\.toml: episodes has thousands of digits"),
    "hexadecimal": ("episodes = 0x" + "f" * 5000, "episodes has 20000 bits; give a whole number of at most 64 bits"),
}  # fmt: skip


@pytest.mark.parametrize("case", FILES)
def test_a_file(tmp_path, capsys, case):
    text, message = FILES[case]
    (tmp_path / "bad.toml").write_text(text)
    with pytest.raises(ValueError, match=message):
        config.build(config_text.read(tmp_path / "bad.toml"), "bad.toml")
    assert cli.main(["run", str(tmp_path / "bad.toml"), "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert "internal error" not in error
    assert error.count("\n") == 1


FLAGS = {
    "a key": (["--key", NINES], "--key has thousands of digits"),
    "a parameter": (["--env", f"random:layers={NINES}"], "environment 'random': layers has thousands of digits"),
    "a nested parameter": (["--env", "random:layers=" + "[" * 3000], "environment 'random': layers nests lists or tab"),
    "episodes": (["--episodes", NINES], r"episodes = '9{20}'\.\.\. \(5000 characters\) is not a whole number"),
    "seeds": (["--seeds", "0-99999999999"], "seeds = '0-99999999999' is too large; give at most 1,000,000"),
    "more seeds": (["--seeds", f"0-{NINES}"], "is too large; give at most 1,000,000"),
    "a hyperparameter": (["--hparams", f"rate={NINES}"], "--hparams rate has thousands of digits"),
    "a tiny delta": (["--delta", "1e-300"], "delta = 1e-300 is not a confidence parameter; give a number"),
    "a huge environment": (
        ["--env", "random:layers=100000,states=1000,actions=1000"],
        "random: 100000 layers of 1000 states and 1000 actions need 12,799,872 GB of memory to build",
    ),
    "another": (["--env", "garnet:horizon=100000,states=1000,actions=1000"], "garnet: 100000 layers .* GB of memory"),
}  # fmt: skip


@pytest.mark.parametrize("case", FLAGS)
def test_a_flag(tmp_path, capsys, case):
    flags, message = FLAGS[case]
    usual = {"--learner": "uniform", "--env": "factored", "--episodes": "10", "--seeds": "1"}
    rest = [part for flag, value in usual.items() if flag != flags[0] for part in (flag, value)]
    assert cli.main(["run", *rest, *flags, "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert len(error) < 400
    with pytest.raises(ValueError, match=message):
        raise ValueError(error)
    assert not (tmp_path / "out").exists()


LARGE = {
    "digits": 10**5000, "negative": -(10**5000), "beyond float": 10**400, "a list": [10**5000], "text": NINES,
    "infinite": float("inf"),
}  # fmt: skip
OPTIONS = ("key", "episodes", "seeds", "rho", "delta", "safety", "checkpoints", "block", "horizon", "monitor", "dtype")
USUAL: dict[str, Any] = {"episodes": 10, "seeds": 1, "progress": False}


@pytest.mark.parametrize("value", LARGE.values(), ids=LARGE)
@pytest.mark.parametrize("name", OPTIONS)
def test_a_large_value_in_python_is_refused_in_a_short_sentence(name, value):
    with pytest.raises(ValueError, match=f"^{name} ") as error:
        cp.simulate("uniform", "factored", **(USUAL | {name: value}))
    assert len(str(error.value)) < 300
    assert "Exceeds" not in str(error.value)


CALLS: dict[str, Callable[[Any], Any]] = {
    "hyperparameter": lambda large: cp.simulate("cpdpo", "factored", hparams={"bonus_scale": large}, **USUAL),
    "per_instance": lambda large: cp.simulate("cpdpo", "factored", rho={"per_instance": [large]}, **USUAL),
    "learner": lambda large: cp.simulate(large, "factored", **USUAL),
    "environment": lambda large: cp.envs.make(large if isinstance(large, str) else "random", layers=large),
    "instances": lambda large: cp.envs.make("random", instances=large),
    "margin": lambda large: cp.envs.make("random", rho=large),
    "unknown key": lambda large: config.build(TABLE | {NINES: large}),
    "block": lambda large: config.build(TABLE | {"block": large}),
    "hparams": lambda large: config.build(TABLE | {"hparams": {"rate": large}}),
    "shard": lambda large: cp.run(TABLE, out="never", shard=NINES),
    "every": lambda large: cp.run(TABLE, out="never", every=-large),
}


@pytest.mark.parametrize("value", [10**5000, 10**400, NINES], ids=["digits", "beyond float", "text"])
@pytest.mark.parametrize("call", CALLS)
def test_a_large_value_elsewhere_is_refused_in_a_short_sentence(call, value):
    if isinstance(value, str) and call in ("every", "hparams"):
        pytest.skip("numbers only")
    with pytest.raises(ValueError, match=r".") as error:
        CALLS[call](value)
    assert len(str(error.value)) < 700  # some list all names
    assert "99999999999999999999999" not in str(error.value)
    assert "Exceeds" not in str(error.value)


def test_a_grid_is_counted_before_it_is_made():
    started = time.monotonic()
    with pytest.raises(
        ValueError, match=r"environment 'random': its grid: 64,000,000 environments are too many .* at most 10,000"
    ):
        config.build(TABLE | {"environments": [GRID]})
    with pytest.raises(ValueError, match="hparams: a table has 64,000,000 combinations"):
        config.build(TABLE | {"hparams": GRID["grid"]})
    assert time.monotonic() - started < 5
    small = GRID | {"grid": {"layers": [1, 2], "states": [2, 3]}}
    assert len(config.build(TABLE | {"environments": [small]}).environments) == 4


def test_environments_are_bounded_together():
    """Each is built and kept in memory."""
    grid = {"name": "random", "grid": {"key": list(range(2500)), "layers": [2, 3]}}
    others = [grid | {"states": states} for states in (2, 3, 4)]
    assert len(config.build(TABLE | {"environments": others[:2]}).environments) == 10_000
    with pytest.raises(ValueError, match=r"environments: 15,000 environments are too many .* give at most 10,000"):
        config.build(TABLE | {"environments": others})


def test_building_many_environments_is_announced():
    lines: list[str] = []
    each = {"name": "factored", "grid": {"horizon": [3]}}
    expand(config.build(TABLE | {"environments": [each]}), lines.append)
    assert lines == []
    each["grid"]["horizon"] = list(range(3, 23))
    expand(config.build(TABLE | {"environments": [each]}), lines.append)
    assert lines == ["building and solving 20 environments before the run starts ..."]


def test_a_run_of_too_many_blocks_is_refused():
    rates = {"hparams": {"rate": [float(i) for i in range(1000)]}}
    message = r"1 environments x 1 learners x 1,000 hparams x 1 T x 64,000 seeds are 2,000,000 blocks"
    with pytest.raises(ValueError, match=message):
        config.build(TABLE | rates | {"seeds": 64_000})
    assert config.build(TABLE | rates | {"seeds": 32_000}).seeds == 32_000


def test_memory_is_looked_at_with_all_instances(monkeypatch):
    """Two copies of every instance's (L-1) S A S doubles, and 14 of one instance's to solve it."""
    pages = 2 * 9 * 2 * (2 * 3 + 14)
    monkeypatch.setattr(parameters.os, "sysconf", {"SC_PAGE_SIZE": 8, "SC_PHYS_PAGES": pages}.get)
    parameters.check_memory("random", 3, 3, 2, 3)
    for sizes in ((3, 3, 2, 4), (4, 3, 2, 3), (3, 4, 2, 3), (3, 3, 3, 3)):
        with pytest.raises(ValueError, match="need 0 GB of memory"):
            parameters.check_memory("random", *sizes)


def test_an_environment_whose_program_would_not_fit_is_not_built(monkeypatch):
    """300 layers of 300 states and 100 actions take 21.5 GB, and many times as much until they are solved."""
    monkeypatch.setattr(parameters.os, "sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 25 * 10**9 // 4096}.get)
    for name in ("random", "small_rho"):
        with pytest.raises(ValueError, match=f"{name}: 300 layers of 300 states and 100 actions need 344 GB of memory"):
            cp.envs.make(name, layers=300, states=300, actions=100)
    with pytest.raises(ValueError, match="need 86 GB of memory to build and solve, and this machine has 25 GB"):
        cp.envs.make("garnet", horizon=300, states=300, actions=100)  # sparse


def test_what_does_not_fit_is_told_for_all_environments():
    def huge():
        raise MemoryError("Unable to allocate 7 TiB")

    cp.envs.register(huge)
    try:
        with pytest.raises(ValueError, match=r"huge does not fit .* \(Unable to allocate 7 TiB\); give smaller sizes"):
            cp.envs.make("huge")
    finally:
        cp.envs.unregister("huge")


@pytest.mark.parametrize("preset", ["tuned", "theory"])
def test_the_least_delta_gives_numbers(preset):
    result = cp.simulate(
        ["cpdpo", "cpd_oppo", "podb", "ghosh"], "factored", episodes=30, seeds=2, hparams=preset,
        delta=LEAST_DELTA, progress=False,
    )  # fmt: skip
    assert (result.data.first_non_finite == 0).all()
