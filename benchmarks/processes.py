"""Child processes of a comparison: started in folders of their own, ended by their process id; and ports for them."""

import os
import random
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

_POLL_SECONDS = 0.02
_PORTS = (15_000, 32_000)


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


def cpu_seconds(pid: int, *, with_children: bool = False) -> float:
    """Processor time a process has used so far, if asked for with that of children it has waited for: fields 14 to 17
    of its line, counted behind the name."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11 : 15 if with_children else 13])) / os.sysconf("SC_CLK_TCK")


def free_ports(count: int) -> int:
    """The first of `count` neighbouring ports nobody listens on. A broker takes its own port's neighbours as well.

    They lie below those the system gives to outgoing connections: a broker that is started again finds its own free.
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
