"""`cpdpo info`: versions, caches and a speed figure, as text and as JSON."""

from __future__ import annotations

import json
import platform
from importlib import metadata
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from cpdpo_jax import cli, kernels
from cpdpo_jax.cli import info
from cpdpo_jax.kernels.machines import report


@pytest.fixture(scope="module")
def facts():
    """A measurement of a tenth of a second."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(info, "million_episodes_per_second", lambda _, measure=measured: measure(0.02))
        return info.gather()


measured = info.million_episodes_per_second


def test_text_and_json_say_the_same(facts, monkeypatch, capsys):
    assert facts["versions"]["cpdpo_jax"] == metadata.version("cpdpo_jax")
    assert facts["versions"]["python"] == platform.python_version()
    assert (facts["versions"]["jax"], facts["versions"]["numpy"]) == (jax.__version__, np.__version__)
    assert facts["devices"] == [f"{device.platform}: {device.device_kind}" for device in jax.local_devices()]
    assert facts["cores"] >= 1
    assert facts["kernels"]
    assert 0.001 < facts["speed"]["million_episodes_per_second"] < 1000
    monkeypatch.setattr(info, "gather", lambda: facts)
    assert cli.main(["info", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == facts
    assert cli.main(["info"]) == 0
    out = capsys.readouterr().out
    assert f"jax {jax.__version__}" in out
    assert all(f"  {line}\n" in out for line in facts["kernels"])
    assert f"{facts['speed']['million_episodes_per_second']:.2f} million episodes per second" in out


@pytest.mark.exhaustive
def test_the_speed_does_not_depend_on_how_long_is_measured():
    """Twice the time is twice the episodes; on a shared machine the best of three is off by less than a factor of 5."""
    short, long = (max(measured(seconds) for _ in range(3)) for seconds in (0.05, 0.1))
    assert 0.2 < short / long < 5


def test_what_is_measured(monkeypatch):
    """The problem that the text names, for about as long as is asked; compiled beforehand."""
    ran = []

    def simulate(learner, cmdp, *, episodes, seeds, **options):
        ran.append((learner, cmdp.reward.shape, len(cmdp.cost), episodes, seeds))
        return SimpleNamespace(data=SimpleNamespace(attrs={"seconds": episodes / 4000}))

    monkeypatch.setattr(info, "simulate", simulate)
    assert measured(2.0) == pytest.approx(64 * 4000 / 1e6)
    assert ran == [("cpdpo", (5, 5, 3), 2, episodes, 64) for episodes in (1, 2000, 8000)]
    assert measured(0.1) == pytest.approx(64 * 4000 / 1e6)
    assert ran[-1][3] == 2000


def test_caches_are_counted_where_they_are(tmp_path, monkeypatch):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "a.nbi").write_bytes(bytes(300_000))
    (tmp_path / "b.nbc").write_bytes(bytes(700_000))
    (tmp_path / "c.py").write_bytes(bytes(5))
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    found = info.contents(info.numba_cache(), "*.nb[ic]")
    assert found == {"directory": str(tmp_path), "files": 2, "megabytes": 1.0}
    monkeypatch.delenv("NUMBA_CACHE_DIR")
    assert info.numba_cache() == info.KERNELS
    monkeypatch.setattr(info.os, "access", lambda *_: False)  # an installation that is not writable
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert info.numba_cache() == tmp_path / "cache" / "numba"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert info.numba_cache() == tmp_path / ".cache" / "numba"
    monkeypatch.setattr(info.os, "access", lambda *_: False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert info.numba_cache() == tmp_path / "numba"


def test_a_cache_of_jax_that_is_off_has_no_directory(facts):
    was_on = jax.config.jax_enable_compilation_cache  # pyright: ignore[reportAttributeAccessIssue]
    jax.config.update("jax_enable_compilation_cache", False)
    try:
        off = info.contents(info.jax_cache(), "*")
    finally:
        jax.config.update("jax_enable_compilation_cache", was_on)
    assert off == {"directory": None, "files": 0, "megabytes": 0}
    assert "  jax: off" in info.text(facts | {"caches": {"jax": off}}).splitlines()


def test_a_missing_package_is_named(facts):
    lines = info.text(facts | {"versions": {"numba": None}}).splitlines()
    assert lines[0] == "versions: numba missing"


def test_the_forms_are_those_that_the_kernels_describe():
    text = "\n".join(report.lines())
    assert "target cpu" in text
    assert "XLA's options" in text
    for kernel in ("occupancy_bounds", "root_value", "sample_path"):
        assert f"\n{kernel}: " in text
    with kernels.paper_forms():
        assert report.lines() == ["target cpu: the paper's form of every kernel (CPDPO_PAPER_FORMS or paper_forms())"]


def test_a_device_that_is_missing_is_one_sentence(monkeypatch, capsys):
    def no_devices():
        raise RuntimeError("Unable to initialize backend 'tpu'\nmore")

    monkeypatch.setattr(jax, "local_devices", no_devices)
    assert cli.main(["info"]) == 2
    err = capsys.readouterr().err
    assert "has no device here (Unable to initialize backend 'tpu'); set it to 'cpu'" in err
    assert err.count("\n") == 1
