"""Process of a command: it ends in order when it is asked to, and prints whatever text there is.

Threads: the main one, the only one in which Python handles signals.
"""

from __future__ import annotations

import codecs
import io
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Final, NoReturn

if TYPE_CHECKING:
    from typing_extensions import Buffer

#: Exit code of a process that SIGTERM ended, as a shell reports it.
TERMINATED: Final = 128 + signal.SIGTERM
#: The largest descriptor of a standard stream.
_STANDARD_MAX: Final = 2
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


@contextmanager
def open_streams() -> Iterator[None]:
    """Have standard streams that the process was started without: nothing is read, errors go nowhere, and output is an
    error, so that a command whose result goes nowhere does not end as if it were printed."""
    before = sys.stdin, sys.stdout, sys.stderr
    if None in before:
        # No file or socket may take their places.
        while (descriptor := os.open(os.devnull, os.O_RDWR)) <= _STANDARD_MAX:
            pass
        os.close(descriptor)
    sys.stdin = before[0] or io.TextIOWrapper(io.BytesIO())
    sys.stdout = before[1] or _text_to(_Closed())
    sys.stderr = before[2] or _text_to(_Nowhere())
    try:
        yield
    finally:
        sys.stdin, sys.stdout, sys.stderr = before


class _Nowhere(io.BytesIO):
    """Output that is forgotten."""

    def write(self, data: Buffer) -> int:
        return memoryview(data).nbytes


class _Closed(_Nowhere):
    """Standard output of a process that was started without."""

    def write(self, data: Buffer) -> int:
        from rmqpy.errors import ConfigError

        raise ConfigError("standard output is closed", hint="redirect it to a file, or to /dev/null")


def _text_to(raw: io.BytesIO) -> io.TextIOWrapper:
    return io.TextIOWrapper(raw, encoding="utf-8", write_through=True)


def discard_output() -> None:
    """Let output go nowhere, where the process was started without: a server has little to print."""
    if isinstance(getattr(sys.stdout, "buffer", None), _Closed):
        sys.stdout = _text_to(_Nowhere())


def flush_output() -> None:
    """Write what is still in the buffer. Raises `OSError` where that fails, and once: the interpreter, which writes it
    at its end, would fail again with an exit code of its own."""
    try:
        sys.stdout.flush()
    except OSError:
        with suppress(OSError, ValueError):
            descriptor = os.open(os.devnull, os.O_WRONLY)
            os.dup2(descriptor, sys.stdout.fileno())
            os.close(descriptor)
        raise


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    raise Terminated


def _escaped(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass")
    text = "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
    return text, error.end
