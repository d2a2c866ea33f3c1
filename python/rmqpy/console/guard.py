"""Rules for requests of the console: from where they may come, and what a browser may do with the answers.

Owns the rules: a client that is not on this machine logs in; a browser that another site has sent is refused, see
`monitor/origin`; a change needs a header that no other site can send. Pure.
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from rmqpy.monitor.origin import Refusal, foreign

#: A change has this header, which a page of another origin may not send unless we allowed it to, and we never do.
CHANGE_HEADER: Final = "X-Rmqpy-Console"
CHANGE_VALUE: Final = "change"

#: Everything comes from here; nothing is put into a page as markup; no other site shows it in a frame.
PAGE_HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
#: Of an answer of the API: nothing of it is kept, or run.
API_HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}

_SAFE: Final = frozenset({"GET", "HEAD"})


#: The answer to somebody who has to say who they are.
LOGIN_NEEDED: Final = Refusal(
    HTTPStatus.UNAUTHORIZED,
    "log in first",
    "with a user of the cluster's access control, and its secret; rmqpy acl user create makes one",
)


def refusal(method: str, headers: Mapping[str, str], *, host: str, allow_changes: bool) -> Refusal | None:
    """Why this request is refused, whoever has sent it; None where it may pass. `host` is the address listened on."""
    if (no := foreign(headers, host=host)) is not None:
        return no
    if method in _SAFE:
        return None
    if not allow_changes:
        return Refusal(
            HTTPStatus.FORBIDDEN,
            "the console only reads: changes are not allowed",
            "start it with --allow-changes, a broker with httpAllowChanges=true; or use the command line",
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
            "a change is described in JSON",
            "send Content-Type: application/json",
        )
    return None
