"""Logs of a server: lines for people on a terminal, JSON lines for programs.

Owns the handler of the logger `rmqpy`, where a command installs it; the library itself says nothing on its own.
Invariant: what comes from outside, such as a client id, cannot make a line of its own or steer a terminal: control
characters are escaped, and the lines of a traceback are indented.
"""

import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import IO, Any, Final, Literal

#: Control characters, line separators, marks that turn the direction of text, and halves of a surrogate pair, which
#: no file takes.
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_SHORT: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}

LogFormat = Literal["auto", "text", "json"]


class JsonLines(logging.Formatter):
    """One JSON object a record: `time`, `level`, `logger`, `message`, and `error` with a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return _escape(json.dumps(line, ensure_ascii=False))


class TextLines(logging.Formatter):
    """One line a record, and an indented one for each of its traceback's."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the base class names it
        return _escape(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802 - as above
        return "\n".join(f"    {_escape(line)}" for line in super().formatException(ei).split("\n"))


def install(form: LogFormat, level: str, stream: IO[str] | None = None) -> None:
    """Write what rmqpy logs from `level` on to `stream`, standard error if not given.

    `auto` is text on a terminal and JSON otherwise. Replaces what an earlier call installed.
    """
    stream = stream or sys.stderr
    handler = logging.StreamHandler(stream)
    if form == "json" or (form == "auto" and not stream.isatty()):
        handler.setFormatter(JsonLines())
    else:
        handler.setFormatter(TextLines())
    logger = logging.getLogger("rmqpy")
    for known in [each for each in logger.handlers if isinstance(each, logging.StreamHandler)]:
        logger.removeHandler(known)
    logger.addHandler(handler)
    logger.setLevel(level.upper())
    logger.propagate = False


def _escape(text: str) -> str:
    """The text with `\\n` for a line feed and `\\u0000` for other control characters, in JSON as outside it."""
    return _CONTROL.sub(lambda found: _SHORT.get(found[0]) or f"\\u{ord(found[0]):04x}", text)
