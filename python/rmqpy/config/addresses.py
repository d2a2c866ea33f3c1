"""Addresses as text: `host:port`, with an IPv6 host in brackets. The only parser and formatter of them.

Pure; any thread.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv6Address, ip_address
from typing import Final, NamedTuple

from rmqpy.errors import AddressError, ConfigError
from rmqpy.findings import cannot_listen

LOOPBACK: Final = "127.0.0.1"
ANY_HOST: Final = "0.0.0.0"
_PORT_MAX: Final = 65_535
_WRITTEN: Final = re.compile(
    r"(?:\[(?P<six>[^\[\]]+)\]|(?P<host>[^\s:\[\]]+))(?::(?P<port>[0-9]{1,5}))?", re.ASCII
)


class HostPort(NamedTuple):
    """The address of a server, with an IPv6 host without brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        """
        >>> str(HostPort("::1", 9876)), str(HostPort("localhost", 9876))
        ('[::1]:9876', 'localhost:9876')
        """
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse(written: str, *, port: int | None = None) -> HostPort:
    """Parse `host:port`. `port` is the default; without it the text must name one. An IPv6 address without brackets is
    a host alone. Raises `ConfigError`.

    >>> parse("[2001:db8::1]:1")
    HostPort(host='2001:db8::1', port=1)
    >>> parse("::1", port=9876)
    HostPort(host='::1', port=9876)
    """
    found = _WRITTEN.fullmatch(written)
    host = written if _is_six(written) else None
    if found is not None:
        host = found["host"] or (found["six"] if _is_six(found["six"]) else None)
        port = int(found["port"]) if found["port"] else port
    if host is None or port is None or not 0 < port <= _PORT_MAX:
        raise ConfigError(f"{written!r} is not an address", hint="write host:port, or [::1]:port for IPv6")
    return HostPort(host, port)


def _is_six(host: str) -> bool:
    try:
        IPv6Address(host)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Whether a name or address is of this machine.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("::1"), is_loopback("localhost.evil.example")
    (True, True, True, False)
    """
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


@contextmanager
def listening(key: str, host: str, port: int, *, below: int = 0) -> Iterator[None]:
    """Name the setting if a server cannot listen; the port is `below` that of the setting. Raises `AddressError`."""
    try:
        yield
    except AddressError:
        raise
    except OSError as error:
        finding = cannot_listen(key, port, str(HostPort(host, port - below)), error.errno, str(error))
        raise AddressError(finding.found, hint=finding.advice) from error
