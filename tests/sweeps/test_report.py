"""Figures and the page: written from stored blocks, self-contained, and working in a browser without a network."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

import cpdpo_jax as cp
from cpdpo_jax import cli

pytestmark = pytest.mark.usefixtures("fast_compile")

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
CLICKS = """
<script>
const problems = [], said = [];
window.addEventListener("error", (e) => problems.push(e.message));
const count = () => document.querySelectorAll("#charts path.series").length;
const rows = () => [...document.querySelectorAll("#summary tbody tr")];
const get = (id) => document.getElementById(id);
const change = (id, value) => { get(id).value = value; get(id).dispatchEvent(new Event("change")); };
try {
  const all = count();
  for (const id of ["charts", "growth"]) said.push(id + " " + document.querySelectorAll(`#${id} svg.chart`).length);
  said.push("rows " + rows().length);
  document.querySelector('[data-toggle="l:uniform"]').click();
  said.push("toggle " + (count() < all) + " rows " + rows().length);
  document.querySelector('[data-toggle="l:uniform"]').click();
  document.querySelector('[data-toggle="s:theory"]').click();
  said.push("setting " + (count() < all));
  document.querySelector('[data-toggle="s:theory"]').click();
  said.push("back " + (count() === all));
  for (const id of ["log", "bands"]) document.getElementById(id).click();
  said.push("linear " + (count() >= all));  // curves of zeros are drawn here
  for (const id of ["log", "bands"]) document.getElementById(id).click();
  said.push("longest first " + (get("T").value === "90"));
  const before = document.getElementById("charts").innerHTML, table = document.getElementById("summary").textContent;
  change("T", "30");
  said.push("selector " + (document.getElementById("charts").innerHTML !== before));
  said.push("table follows " + (document.getElementById("summary").textContent !== table));
  said.push("title " + document.getElementById("table-title").textContent.includes("T = 30"));
  document.getElementById("all").click();
  said.push("all rows " + rows().length);
  const cells = () => rows().map((row) => parseFloat(row.querySelector('[data-name="strong regret"] b').textContent));
  const head = () => document.querySelector('[data-column="strong regret"]');
  head().click();
  said.push("sorted " + cells().every((v, i, a) => i === 0 || a[i - 1] <= v));
  head().dispatchEvent(new KeyboardEvent("keydown", { key: "Enter" }));
  said.push("reversed by key " + cells().every((v, i, a) => i === 0 || a[i - 1] >= v));
  const chart = document.querySelector("#charts svg.chart"), tip = chart.parentNode.querySelector(".tip");
  const box = chart.getBoundingClientRect();
  const middle = { clientX: box.left + box.width / 2, clientY: box.top + box.height / 2 };
  chart.dispatchEvent(new PointerEvent("pointermove", middle));
  said.push("hover " + (!tip.hidden && tip.textContent.includes("uniform")));
  chart.dispatchEvent(new PointerEvent("pointerleave"));
  said.push("left " + tip.hidden);
  const press = (key) => chart.dispatchEvent(new KeyboardEvent("keydown", { key }));
  press("End");
  const last = tip.textContent;
  press("ArrowLeft");
  said.push("keys " + (!tip.hidden && last.includes("episode 30") && tip.textContent !== last));
  said.push("reachable " + (chart.tabIndex === 0));
  press("Escape");
  said.push("escape " + tip.hidden);
  said.push("fits " + (document.documentElement.scrollWidth <= window.innerWidth));
} catch (error) { problems.push(String(error)); }
document.title = "SAID " + said.join("; ") + " PROBLEMS " + problems.join("; ") + " WIDE " + window.innerWidth + " END";
</script>
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Two T, two learners, two settings, two constraints."""
    place = tmp_path_factory.mktemp("report")
    flags = ["--learner", "podb", "uniform", "--setting", "tuned", "theory", "--episodes", "30", "90", "--seeds", "4"]
    assert (
        cli.main(["run", *flags, "--env", "random:layers=2,states=2,actions=2,constraints=2", "--out", str(place)]) == 0
    )
    assert cli.main(["report", str(place)]) == 0
    return place


def test_figures_in_both_formats(report):
    names = {path.name for path in (report / "figures").iterdir()}
    assert len(names) == 2 * (2 * 2 + 1)  # for each T curves and details, and growth; PDF and PNG
    assert {name.rpartition(".")[2] for name in names} == {"pdf", "png"}
    assert all((report / "figures" / name).stat().st_size > 5000 for name in names)


def test_the_page_loads_nothing_from_elsewhere(report):
    page = (report / "report.html").read_text()
    assert not re.findall(r"""(?:src|href)\s*=\s*["'](?!data:)[^"']*["']""", page)
    assert "@import" not in page
    for part in ("Slater margin rho", "cpdpo run", "learners = ", "jaxlib"):
        assert part in page


def test_without_figures_only_the_page_is_written(report, tmp_path):
    assert cli.main(["report", str(report), "--no-figures", "--out", str(tmp_path)]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_a_cmdp_of_ones_own_keeps_its_name_and_its_units(tmp_path, monkeypatch, capsys):
    """From a file in dollars, with a utility, to a table in dollars; neither path nor hash is anywhere to be read."""
    import numpy as np
    import pandas as pd

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


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium (Debian: apt-get install chromium)")
@pytest.mark.parametrize("width", [1400, 420])
def test_the_page_works_in_a_browser_without_a_network(report, tmp_path, width):
    page = tmp_path / "clicked.html"
    page.write_text((report / "report.html").read_text().replace("</body>", CLICKS + "</body>"))
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"]
    flags += ["--disable-background-networking", "--disable-component-update", "--host-resolver-rules=MAP * ~NOTFOUND"]
    flags += [f"--window-size={width},900"]
    flags += [f"--user-data-dir={tmp_path / 'profile'}", "--enable-logging=stderr", "--dump-dom", page.as_uri()]
    done = subprocess.run([str(CHROMIUM), *flags], capture_output=True, text=True, timeout=120)
    said, problems, wide = re.search(r"SAID (.*) PROBLEMS (.*) WIDE (\d+) END", done.stdout).groups()  # pyright: ignore[reportOptionalMemberAccess]
    assert problems == ""
    assert "false" not in said
    assert said.startswith("charts 8; growth 2; rows 4; toggle true rows 2; ")
    assert "all rows 8" in said
    assert int(wide) <= max(width, 500)  # some browsers have no narrower window
    assert "CONSOLE" not in done.stderr
