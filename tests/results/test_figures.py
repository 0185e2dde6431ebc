"""Figures: every line is there and told apart, axes are honest, legends whole; a notebook shows a figure once."""

from __future__ import annotations

import matplotlib as mpl

mpl.use("Agg")

import itertools

import matplotlib.pyplot as plt
import numpy as np
import pytest

from cpdpo_jax.results import figures, looks
from tests.results.support import made_up


@pytest.fixture(autouse=True)
def _closed():
    yield
    plt.close("all")


def many(learners, settings=1, **more):
    return made_up([f"learner{i}" for i in range(learners)], [f"setting {i}" for i in range(settings)], **more)


@pytest.mark.parametrize("metrics", [figures.METRICS, ["strong_regret"]], ids=["four panels", "one"])
@pytest.mark.parametrize(("learners", "settings"), [(1, 1), (7, 1), (4, 6), (24, 1), (3, 10), (7, 10)])
def test_no_two_lines_look_the_same_and_no_legend_is_cut(learners, settings, metrics):
    result = many(learners, settings)
    result.data["strong_regret"][-1] = result.data["strong_regret"][0] * 1.001  # no room for labels at the lines
    figure = result.plot(title="title", metrics=metrics)
    for axis in figure.axes:
        drawn = [line for line in axis.lines if np.size(line.get_xdata()) > 2]
        assert len(drawn) == learners * settings
        seen = {(line.get_color(), str(line.get_linestyle()), str(line.get_marker())) for line in drawn}
        dashes = {(line.get_color(), str(line._dash_pattern), str(line.get_marker())) for line in drawn}  # pyright: ignore[reportAttributeAccessIssue]
        assert max(len(seen), len(dashes)) == learners * settings
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
    assert len(figure.legends) == (learners * settings > 1)


def test_colour_is_the_learner_and_dash_the_setting():
    styles = {at: style for at, style, _ in looks.lines(many(3, 4).data)}
    for one, other in itertools.combinations(styles, 2):
        assert (styles[one]["color"] == styles[other]["color"]) == (one[0] == other[0])
        assert (styles[one]["linestyle"] == styles[other]["linestyle"]) == (one[2] == other[2])


def test_axes_are_both_logarithmic_or_both_linear():
    figure = many(3).plot()
    scales = {axis.get_title().split(" (")[0]: (axis.get_xscale(), axis.get_yscale()) for axis in figure.axes}
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
    assert axis.get_ylim()[0] >= axis.get_ylim()[1] / 10 ** (looks.DECADES + 0.5)
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
        result.plot(metrics="regret")
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
    assert len([line for line in details.axes[2].lines if np.size(line.get_xdata()) > 2]) == 4 * 3 * 2
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
    assert axis.get_ylim()[0] >= axis.get_ylim()[1] / 10**looks.DECADES * 0.99
    assert [text.get_text() for text in axis.texts] == ["below the axis: learner1 (1e-09)"]


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
