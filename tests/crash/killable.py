"""A broker in a separate process, which a test can kill and restart on its files."""

import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

#: The log rolls over while a test runs.
SMALL_FILES = ("mappedFileSizeCommitLog=4194304", "mappedFileSizeConsumeQueue=200000", "maxIndexNum=200000")


@dataclass
class Broker:
    """One run of `rmqpy standalone` on a folder."""

    process: subprocess.Popen[str]
    address: str
    #: Address of its name server.
    namesrv: str

    @classmethod
    def start(
        cls,
        folder: Path,
        *settings: str,
        log: IO[str] | None = None,
        ports: tuple[int, int] = (0, 0),
        launcher: Sequence[str] = (),
    ) -> "Broker":
        """Start a broker and wait until it serves. All its log lines go to `log`, or warnings only to our stderr.

        `ports` are those of name server and broker, for clients that reconnect; 0 picks free ones. `launcher` is a
        command that becomes the program in its arguments.
        """
        command = [*launcher, sys.executable, "-m", "rmqpy", "standalone", "--data-dir", str(folder)]
        # A campaign has hundreds of starts: only failures deserve a line.
        options = ["--namesrv-port", str(ports[0]), "--broker-port", str(ports[1]), "--http", "0"]
        options += ["--log-level", "info" if log else "warning"]
        process = subprocess.Popen(
            [*command, *options, *SMALL_FILES, *settings], stdout=subprocess.PIPE, stderr=log, text=True
        )
        assert process.stdout is not None
        ready = process.stdout.readline()
        assert " broker " in ready, f"the broker did not start: {ready!r}"
        address, namesrv = (ready.split(f" {role} ")[1].split(",")[0] for role in ("broker", "name server"))
        return cls(process, address, namesrv)

    def stop(self) -> None:
        """Stop it in order; it must end without an error."""
        self.process.terminate()
        assert self.process.wait(timeout=30) == 0, f"it ended with {self.process.returncode}"

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(timeout=30)
