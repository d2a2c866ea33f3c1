"""Access rules of the console: origin of requests, and browser policies for responses.

Owns the rules: remote clients log in; cross-site requests of browsers are refused, see `monitor/origin`; a change
needs a header that no other site can send. Pure.
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from rmqpy.monitor.origin import Refusal, foreign

#: The header of changes. A page of another origin may send it only with our permission, which is never granted.
CHANGE_HEADER: Final = "X-Rmqpy-Console"
CHANGE_VALUE: Final = "change"

#: Everything comes from this origin; no inline markup; no frames of other sites.
PAGE_HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
#: For API responses: not cached, not executed.
API_HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}

_SAFE: Final = frozenset({"GET", "HEAD"})


#: The response without a login.
LOGIN_NEEDED: Final = Refusal(
    HTTPStatus.UNAUTHORIZED,
    "log in first",
    "use a user of the cluster's access control and its secret; create one with rmqpy acl user create",
)


def refusal(method: str, headers: Mapping[str, str], *, host: str, allow_changes: bool) -> Refusal | None:
    """Return the reason to refuse this request regardless of its user, or None. `host` is the listen address."""
    if (no := foreign(headers, host=host)) is not None:
        return no
    if method in _SAFE:
        return None
    if not allow_changes:
        return Refusal(
            HTTPStatus.FORBIDDEN,
            "the console is read-only",
            "allow changes with --allow-changes, on a broker with httpAllowChanges=true; or use the command line",
        )
    if headers.get(CHANGE_HEADER.lower()) != CHANGE_VALUE:
        return Refusal(
            HTTPStatus.FORBIDDEN,
            f"a change needs the header {CHANGE_HEADER}",
            f"send it: {CHANGE_HEADER}: {CHANGE_VALUE}",
        )
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        return Refusal(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            "a change needs a JSON body",
            "send Content-Type: application/json",
        )
    return None
