"""The page in a browser without a network: zoom, legend, selectors, keyboard, mouse, saved files, narrow windows."""

from __future__ import annotations

import io
import json
import re
import time
from xml.etree import ElementTree

import pandas as pd
import pytest

from cpdpo_jax.common.text import column_format


def series(page):
    """The lines of a trade-off panel, which are all lines that the page shows."""
    return page.js("figureOf(document.querySelector('[data-id=tradeoff_strong]')).panel.series.map((s) => s.name)")


def zoom(page, panel="strong_regret"):
    """The least and the largest value that the horizontal axis of a panel shows."""
    figure = f"figureOf(document.querySelector('[data-id={panel}]'))"
    page.wait(f"{figure}.axes && !{figure}.stale")
    return page.js(f"(({{low, high, back}}) => [back(low), back(high)])({figure}.axes.x)")


def text(page, selector):
    return page.js(f"document.querySelector({selector!r}).innerText")


def choose(page, name, value):
    page.js(
        f"(e => {{ e.value = {value!r}; e.dispatchEvent(new Event('change')); }})(document.getElementById({name!r}))"
    )


def test_a_request_to_elsewhere_would_be_seen_and_is_refused(browser, report, tmp_path):
    (tmp_path / "leak.html").write_text(
        (report / "report.html").read_text().replace("</main>", '<img src="http://127.0.0.1:9/x.png"></main>')
    )
    browser.events.clear()
    browser.open((tmp_path / "leak.html").as_uri())
    browser.js("0")
    logged = [e["params"]["entry"]["text"] for e in browser.events if e["method"] == "Log.entryAdded"]
    assert any("Content Security Policy" in text for text in logged)


def test_the_page_opens_with_all_panels(page):
    ids = page.js("[...document.querySelectorAll('#charts figure')].map((f) => f.dataset.id)")
    metrics = ["strong_regret", "strong_violation", "weak_regret", "weak_violation"]
    constraints = ["multiplier_0", "violation_0", "multiplier_1", "violation_1"]
    cancelled = ["strong_weak_regret", "strong_weak_violation"]
    assert ids == ["tradeoff_strong", "tradeoff_weak", *metrics, *cancelled, *constraints]
    assert page.js("document.querySelectorAll('#growth figure').length") == 2
    assert page.js("document.querySelectorAll('#summary tbody tr').length") == 4
    assert page.js("performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd") < 5000
    page.wait("document.querySelector('#charts svg path')")  # unpacked and drawn
    assert page.js("performance.getEntriesByName('first panel')[0].startTime") < 8000
    for panel in ids:  # drawn when they come into view
        page.box(f"[data-id={panel}]")
        page.wait(f"document.querySelector('[data-id={panel}] svg path')")


def test_a_drag_zooms_all_panels_over_episodes_and_the_address_keeps_it(page):
    whole = zoom(page)
    page.drag("[data-id=strong_regret] .chart", (0.5, 0.3), (0.8, 0.6))
    page.wait("state.zoom.x")
    low, high = page.js("state.zoom.x")
    assert whole[0] < low < high < whole[1]
    assert zoom(page) == pytest.approx([low, high])
    page.box("[data-id=violation_1]")
    assert zoom(page, "violation_1") == pytest.approx([low, high])
    across = zoom(page, "tradeoff_strong")
    page.drag("[data-id=tradeoff_strong] .chart", (0.4, 0.2), (0.7, 0.6))
    page.wait("state.zoom.tradeoff_strong")
    assert zoom(page, "tradeoff_strong")[1] < across[1]
    address = page.js("location.href")
    page.open(address)
    assert page.js("state.zoom.x") == pytest.approx([low, high], rel=1e-3)
    page.box("[data-id=strong_regret]")
    page.click("[data-id=strong_regret] .chart", 2)
    page.wait("!state.zoom.x && state.zoom.tradeoff_strong")
    page.click("#reset")
    page.wait("location.hash === ''")


def test_the_legend_toggles_lines_everywhere(page):
    assert len(series(page)) == 4
    page.click('[data-toggle="l:uniform"]')
    assert [name.split(",")[0] for name in series(page)] == ["podb", "podb"]
    assert page.js("document.querySelectorAll('#summary tbody tr').length") == 2
    assert page.js("document.querySelectorAll('#exponents tbody tr').length") == 2
    page.click('[data-toggle="s:theory"]')
    assert series(page) == ["podb, tuned"]
    assert page.js("document.querySelector('[data-toggle=\"s:theory\"]').ariaPressed") == "false"
    page.open(page.js("location.href"))
    assert series(page) == ["podb, tuned"]
    page.click('[data-toggle="l:uniform"]')
    page.click('[data-toggle="s:theory"]')
    assert len(series(page)) == 4


def test_selectors_change_panels_and_tables(page):
    assert "T = 90" in text(page, "#table-title")
    before = text(page, "#summary")
    choose(page, "T", "30")
    assert "T = 30" in text(page, "#table-title")
    assert text(page, "#summary") != before
    assert zoom(page)[1] == pytest.approx(30, rel=0.2)
    page.click("#all")
    assert page.js("document.querySelectorAll('#summary tbody tr').length") == 8
    found = "document.querySelectorAll('#summary [data-name=\"strong regret\"] b')"
    cells = f"[...{found}].map((b) => parseFloat(b.textContent))"
    page.click('[data-column="strong regret"] button')
    assert (up := page.js(cells)) == sorted(up)
    page.press("Enter")  # the heading keeps the focus
    assert page.js(cells) == up[::-1] != up
    bands = "figureOf(document.querySelector('[data-id=strong_regret]')).panel.series.map((s) => s.high)"
    intervals = page.js(bands)
    choose(page, "band", "quantiles")
    assert page.js(bands) != intervals
    choose(page, "band", "none")
    assert page.js(bands) == [None] * 4
    kind = "figureOf(document.querySelector('[data-id=strong_regret]')).axes.y.kind"
    page.box("[data-id=strong_regret]")
    assert page.js(kind) == "log"
    page.click("#log")
    page.wait(f"{kind} === 'linear'")


def test_a_panel_is_operated_by_keyboard(page):
    page.box("[data-id=strong_regret]")
    page.js("document.querySelector('[data-id=strong_regret] .chart').focus()")
    tip = "[data-id=strong_regret] .tip"
    page.press("End")
    last = text(page, tip)
    assert last.startswith("episode 90")
    assert "uniform" in last
    page.press("ArrowLeft")
    assert not text(page, tip).startswith("episode 90")
    page.press("Home")
    assert text(page, tip).startswith("episode 1")
    under = page.js("document.querySelector('[data-id=strong_regret] .chart').getBoundingClientRect().bottom")
    assert page.js(f"document.querySelector({tip!r}).getBoundingClientRect().top") >= under  # the curve stays visible
    assert page.js("document.querySelector('[data-id=strong_violation] .cursor').hidden") is False  # linked
    page.press("Escape")
    assert page.js(f"document.querySelector({tip!r}).hidden")
    whole = zoom(page)
    page.press("+")
    page.wait("state.zoom.x")
    near = zoom(page)
    assert near[1] / near[0] < whole[1] / whole[0]
    page.press("0")
    page.wait("!state.zoom.x")
    page.box("[data-id=tradeoff_strong]")
    page.js("document.querySelector('[data-id=tradeoff_strong] .chart').focus()")
    page.press("ArrowRight")
    assert "strong regret" in text(page, "[data-id=tradeoff_strong] .tip")
    page.press("Tab")
    assert page.js("document.activeElement.tagName") in ("SUMMARY", "DIV")


def test_regret_is_vertical_and_violation_horizontal_as_in_the_figures_of_matplotlib(page):
    panel = "figureOf(document.querySelector('[data-id=tradeoff_strong]')).panel"
    names = page.js(f"[{panel}.x, {panel}.y]")
    assert [name.split(",")[0] for name in names] == ["strong violation", "strong regret"]
    ends = page.js(f"{panel}.series.map((s) => [s.x[0], s.y[0]])")
    means = page.js("view().lines.map((line) => [line.mean[2].at(-1), line.mean[0].at(-1)])")
    assert ends == means
    assert page.js("growthPanels().map((panel) => panel.y)") == ["at T, reward", "at T, cost"]


def test_points_of_a_learner_differ_by_their_filling(page):
    page.box("[data-id=tradeoff_strong]")
    page.wait("document.querySelector('[data-id=tradeoff_strong] svg path')")
    fills = page.js(
        "figureOf(document.querySelector('[data-id=tradeoff_strong]')).panel.series"
        ".map((s) => [s.learner, FILLS.indexOf(s.fill)].join())"
    )
    assert len(set(fills)) == len(fills) == 4
    looks = page.js("Array.from({length: 20}, (_, h) => [FILLS.indexOf(fillOf(h)), sizeOf(h)].join())")
    assert len(set(looks)) == 20


def test_a_line_has_the_dash_of_its_learner_if_there_is_only_one_of_the_hparams(page):
    """Otherwise it has that of its hparams."""
    assert page.js("[0, 1].map((h) => DASHES.indexOf(dashOf(0, h)))") == [0, 1]
    dashes = page.js(
        "((all) => { D.hparams = all.slice(0, 1); D.learners[1].dash = 2; const found = [dashOf(0, 0), dashOf(1, 0)];"
        " D.hparams = all; return found.map((dash) => DASHES.indexOf(dash)); })(D.hparams)"
    )
    assert dashes == [page.js("D.learners[0].dash"), 2]


def test_the_mouse_reads_values(page):
    x, y, width, height = page.box("[data-id=strong_violation] .chart")
    page.mouse("mouseMoved", x + width * 0.6, y + height / 2)
    page.wait("!document.querySelector('[data-id=strong_violation] .tip').hidden")
    assert "podb, theory" in text(page, "[data-id=strong_violation] .tip")
    page.mouse("mouseMoved", x + width * 0.6, y - 40)
    page.wait("document.querySelector('[data-id=strong_violation] .tip').hidden")


def test_panels_and_tables_are_saved(page, tmp_path):
    page.send("Page.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))

    def saved(ending):
        end = time.monotonic() + 120
        while time.monotonic() < end:
            if found := [path for path in tmp_path.glob(f"*{ending}") if path.stat().st_size]:
                return found[0].read_bytes()
            time.sleep(0.05)
        raise AssertionError(f"no file that ends in {ending}: {list(tmp_path.iterdir())}")

    for suffix in ("SVG", "PNG", "CSV"):
        page.click("[data-id=strong_regret] .save summary")
        page.click(f"[data-id=strong_regret] [data-format={suffix}]")
    drawn = ElementTree.fromstring(saved(".svg").decode())
    words = " ".join(node.text or "" for node in drawn.iter() if node.tag.endswith("text"))
    assert "Strong regret" in words
    assert "podb, tuned" in words  # the legend
    assert saved(".png").startswith(b"\x89PNG")
    frame = pd.read_csv(io.BytesIO(saved(".csv")))
    assert set(frame.learner) == {"podb", "uniform"}
    assert frame.episode.max() == 90
    page.click("#summary .tools button:nth-child(2)")
    page.click("#summary .tools button:nth-child(1)")
    table = saved("summary.tex").decode()
    cells = [line.split(" & ") for line in table.splitlines() if re.match("  (podb|uniform) &", line)]
    assert [any("textbf" in row[k] for row in cells) for k in range(3, 7)] == [True, False, True, False]
    assert page.js("tex('{a~b}^\\\\')") == r"\{a\textasciitilde{}b\}\textasciicircum{}\textbackslash{}"
    assert "\\toprule" in table
    assert table.count("\\\\") == 5
    table = pd.read_csv(io.BytesIO(saved("summary.csv")))
    end = frame[(frame.learner == "podb") & (frame.hparams == "tuned") & (frame.episode == 90)].iloc[0]
    row = table[(table.learner == "podb") & (table.hparams == "tuned")].iloc[0]
    assert row["strong regret"] == pytest.approx(end["cumulative, reward"], rel=1e-3)


@pytest.mark.parametrize(
    "values", [[36.91, 3.2e-6, 1637.2, 0], [-0.5194, 12.0, None], [2e8, -51.0], [3e-5], [0], [123456]]
)
def test_a_column_has_the_number_format_of_the_package(page, values):
    format_number = column_format([v for v in values if v is not None])
    numbers = [v for v in values if v is not None]
    expected = [re.sub(r"e([+-])0?", lambda sign: "e" + sign[1].strip("+"), format_number(v)) for v in numbers]
    assert page.js(f"{json.dumps(numbers)}.map(columnFormat({json.dumps(values)}))") == expected


def test_a_trade_off_shows_the_points_that_are_almost_zero(page):
    """Its axis becomes linear around 0, where that of a curve is logarithmic and leaves them out."""
    for zeros, kind in (("true", "symlog"), ("false", "log")):
        axis = f"axis([1e-6, 2, 1000], [], {{log: true, zeros: {zeros}}})"
        assert page.js(f"{axis}.kind") == kind
        assert page.js(f"(a => a.to(1e-6) > a.low)({axis})") == (zeros == "true")


@pytest.mark.parametrize("width", [1400, 800, 420])
@pytest.mark.parametrize("dark", [False, True])
def test_nothing_scrolls_sideways(page, width, dark):
    page.window(width, 900, dark=dark)
    page.js(
        "D.learners.forEach((one) => { one.name += '_with_a_long_name'.repeat(8); });"
        "[...D.views, ...D.rows, ...D.growth].forEach((one) => { one.environment += ':layers=3,states=3'.repeat(8); });"
        "state.environment = D.views[0].environment; $('controls').replaceChildren(); controls(); update()"
    )
    assert page.js("document.documentElement.scrollWidth") <= width
    page.box("[data-id=strong_regret]")
    page.wait("document.querySelector('[data-id=strong_regret] svg')")
    page.wait("!figureOf(document.querySelector('[data-id=strong_regret]')).stale")
    colours = page.js(
        "[...document.querySelectorAll('[data-id=strong_regret] svg path')].map((p) => p.getAttribute('stroke'))"
    )
    assert ("#2c323e" in colours) == dark  # the grid
