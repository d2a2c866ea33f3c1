"""Listeners: the further addresses of a name server, and the broker addresses that clients of each receive.

A client outside a cluster, behind NAT or a port-forward, connects to a listener whose rules replace the addresses of
brokers by those that it can reach. The first rule that matches an address replaces it; without one it stays.

Pure; any thread.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Final

from rmqpy.config.addresses import HostPort, parse
from rmqpy.errors import ConfigError

#: The pattern for every address.
ANY: Final = "*"
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,30}", re.ASCII)
_FIELD: Final = re.compile(r"\{(host|port|broker|cluster|id)([+-][0-9]{1,5})?\}", re.ASCII)
_SYNTAX: Final = (
    "write LISTENER FROM=TO; FROM is host:port, a network such as 10.42.0.0/16, or *; TO is host:port, and may contain "
    "{host}, {port}, {port+20000}, {broker}, {cluster} and {id}"
)


@dataclass(frozen=True, slots=True)
class Member:
    """A broker and its address."""

    cluster: str
    broker: str
    broker_id: int


@dataclass(frozen=True, slots=True)
class Rule:
    """One replacement of addresses."""

    #: `host:port`, a network, or `*`.
    matched: str
    network: IPv4Network | IPv6Network | None
    #: `host:port` with fields in braces.
    template: str

    def apply(self, address: str, member: Member) -> str | None:
        """Return the replacement of this address; `None` if the rule does not match."""
        if self.matched != ANY and self.matched != address and not self._is_inside(address):
            return None
        host, _, port = address.rpartition(":")
        values = {"host": host, "port": port, "broker": member.broker, "cluster": member.cluster}
        values["id"] = str(member.broker_id)

        def value(field: re.Match[str]) -> str:
            name, added = field[1], field[2]
            return str(int(values[name]) + int(added)) if added else values[name]

        return _FIELD.sub(value, self.template)

    def _is_inside(self, address: str) -> bool:
        if self.network is None:
            return False
        try:
            return ip_address(parse(address).host) in self.network
        except (ValueError, ConfigError):
            # A host name belongs to no network.
            return False


@dataclass(frozen=True)
class Listeners:
    """Addresses by name, and the rules of each."""

    addresses: Mapping[str, HostPort]
    rules: Mapping[str, tuple[Rule, ...]]

    @classmethod
    def read(cls, listeners: str, advertised: str) -> Listeners:
        """Read the settings `listeners` and `advertisedAddresses`. Raises `ConfigError`."""
        addresses: dict[str, HostPort] = {}
        for written in _entries(listeners):
            name, _, address = (part.strip() for part in written.partition("="))
            if not _NAME.fullmatch(name) or not address:
                raise ConfigError(
                    f"listeners: {written!r} is not a listener",
                    hint="write NAME=host:port, as in outer=0.0.0.0:30876",
                )
            if name in addresses:
                raise ConfigError(f"listeners: {name} is listed twice")
            try:
                addresses[name] = parse(address)
            except ConfigError as error:
                raise ConfigError(f"listeners: {error}", hint=error.hint) from None
        if len(set(addresses.values())) < len(addresses):
            raise ConfigError("listeners: two of them have the same address")
        rules: dict[str, tuple[Rule, ...]] = dict.fromkeys(addresses, ())
        for written in _entries(advertised):
            name, rule = _rule(written)
            if name not in rules:
                raise ConfigError(
                    f"advertisedAddresses: unknown listener {name!r}",
                    hint=f"listeners names {', '.join(addresses) or 'none'}",
                )
            rules[name] += (rule,)
        return cls(addresses, rules)

    @cached_property
    def _by_port(self) -> Mapping[int, tuple[str, ...]]:
        ports: dict[int, tuple[str, ...]] = {}
        for name, address in self.addresses.items():
            ports[address.port] = (*ports.get(address.port, ()), name)
        return ports

    def name_of(self, local: str) -> str | None:
        """The listener that accepted a connection, by the connection's local address; `None` for the main one."""
        if not self.addresses:
            return None
        host, _, port = local.rpartition(":")
        found = None
        for name in self._by_port.get(int(port), ()):
            listened = self.addresses[name].host
            if listened == host.strip("[]"):
                return name
            if listened in ("0.0.0.0", "::"):
                found = name
        return found

    def seen(self, name: str | None, address: str, member: Member) -> str:
        """A broker's address as clients of this listener receive it."""
        for rule in self.rules.get(name, ()) if name is not None else ():
            if (replaced := rule.apply(address, member)) is not None:
                return replaced
        return address


def _entries(written: str) -> Iterable[str]:
    return filter(None, (entry.strip() for entry in written.split(";")))


def _rule(written: str) -> tuple[str, Rule]:
    name, _, replacement = (part.strip() for part in written.partition(" "))
    matched, equals, template = (part.strip() for part in replacement.partition("="))
    network = None
    try:
        if not equals:
            raise ValueError
        if "/" in matched:
            network = ip_network(matched)
        elif matched != ANY:
            parse(matched)
        # The port must be a number once the fields are filled in.
        filled = _FIELD.sub(lambda field: "1" if field[1] in ("port", "id") else "x", template)
        if "{" in filled:
            raise ValueError
        parse(filled)
    except (ValueError, ConfigError):
        raise ConfigError(f"advertisedAddresses: {written!r} is not a rule", hint=_SYNTAX) from None
    for field in _FIELD.finditer(template):
        if field[2] and field[1] != "port":
            raise ConfigError(
                f"advertisedAddresses: numbers can only be added to port, not to {field[0]}", hint=_SYNTAX
            )
    return name, Rule(matched, network, template)
