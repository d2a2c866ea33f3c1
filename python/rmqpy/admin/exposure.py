"""Exposure: unauthenticated access to servers that others can reach, and unencrypted connections. Pure; any thread."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from rmqpy.config.addresses import is_loopback, parse


class Exposure(NamedTuple):
    """What strangers can do, and the remedy."""

    found: str
    advice: str


def of_broker(address: str, settings: Mapping[str, str]) -> Iterator[Exposure]:
    """What strangers can do to a broker with these settings."""
    if _is_closed(address, settings):
        return
    advice = "enable authentication: docs/security.md; or listen on loopback only"
    if (fault := _unknown_users(settings)) is not None:
        yield Exposure(fault, advice)
    yield from _listeners(settings)


def of_name_server(address: str, settings: Mapping[str, str]) -> Iterator[Exposure]:
    """What strangers can do to a name server with these settings."""
    if _is_closed(address, settings):
        return
    if not _asks(settings):
        found = "any client can register and remove brokers: access control is off"
        yield Exposure(found, "enable authentication: docs/security.md; or listen on loopback only")
    elif settings.get("registrationAuthenticationEnabled") == "false":
        found = "any client can register and remove brokers: registrationAuthenticationEnabled=false"
        advice = "set innerClientAuthenticationCredentials on brokers, and remove the setting"
        yield Exposure(found, advice)
    yield from _listeners(settings)


def _is_closed(address: str, settings: Mapping[str, str]) -> bool:
    return is_loopback(settings.get("bindAddress") or parse(address).host)


def _asks(settings: Mapping[str, str]) -> bool:
    """Whether requests are signed."""
    return any(settings.get(key) == "true" for key in ("authenticationEnabled", "aclEnable"))


def _unknown_users(settings: Mapping[str, str]) -> str | None:
    if settings.get("aclEnable") == "true":
        return None
    is_authenticated, is_authorized = (
        settings.get(key) == "true" for key in ("authenticationEnabled", "authorizationEnabled")
    )
    if not is_authenticated and not is_authorized:
        return "any client can do everything: access control is off"
    if not is_authenticated:
        return "users are not verified: authenticationEnabled is off"
    return None if is_authorized else "every user may do everything: authorizationEnabled is off"


def _listeners(settings: Mapping[str, str]) -> Iterator[Exposure]:
    """Signatures do not hide a request or protect it against changes and replay: encryption does."""
    if not _asks(settings):
        return
    has_certificate = settings.get("tls.server.certPath") or settings.get("tls.test.mode.enable") == "true"
    mode = settings.get("tls.server.mode")
    if not has_certificate or mode == "disabled":
        found = (
            "requests are signed but not encrypted: attackers on the network can read, change and replay them"
        )
        yield Exposure(found, "set tls.server.certPath and tls.server.keyPath: docs/tls.md")
    elif mode == "permissive":
        found = "unencrypted requests are accepted: tls.server.mode=permissive"
        yield Exposure(found, "set tls.server.mode=enforcing, once all clients use TLS: docs/tls.md")
