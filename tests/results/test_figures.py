"""Figures: distinguishable lines, honest axes, complete legends; a notebook shows a figure once."""

from __future__ import annotations

import matplotlib as mpl

mpl.use("Agg")

import itertools

import matplotlib.pyplot as plt
import numpy as np
import pytest

import cpdpo_jax as cp
from cpdpo_jax.common import palette
from cpdpo_jax.results import figures, panels, plot_style
from tests.results.support import made_up


@pytest.fixture(autouse=True)
def _closed():
    yield
    plt.close("all")


def many(learners, hparams=1, **more):
    return made_up([f"learner{i}" for i in range(learners)], [f"hparams {i}" for i in range(hparams)], **more)


@pytest.mark.parametrize("metrics", [figures.METRICS, ["strong_regret"]], ids=["four panels", "one"])
@pytest.mark.parametrize(("learners", "hparams"), [(1, 1), (7, 1), (4, 6), (24, 1), (3, 10), (7, 10)])
def test_no_two_lines_look_the_same_and_no_legend_is_cut(learners, hparams, metrics):
    result = many(learners, hparams)
    result.data["strong_regret"][-1] = result.data["strong_regret"][0] * 1.001  # no room for labels at the lines
    figure = result.plot(title="title", metrics=metrics)
    for axis in figure.axes:
        drawn = [line for line in axis.lines if np.size(line.get_xdata()) > 2]
        assert len(drawn) == learners * hparams
        dashes = {
            (line.get_color(), str(line._dash_pattern), str(line.get_marker()), line.get_fillstyle())  # pyright: ignore[reportAttributeAccessIssue]
            for line in drawn
        }
        assert len(dashes) == learners * hparams
    figure.canvas.draw()
    width, height = figure.canvas.get_width_height()
    for legend in figure.legends:
        box = legend.get_window_extent()
        assert box.x0 >= 0
        assert box.y0 >= 0
        assert box.x1 <= width + 1
        assert box.y1 <= height + 1
        covered = [axis for axis in figure.axes if axis.get_window_extent().overlaps(box)]
        assert not covered
    assert len(figure.legends) == (learners * hparams > 1)


def test_colour_is_the_learner_and_dash_the_setting():
    styles = {at: style for at, style, _ in plot_style.line_styles(many(3, 4).data)}
    for a, b in itertools.combinations(styles, 2):
        assert (styles[a]["color"] == styles[b]["color"]) == (a[0] == b[0])
        assert (styles[a]["linestyle"] == styles[b]["linestyle"]) == (a[2] == b[2])


def test_styles_repeat_with_other_fills():
    n = len(palette.DASHES)
    styles = [plot_style.learner_line("cpdpo", dash) for dash in range(7 * n)]
    fills = ["full", "none", "left", "right", "bottom", "top", "full"]
    assert [style["fillstyle"] for style in styles] == [fill for fill in fills for _ in range(n)]
    assert [style["linestyle"] for style in styles] == [*palette.DASHES] * 7
    assert len({(style["color"], style["marker"]) for style in styles}) == 1
    assert plot_style.learner_line("cpdpo") == styles[palette.learner_style("cpdpo")[2]]


def test_all_sizes_follow_the_text():
    assert plot_style.text_settings(5.0) == {"font.size": 5.0, "axes.linewidth": 0.4, "grid.linewidth": 0.25}
    with mpl.rc_context(plot_style.text_settings(5.0)):
        style = plot_style.learner_line("cpdpo")
    assert (style["markersize"], style["linewidth"]) == (2.0, 0.75)
    assert [plot_style.text_size(width) for width in (9.0, 4.5, 3.6, 1.0)] == [10, 10, 8, 6.5]


def test_labels_name_what_differs():
    data = made_up(["a"], ["tuned, x=1", "tuned, x=2"], instances=3).data
    assert plot_style.label(data, (0, 2, 1)) == "a, cmdp2 (2), x=2"
    assert plot_style.label(data.isel(hparams=[1]), (0, 2, 0)) == "a, cmdp2 (2)"
    assert plot_style.label(data.isel(instance=[2]), (0, 0, 1)) == "a, x=2"
    assert plot_style.label(data.isel(instance=[2], hparams=[1]), (0, 0, 0)) == "a"


def test_a_learner_looks_the_same_whatever_is_shown_beside_it():
    names = ["cpd_oppo", "cpdpo", "uniform", "podb", "mine"]

    def of(result):
        return {str(result.data.learner.values[at[0]]): style for at, style, _ in plot_style.line_styles(result.data)}

    everything, reverse = of(made_up(names)), of(made_up(names[::-1]))
    assert everything == reverse
    for name in names:
        assert of(made_up([name])) == {name: everything[name]}
        several = of(made_up([name], ["s", "t"]))[name]
        assert (several["color"], several["marker"]) == (everything[name]["color"], everything[name]["marker"])
    (axis,) = made_up(names).plot(metrics="strong_regret", learners="podb").axes
    assert axis.lines[0].get_color() == everything["podb"]["color"]


def test_axes_are_both_logarithmic_or_both_linear():
    figure = many(3).plot()
    scales = {axis.get_title(): (axis.get_xscale(), axis.get_yscale()) for axis in figure.axes}
    assert scales["strong regret"] == scales["strong violation"] == ("log", "log")
    assert scales["weak regret"] == scales["weak violation"] == ("linear", "linear")  # they are negative at the end
    assert {axis.get_yscale() for axis in many(3).plot(log=False).axes} == {"linear"}
    assert {axis.get_yscale() for axis in many(3).plot(log=True).axes} == {"log", "symlog"}
    short = many(2, episodes=8)  # less than a decade
    assert {axis.get_xscale() for axis in short.plot().axes} == {"linear"}


def test_curves_of_zero_and_of_rounding_are_noted_and_stretch_no_axis():
    result = many(3)
    result.data.strong_regret[1] = 0.0
    result.data.strong_regret[2] = 1e-12
    (axis,) = result.plot(metrics="strong_regret").axes
    assert axis.get_ylim()[0] >= axis.get_ylim()[1] / 10 ** (plot_style.DECADES + 0.5)
    (note,) = [text.get_text() for text in axis.texts if "0 throughout" in text.get_text()]
    assert "0 throughout: learner1" in note
    assert "below the axis: learner2 (1e-12)" in note
    (other,) = [axis for axis in result.plot().axes if axis.get_title().startswith("strong violation")]
    assert not [text for text in other.texts if "throughout" in text.get_text()]


def test_a_single_panel_has_its_labels_at_the_lines_where_there_is_room():
    far, near = many(3), many(3)
    near.data.strong_regret[1] = near.data.strong_regret[0] * 1.001
    (axis,) = far.plot(metrics="strong_regret").axes
    assert {text.get_text() for text in axis.texts} >= {"learner0", "learner1", "learner2"}
    assert far.plot(metrics="strong_regret").legends == []
    assert len(near.plot(metrics="strong_regret").legends) == 1


def test_neither_a_single_line_nor_a_line_outside_of_the_panel_has_a_label_at_its_end():
    (axis,) = many(1).plot(metrics="strong_regret").axes
    assert [text.get_text() for text in axis.texts] == []
    result = many(3)
    result.data.strong_regret[2] = 1e-12
    figure = result.plot(metrics="strong_regret")
    assert not {text.get_text() for text in figure.axes[0].texts} & {"learner0", "learner1", "learner2"}
    assert len(figure.legends) == 1


@pytest.mark.parametrize(
    ("n", "grid"), [(1, (1, 1)), (2, (1, 2)), (3, (1, 3)), (4, (2, 2)), (5, (2, 3)), (6, (2, 3)), (7, (3, 3))]
)
def test_panels_are_at_most_three_in_a_row(n, grid):
    layout = panels.Layout(n, None, None, "screen")
    assert (layout.rows, layout.columns) == grid
    assert layout.size == (4.5 * grid[1], 3.3 * grid[0])
    narrow = panels.Layout(n, None, None, "paper")
    assert (narrow.rows, narrow.columns, narrow.size) == (n, 1, (3.25, pytest.approx(2.2 * n + 0.3)))


def test_plot_takes_metrics_learners_axes_and_size():
    result = many(3)
    figure = result.plot(metrics=["strong_violation", "weak_violation"], learners="learner1", size=(8, 3))
    assert [axis.get_title() for axis in figure.axes] == [
        figures.TITLES["strong_violation"],
        figures.TITLES["weak_violation"],
    ]
    assert figure.get_size_inches().tolist() == [8, 3]
    assert "learner1" in figure.get_suptitle()
    ours, axes = plt.subplots(1, 2)
    assert result.plot(metrics=["strong_regret", "weak_regret"], axes=axes) is ours
    assert len([line for line in axes[0].lines if np.size(line.get_xdata()) > 2]) == 3
    with pytest.raises(ValueError, match="axes has 2 matplotlib Axes for 1 metrics"):
        result.plot(metrics="strong_regret", axes=axes)
    with pytest.raises(ValueError, match="no metric 'regret'; choose one of strong_regret"):
        result.plot(metrics="regret")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="no learner 'x' in this result; it has learner0"):
        result.plot(learners="x")


def test_pdf_holds_letters(tmp_path):
    many(2).plot(metrics="strong_regret").savefig(tmp_path / "a.pdf")
    content = (tmp_path / "a.pdf").read_bytes()
    assert b"/Type3" not in content
    assert b"/FontFile2" in content


def test_details_and_growth_are_drawn_with_many_lines():
    result = many(4, 3, constraints=2)
    details = figures.details(result.data)
    for axis in details.axes[2:]:  # two panels for each of two constraints
        assert len([line for line in axis.lines if np.size(line.get_xdata()) > 2]) == 4 * 3
    assert "of constraint 1" in details.axes[5].get_title()
    assert len(details.axes) == 6
    runs = [many(4, episodes=10**k).data for k in (3, 4, 5)]
    runs[0].strong_violation[0] = 0
    figure = figures.growth(runs)
    assert [text.get_text() for text in figure.axes[1].texts] == ["0 or not run: learner0"]
    slopes = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]  # pyright: ignore[reportOptionalMemberAccess]
    assert slopes[4:] == ["slope 1/2", "slope 1"]
    assert all("0.50 [" in text for text in slopes[:4])


def test_growth_has_no_axis_down_to_rounding():
    runs = [many(3, episodes=10**k).data for k in (3, 4)]
    for run in runs:
        run.strong_regret[1] = 1e-9
    axis = figures.growth(runs).axes[0]
    assert axis.get_ylim()[0] >= axis.get_ylim()[1] / 10**plot_style.DECADES * 0.99
    assert [text.get_text() for text in axis.texts] == ["below the axis: learner1 (1e-09)"]
    legend = [text.get_text() for text in axis.get_legend().get_texts()]  # pyright: ignore[reportOptionalMemberAccess]
    assert [text.split(":")[0] for text in legend] == ["learner0", "learner2", "slope 1/2", "slope 1"]


def test_an_exponent_without_an_interval_has_no_nan_in_the_legend():
    runs = [many(1, seeds=2, episodes=10**k).data for k in (3, 4)]
    runs[0].strong_regret[..., 1, -1] = -0.1  # a resampled mean below 0 has no logarithm
    legend = figures.growth(runs).axes[0].get_legend()
    texts = [text.get_text() for text in legend.get_texts()]  # pyright: ignore[reportOptionalMemberAccess]
    assert texts[0].startswith("learner0: ")
    assert not any("nan" in text for text in texts)


def test_notes_are_wrapped_into_their_panel():
    result = many(8, 2, constraints=2)
    result.data.strong_violation[1:6] = 0.0
    figure = figures.details(result.data)
    figure.canvas.draw()
    (note,) = figure.axes[3].texts
    box, panel = note.get_window_extent(), figure.axes[3].get_window_extent()
    assert panel.x0 <= box.x0
    assert box.x1 <= panel.x1


def test_an_interrupted_curve_ends_where_it_was_cut():
    result = many(2)
    result.data.strong_regret[1, ..., 20:] = np.nan
    (axis,) = result.plot(metrics="strong_regret").axes
    drawn = [line for line in axis.lines if np.size(line.get_xdata()) > 2]
    assert [int(np.isfinite(np.asarray(line.get_ydata(), float)).sum()) for line in drawn] == [
        result.data.sizes["episode"],
        20,
    ]


@pytest.mark.parametrize("size", [(3.25, 2.4), "one-column"])
def test_a_small_figure_has_smaller_text_and_cuts_nothing(size):
    style = "paper" if isinstance(size, str) else "screen"
    large = many(6).plot(metrics="strong_regret")
    small = many(6).plot(metrics="strong_regret", size=size, style=style)  # pyright: ignore[reportArgumentType]
    assert small.get_size_inches()[0] == 3.25
    title_sizes = [float(figure.axes[0].title.get_fontsize()) for figure in (small, large)]
    assert 6 < title_sizes[0] < title_sizes[1] == 10
    assert small.axes[0].lines[0].get_linewidth() < large.axes[0].lines[0].get_linewidth()
    assert float(small.axes[0].xaxis.get_ticklabels()[0].get_fontsize()) < 7.5
    small.canvas.draw()
    width, height = small.canvas.get_width_height()
    (legend,) = small.legends
    box, panel = legend.get_window_extent(), small.axes[0].get_window_extent()
    assert box.x0 >= -1
    assert box.x1 <= width + 1
    assert not box.overlaps(panel)
    assert panel.height > 0.35 * height
    assert not [text for text in small.texts if "seeds" in text.get_text()] or style == "screen"


def test_paper_presets():
    names = ["strong_regret", "strong_violation"]
    narrow, wide = (many(2).plot(metrics=names, style="paper", size=size) for size in ("one-column", "two-column"))  # pyright: ignore[reportArgumentType]
    assert narrow.get_size_inches()[0] == 3.25
    assert wide.get_size_inches()[0] == 6.75
    (upper, lower), (left, right) = (
        [axis.get_subplotspec().rowspan.start for axis in figure.axes]  # pyright: ignore[reportOptionalMemberAccess]
        for figure in (narrow, wide)
    )
    assert upper < lower
    assert left == right
    assert wide.get_suptitle() == ""
    assert many(2).plot(metrics="strong_regret", style="paper", title="mine").get_suptitle() == "mine"
    assert many(2).plot(metrics="strong_regret", title="mine").get_suptitle() == "mine: 6 seeds, mean and 95 % interval"
    with pytest.raises(ValueError, match=r"style = 'print' is not valid; choose one of screen, paper"):
        many(2).plot(style="print")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match=r"size = 'wide' is not valid; give inches, such as \(9, 4\), or one-column"):
        many(2).plot(size="wide")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match=r"size = 3 is not a pair; give width and height in inches"):
        many(2).plot(size=3)  # pyright: ignore[reportArgumentType]


def test_the_tradeoff_shows_the_means_at_the_end():
    result = many(3, 2, instances=2)
    figure = result.plot_tradeoff()
    assert len(figure.axes) == 2  # one for each instance
    marks = [line for line in figure.axes[1].lines if line.get_marker() in palette.MARKERS]
    ends = result.data.isel(episode=-1, instance=1).mean("seed")
    expected = [
        (float(ends.strong_violation[i, k, 0]), float(ends.strong_regret[i, k])) for i in range(3) for k in range(2)
    ]
    drawn = [(float(line.get_xdata()[0]), float(line.get_ydata()[0])) for line in marks]  # pyright: ignore[reportIndexIssue, reportArgumentType]
    np.testing.assert_allclose(drawn, expected)
    assert [line.get_fillstyle() for line in marks] == ["full", "none"] * 3
    with pytest.raises(ValueError, match="give two names, of the horizontal and the vertical axis"):
        result.plot_tradeoff(metrics=("strong_regret",))  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("means", "scale"),
    [([5, 50, 500], "log"), ([5, 6, 7], "linear"), ([0, 50, 500], "symlog"), ([-50, 50, 500], "linear"),
     ([0, 0, 0], "linear")],
)  # fmt: skip
def test_each_axis_of_the_tradeoff_has_the_scale_of_its_means(means, scale):
    """Logarithmic for a decade of positive means; the means of the other axis do not matter."""
    result = many(3)
    for i, mean in enumerate(means):
        result.data.strong_regret[i, ..., -1] = mean
        result.data.strong_violation[i, ..., -1, 0] = 3 + i
    (axis,) = result.plot_tradeoff(metrics=("strong_regret", "strong_violation")).axes
    assert (axis.get_xscale(), axis.get_yscale()) == (scale, "linear")
    (axis,) = result.plot_tradeoff().axes
    assert (axis.get_xscale(), axis.get_yscale()) == ("linear", scale)


def test_growth_is_public_and_wants_runs_of_different_length():
    runs = [many(2, episodes=10**k) for k in (3, 4)]
    figure = cp.plot_growth(runs, metrics="strong_regret", style="paper")
    assert len(figure.axes) == 1
    assert figure.get_size_inches()[0] == 3.25
    with pytest.raises(ValueError, match="results has 1 runs; give at least two of different T"):
        cp.plot_growth(runs[:1])
