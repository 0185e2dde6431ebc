"""Ctrl-C: the first sets a flag, the second ends the process at once, and handlers are restored."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest

from cpdpo_jax.common.interrupts import interrupts


@pytest.fixture(autouse=True)
def usual():
    """Restore Python's handler, because a process started in the background ignores Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_it_is_heard_in_an_inner_context_and_the_handler_is_restored():
    with interrupts() as outer:
        assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
        with interrupts() as inner:
            os.kill(os.getpid(), signal.SIGINT)
            assert inner.acknowledge()
        assert outer.requested
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_unacknowledged_one_is_raised_at_the_end():
    """Inside a destructor too, where an exception would be printed and lost."""

    class Dies:
        def __del__(self) -> None:
            os.kill(os.getpid(), signal.SIGINT)

    ended = []

    def work():
        with interrupts():
            Dies()
            ended.append(True)

    with pytest.raises(KeyboardInterrupt):
        work()
    assert ended == [True]


def test_an_error_comes_first():
    def fails():
        with interrupts():
            os.kill(os.getpid(), signal.SIGINT)
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        fails()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("handler", [signal.SIG_IGN, lambda number, frame: None])
def test_a_handler_of_the_users_own_stays(handler):
    signal.signal(signal.SIGINT, handler)
    with interrupts():
        assert signal.getsignal(signal.SIGINT) is handler


def test_off_the_main_thread_nothing_is_installed():
    seen = []

    def look():
        with interrupts() as stop:
            seen.append((signal.getsignal(signal.SIGINT), stop.requested))

    with interrupts() as stop:
        stop.requested = True  # of the main thread alone
        thread = threading.Thread(target=look)
        own = signal.getsignal(signal.SIGINT)
        thread.start()
        thread.join(10)
        assert stop.acknowledge()
    assert seen == [(own, False)]
    seen.clear()
    thread = threading.Thread(target=look)
    thread.start()
    thread.join(10)
    assert seen == [(signal.default_int_handler, False)]


TWICE = """
import os, signal, sys, threading
from cpdpo_jax.common.interrupts import interrupts
signal.signal(signal.SIGINT, signal.default_int_handler)
threading.Thread(target=threading.Event().wait).start()  # which would keep Python from ending
with interrupts():
    print("begun")
    os.kill(os.getpid(), signal.SIGINT)
    print("going on")
    os.kill(os.getpid(), signal.SIGINT)
    print("never")
"""


def test_a_second_one_ends_the_process_at_once_and_in_silence():
    done = subprocess.run([sys.executable, "-c", TWICE], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (130, "begun\ngoing on\n", "")


ENDED = """
import atexit, os, signal, sys
from cpdpo_jax import cli
signal.signal(signal.SIGINT, signal.default_int_handler)
atexit.register(lambda: (os.kill(os.getpid(), signal.SIGTERM), os.kill(os.getpid(), signal.SIGINT)))
sys.argv = ["cpdpo", "--version"]
sys.exit(cli.main())
"""


def test_a_signal_that_arrives_after_a_command_has_ended_does_not_change_its_exit_code():
    done = subprocess.run([sys.executable, "-c", ENDED], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("cpdpo ")
