"""The log of a server: text lines and JSON lines, and no outside text that imitates a line of its own."""

import io
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqpy.monitor import logs


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    logger = logging.getLogger("rmqpy")
    before = (logger.handlers[:], logger.level, logger.propagate)
    yield logger
    logger.handlers[:], logger.level, logger.propagate = before


def test_json_log_has_one_object_per_line(logger: logging.Logger) -> None:
    out = io.StringIO()
    logs.install("json", "info", out)
    logger.debug("unheard")
    try:
        raise ValueError("broken")
    except ValueError:
        logging.getLogger("rmqpy.store").exception("two\nlines of %s", "grüße")
    [line] = [json.loads(line) for line in out.getvalue().splitlines()]
    assert (line["level"], line["logger"], line["message"]) == ("error", "rmqpy.store", "two\nlines of grüße")
    assert "ValueError: broken" in line["error"]
    assert line["time"].endswith("+00:00")


def test_text_log_is_plain_text(logger: logging.Logger) -> None:
    out = io.StringIO()
    logs.install("text", "warning", out)
    logs.install("text", "warning", out)
    logger.info("unheard")
    logger.warning("heard once")
    assert out.getvalue().count("heard once") == 1
    assert "WARNING" in out.getvalue()


FORGED = "evil\n2026-01-01 00:00:00,000 INFO    rmqpy.broker: all is well\r\x1b[2J\u2028\x85\ud800\u202e"


@pytest.mark.parametrize("form", ["text", "json"])
def test_text_from_outside_cannot_start_a_log_line(
    logger: logging.Logger, tmp_path: Path, form: logs.LogFormat
) -> None:
    path = tmp_path / "log"
    with path.open("w", encoding="utf-8") as out:
        logs.install(form, "info", out)
        logger.warning("client %s went", FORGED)
        try:
            raise ValueError(FORGED)
        except ValueError:
            logger.exception("refused %s", FORGED)
    lines = path.read_text("utf-8").splitlines()
    assert not [character for line in lines for character in line if not character.isprintable()]
    assert not [line for line in lines if line.startswith("2026-01-01")]
    assert [line for line in lines if "went" in line and "evil\\n2026-01-01" in line]
    assert all(line.startswith(("    ", lines[0][:4])) for line in lines)
    if form == "json":
        assert json.loads(lines[0])["message"] == f"client {FORGED} went"


def test_server_logs_json_lines_without_a_terminal() -> None:
    command = [sys.executable, "-m", "rmqpy", "namesrv", "listenPort=0", "kvConfigPath="]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "ready" in process.stdout.readline()
        process.terminate()
        _, err = process.communicate(timeout=60)
    lines: list[dict[str, Any]] = [json.loads(line) for line in err.splitlines()]
    told = [line["message"] for line in lines]
    assert [text for text in told if ": name server serves 127.0.0.1:" in text and "listenPort=0" in text]
    assert "stopping: received SIGTERM" in told
