"""Exposure: who gets in at a server that others can connect to, and who may listen on the way. Pure; any thread."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from rmqpy.config.addresses import is_loopback, parse


class Exposure(NamedTuple):
    """What strangers may do, and what to do about it."""

    found: str
    advice: str


def of_broker(address: str, settings: Mapping[str, str]) -> Iterator[Exposure]:
    """What strangers may do at a broker with these settings."""
    if _is_closed(address, settings):
        return
    advice = "let it ask who they are: docs/security.md; or let it listen on loopback alone"
    if (fault := _unknown_users(settings)) is not None:
        yield Exposure(fault, advice)
    yield from _listeners(settings)


def of_name_server(address: str, settings: Mapping[str, str]) -> Iterator[Exposure]:
    """What strangers may do at a name server with these settings."""
    if _is_closed(address, settings):
        return
    if not _asks(settings):
        found = "whoever can connect may register and remove brokers: it has no access control"
        yield Exposure(found, "let it ask who they are: docs/security.md; or let it listen on loopback alone")
    elif settings.get("registrationAuthenticationEnabled") == "false":
        found = "whoever can connect may register and remove brokers: registrationAuthenticationEnabled=false"
        advice = "give brokers innerClientAuthenticationCredentials, and take the setting away"
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
        return "whoever can connect may do everything: it has no access control"
    if not is_authenticated:
        return "users are not asked to prove who they are: authenticationEnabled is off"
    return None if is_authorized else "whoever has a key may do everything: authorizationEnabled is off"


def _listeners(settings: Mapping[str, str]) -> Iterator[Exposure]:
    """Signatures do not hide a request, nor keep it from being changed or sent again: encryption does."""
    if not _asks(settings):
        return
    has_certificate = settings.get("tls.server.certPath") or settings.get("tls.test.mode.enable") == "true"
    mode = settings.get("tls.server.mode")
    if not has_certificate or mode == "disabled":
        found = "requests are signed, but not encrypted: who is between can read, change and repeat them"
        yield Exposure(found, "set tls.server.certPath and tls.server.keyPath: docs/tls.md")
    elif mode == "permissive":
        found = "requests that are not encrypted are served, too: tls.server.mode=permissive"
        yield Exposure(found, "set tls.server.mode=enforcing, once all clients use TLS: docs/tls.md")
