"""Requests that a page of another site has made a browser send: by the names in their headers.

Pure.
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import urlsplit

from rmqpy.config.addresses import is_loopback


class Refusal(NamedTuple):
    """Why a request is not served, and what to do."""

    status: HTTPStatus
    error: str
    hint: str


def foreign(headers: Mapping[str, str], *, host: str) -> Refusal | None:
    """Why a request is not from this site, by its `Host`, `Origin` and `Sec-Fetch-Site`; None if it may be. `host` is
    the address listened on."""
    asked = headers.get("host", "")
    # Off loopback a server does not know its names; sessions are bound to the one that was logged in at.
    if is_loopback(host) and not is_loopback(_name(asked)):
        return Refusal(
            HTTPStatus.MISDIRECTED_REQUEST,
            f"the name {asked[:255]!r} is not one of this machine",
            "ask for http://127.0.0.1 or http://localhost, with the port",
        )
    origin = headers.get("origin")
    # What ends TLS in front of the server is another machine's, or the user's own.
    schemes = ("http",) if is_loopback(host) else ("http", "https")
    is_foreign = origin is not None and origin not in {f"{each}://{asked}" for each in schemes}
    if is_foreign or headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
        return Refusal(
            HTTPStatus.FORBIDDEN,
            "the request comes from a page of another site",
            "open the address itself, or ask without a browser",
        )
    return None


def _name(host: str) -> str:
    """The name in a `Host` header, without its port."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
