"""Process of a command: signals, standard streams and encodings.

Threads: the main thread, the only one in which Python handles signals.
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

#: The exit code after SIGTERM, as shells report it.
TERMINATED: Final = 128 + signal.SIGTERM
#: The largest descriptor of a standard stream.
_STANDARD_MAX: Final = 2
#: The name of the error handler for characters that an encoding lacks.
_ESCAPE: Final = "rmqpy.escape"


class Terminated(KeyboardInterrupt):
    """SIGTERM. A command ends as with Ctrl-C: it finishes and reports what it has begun."""


@contextmanager
def terminable() -> Iterator[None]:
    """Raise `Terminated` on SIGTERM within this context. Without a handler the first process of a container ignores
    it, and others end without a report. Servers have their own handlers."""
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
    """Let standard output escape characters that its encoding lacks, as JSON does."""
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
        # The reader may be gone.
        with suppress(OSError, ValueError):
            reconfigure(errors=before)


@contextmanager
def open_streams() -> Iterator[None]:
    """Replace standard streams that the process was started without. Reading finds nothing, errors are dropped, and
    writing output fails, so that the command does not succeed without its result."""
    before = sys.stdin, sys.stdout, sys.stderr
    if None in before:
        # Otherwise an opened file or socket would take their numbers.
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
    """An output that drops everything."""

    def write(self, data: Buffer) -> int:
        return memoryview(data).nbytes


class _Closed(_Nowhere):
    """The standard output of a process that was started without one."""

    def write(self, data: Buffer) -> int:
        from rmqpy.errors import ConfigError

        raise ConfigError("standard output is closed", hint="redirect it to a file, or to /dev/null")


def _text_to(raw: io.BytesIO) -> io.TextIOWrapper:
    return io.TextIOWrapper(raw, encoding="utf-8", write_through=True)


def discard_output() -> None:
    """Drop output if the process was started without standard output: servers print little."""
    if isinstance(getattr(sys.stdout, "buffer", None), _Closed):
        sys.stdout = _text_to(_Nowhere())


def flush_output() -> None:
    """Flush the output buffer. Raises `OSError` if that fails, but only once: the interpreter would fail again at exit
    and return its own code."""
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
    # Late: few lines need it.
    from rmqpy.config import text as texts

    return texts.escaped(error.object[error.start : error.end]), error.end
