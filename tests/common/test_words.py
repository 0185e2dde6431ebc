"""Hints for misspelt names: the nearest, in order, in the words that errors are made of."""

import pytest

import cpdpo_jax as cp
from cpdpo_jax.common.words import did_you_mean
from cpdpo_jax.learners import base

KNOWN = ("layers", "states", "actions", "layer_width")


def test_the_nearest_come_first_and_nothing_near_is_no_question():
    assert did_you_mean("layer", KNOWN) == "did you mean layers or layer_width?"
    assert did_you_mean("layer", KNOWN, most=1) == "did you mean layers?"
    assert did_you_mean("actoins", KNOWN, show=repr) == "did you mean 'actions'?"
    assert did_you_mean("zzz", KNOWN) == ""
    assert did_you_mean("", KNOWN, with_parts=4) == ""


def test_names_that_contain_it_are_added_up_to_a_number():
    known = ["random_a_very_long_name", "another_random_long_name", "x_random_yet_another", "box"]
    assert did_you_mean("random", known) == ""
    assert did_you_mean("random", known, with_parts=2) == f"did you mean {known[0]} or {known[1]}?"


def test_the_cutoff_says_how_alike():
    """ "abcd" and "abxy" share 2 of 4 letters: their ratio is 2 * 2 / 8 = 0.5."""
    assert did_you_mean("abcd", ["abxy"], cutoff=0.5) == "did you mean abxy?"
    assert did_you_mean("abcd", ["abxy"], cutoff=0.51) == ""


def test_the_sentences_of_the_registries():
    with pytest.raises(
        ValueError, match=r"^there is no learner named 'cpdop'; did you mean 'cpdpo'( or '\w+'){0,2}\?$"
    ):
        base.get("cpdop")
    with pytest.raises(ValueError, match=r"^there is no learner named '#'; the known ones are .*cpdpo.*\.$"):
        base.get("#")
    with pytest.raises(ValueError, match=r"^no environment is called 'clif' \(did you mean cliff\?\); choose one of "):
        cp.envs.make("clif")
    with pytest.raises(ValueError, match=r"^no environment is called '#'; choose one of "):
        cp.envs.make("#")
