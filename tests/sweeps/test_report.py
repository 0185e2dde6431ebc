"""Figures and the page: written from stored blocks, self-contained, and working in a browser without a network."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from cpdpo_jax import cli

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
CLICKS = """
<script>
const problems = [], said = [];
window.addEventListener("error", (e) => problems.push(e.message));
const count = () => document.querySelectorAll("#charts path.series").length;
try {
  const all = count();
  for (const id of ["charts", "growth"]) said.push(id + " " + document.querySelectorAll(`#${id} svg`).length);
  document.querySelector('[data-toggle="l:uniform"]').click();
  said.push("toggle " + (count() < all));
  document.querySelector('[data-toggle="l:uniform"]').click();
  said.push("back " + (count() === all));
  for (const id of ["xlog", "ylog", "bands"]) document.getElementById(id).click();
  said.push("logs " + (count() > 0));
  for (const id of ["xlog", "ylog", "bands"]) document.getElementById(id).click();
  const pick = document.getElementById("panel"), before = document.getElementById("charts").innerHTML;
  pick.value = String(pick.options.length - 1);
  pick.dispatchEvent(new Event("change"));
  said.push("panel " + (document.getElementById("charts").innerHTML !== before));
  const heads = document.querySelectorAll("#summary th");
  const rows = () => [...document.querySelectorAll("#summary tbody tr")];
  const cells = () => rows().map((row) => parseFloat(row.children[5].textContent));
  heads[5].click();
  said.push("sorted " + cells().every((v, i, a) => i === 0 || a[i - 1] <= v));
  heads[5].click();
  said.push("reversed " + cells().every((v, i, a) => i === 0 || a[i - 1] >= v));
  const svg = document.querySelector("#charts svg"), box = svg.getBoundingClientRect();
  const middle = { clientX: box.left + box.width / 2, clientY: box.top + box.height / 2 };
  svg.dispatchEvent(new PointerEvent("pointermove", middle));
  said.push("hover " + document.querySelector("#charts .tip").textContent.includes("uniform"));
} catch (error) { problems.push(String(error)); }
document.title = "SAID " + said.join("; ") + " PROBLEMS " + problems.join("; ") + " END";
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


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium (Debian: apt-get install chromium)")
def test_the_page_works_in_a_browser_without_a_network(report, tmp_path):
    page = tmp_path / "clicked.html"
    page.write_text((report / "report.html").read_text().replace("</body>", CLICKS + "</body>"))
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"]
    flags += ["--disable-background-networking", "--disable-component-update", "--host-resolver-rules=MAP * ~NOTFOUND"]
    flags += [f"--user-data-dir={tmp_path / 'profile'}", "--enable-logging=stderr", "--dump-dom", page.as_uri()]
    done = subprocess.run([str(CHROMIUM), *flags], capture_output=True, text=True, timeout=60)
    said, problems = re.search(r"SAID (.*) PROBLEMS (.*) END", done.stdout).groups()  # pyright: ignore[reportOptionalMemberAccess]
    assert problems == ""
    assert "false" not in said
    assert said.startswith("charts 8; growth 2; ")
    assert "CONSOLE" not in done.stderr
