"""A broker in a process of its own, which a test can kill and start again on what it left."""

import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

#: The log rolls over while a test runs.
SMALL_FILES = ("mappedFileSizeCommitLog=4194304", "mappedFileSizeConsumeQueue=200000", "maxIndexNum=200000")


@dataclass
class Broker:
    """One run of `rmqpy standalone` on a folder."""

    process: subprocess.Popen[str]
    address: str

    @classmethod
    def start(cls, folder: Path, *settings: str) -> "Broker":
        command = [sys.executable, "-m", "rmqpy", "standalone", "--data-dir", str(folder)]
        # A campaign has hundreds of lives: only what went wrong in one is worth a line.
        options = ["--namesrv-port", "0", "--broker-port", "0", "--log-level", "warning"]
        process = subprocess.Popen(
            [*command, *options, *SMALL_FILES, *settings], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        ready = process.stdout.readline()
        assert " broker " in ready, f"the broker did not start: {ready!r}"
        return cls(process, ready.split(" broker ")[1].split(",")[0])

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(timeout=30)
