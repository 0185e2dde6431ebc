"""The cores that a process may use, not those the machine has."""

import os
import subprocess
import sys

import pytest

from cpdpo_jax.common.machine import cores


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system cannot pin a process")
def test_a_pinned_process_has_one_core():
    code = (
        "import os; from cpdpo_jax.common.machine import cores\n"
        "allowed = os.sched_getaffinity(0); assert cores() == len(allowed)\n"
        "os.sched_setaffinity(0, {min(allowed)}); print(cores())"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "1\n"


@pytest.mark.parametrize(("counted", "expected"), [(6, 6), (None, 1)])
def test_without_pinning_all_are_counted(monkeypatch, counted, expected):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: counted)
    assert cores() == expected
