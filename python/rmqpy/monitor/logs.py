"""Server logs: lines for a terminal, JSON lines for programs.

Owns the handler of the logger `rmqpy`, installed by commands; the library itself logs nothing by default. Invariant:
text from outside, such as a client id, cannot start a new line or control a terminal: control characters are escaped,
and traceback lines are indented.
"""

import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import IO, Any, Final, Literal

#: Control characters, line separators, direction marks, and lone surrogates, which cannot be written to files.
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_SHORT: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}

LogFormat = Literal["auto", "text", "json"]


class JsonLines(logging.Formatter):
    """One JSON object per record: `time`, `level`, `logger`, `message`, and `error` with a traceback."""

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
    """One line per record, and an indented one for each line of its traceback."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the base class names it
        return _escape(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802 - as above
        return "\n".join(f"    {_escape(line)}" for line in super().formatException(ei).split("\n"))


def install(form: LogFormat, level: str, stream: IO[str] | None = None) -> None:
    """Log rmqpy's records from `level` on to `stream`, by default standard error.

    `auto` is text on a terminal and JSON otherwise. Replaces the handler of an earlier call.
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
