"""Logs of a server: lines for people on a terminal, JSON lines for programs.

Owns the handler of the logger `rmqpy`, where a command installs it; the library itself says nothing on its own.
"""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import IO, Literal

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
        return json.dumps(line, ensure_ascii=False)


def install(form: LogFormat, level: str, stream: IO[str] | None = None) -> None:
    """Write what rmqpy logs from `level` on to `stream`, standard error if not given.

    `auto` is text on a terminal and JSON otherwise. Replaces what an earlier call installed.
    """
    stream = stream or sys.stderr
    handler = logging.StreamHandler(stream)
    if form == "json" or (form == "auto" and not stream.isatty()):
        handler.setFormatter(JsonLines())
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))
    logger = logging.getLogger("rmqpy")
    for known in [each for each in logger.handlers if isinstance(each, logging.StreamHandler)]:
        logger.removeHandler(known)
    logger.addHandler(handler)
    logger.setLevel(level.upper())
    logger.propagate = False
