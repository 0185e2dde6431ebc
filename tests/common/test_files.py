"""Files that are whole or not there, whoever writes them at once."""

import errno
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


def test_of_those_who_create_a_file_at_once_one_does(tmp_path, monkeypatch):
    path, mine = tmp_path / "a", []
    threads = [threading.Thread(target=lambda i=i: files.create(path, str(i)) and mine.append(i)) for i in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert path.read_text() == str(mine[0])
    assert len(mine) == 1

    def no_links(*_):
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", no_links)
    assert not files.create(path, "again")
    assert files.create(tmp_path / "b", "first")
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


def test_the_name_while_writing_has_host_process_and_thread(tmp_path, monkeypatch):
    """Two machines with a process of one number write one file."""
    names = []
    monkeypatch.setattr(os, "replace", lambda source, target: names.append(source.name))
    for host in ("node1.example.org", "node2"):
        monkeypatch.setattr(files.socket, "gethostname", lambda host=host: host)
        files.write(tmp_path / "a.nc", "x")
    rest = f"{os.getpid()}.{threading.get_ident()}{files.SUFFIX}"
    assert names == [f".a.nc.node1-example-org.{rest}", f".a.nc.node2.{rest}"]
    files.clear(tmp_path, {"b.nc"})
    assert sorted(os.listdir(tmp_path)) == names
    files.clear(tmp_path, {"a.nc"})
    assert os.listdir(tmp_path) == []


def test_clear_removes_what_a_killed_process_left_and_nothing_else(tmp_path):
    for name in (f".a.1.2{files.SUFFIX}", ".hidden", "a", f"a{files.SUFFIX}"):
        (tmp_path / name).write_text("x")
    files.clear(tmp_path)
    assert sorted(os.listdir(tmp_path)) == [".hidden", "a", f"a{files.SUFFIX}"]
