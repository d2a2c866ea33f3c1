"""This machine and its listening processes, read from /proc; empty where that does not exist.

A measurement means nothing without its machine; the process id separates a broker from the load on the same cores.
"""

import os
import platform
import socket
from collections.abc import Iterator
from pathlib import Path

from rmqpy.config.addresses import parse
from rmqpy.errors import ConfigError

_LISTENING = "0A"


def facts() -> dict[str, object]:
    """Facts about this machine that a report needs."""
    return {
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processor": _field(Path("/proc/cpuinfo"), "model name") or platform.processor(),
        "cores": os.cpu_count(),
        "memory_bytes": memory_bytes(),
        "python": platform.python_version(),
    }


def memory_bytes() -> int:
    """Total memory; 0 if unknown."""
    return (kibibytes(Path("/proc/meminfo"), "MemTotal") or 0) * 1024


def listener(address: str) -> int | None:
    """Id of the process that listens at `host:port` on this machine; None if unknown."""
    try:
        host, port = parse(address)
    except ConfigError:
        return None
    if not _is_here(host):
        return None
    inodes = set(_listening_inodes(port))
    if not inodes:
        return None
    for process in Path("/proc").iterdir():
        if process.name.isdecimal() and not inodes.isdisjoint(_sockets(process)):
            return int(process.name)
    return None


def private_bytes(pid: int) -> int | None:
    """Anonymous memory of a process in RAM: without its share of files."""
    size = kibibytes(Path(f"/proc/{pid}/status"), "RssAnon")
    return None if size is None else size * 1024


def processor_seconds(pid: int) -> float | None:
    """Processor time that a process has used."""
    try:
        # A process name may contain anything, and ends with the last parenthesis.
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    user, system = fields[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def kibibytes(file: Path, name: str) -> int | None:
    """A line like `RssAnon:  1234 kB`."""
    value = _field(file, name)
    return int(value.split()[0]) if value else None


def _field(file: Path, name: str) -> str | None:
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    for line in lines:
        key, colon, value = line.partition(":")
        if colon and key.strip() == name:
            return value.strip()
    return None


def _is_here(host: str) -> bool:
    """Whether `host` is an address of this machine: only those can be bound."""
    try:
        family, kind, _, _, place = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.bind(place)
    except OSError:
        return False
    return True


def _listening_inodes(port: int) -> Iterator[str]:
    for table in ("tcp", "tcp6"):
        try:
            lines = Path(f"/proc/net/{table}").read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                yield fields[9]


def _sockets(process: Path) -> Iterator[str]:
    """Inodes of the sockets a process holds; those of other users are not visible."""
    try:
        descriptors = list((process / "fd").iterdir())
    except OSError:
        return
    for descriptor in descriptors:
        try:
            target = os.readlink(descriptor)
        except OSError:
            continue
        if target.startswith("socket:["):
            yield target[len("socket:[") : -1]
