"""Each learner has a distinct style, and all figures share one palette."""

import itertools
import zlib

from cpdpo_jax import learners
from cpdpo_jax.common import palette
from cpdpo_jax.envs import pictures
from experiments import common
from experiments.cancellation import sweep as cancellation
from experiments.cost import sweep as cost
from experiments.growth import sweep as growth
from experiments.slater import sweep as slater


def test_ten_colours_and_markers_and_seven_dashes():
    assert len(set(palette.COLOURS)) == len(set(palette.MARKERS)) == 10
    assert len(set(palette.DASHES)) == 7


def test_every_figure_has_the_same_palette():
    assert pictures.COLOURS is palette.COLOURS
    for name in palette.LEARNERS:
        style = palette.learner_style(name)
        assert common.line_style(name) == {
            "color": style.colour, "linestyle": palette.DASHES[style.dash], "marker": style.mark
        }  # fmt: skip


def test_learners_of_an_experiment_have_different_colours():
    compared = (growth.LEARNERS, slater.LEARNERS, cancellation.LEARNERS, cost.LEARNERS, ("podb", "uob_reps", "uniform"))
    for names in compared:
        assert len({palette.learner_style(name).colour for name in names}) == len(names)


def test_every_learner_of_the_package_is_in_the_table_and_looks_like_no_other():
    assert set(palette.LEARNERS) == set(learners.BUILT_IN)
    styles = [palette.learner_style(name) for name in palette.LEARNERS]
    for style, other in itertools.combinations(styles, 2):
        assert style.colour != other.colour
        assert (style.mark, style.dash) != (other.mark, other.dash)  # distinguishable in black and white too


def test_a_learner_of_the_user_never_looks_like_one_of_the_package():
    built_in = [palette.learner_style(name) for name in palette.LEARNERS]
    plausible = ["mine", "my_cpdpo", "ours", "ppo", "baseline", "robust", "v2", "new", "fast"]
    for name in [*plausible, *(f"learner{i}" for i in range(3000))]:
        style = palette.learner_style(name)
        assert all((style.colour, style.mark) != (other.colour, other.mark) for other in built_in), name
        assert all((style.mark, style.dash) != (other.mark, other.dash) for other in built_in), name


def test_the_style_of_another_learner_depends_on_its_name_alone():
    """CRC-32 gives the same values in every process and version."""
    taken = {palette.learner_style(name)[:2] for name in palette.LEARNERS}
    free = [pair for pair in itertools.product(palette.LEARNERS.values(), palette.MARKERS) if pair not in taken]
    assert palette.learner_style("mine")[:2] == free[zlib.crc32(b"mine") % len(free)]
    assert len({palette.learner_style(f"learner{i}") for i in range(100)}) > 80
