"""Commands on a terminal, a pseudo-terminal here: colours, tables that fit, progress."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping, Sequence

import pytest

from rmqpy.server import Standalone

RED, GREEN = "\x1b[1;31m", "\x1b[32m"


def typed(
    arguments: Sequence[str], *, columns: int = 200, environment: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """Return the exit code of a command, and its output on a terminal of this width."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    inherited = {name: text for name, text in os.environ.items() if name not in ("NO_COLOR", "COLUMNS")}
    with subprocess.Popen(
        [sys.executable, "-m", "rmqpy", *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**inherited, "TERM": "xterm-256color", **(environment or {})},
    ) as process:
        os.close(theirs)
        printed = b""
        # Reading fails once the other end is closed.
        try:
            while part := os.read(ours, 65_536):
                printed += part
        except OSError:
            pass
        os.close(ours)
        return process.wait(60), printed.decode()


def test_bad_is_red_on_a_terminal_and_nowhere_else(server: Standalone) -> None:
    health = ["cluster", "health", "-n", server.namesrv, "--disk-free-min", str(1 << 40)]
    code, printed = typed(health)
    assert code == 1
    assert f"{RED}bad" in printed
    assert f"{GREEN}ok" in printed
    for plain in (typed(["--no-color", *health]), typed(health, environment={"NO_COLOR": "1"})):
        assert RED not in plain[1]
        assert "bad" in plain[1]
    piped = subprocess.run(
        [sys.executable, "-m", "rmqpy", *health], capture_output=True, text=True, timeout=60
    )
    assert "\x1b" not in piped.stdout


def test_a_table_fits_the_terminal_and_wide_ones_lose_nothing(server: Standalone) -> None:
    body = "0123456789" * 20
    subprocess.run(
        [sys.executable, "-m", "rmqpy", "produce", "broad", body, "-n", server.namesrv],
        check=True,
        capture_output=True,
        timeout=60,
    )
    _, printed = typed(["topic", "describe", "broad", "-n", server.namesrv], columns=40)
    assert max(len(line) for line in re.sub(r"\x1b\[[0-9;]*m", "", printed).splitlines()) <= 40
    _, printed = typed(["message", "find", "broad", "-o", "wide", "-n", server.namesrv], columns=40)
    assert body in printed


def test_a_terminal_gets_no_commands_out_of_messages(server: Standalone) -> None:
    body = "[red]\x1b[2J"
    subprocess.run(
        [sys.executable, "-m", "rmqpy", "produce", "hostile", body, "-n", server.namesrv],
        check=True,
        capture_output=True,
        timeout=60,
    )
    _, printed = typed(["message", "find", "hostile", "-n", server.namesrv])
    assert "[red]\\x1b[2J" in printed
    assert "\x1b[2J" not in printed


def test_progress_has_messages_and_megabytes_a_second(server: Standalone) -> None:
    produce = ["produce", "shown", "x" * 1000, "--count", "400", "--rate", "800", "-n", server.namesrv]
    code, printed = typed(produce)
    assert code == 0
    assert re.search(r"\d+ messages, \d+\.\d MB, \d+\.\d MB/s", printed)
    assert "MB/s" not in typed(["-q", *produce])[1]


@pytest.mark.parametrize(
    "arguments", [["--help"], ["topic", "list"], ["produce", "piped", "x", "--count", "3"]]
)
def test_output_outside_a_terminal_does_not_import_rich(server: Standalone, arguments: list[str]) -> None:
    code = (
        "import sys, rmqpy; assert 'rich' not in sys.modules; from rmqpy import cli; "
        f"print(cli.run({arguments!r})); print(any(name.startswith('rich') for name in sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "NAMESRV_ADDR": server.namesrv},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.splitlines()[-2:] == ["0", "False"], done.stderr
