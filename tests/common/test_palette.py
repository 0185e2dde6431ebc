"""Ten looks that are all different, and one palette for all figures."""

from cpdpo_jax.common import palette
from cpdpo_jax.envs import pictures
from cpdpo_jax.results import figures
from experiments import common


def test_ten_different_colours_and_markers():
    assert len(set(palette.COLOURS)) == len(set(palette.MARKERS)) == 10
    assert len(set(palette.DASHES)) == 7


def test_all_figures_use_it():
    assert pictures.COLOURS is figures.COLOURS is common.PALETTE is palette.COLOURS
    assert figures.MARKERS is common.MARKS is palette.MARKERS
    looks = {tuple(map(str, common.look(i).values())) for i in range(70)}
    assert len(looks) == 70
