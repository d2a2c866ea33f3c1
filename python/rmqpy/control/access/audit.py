"""Audit: who was refused what, and who changed what; never with a secret or a body.

The lines go to the logger `rmqpy.audit`. Threads: the event loop's.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from rmqpy.protocol.access import Needed
from rmqpy.protocol.codes import RequestCode
from rmqpy.protocol.declare import utf8
from rmqpy.remoting.server import RequestContext

audit: Final = logging.getLogger("rmqpy.audit")

#: How often refusals of the native half are written.
AUDIT_SECONDS: Final = 1.0


#: They write what they do themselves, without secrets, or come again and again.
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
#: Resources that one line names.
_NAMED_MAX: Final = 16


def note_request(context: RequestContext, code: RequestCode, needed: Sequence[Needed]) -> None:
    """Write down that a request has changed something, and what it needed for that."""
    if code in _SILENT:
        return
    named = [f"{' or '.join(actions)} {kind}{f':{name}' if name else ''}" for kind, name, actions in needed]
    more = f" and {len(named) - _NAMED_MAX} more" if len(named) > _NAMED_MAX else ""
    note_change(context, f"{code.name}: {utf8(', '.join(named[:_NAMED_MAX]))!r}{more}")


def note_refusal(code: int, peer: str, sentence: str) -> None:
    """Write down that a request was refused: its code, where it came from, and why."""
    known = code in RequestCode.__members__.values()
    audit.warning(
        "refused %s from %s: %s", RequestCode(code).name if known else f"request {code}", peer, sentence
    )


def note_change(context: RequestContext, what: str) -> None:
    """Write down that the sender of a request has changed something."""
    audit.info("%s from %s %s", f"User:{context.user}" if context.user else "somebody", context.address, what)
