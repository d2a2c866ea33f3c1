"""Child processes of the tests: started, watched and ended by their own process id.

Owns the children and their log files. A child that is left running when its owner is closed is killed; one that
ends early is reported with the end of its log. Called from the test thread.
"""

import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self

STOP_SECONDS_MAX = 10.0
POLL_SECONDS = 0.02


@dataclass(frozen=True)
class Usage:
    """What a process had used when it was last looked at."""

    cpu_seconds: float
    private_bytes: int


class Child:
    """One child process with its standard output and errors in a file, or its output on a pipe."""

    def __init__(
        self, name: str, command: Sequence[str], folder: Path, *, env: Mapping[str, str], is_piped: bool = False
    ) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self.usage: Usage | None = None
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                cwd=folder,
                env=env,
                stdin=subprocess.PIPE if is_piped else subprocess.DEVNULL,
                stdout=subprocess.PIPE if is_piped else log,
                stderr=log,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def stdin(self) -> IO[bytes]:
        assert self._process.stdin is not None
        return self._process.stdin

    @property
    def stdout(self) -> IO[bytes]:
        assert self._process.stdout is not None
        return self._process.stdout

    def wait_until(self, is_ready: Callable[[], bool], seconds: float) -> None:
        """Ask `is_ready` again and again; raise with the end of the log when the child ends or time is up."""
        deadline = time.monotonic() + seconds
        while not is_ready():
            if self._process.poll() is not None:
                raise RuntimeError(f"{self.name} ended with code {self._process.returncode}:\n{self.log_tail()}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.name} was not ready after {seconds:.0f} s:\n{self.log_tail()}")
            time.sleep(POLL_SECONDS)

    def log_tail(self) -> str:
        return self.log.read_text(errors="replace")[-3000:]

    def kill(self) -> None:
        """SIGKILL, as a crash would."""
        self._look()
        self._process.kill()
        self._process.wait()

    def stop(self, seconds: float = STOP_SECONDS_MAX) -> int:
        """SIGTERM, and SIGKILL when that does not end it in time. The exit code."""
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
        if self._process.poll() is None:
            self.usage = _usage(self.pid) or self.usage


def _usage(pid: int) -> Usage | None:
    try:
        ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None  # Not Linux, or just gone: the figure is for the report only.
    private = next((line for line in status.splitlines() if line.startswith("RssAnon:")), "RssAnon: 0 kB")
    return Usage(cpu_seconds=(int(ticks[11]) + int(ticks[12])) / 100, private_bytes=int(private.split()[1]) * 1024)
