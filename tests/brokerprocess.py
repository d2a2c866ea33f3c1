"""A broker in a separate process, which a test can make silent: it stays registered, accepts connections, and answers
nothing."""

import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rmqpy.testing import SMALL


@dataclass
class BrokerProcess:
    """One run of `rmqpy broker`."""

    process: subprocess.Popen[str]

    @contextmanager
    def silent(self) -> Iterator[None]:
        """Stopped, as a machine is that was suspended."""
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)


@contextmanager
def broker_process(
    namesrv: str, folder: Path, name: str, *, around: Sequence[str] = (), **more: str
) -> Iterator[BrokerProcess]:
    """A broker that is registered under this name, until the block is left; `around` is a command that runs it."""
    settings = {"brokerName": name, "listenPort": 0, "storePathRootDir": folder / name, **SMALL, **more}
    command = [sys.executable, "-m", "rmqpy", "broker", "-n", namesrv, "--log-level", "warning"]
    given = [f"{key}={value}" for key, value in settings.items()]
    process = subprocess.Popen([*around, *command, *given], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        ready = process.stdout.readline()
        assert "broker" in ready, f"the broker did not start: {ready!r}"
        yield BrokerProcess(process)
    finally:
        process.terminate()
        process.wait(timeout=30)
