"""Child processes: starts, watches and ends servers for comparisons and interop tests, and allocates ports.

Owns the children and their log files. A child that outlives its owner is ended, and an early end is reported with
the end of its log. Called from one thread.
"""

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import IO, Self

from rmqpy.load import machine

STOP_SECONDS_MAX = 10.0
_POLL_SECONDS = 0.02
_LOG_CHARS_SHOWN = 3_000
_PORTS = (15_000, 32_000)


@dataclass(frozen=True)
class Usage:
    """Processor time and memory of a process when last read."""

    cpu_seconds: float
    private_bytes: int


class Child:
    """One child process. Its output goes to a file, or to a pipe with its errors in the file.

    It does not see the user's servers; Java programs log below `folder`. `env` wins.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        folder: Path,
        *,
        env: Mapping[str, str] = MappingProxyType({}),
        is_piped: bool = False,
    ) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        #: The value just before the end.
        self.usage: Usage | None = None
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                cwd=folder,
                env={**_environment(folder), **env},
                stdin=subprocess.PIPE if is_piped else subprocess.DEVNULL,
                stdout=subprocess.PIPE if is_piped else log,
                stderr=log,
            )
        self.pid = self._process.pid

    @property
    def stdin(self) -> IO[bytes]:
        assert self._process.stdin is not None, "the child has pipes"
        return self._process.stdin

    @property
    def stdout(self) -> IO[bytes]:
        assert self._process.stdout is not None, "the child has pipes"
        return self._process.stdout

    def wait_until(self, is_ready: Callable[[], bool], seconds: float) -> None:
        """Poll until ready; raise with the end of the log when the child ends or the time is up."""
        deadline = time.monotonic() + seconds
        while not is_ready():
            if self._process.poll() is not None:
                raise RuntimeError(
                    f"{self.name} ended with code {self._process.returncode}:\n{self.log_tail()}"
                )
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.name} was not ready after {seconds:.0f} s:\n{self.log_tail()}")
            time.sleep(_POLL_SECONDS)

    def printed(self) -> str:
        """Its output so far."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def log_tail(self) -> str:
        """The end of its output."""
        return self.printed()[-_LOG_CHARS_SHOWN:]

    def wait(self, seconds: float) -> int:
        """Wait until it ends by itself; return the exit code. Raises `subprocess.TimeoutExpired`."""
        return self._process.wait(seconds)

    def kill(self) -> None:
        """SIGKILL, as in a crash; also faster than Java's orderly stop, which takes seconds."""
        self._look()
        self._process.kill()
        self._process.wait()

    def stop(self, seconds: float = STOP_SECONDS_MAX) -> int:
        """SIGTERM, and SIGKILL if that does not end it in time; return the exit code."""
        self._look()
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(seconds)
            except subprocess.TimeoutExpired:
                self._process.kill()
        return self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _look(self) -> None:
        # It may have just ended; the value is only for the report.
        if self._process.poll() is None:
            with suppress(OSError):
                self.usage = Usage(cpu_seconds(self.pid), machine.private_bytes(self.pid) or 0)


def _environment(home: Path) -> Mapping[str, str]:
    """An environment without the user's servers; Java programs log below `home`."""
    kept = {
        name: value for name, value in os.environ.items() if name not in ("NAMESRV_ADDR", "ROCKETMQ_HOME")
    }
    return kept | {"HOME": str(home), "ROCKETMQ_HOME": str(home)}


def cpu_seconds(pid: int, *, with_children: bool = False) -> float:
    """Processor time a process has used, optionally with that of its reaped children: fields 14 to 17 of its line,
    counted after the name."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11 : 15 if with_children else 13])) / os.sysconf("SC_CLK_TCK")


def busy_seconds() -> float:
    """Processor time of the machine, neither idle nor waiting for a disk."""
    line = Path("/proc/stat").read_text().partition("\n")[0]
    # user nice system idle iowait irq softirq steal; guests are part of user.
    ticks = [int(field) for field in line.split()[1:9]]
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")


@contextmanager
def suspended(pids: Iterable[int]) -> Iterator[None]:
    """Suspend these processes meanwhile; some may be gone."""
    stopped = list(pids)
    _signal(stopped, signal.SIGSTOP)
    try:
        yield
    finally:
        _signal(stopped, signal.SIGCONT)


def _signal(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def exit_on_sigterm() -> None:
    """Handle SIGTERM like Ctrl-C: stop servers and remove their folders."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def free_ports(count: int) -> int:
    """Return the first of `count` adjacent free ports; a broker also uses its own port's neighbours.

    They are below the range of outgoing connections, so a restarted broker finds its ports free.
    """
    while True:
        taken: list[socket.socket] = []
        try:
            first = random.randrange(*_PORTS)
            for port in range(first, first + count):
                _listen(taken, port)
        except OSError:
            continue
        finally:
            for listener in taken:
                listener.close()
        return first


def _listen(taken: list[socket.socket], port: int) -> None:
    listener = socket.socket()
    taken.append(listener)
    listener.bind(("127.0.0.1", port))
