"""Audit: refused requests and administrative changes, without secrets and bodies.

The lines go to the logger `rmqpy.audit`. Threads: the event loop's.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from rmqpy.control.tables.listed import listed
from rmqpy.protocol.access import Needed
from rmqpy.protocol.codes import RequestCode
from rmqpy.protocol.declare import utf8
from rmqpy.remoting.server import RequestContext

audit: Final = logging.getLogger("rmqpy.audit")

#: The interval at which refusals of the native module are logged.
AUDIT_SECONDS: Final = 1.0


#: Requests whose handlers log their own changes, without secrets, and periodic requests.
_SILENT: Final = frozenset(
    {
        RequestCode.AUTH_CREATE_USER,
        RequestCode.AUTH_UPDATE_USER,
        RequestCode.AUTH_DELETE_USER,
        RequestCode.AUTH_CREATE_ACL,
        RequestCode.AUTH_UPDATE_ACL,
        RequestCode.AUTH_DELETE_ACL,
        RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
        RequestCode.DELETE_ACL_CONFIG,
        RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
        RequestCode.REGISTER_BROKER,
        RequestCode.UNREGISTER_BROKER,
        RequestCode.REGISTER_TOPIC_IN_NAMESRV,
        RequestCode.BROKER_HEARTBEAT,
    }
)
#: The most resources that one line names.
_NAMED_MAX: Final = 16


def note_request(context: RequestContext, code: RequestCode, needed: Sequence[Needed]) -> None:
    """Log that a request has changed something, and the permissions it needed."""
    if code in _SILENT:
        return
    named = [f"{' or '.join(actions)} {kind}{f':{name}' if name else ''}" for kind, name, actions in needed]
    names, more = listed(named, _NAMED_MAX)
    note_change(context, f"{code.name}: {utf8(names)!r}{more}")


def note_refusal(code: int, peer: str, sentence: str) -> None:
    """Log that a request was refused: its code, sender and reason."""
    try:
        request = RequestCode(code).name
    except ValueError:
        request = f"request {code}"
    audit.warning("refused %s from %s: %s", request, peer, sentence)


def note_change(context: RequestContext, what: str) -> None:
    """Log that the sender of a request has changed something."""
    audit.info(
        "%s from %s %s",
        f"User:{context.user}" if context.user else "an unauthenticated client",
        context.address,
        what,
    )
