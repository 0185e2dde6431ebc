"""The number of cores available to the process, not that of the machine."""

import hashlib
import os
import platform
import subprocess
import sys

import pytest

from cpdpo_jax.common import machine
from cpdpo_jax.common.machine import cores


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system cannot pin a process")
def test_a_pinned_process_has_one_core():
    code = (
        "import os; from cpdpo_jax.common.machine import cores\n"
        "allowed = os.sched_getaffinity(0); assert cores() == len(allowed)\n"
        "os.sched_setaffinity(0, {min(allowed)}); print(cores())"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=600)
    assert done.stdout == "1\n"


@pytest.mark.parametrize(("counted", "expected"), [(6, 6), (None, 1)])
def test_without_pinning_all_are_counted(monkeypatch, counted, expected):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: counted)
    assert cores() == expected


CPUINFO = "processor\t: 0\nmodel name\t: A CPU: fast\nflags\t\t: avx sse\nno colon\n\nprocessor\t: 1\nflags\t: other\n"


def test_a_cpu_is_known_by_its_name_and_features(monkeypatch, tmp_path):
    """Their order does not matter, other cores and other lines neither."""

    def type_of(text: str | None) -> str:
        path = tmp_path / "cpuinfo"
        path.write_bytes((text or "").encode("latin-1"))
        source = path if text is not None else tmp_path / "none"
        monkeypatch.setattr(machine, "open", lambda name, **options: source.open(**options), raising=False)
        machine.cpu_type.cache_clear()
        return machine.cpu_type()

    try:
        known = type_of(CPUINFO)
        assert known == f"A CPU: fast ({hashlib.sha256(b'avx sse').hexdigest()[:8]})"
        assert type_of(CPUINFO.replace("avx sse", "sse avx").replace("other", "x")) == known
        assert type_of(CPUINFO.replace("avx", "avx512")) != known
        assert type_of(CPUINFO.replace("flags\t\t", "Features")) == known
        assert type_of(CPUINFO.replace("fast", "\xff")).startswith("A CPU: \ufffd (")
        assert type_of(CPUINFO.replace("flags", "x")) == "A CPU: fast"
        assert type_of(None) == (platform.processor() or platform.machine())
    finally:
        machine.cpu_type.cache_clear()
