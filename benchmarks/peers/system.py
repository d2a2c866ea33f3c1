"""Other brokers: one process on free ports, its defaults, its own folder, and its own load tool.

`tool` returns the command of a load, and `read` parses the tool's output. A cell missing in `loads` is one that the
tool cannot express.
"""

import shlex
import shutil
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar, Protocol, Self

from benchmarks import wire
from benchmarks.cells import Cell
from benchmarks.processes import Child, free_ports

TOPIC = "bench"
READY_SECONDS_MAX = 60.0


@dataclass(frozen=True)
class Printed:
    """A result as a tool prints it."""

    #: All messages that the tool has sent or received, also during its warm-up.
    messages: int
    per_second: float
    #: Missing percentiles are not reported, or below the tool's resolution.
    p50_us: float | None = None
    p99_us: float | None = None
    p999_us: float | None = None


class Peer(Protocol):
    """A broker with its load tool: ours or another."""

    loads: ClassVar[Mapping[str, tuple[str, ...]]]
    fill: ClassVar[tuple[str, int]]
    has_endless_reader: bool
    abilities: ClassVar[tuple[str, ...]]
    durability: str

    @property
    def name(self) -> str: ...

    @property
    def pids(self) -> Sequence[int]: ...

    def start(self) -> None: ...

    def settle(self) -> None: ...

    def stop(self) -> None: ...

    def version(self) -> str: ...

    def configuration(self) -> str:
        """The settings that differ from the defaults."""
        ...

    def prepare(self, cell: Cell) -> None:
        """Bring the broker to the same state before each run of the tool."""
        ...

    def tool(self, cell: Cell, count: int) -> list[str]:
        """The command that sends or receives `count` messages."""
        ...

    def read(self, output: str, cell: Cell, count: int) -> Printed:
        """Parse the tool's output. Raises `ValueError` when it has not done all of its work."""
        ...


class OtherSystem(ABC):
    """One broker: `start` it, or enter it; clients connect to `address`. A new start has a new store."""

    name: str
    #: The Python client's name on PyPI, and the supported verbs of `client_load`.
    client: str
    module: str
    verbs: tuple[str, ...]
    #: Required programs, and the command that installs each.
    programs: ClassVar[Mapping[str, str]]
    #: Likewise, for its load tool.
    tools: ClassVar[Mapping[str, str]]
    #: The tool's options for each cell that it can express.
    loads: ClassVar[Mapping[str, tuple[str, ...]]]
    #: The cell and the number of messages that fill a topic for reads.
    fill: ClassVar[tuple[str, int]]
    #: Whether its reader can read more messages than there are.
    has_endless_reader: bool
    #: What the tool can express: a row below `report.ABILITIES`.
    abilities: ClassVar[tuple[str, ...]]
    #: The durability of a message when its send is answered.
    durability: str

    def __init__(self, folder: Path) -> None:
        self.folder = folder / self.name.lower()
        self.port = free_ports(2)
        self.address = f"127.0.0.1:{self.port}"
        self._child: Child | None = None

    @classmethod
    def missing(cls) -> str | None:
        """Programs to install for the broker; None when nothing is missing."""
        return _advice(cls.programs)

    @classmethod
    def missing_tool(cls) -> str | None:
        """Likewise, for the broker and its load tool."""
        return _advice({**cls.programs, **cls.tools})

    @classmethod
    def missing_client(cls) -> str | None:
        """Likewise, for the broker and its Python client, if that is measured."""
        has_client = not cls.verbs or find_spec(cls.module) is not None
        return cls.missing() or (None if has_client else f"pip install {cls.client}")

    def title(self) -> str:
        """The client with its version."""
        return f"{self.client} {metadata.version(self.client)} at {self.name}"

    @property
    def pids(self) -> list[int]:
        """Its running processes."""
        return [] if self._child is None else [self._child.pid]

    def start(self) -> None:
        """Start the broker in an empty folder; return when it listens."""
        self.folder.mkdir(parents=True)
        self._child = Child(self.name.lower(), self.command(), self.folder)
        self._child.wait_until(lambda: wire.is_listening(self.address), READY_SECONDS_MAX)

    def settle(self) -> None:
        """Wait until it accepts connections again, without a name server that might have removed it."""
        assert self._child is not None, "the broker is started"
        self._child.wait_until(lambda: wire.is_listening(self.address), READY_SECONDS_MAX)

    def stop(self) -> None:
        """Stop it and remove its folder."""
        if self._child is not None:
            self._child.kill()
            self._child = None
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @abstractmethod
    def version(self) -> str:
        """The broker's name and version."""

    def configuration(self) -> str:
        """Settings that differ from the defaults: command options, if it has no file."""
        program, *options = self.command()
        return shlex.join((Path(program).name, *options)) + "\n"

    @abstractmethod
    def command(self) -> list[str]:
        """Prepare its folder; return the command that starts it."""

    @abstractmethod
    def prepare(self, cell: Cell) -> None:
        """Bring the broker to the same state before each run of the tool."""

    @abstractmethod
    def tool(self, cell: Cell, count: int) -> list[str]:
        """The command that sends or receives `count` messages."""

    @abstractmethod
    def read(self, output: str, cell: Cell, count: int) -> Printed:
        """Parse the tool's output. Raises `ValueError` when it has not done all of its work."""


def found(name: str) -> str:
    """The path of a program: in this Python's environment, or on the machine."""
    path = _program(name)
    assert path is not None, f"`missing` has checked {name}"
    return path


def printed(name: str, *options: str) -> str:
    """The output of a program."""
    done = subprocess.run([found(name), *options], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _program(name: str) -> str | None:
    return shutil.which(name, path=Path(sys.executable).parent) or shutil.which(name)


def _advice(programs: Mapping[str, str]) -> str | None:
    advice = [how for program, how in programs.items() if _program(program) is None]
    return "; ".join(advice) or None
