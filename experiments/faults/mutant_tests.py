"""Which tests run which lines: every test file runs once in a forked process under `sys.settrace`.

Processes that a test starts record their lines too (`RECORD_IN_PROCESSES` as `sitecustomize`), unless they are killed.
A program that JAX compiled is not traced again, so lines are also attributed to the whole test file.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections import defaultdict
from pathlib import Path
from typing import Any

TREE = Path(__file__).parents[2]
RECORD_IN_PROCESSES = """
import atexit, os, sys
if folder := os.environ.get("MUTANT_LINES"):
    from mutant_tests import Lines
    lines = Lines(os.environ["MUTANT_PACKAGE"])
    lines.start()
    atexit.register(lines.write, folder)
"""


class Lines:
    """Records the lines of a package that run, by test."""

    def __init__(self, package: str) -> None:
        self.package = package
        self.of: dict[str, set[tuple[str, int]]] = defaultdict(set)
        self.seconds: dict[str, float] = defaultdict(float)
        self.failed: set[str] = set()
        self.until = sum(os.times()[:4])

    def start(self) -> None:
        """Trace this thread and those that start later."""
        threading.settrace(self._call)
        sys.settrace(self._call)

    def _call(self, frame: Any, event: str, argument: Any) -> Any:
        file = frame.f_code.co_filename
        if not file.startswith(self.package):
            return None
        seen = self.of[os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]]

        def line(frame: Any, event: str, argument: Any) -> Any:
            seen.add((file, frame.f_lineno))
            return line

        return line(frame, event, argument)

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Pytest's hook for the outcome of a phase of a test: CPU seconds, which other load does not affect."""
        now = sum(os.times()[:4])  # with processes that have ended
        self.seconds[report.nodeid] += now - self.until
        self.until = now
        if report.outcome != "passed":
            self.failed.add(report.nodeid)

    def write(self, folder: str) -> None:
        """Store what was recorded in a new file of `folder`."""
        sys.settrace(None)
        lines = {test: sorted(seen) for test, seen in list(self.of.items())}
        text = json.dumps({"lines": lines, "seconds": self.seconds, "failed": sorted(self.failed)})
        Path(folder, f"{os.getpid()}-{time.time_ns()}.json").write_text(text)


class Coverage:
    """The recorded tests: their CPU seconds and their lines."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.root, self.folder = root, folder
        self.seconds: dict[str, float] = {}
        self.lines: dict[str, set[tuple[str, int]]] = defaultdict(set)  # "" while tests are collected

    def record(self, file: str) -> None:
        """Run a test file, unless neither it nor any source that it ran has changed since the last time."""
        stored = self.folder / f"{file.replace('/', '-')}.json"
        known: dict[str, Any] = {"digests": {file: ""}}
        if stored.is_file():
            known = json.loads(stored.read_text())
        if any(_digest(self.root / path) != digest for path, digest in known["digests"].items()):
            known = self._run(file)
            stored.write_text(json.dumps(known))
        for test, seen in known["lines"].items():
            if test not in known["failed"]:
                self.lines[test if test.startswith(file) else f"{file}::"] |= {(path, line) for path, line in seen}
        self.seconds |= {test: s for test, s in known["seconds"].items() if test not in known["failed"]}
        for test in known["failed"]:
            print(f"not used, as it fails or is skipped without any mutant: {test}", flush=True)

    def _run(self, file: str) -> dict[str, Any]:
        started = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="lines-", dir=self.folder) as place:
            if (code := forked(self.root, [file], 1800, Path(place))) not in (0, 1, 5):  # passed, failed, no tests
                raise SystemExit(f"{file} ended with code {code}: {(self.root / 'pytest.log').read_text()[-2000:]}")
            parts = [json.loads(path.read_text()) for path in Path(place).glob("*.json")]
        print(f"recorded {file} in {time.monotonic() - started:.0f} s", flush=True)
        lines: dict[str, set[tuple[str, int]]] = defaultdict(set)
        for part in parts:
            for test, seen in part["lines"].items():
                lines[test] |= {(os.path.relpath(path, self.root), line) for path, line in seen}
        sources = {path for seen in lines.values() for path, _ in seen} | {file}
        return {
            "digests": {path: _digest(self.root / path) for path in sorted(sources)},
            "lines": {test: sorted(seen) for test, seen in lines.items()},
            "seconds": {test: s for part in parts for test, s in part["seconds"].items()},
            "failed": [test for part in parts for test in part["failed"]],
        }

    def choose(self, path: str, lines: range, budget: float) -> list[str]:
        """At most `budget` seconds of tests: those that run the lines, then the others of their files."""
        wanted = {(path, line) for line in lines}
        if is_run_at_import(self.root / path, lines):  # recorded for the first test that imports it: take all users
            wanted = {each for seen in self.lines.values() for each in seen if each[0] == path}
        running = {test for test in self.seconds if self.lines[test] & wanted}
        if not running:  # it runs at import, or in a process that was killed: all tests of files that import it
            files = {test.partition("::")[0] for test, seen in self.lines.items() if any(f == path for f, _ in seen)}
            running = {test for test in self.seconds if test.partition("::")[0] in files}
        files = {test.partition("::")[0] for test in running}
        others = {test for test in self.seconds if test.partition("::")[0] in files} - running
        chosen, total = [], 0.0
        for test in [*self._ordered(running), *self._ordered(others)]:
            total += self.seconds[test]
            if chosen and total > budget:
                break
            chosen.append(test)
        return chosen

    def _ordered(self, tests: set[str]) -> list[str]:
        """The shortest case of every test function, then the others, both by their seconds."""
        by_time = sorted(tests, key=self.seconds.__getitem__)
        first = {test.partition("[")[0]: test for test in reversed(by_time)}.values()
        return sorted(by_time, key=lambda test: test not in first)


def is_run_at_import(source: Path, lines: range) -> bool:
    """Whether lines are outside of all functions, such as those of a table of constants."""
    if not source.is_file():
        return False
    functions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    bodies = [node.body for node in ast.walk(ast.parse(source.read_text())) if isinstance(node, functions)]
    parts = [part for body in bodies for part in (body if isinstance(body, list) else [body])]
    return not any(part.lineno <= lines.start <= (part.end_lineno or part.lineno) for part in parts)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "none"


def forked(root: Path, arguments: list[str], limit: float, lines_to: Path | None = None) -> int | None:
    """Pytest's exit code in a forked process in the tree `root`; None if it took longer than `limit` seconds."""
    child = os.fork()
    if not child:
        os.setsid()
        os.chdir(root)
        log = os.open(root / "pytest.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        code = 3
        try:
            code = _pytest(root, arguments, lines_to)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)
    until = time.monotonic() + limit
    while time.monotonic() < until:
        if (ended := os.waitpid(child, os.WNOHANG))[0]:
            _kill(child)
            return os.waitstatus_to_exitcode(ended[1])
        time.sleep(0.02)
    _kill(child)
    os.waitpid(child, 0)
    return None


def _kill(group: int) -> None:
    """End the processes of a group, of which none may be left."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return


def _pytest(root: Path, arguments: list[str], lines_to: Path | None) -> int:
    import pytest

    sys.path[:] = [str(root), *(path for path in sys.path if path not in ("", str(TREE)))]
    for name in [name for name in sys.modules if name.partition(".")[0] in ("experiments", "tests")]:
        del sys.modules[name]
    os.environ |= {"PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "" if lines_to else "1"}
    sys.dont_write_bytecode = lines_to is None
    plugins = []
    if lines_to is not None:
        hooks = lines_to / "hooks"
        hooks.mkdir(exist_ok=True)
        (hooks / "sitecustomize.py").write_text(RECORD_IN_PROCESSES)
        (hooks / "mutant_tests.py").write_bytes(Path(__file__).read_bytes())
        os.environ |= {
            "PYTHONPATH": f"{root}:{hooks}", "MUTANT_LINES": str(lines_to), "MUTANT_PACKAGE": str(root / "cpdpo_jax")
        }  # fmt: skip
        plugins = [Lines(os.environ["MUTANT_PACKAGE"])]
        plugins[0].start()
    code = pytest.main(["-q", "-p", "no:cacheprovider", "--no-header", "-m", "not exhaustive", *arguments], plugins)
    for recorded in plugins:
        recorded.write(str(lines_to))
    return int(code)
