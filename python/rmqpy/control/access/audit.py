"""Audit: who was refused what, and who changed what; never with a secret or a body.

The lines go to the logger `rmqpy.audit`. Threads: the event loop's.
"""

from __future__ import annotations

import logging
from typing import Final

from rmqpy.remoting.server import RequestContext

audit: Final = logging.getLogger("rmqpy.audit")

#: How often refusals of the native half are written.
AUDIT_SECONDS: Final = 1.0


def note_change(context: RequestContext, what: str) -> None:
    """Write down that the sender of a request has changed something."""
    audit.info("%s from %s %s", f"User:{context.user}" if context.user else "somebody", context.address, what)
