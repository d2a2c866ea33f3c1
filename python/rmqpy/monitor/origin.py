"""Detection of cross-site browser requests by their headers.

Pure.
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import urlsplit

from rmqpy.config.addresses import is_loopback


class Refusal(NamedTuple):
    """The reason for a refusal, and the remedy."""

    status: HTTPStatus
    error: str
    hint: str


def foreign(headers: Mapping[str, str], *, host: str) -> Refusal | None:
    """Return why a request is cross-site, by its `Host`, `Origin` and `Sec-Fetch-Site`; None if it may be our own.
    `host` is the listen address."""
    asked = headers.get("host", "")
    # Beyond loopback a server does not know its names; sessions are bound to the one used for the login.
    if is_loopback(host) and not is_loopback(_name(asked)):
        return Refusal(
            HTTPStatus.MISDIRECTED_REQUEST,
            f"{asked[:255]!r} is not a name of this machine",
            "use http://127.0.0.1 or http://localhost, with the port",
        )
    origin = headers.get("origin")
    # A TLS proxy in front of the server may be on another machine, or the user's own.
    schemes = ("http",) if is_loopback(host) else ("http", "https")
    is_foreign = origin is not None and origin not in {f"{each}://{asked}" for each in schemes}
    if is_foreign or headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
        return Refusal(
            HTTPStatus.FORBIDDEN,
            "the request comes from another site",
            "open the address directly, or use a client other than a browser",
        )
    return None


def _name(host: str) -> str:
    """The name in a `Host` header, without its port."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
