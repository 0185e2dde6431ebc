"""Files that are whole or not there, whoever writes them at once."""

import os
import threading

import pytest

from cpdpo_jax.common import files


@pytest.mark.parametrize("content", ["größer\n", b"\x00\xff", memoryview(b"abc")])
def test_what_is_written_is_read(tmp_path, content):
    path = tmp_path / "a"
    files.write(path, "old")
    files.write(path, content)
    assert path.read_bytes() == (content.encode() if isinstance(content, str) else bytes(content))
    assert os.listdir(tmp_path) == ["a"]


def test_the_file_is_as_public_as_any_other(tmp_path):
    """The mode is that of `open`: 0666 less the process's mask."""
    before = os.umask(0o027)
    try:
        files.write(tmp_path / "a", "x")
    finally:
        os.umask(before)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failure_leaves_the_old_file_alone(tmp_path, monkeypatch, step):
    path = tmp_path / "a"
    files.write(path, "old")

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(OSError, match="disk full"):
        files.write(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a"]


def test_threads_that_write_one_file_do_not_mix(tmp_path):
    """Eight writers of a megabyte each, twenty times: a reader always sees one writer's letter only."""
    path, errors = tmp_path / "a", []

    def work(letter: bytes) -> None:
        try:
            for _ in range(20):
                files.write(path, letter * 2**20)
                if len(set(path.read_bytes())) != 1:
                    errors.append("mixed")
        except OSError as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(bytes([65 + i]),)) for i in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert errors == []
    assert os.listdir(tmp_path) == ["a"]


def test_clear_removes_what_a_killed_process_left_and_nothing_else(tmp_path):
    for name in (f".a.1.2{files.SUFFIX}", ".hidden", "a", f"a{files.SUFFIX}"):
        (tmp_path / name).write_text("x")
    files.clear(tmp_path)
    assert sorted(os.listdir(tmp_path)) == [".hidden", "a", f"a{files.SUFFIX}"]
