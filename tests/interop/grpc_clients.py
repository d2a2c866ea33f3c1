"""The official clients of 5.x: runs one scenario of one client in a process, and reads what it prints.

`grpc/scenarios.md` has the scenarios. A client that has no method for one is named in `ABSENT`.
"""

import json
import os
import queue
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from benchmarks.processes import Child

from .servers import SMALL_JVM
from .toolchain import CARGO

HERE = Path(__file__).with_name("grpc")
CLIENTS = ("java", "go", "node", "python", "rust")
_LITE = {"lite", "lite-send"}
ABSENT = {"go": {"recall", *_LITE}, "rust": {"recall", "again", "push", *_LITE}, "node": _LITE}
"""Scenarios for which the newest release of a client has no method: Go 5.1.3, Rust 5.0.0."""
RUN_SECONDS_MAX = 90.0


class Running:
    """A client that goes on until its input ends; its lines arrive one by one."""

    def __init__(self, child: Child) -> None:
        self._child = child
        self._lines: queue.Queue[dict[str, Any]] = queue.Queue()
        self.seen: list[dict[str, Any]] = []
        threading.Thread(target=self._read, daemon=True).start()

    def wait_for(self, is_enough: Callable[[list[dict[str, Any]]], bool], seconds: float = 60) -> None:
        """Wait until the lines so far are enough."""
        end = time.monotonic() + seconds
        while not is_enough(self.seen):
            left = end - time.monotonic()
            try:
                self.seen.append(self._lines.get(timeout=max(left, 0.001)))
            except queue.Empty:
                shown = "\n".join(map(str, self.seen[-20:]))
                raise AssertionError(
                    f"not enough after {seconds:.0f} s:\n{shown}\n{self._child.log_tail()}"
                ) from None

    def values(self, name: str) -> list[str]:
        """The values under this name, in the order of arrival."""
        while not self._lines.empty():
            self.seen.append(self._lines.get())
        return [line[name] for line in self.seen if name in line]

    def _read(self) -> None:
        for line in self._child.stdout:
            if line.startswith(b"{"):
                self._lines.put(json.loads(line))


class GrpcClient:
    """One client."""

    def __init__(self, name: str, command: list[str]) -> None:
        self.name = name
        self._command = command

    def observe(
        self, folder: Path, scenario: str, *arguments: str, env: Mapping[str, str] | None = None
    ) -> Any:
        """Run a scenario to its end; return its result."""
        if scenario in ABSENT.get(self.name, ()):
            pytest.skip(f"the {self.name} client has no method for {scenario!r}")
        environment = os.environ | {"HOME": str(folder)} | dict(env or {})
        done = subprocess.run(
            [*self._of(folder), scenario, *arguments],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=RUN_SECONDS_MAX,
            check=False,
        )
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
        assert lines, done.stdout[-3000:] + done.stderr[-6000:]
        return json.loads(lines[-1])

    def observer(self, folder: Path, address: str) -> Callable[..., Any]:
        """A function that runs a scenario with the topic and the group of a name."""

        def observe(scenario: str, name: str, *arguments: str) -> Any:
            place = f"{self.name}-{name}"
            return self.observe(folder, scenario, address, place, place, *arguments)

        return observe

    @contextmanager
    def running(
        self, folder: Path, scenario: str, *arguments: str, env: Mapping[str, str] | None = None
    ) -> Iterator[Running]:
        """Run a scenario until the block is over."""
        if scenario in ABSENT.get(self.name, ()):
            pytest.skip(f"the {self.name} client has no method for {scenario!r}")
        command = [*self._of(folder), scenario, *arguments]
        name = f"{self.name}-{scenario}"
        with Child(name, command, folder, env=env or {}, is_piped=True) as child:
            yield Running(child)
            child.kill()

    def _of(self, folder: Path) -> list[str]:
        return [part.replace("{home}", str(folder)) for part in self._command]


def start(name: str, folder_of: Callable[[str], Path]) -> GrpcClient:
    """Return the client of this name, built first; skips the test if a tool is missing."""
    if name == "python":
        if find_spec("rocketmq") is None:
            pytest.skip("rocketmq-python-client is not installed: pip install --group dev")
        return GrpcClient(name, [sys.executable, str(HERE / "python" / "scenarios.py")])
    folder = folder_of(f"grpc-{name}")
    commands = {
        "java": [
            "java", *SMALL_JVM, "-Xmx128m", "-Duser.home={home}",
            "-cp", f"{folder / 'classes'}:{folder / 'lib'}/*", "interop.Scenarios",
        ],
        "go": [str(folder / "grpc")],
        "rust": [str(CARGO / "debug" / "grpc")],
        "node": [str(shutil.which("node")), str(folder / "scenarios.mjs")],
    }  # fmt: skip
    return GrpcClient(name, commands[name])
