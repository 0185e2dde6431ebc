"""Hints for misspelt names: the nearest, in order, in the words that errors are made of."""

import re

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


def test_capitals_are_no_other_name():
    assert did_you_mean("Layers", KNOWN) == "did you mean layers?"


def test_mistakes_of_a_newcomer_in_python_are_one_sentence(tmp_path):
    cmdp = cp.envs.make("factored")
    result = cp.simulate("uniform", cmdp, episodes=5, seeds=2, progress=False)
    told = {
        "'factored' is an environment; give a learner": lambda: cp.simulate("factored", cmdp, episodes=5, seeds=1),
        "'cpdpo' is a learner; give an environment": lambda: cp.simulate("uniform", "cpdpo", episodes=5, seeds=1),
        "presets are given as hparams": lambda: cp.simulate("cpdpo", cmdp, episodes=5, seeds=1, settings="theory"),
        "'lr'; it has learning_rate": lambda: cp.simulate("cpdpo", cmdp, episodes=5, seeds=1, hparams={"lr": 1}),
        "did you mean learning_rate": lambda: cp.simulate(
            "cpdpo", cmdp, episodes=5, seeds=1, hparams={"learn_rate": 1}
        ),
        "give the path first": lambda: cp.save_cmdp(cmdp, "a.npz"),  # pyright: ignore[reportArgumentType]
        "cmdp is a str; give a CMDP": lambda: cp.solve("hard"),  # pyright: ignore[reportArgumentType]
        "size = 5; give width and height": lambda: result.plot(size=5),  # pyright: ignore[reportArgumentType]
        "learner is a str; give a Learner": lambda: cp.learners.register("x"),  # pyright: ignore[reportArgumentType]
    }
    for words, mistake in told.items():
        with pytest.raises(ValueError, match=re.escape(words)):
            mistake()
    with pytest.raises(FileNotFoundError, match=r"there is no folder '.*nowhere'; make it first"):
        result.to_csv(tmp_path / "nowhere" / "a.csv")
