"""Suggestions for misspelt names, their order, and the errors that contain them."""

import re

import pytest

import cpdpo_jax as cp
from cpdpo_jax.common.text import column_format, did_you_mean, file_stem, format_number
from cpdpo_jax.learners import base

KNOWN = ("layers", "states", "actions", "layer_width")


def test_the_nearest_come_first_and_nothing_near_is_no_question():
    assert did_you_mean("layer", KNOWN) == "did you mean layers or layer_width?"
    assert did_you_mean("layer", KNOWN, most=1) == "did you mean layers?"
    assert did_you_mean("actoins", KNOWN) == "did you mean actions?"
    assert did_you_mean("zzz", KNOWN) == ""
    assert did_you_mean("", KNOWN, with_parts=4) == ""


def test_names_that_contain_it_are_added_up_to_a_number():
    known = ["random_a_very_long_name", "another_random_long_name", "x_random_yet_another", "box"]
    assert did_you_mean("random", known) == ""
    assert did_you_mean("random", known, with_parts=2) == f"did you mean {known[0]} or {known[1]}?"


def test_the_sentences_of_the_registries():
    with pytest.raises(ValueError, match=r"^there is no learner named 'cpdop'; did you mean cpdpo( or \w+){0,2}\?$"):
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
    messages = {
        "'factored' is an environment; give a learner": lambda: cp.simulate("factored", cmdp, episodes=5, seeds=1),
        "'cpdpo' is a learner; give an environment": lambda: cp.simulate("uniform", "cpdpo", episodes=5, seeds=1),
        "presets are given as hparams": lambda: cp.simulate(
            "cpdpo",
            cmdp,
            episodes=5,
            seeds=1,
            settings="theory",  # pyright: ignore[reportCallIssue]
        ),
        "'lr'; it has learning_rate": lambda: cp.simulate("cpdpo", cmdp, episodes=5, seeds=1, hparams={"lr": 1}),
        "did you mean learning_rate": lambda: cp.simulate(
            "cpdpo", cmdp, episodes=5, seeds=1, hparams={"learn_rate": 1}
        ),
        "give the path first": lambda: cp.save_cmdp(cmdp, "a.npz"),  # pyright: ignore[reportArgumentType]
        "cmdp is a str; give a CMDP": lambda: cp.solve("hard"),  # pyright: ignore[reportArgumentType]
        "size = 5 is not a pair; give width and height": lambda: result.plot(size=5),  # pyright: ignore[reportArgumentType]
        "learner is a str; give a Learner": lambda: cp.learners.register("x"),  # pyright: ignore[reportArgumentType]
    }
    for words, mistake in messages.items():
        with pytest.raises(ValueError, match=re.escape(words)):
            mistake()
    with pytest.raises(FileNotFoundError, match=r"folder '.*nowhere' does not exist; create it first"):
        result.to_csv(tmp_path / "nowhere" / "a.csv")


def test_a_file_stem_keeps_its_ending_and_is_not_that_of_another_text():
    assert file_stem("random:layers=4,rho=0.5 #1", "T100") == "random-layers-4-rho-0.5-1-T100"
    long = "random:layers=4,states=3,actions=3,constraints=1,key=7,rho=0.5,instances=10,spread=0.25,sparse=2"
    stem, other = file_stem(long, "T1000"), file_stem(long + "5", "T1000")
    assert stem.endswith("-T1000")
    assert stem != other
    assert len(stem) <= 60 + 1 + 8 + len("-T1000")
    assert file_stem(long, "T1000") == stem


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, "0"), (1e-3, "0.001"), (0.99e-3, "9.90e-04"), (-0.5, "-0.5"), (12.3456, "12.35"), (999.94, "999.9"),
        (1000.4, "1,000"), (-1234567, "-1,234,567"), (9_999_999, "9,999,999"), (1e7, "1.00e+07"),
    ],
)  # fmt: skip
def test_a_number_has_four_digits(value, expected):
    assert format_number(value) == expected


def test_fewer_digits_of_a_number():
    assert [format_number(x, 2) for x in (1.26, 9.96, 12.3, 1e-5)] == ["1.3", "10", "12", "1.0e-05"]
    assert format_number(0.00012345, 6) == "1.2345e-04"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1.0, 20.0], ["1.00", "20.00"]), ([1e-3], ["0.001000"]), ([0.9e-3], ["9.00e-04"]),
        ([9_999_999.0], ["9,999,999"]),
        ([1e7, 1.0], ["1.00e+07", "1.00e+00"]), ([12_345.6, 10.0], ["12,346", "10"]),
        ([12_345.6, 9.0], ["12,345.6", "9.0"]),
        ([-0.001, 1000.0], ["0.0", "1,000.0"]), ([], []), ([None, 100.0], ["100.0"]),
        ([float("inf"), 2.0], ["-", "2.000"]),
    ],
)  # fmt: skip
def test_a_column_of_numbers(values, expected):
    shown = column_format(values)
    assert [shown(value) for value in values if value is not None] == expected


def test_a_long_file_name_is_cut_and_hashed():
    assert file_stem("a" * 60, "x") == "a" * 60 + "-x"
    assert re.fullmatch(r"a{60}-[0-9a-f]{8}-x", file_stem("a" * 61, "x"))
    assert re.fullmatch(r"a{58}-[0-9a-f]{8}-x", file_stem("a" * 58 + ".-b" * 9, "x"))
    assert file_stem("--a/b--", "x") == "a-b-x"


def test_the_most_alike_name_differs_only_in_capitals():
    assert did_you_mean("LAYERS", ["layer", "layers", "Layers", "players"]) == "did you mean layers?"
