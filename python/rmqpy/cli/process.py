"""Process of a command: it ends in order when it is asked to, and prints whatever text there is.

Threads: the main one, the only one in which Python handles signals.
"""

import codecs
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Final, NoReturn

#: Exit code of a process that SIGTERM ended, as a shell reports it.
TERMINATED: Final = 128 + signal.SIGTERM
#: Name of the error handler for characters that an encoding lacks.
_ESCAPE: Final = "rmqpy.escape"


class Terminated(KeyboardInterrupt):
    """SIGTERM: a command ends as with Ctrl-C, what it has begun is finished and reported."""


@contextmanager
def terminable() -> Iterator[None]:
    """Let SIGTERM raise `Terminated` meanwhile. Without a handler the first process of a container ignores it, and
    any other one ends without a report. Servers have handlers of their own."""
    if threading.current_thread() is not threading.main_thread() or (
        signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    ):
        yield
        return
    signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextmanager
def printable() -> Iterator[None]:
    """Let standard output take characters that its encoding lacks: they become escapes, as JSON has them."""
    codecs.register_error(_ESCAPE, _escaped)
    before = getattr(sys.stdout, "errors", None)
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is None or before is None:
        yield
        return
    reconfigure(errors=_ESCAPE)
    try:
        yield
    finally:
        # Its reader may be gone.
        with suppress(OSError, ValueError):
            reconfigure(errors=before)


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    raise Terminated


def _escaped(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass")
    text = "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
    return text, error.end
