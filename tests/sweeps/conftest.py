"""Fixtures: a report, a browser that shows it, and user code."""

from __future__ import annotations

from pathlib import Path

import pytest

from cpdpo_jax import cli
from cpdpo_jax.envs import registry
from cpdpo_jax.learners import base
from cpdpo_jax.sweeps import imports
from tests.sweeps.browser import CHROMIUM, Browser
from tests.sweeps.user_code import LIBRARY, MINE


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Two T, two learners, two hparams, two constraints."""
    place = tmp_path_factory.mktemp("report")
    flags = ["--learner", "podb", "uniform", "--hparams", "tuned", "theory", "--episodes", "30", "90", "--seeds", "4"]
    assert (
        cli.main(["run", *flags, "--env", "random:layers=2,states=2,actions=2,constraints=2", "--out", str(place)]) == 0
    )
    assert cli.main(["report", str(place)]) == 0
    return place


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    if CHROMIUM is None:
        pytest.skip("needs Chromium (Debian: apt-get install chromium)")
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


@pytest.fixture
def page(browser, report):
    """The report at 1400 pixels; afterwards: no error was logged, and the only request was for the page itself."""
    browser.window(1400, 900)
    browser.events.clear()
    browser.open((report / "report.html").as_uri())
    yield browser
    browser.js("0")
    happened = {event["method"]: event["params"] for event in browser.events}
    assert "Runtime.exceptionThrown" not in happened, happened["Runtime.exceptionThrown"]
    assert "Log.entryAdded" not in happened, happened["Log.entryAdded"]
    urls = [e["params"]["request"]["url"] for e in browser.events if e["method"] == "Network.requestWillBeSent"]
    assert all(url.startswith(("file:", "data:", "blob:")) for url in urls), urls


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """A user's file and a module in the same folder; both are unloaded afterwards."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "neighbour.py").write_text("WEIGHT = 1.0\n")
    (tmp_path / "mine.py").write_text(MINE)
    yield tmp_path / "mine.py"
    imports._LOADED.clear()
    for name in ("mine", "twice"):
        base.unregister(name)
    registry.unregister("corridor")
    imports.sys.modules.pop("neighbour", None)


@pytest.fixture
def library(mine, tmp_path, monkeypatch):
    """Writes the files of a case; the search path and the user's modules are as before afterwards."""
    monkeypatch.setattr(imports.sys, "path", [*imports.sys.path])
    known = set(imports.sys.modules)

    def write(case: str) -> Path:
        line, files = LIBRARY[case]
        mine.write_text(MINE.replace("from neighbour import WEIGHT", line))
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        return tmp_path / next(name for name, text in files.items() if "1.0" in text)

    yield write
    for name in set(imports.sys.modules) - known:
        module = imports.sys.modules[name]
        if str(tmp_path) in f"{getattr(module, '__file__', '')} {getattr(module, '__path__', '')}":
            imports.sys.modules.pop(name)
