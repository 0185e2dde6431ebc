"""Figures and the page: written from stored blocks, with the numbers of the run, in one self-contained file."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import cpdpo_jax as cp
from cpdpo_jax import cli
from cpdpo_jax.common import palette
from cpdpo_jax.results.statistics import METRICS, bootstrap_mean
from cpdpo_jax.sweeps import report_data
from cpdpo_jax.sweeps.load import Table


def test_figures_in_both_formats(report):
    names = {path.name for path in (report / "figures").iterdir()}
    assert len(names) == 2 * (2 * 2 + 1)  # for each T curves and details, and growth; PDF and PNG
    assert {name.rpartition(".")[2] for name in names} == {"pdf", "png"}
    assert all((report / "figures" / name).stat().st_size > 5000 for name in names)


def test_the_page_is_one_file_with_all_it_needs(report):
    page = (report / "report.html").read_text()
    outside, library = page.split("<script>\n", 1)[0], (report_page() / "vendor" / "echarts.common.min.js").read_text()
    assert not re.findall(r"""(?:src|href)\s*=\s*["'](?!data:)[^"']*["']""", outside)
    assert library in page
    assert "@import" not in page
    assert len(page) < 1_500_000
    for part in ("Slater margin rho", "cpdpo run", "learners = ", "jaxlib"):
        assert part in page or part in unpacked(page)


def test_the_library_is_the_one_whose_version_and_licence_are_recorded():
    vendor = report_page() / "vendor"
    checksum = hashlib.sha256((vendor / "echarts.common.min.js").read_bytes()).hexdigest()
    assert checksum in (vendor / "README.md").read_text()
    assert 'version="6.1.0"' in (vendor / "echarts.common.min.js").read_text()
    assert "Apache License" in (vendor / "LICENSE-echarts").read_text()


def test_each_learner_has_one_look_whatever_else_is_shown(report):
    data = json.loads(unpacked((report / "report.html").read_text()))
    for learner in data["learners"]:
        assert (learner["colour"], learner["mark"], learner["dash"]) == palette.learner_style(learner["name"])


def test_curves_of_the_page_are_those_of_the_run(report):
    """Mean, band and pooled mean against xarray, at the last checkpoint."""
    data = json.loads(unpacked((report / "report.html").read_text()))
    table = cp.load_run(report)[-1]
    (view,) = [entry for entry in data["views"] if entry["T"] == 90]
    for line in view["lines"]:
        at = {"learner": data["learners"][line["learner"]]["name"], "hparams": data["hparams"][line["hparams"]]}
        for m, name in enumerate(METRICS):
            ends = table.result.metric(name).sel(at).isel(episode=-1, instance=0).values
            assert line["mean"][m][-1] == pytest.approx(ends.mean(), rel=1e-4, abs=1e-6)
            low, high = bootstrap_mean(ends)
            span = [line["mean"][m][-1] + line["interval"][side][m][-1] for side in (0, 1)]
            assert span == pytest.approx([low, high], rel=1e-2, abs=1e-2)


def test_pooled_curves_average_instances():
    values = np.arange(2 * 3 * 1 * 4 * 5 * 2, dtype=float).reshape(2, 3, 1, 4, 5, 2)  # [l, i, s, seed, episode, c]
    dims = ("learner", "instance", "hparams", "seed", "episode", "constraint")
    flat = (dims[:-1], values[..., 0] ** 1.5)
    data = xr.Dataset(
        {**dict.fromkeys(("strong_regret", "weak_regret"), flat),
         **dict.fromkeys(("strong_violation", "weak_violation", "multiplier_mean"), (dims, values)),
         "optimal_multipliers": (("constraint", "instance"), np.ones((2, 3)))},
        coords={"learner": ["a", "b"], "instance": [4, 7, 9], "hparams": ["tuned"], "episode": [1, 2, 4, 8, 16]},
        attrs={"descriptions": json.dumps({"4": "", "7": "", "9": ""})},
    )  # fmt: skip
    views = list(report_data._views(Table("e", 16, cp.Result(data)), {"learner": ["a", "b"], "hparams": ["tuned"]}))
    assert [view["instance"] for view in views] == [4, 7, 9, None]
    for line in (0, 1):
        each = [view["lines"][line]["mean"][0] for view in views]
        np.testing.assert_allclose(np.mean(each[:3], axis=0), each[3], rtol=1e-4)
    half = views[3]["lines"][0]["interval"][1][0][-1]
    ends = [view["lines"][0]["mean"][0][-1] for view in views[:3]]
    assert half == pytest.approx(4.302653 * np.std(ends, ddof=1) / 3**0.5, rel=5e-3)  # Student's t, 2 degrees


def report_page():
    return Path(report_data.__file__).parent / "report_page"


def unpacked(page):
    """The compressed numbers, as JSON."""
    data = re.search(r'id="data">([^<]*)<', page)
    assert data
    return gzip.decompress(base64.b64decode(data[1])).decode()


def test_without_figures_only_the_page_is_written(report, tmp_path, capsys):
    assert cli.main(["report", str(report), "--no-figures", "--out", str(tmp_path), "--json"]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    written = json.loads(capsys.readouterr().out)
    assert (written["report"], written["figures"]) == (str(tmp_path / "report.html"), [])
    assert set(written) == {"report", "figures", "rows"}


def test_a_cmdp_of_ones_own_keeps_its_name_and_its_units(tmp_path, monkeypatch, capsys):
    """From a file in dollars, with a utility, to a table in dollars; neither path nor hash is anywhere to be read."""

    monkeypatch.chdir(tmp_path)
    shop = cp.from_episodic(
        np.ones((1, 2, 1)), np.array([[50.0, -20.0]]), np.array([[[1.0, 5.0]]]), [9.0], sense=">=", horizon=3,
        name="shop", reward_unit="dollars", cost_units="visitors",
    )  # fmt: skip
    cp.save_cmdp("shop.npz", shop)
    (tmp_path / "other").mkdir()
    flags = ["--learner", "uniform", "--episodes", "20", "--seeds", "2"]
    assert cli.main(["run", *flags, "--env", "shop.npz", "--out", "run"]) == 0
    assert capsys.readouterr().out.startswith("shop, T = 20, 2 seeds, in the units of the source (regret in dollars")
    assert cli.main(["report", "run", "--csv", "--no-figures"]) == 0
    frame = pd.read_csv("run/curves.csv")
    assert set(frame.environment) == {"shop"}
    (table,) = cp.load_run("run")
    assert table.environment == "shop"
    # two actions alike: 15 dollars a step, 3 visitors a step, which is enough; the optimum is 45
    np.testing.assert_allclose(frame.weak_regret[frame.episode == 20], 0, atol=1e-3)
    np.testing.assert_allclose(frame.weak_violation[frame.episode == 20], 0, atol=1e-3)
    other = cp.from_episodic(np.ones((1, 2, 1)), np.array([[1.0, 0.0]]), np.array([[[0.0, 1.0]]]), [1.0], horizon=2)
    cp.save_cmdp("other/shop.npz", other)
    assert cli.main(["run", *flags, "--env", "shop.npz", "other/shop.npz", "--out", "both"]) == 0
    names = [table.environment for table in cp.load_run("both")]
    assert len(set(names)) == 2
    assert all(re.fullmatch(r"shop \([0-9a-f]{6}\)", name) for name in names)


def test_the_subtitle_counts_what_was_run():
    row = {"environment": "a", "instance": 0, "learner": "x", "hparams": "tuned", "episodes": 1000, "seeds": 4}
    assert report_data._subtitle([row]) == "1 learner on 1 environment, T = 1,000, 4 seeds each"
    rows = [row, row | {"environment": "b", "learner": "y", "episodes": 20_000}, row | {"instance": 1, "seeds": 2_000}]
    assert report_data._subtitle(rows).startswith(
        "2 learners on 2 environments, 3 instances in all, T = 1,000, 20,000, 4 to 2,000 seeds each"
    )
    assert report_data._subtitle([row | {"hparams": "tuned, x=1"}, row | {"hparams": "tuned, x=2"}]).endswith(
        ", 4 seeds each, hparams tuned"
    )
