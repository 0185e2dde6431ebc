"""`warn_once`: one warning per subject, at the line of the user."""

from __future__ import annotations

import threading
import warnings
from contextlib import contextmanager

import jax
import pytest

from cpdpo_jax.common import notices


@pytest.fixture(autouse=True)
def _new_process(monkeypatch):
    monkeypatch.setattr(notices, "_ISSUED", set())


def test_a_subject_has_one_warning():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for subject in ("a", "b", "a"):
            notices.warn_once(subject, f"about {subject}")
    assert [str(warning.message) for warning in caught] == ["about a", "about b"]


def test_the_line_is_that_of_the_user_whatever_is_in_between():
    @contextmanager
    def context():
        yield

    @context()
    def traced(x):
        notices.warn_once("a", "about a")
        return x

    with pytest.warns(RuntimeWarning, match="about a") as caught:
        jax.jit(jax.vmap(traced))(jax.numpy.ones(2))
    assert caught[0].filename == __file__


def test_a_worker_thread_names_the_package():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        thread = threading.Thread(target=notices.warn_once, args=("a", "about a"))
        thread.start()
        thread.join(60)
    assert len(caught) == 1
    assert caught[0].filename.endswith(".py")
