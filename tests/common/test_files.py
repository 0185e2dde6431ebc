"""Atomic writes, including concurrent writers."""

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
    """The mode is that of `open`: 0666 minus the umask."""
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
    """Eight concurrent writers of a megabyte each, twenty times: a reader always sees the content of one writer."""
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
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=300)
    assert errors == []
    assert os.listdir(tmp_path) == ["a"]


def test_of_those_who_create_a_file_at_once_one_does(tmp_path, monkeypatch):
    path, mine = tmp_path / "a", []
    threads = [threading.Thread(target=lambda i=i: files.create(path, str(i)) and mine.append(i)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=300)
    assert path.read_text() == str(mine[0])
    assert len(mine) == 1

    def no_links(*_):
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", no_links)
    assert not files.create(path, "again")
    assert files.create(tmp_path / "b", "first")
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


def test_the_name_while_writing_has_host_process_and_thread(tmp_path, monkeypatch):
    """Two machines with the same process id write the same file."""
    names = []
    monkeypatch.setattr(os, "replace", lambda source, target: names.append(source.name))
    for host in ("node1.example.org", "node2"):
        monkeypatch.setattr(files.socket, "gethostname", lambda host=host: host)
        files.write(tmp_path / "a.nc", "x")
    rest = f"{os.getpid()}.{threading.get_ident()}{files.SUFFIX}"
    assert names == [f".a.nc.node1-example-org.{rest}", f".a.nc.node2.{rest}"]
    files.remove_unfinished(tmp_path, {"b.nc"})
    assert sorted(os.listdir(tmp_path)) == names
    files.remove_unfinished(tmp_path, {"a.nc"})
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("how", [files.write, files.create])
@pytest.mark.parametrize("links", [True, False])
def test_a_file_whose_temporary_file_is_removed_by_another_process_is_written_again(tmp_path, monkeypatch, how, links):
    """As where locks are lost: the other process takes it for a leftover of a killed one."""
    times = [3]
    sync = os.fsync

    def remove_first(handle):
        sync(handle)
        if times[0]:
            times[0] -= 1
            files.remove_unfinished(tmp_path)

    def no_links(*_):
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "fsync", remove_first)
    if not links:
        monkeypatch.setattr(os, "link", no_links)
    how(tmp_path / "a", "x")
    assert times == [0]
    assert (tmp_path / "a").read_text() == "x"
    assert os.listdir(tmp_path) == ["a"]


def test_clear_removes_what_a_killed_process_left_and_nothing_else(tmp_path):
    for name in (f".a.1.2{files.SUFFIX}", ".hidden", "a", f"a{files.SUFFIX}"):
        (tmp_path / name).write_text("x")
    files.remove_unfinished(tmp_path)
    assert sorted(os.listdir(tmp_path)) == [".hidden", "a", f"a{files.SUFFIX}"]


@pytest.mark.parametrize("content", [b"", b"x", b"one\ntwo\n" * 100])
def test_a_sealed_content_is_read_back_and_every_change_is_seen(content):
    sealed = files.seal(content)
    assert files.unseal(sealed) == content
    assert files.unseal(content) is None
    assert sealed.startswith(content)
    for changed in (b"y" + sealed, sealed[:-2] + bytes([sealed[-2] ^ 1]) + b"\n", sealed[:-1] + b"\r"):
        with pytest.raises(files.DamagedError, match="does not match its checksum"):
            files.unseal(changed)


def test_the_errors_of_a_full_disk():
    for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        assert files.is_disk_full(OSError(number, "full"))
    for error in (OSError(errno.EACCES, "denied"), OSError("no number"), ValueError("full"), MemoryError()):
        assert not files.is_disk_full(error)


@pytest.mark.parametrize("links", [True, False])
def test_of_two_that_create_a_file_the_first_wins(tmp_path, monkeypatch, links):
    """Also where the file system has no hard links."""
    if not links:
        monkeypatch.setattr(files.os, "link", lambda *_: (_ for _ in ()).throw(OSError(errno.EPERM, "no links")))
    assert files.create(tmp_path / "a", "first") is True
    assert files.create(tmp_path / "a", "second") is False
    assert (tmp_path / "a").read_text() == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_unfinished_files_of_named_targets_are_removed(tmp_path):
    """The temporary file of one target is not that of another whose name begins alike."""
    targets = [tmp_path / name for name in ("a.nc", "a.nc.nc", "b.nc")]
    for target in targets:
        files._temporary(target).write_text("x")
    assert len({files._temporary(target).name for target in targets}) == 3
    (tmp_path / "a.nc").write_text("kept")
    files.remove_unfinished(tmp_path, {"a.nc"})
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        ["a.nc", *(files._temporary(target).name for target in targets[1:])]
    )
    files.remove_unfinished(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["a.nc"]
