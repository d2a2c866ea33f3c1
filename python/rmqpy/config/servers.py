"""Settings that several servers have: declarations of keys, and the entries of their files.

A key with a function here has the same name, bounds and description at each server; `role` names the server in it.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any, ClassVar, Final, Self

from rmqpy.config import addresses, home
from rmqpy.config.access import AccessConfig
from rmqpy.config.keys import (
    CONNECTIONS_MAX,
    NO_HTTP,
    ProtectedKey,
    Settings,
    key,
    nearest,
    protects,
    read_file,
)
from rmqpy.config.server_tls import TlsConfig, with_file
from rmqpy.errors import ConfigError


def bind_address() -> Any:
    """Declare `bindAddress`, loopback by default."""
    return key("bindAddress", "127.0.0.1", "Address to listen on; 0.0.0.0 lets other machines connect.")


def http_port(role: str, pages: str = "/metrics") -> Any:
    """Declare `httpPort`; `pages` are those besides the health checks."""
    return key(
        "httpPort",
        NO_HTTP,
        f"HTTP port of {pages}, /livez, /healthz and /readyz; 0 picks a free port, -1 turns HTTP off. "
        f"Apache's {role} has no such key.",
        low=NO_HTTP,
        high=65_535,
    )


def namesrv() -> Any:
    """Declare `namesrvAddr`, by default the addresses in the environment."""
    return key(
        "namesrvAddr",
        lambda: os.environ.get("NAMESRV_ADDR", ""),
        "Name servers as host:port, separated by semicolons.",
    )


def name_servers(given: str) -> tuple[str, ...]:
    """Return the addresses in a `namesrvAddr`. Raises `ConfigError`."""
    found = tuple(part.strip() for part in given.split(";") if part.strip())
    for address in found:
        try:
            addresses.parse(address)
        except ConfigError as error:
            raise ConfigError(f"namesrvAddr: {error}") from None
    return found


def idle_seconds() -> Any:
    """Declare `serverChannelMaxIdleTimeSeconds`."""
    return key(
        "serverChannelMaxIdleTimeSeconds",
        120,
        "Close connections without traffic for this long.",
        unit="seconds",
        low=1,
        high=86_400,
    )


def connections_max(role: str) -> Any:
    """Declare `maxConnections`."""
    return key(
        "maxConnections",
        CONNECTIONS_MAX,
        "Maximum connections; fewer if they would need more than three quarters of the process's file descriptors. "
        f"Apache's {role} has no such key.",
        low=1,
        high=1_000_000,
    )


def connections_per_address_max(role: str) -> Any:
    """Declare `maxConnectionsPerAddress`."""
    return key(
        "maxConnectionsPerAddress",
        0,
        "Maximum connections from one address, except loopback; 0: half of all. "
        f"Apache's {role} has no such key.",
        low=0,
        high=1_000_000,
    )


def home_path(wire: str, folder: str, name: str, doc: str) -> Any:
    """Declare a path whose default is `~/folder/name`, or empty if the user has no home folder."""

    def default() -> str:
        found = home.find()
        return "" if found is None else str(found / folder / name)

    return key(wire, default, doc)


def store_path(folder: str) -> Any:
    """Declare `configStorePath`."""
    doc = "File for online changes of these settings. Default: the file given at the start."
    return home_path("configStorePath", folder, f"{folder}.properties", doc)


def auth_path(folder: str) -> Any:
    """Declare `authConfigPath`."""
    doc = "Folder of users.json and acls.json for access control."
    return home_path("authConfigPath", folder, "auth", doc)


def protected(keys: str) -> Any:
    """Declare `configBlackList`."""
    return key("configBlackList", keys, "Keys that administrators cannot change online.")


#: The parts of a `ServerConfig` that have their own keys, by its field.
_PARTS: Final[Mapping[str, type[Settings]]] = {"access": AccessConfig, "tls": TlsConfig}


class ServerConfig(Settings):
    """The configuration of a name server, controller or proxy: its own keys, and those of access control and TLS.

    Not a dataclass, so that each role declares these fields in the order of its documentation.
    """

    #: The name of the server in messages.
    ROLE: ClassVar[str]

    access: AccessConfig
    tls: TlsConfig

    @classmethod
    def served(cls) -> set[str]:
        """Every supported key."""
        return {wire for kind in (cls, *_PARTS.values()) for wire in kind.declared()}

    @classmethod
    def read(cls, given: Mapping[str, str]) -> Self:
        """Like `Settings.read`, for every key of the file."""
        own = super().read(given)
        parts: dict[str, Any] = {name: kind.read(given) for name, kind in _PARTS.items()}
        return dataclasses.replace(own, **parts)

    def write(self) -> dict[str, str]:
        """Every key with its value, in alphabetical order."""
        return dict(sorted((super().write() | self.access.write() | self.tls.write()).items()))


class ChangeableConfig(ServerConfig):
    """The configuration of a name server or controller, which administrators change online."""

    #: The refusal of a change of a protected key.
    PROTECTED: ClassVar[str] = "Can not update config in black list: {}"

    protected: str
    store_path: str

    def change(self, given: Mapping[str, str]) -> Self:
        """Like `Settings.change`, for every key of the file. Other keys and protected ones are refused."""
        known = self.served()
        for wire in given:
            if protects(self.protected, wire):
                raise ProtectedKey(self.PROTECTED.format(wire))
            if wire not in known:
                raise ConfigError(f"{wire} is not a setting of this {self.ROLE}")
        own = super().change(given)
        parts: dict[str, Any] = {name: getattr(self, name).change(given) for name in _PARTS}
        return dataclasses.replace(own, **parts)


def changeable_file(path: str | Path | None) -> dict[str, str]:
    """Return the entries of a file, to which online changes are written. Raises `ConfigError` if it is unreadable."""
    given = read_file(path)
    if path is not None:
        given.setdefault("configStorePath", str(path))
    return given


def entries(
    given: Mapping[str, str], overrides: Mapping[str, str] | None, known: Set[str], harmless: Set[str]
) -> dict[str, str]:
    """Return the entries of a file and of its TLS file; `overrides` (wire names) replace some.

    Raises `ConfigError` for an override that is neither `known` nor `harmless`.
    """
    for wire in overrides or {}:
        if wire not in known and wire not in harmless:
            meant = nearest(wire, known)
            raise ConfigError(f"unknown key {wire}" + (f": did you mean {meant}?" if meant else ""))
    return with_file({**given, **(overrides or {})})


def warnings(given: Mapping[str, str], known: Set[str], harmless: Set[str]) -> list[str]:
    """Return a sentence for each entry that is not `known`."""
    return [_warning(wire, value, known, harmless) for wire, value in given.items() if wire not in known]


def _warning(wire: str, value: str, known: Set[str], harmless: Set[str]) -> str:
    if wire in harmless:
        return f"{wire}={value} is ignored: not needed here"
    meant = nearest(wire, known)
    return f"{wire}={value} is unknown and ignored" + (f"; did you mean {meant}?" if meant else "")
