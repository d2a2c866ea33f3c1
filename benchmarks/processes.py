"""Child processes of a comparison: started in folders of their own, ended by their process id."""

import os
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

_POLL_SECONDS = 0.02


class Child:
    """One child process; what it prints goes to a file."""

    def __init__(self, name: str, command: Sequence[str], folder: Path) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                cwd=folder,
                env=_environment(folder),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self.pid = self.process.pid

    def wait_until(self, is_ready: Callable[[], bool], seconds: float) -> None:
        """Ask again and again; raise with the end of the log when the child ends or time is up."""
        deadline = time.monotonic() + seconds
        while not is_ready():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{self.name} did not become ready:\n{self.printed()[-2000:]}")
            time.sleep(_POLL_SECONDS)

    def printed(self) -> str:
        """What it has printed so far."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def stop(self) -> None:
        """SIGKILL: what it leaves is thrown away, and an orderly stop of Java takes seconds."""
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _environment(home: Path) -> Mapping[str, str]:
    """Nothing of the user's own servers; logs of Java programs go below `home`."""
    kept = {
        name: value for name, value in os.environ.items() if name not in ("NAMESRV_ADDR", "ROCKETMQ_HOME")
    }
    return kept | {"HOME": str(home), "ROCKETMQ_HOME": str(home)}


def free_ports(count: int) -> int:
    """The first of `count` neighbouring ports nobody listens on: a broker takes its port's neighbours as well."""
    while True:
        taken: list[socket.socket] = []
        try:
            first = _listen(taken, 0)
            for port in range(first + 1, first + count):
                _listen(taken, port)
        except OSError:
            continue
        finally:
            for listener in taken:
                listener.close()
        return first


def _listen(taken: list[socket.socket], port: int) -> int:
    listener = socket.socket()
    taken.append(listener)
    listener.bind(("127.0.0.1", port))
    bound: int = listener.getsockname()[1]
    if bound > 65_000:
        raise OSError("too close to the end of the range")
    return bound
