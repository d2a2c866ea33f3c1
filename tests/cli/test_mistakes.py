"""Mistakes on the command line: equal mistakes have equal exit codes and a hint."""

import os
import subprocess
import sys

import pytest

import rmqpy
from commandline import Run
from rmqpy import cli
from rmqpy.server import Standalone


@pytest.mark.parametrize(
    "arguments",
    [("topic", "create", "a b"), ("produce", "a b", "hello"), ("group", "create", "a b")],
    ids=" ".join,
)
def test_a_name_that_none_can_have_is_a_usage_error_wherever_it_is_given(
    run: Run, arguments: tuple[str, ...]
) -> None:
    code, _, err = run(*arguments)
    assert code == 2
    assert "a b" in err


@pytest.mark.usefixtures("log")
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["broker", "lisenPort=0"], "unknown key lisenPort: did you mean listenPort?"),
        (["namesrv", "lisenPort=0"], "unknown key lisenPort: did you mean listenPort?"),
        (["standalone", "--memory", "flushDiskTyp=SYNC_FLUSH"], "did you mean flushDiskType?"),
        (["broker", "nothingLikeIt=1", "another=2"], "unknown key nothingLikeIt; unknown key another"),
    ],
    ids=["broker", "namesrv", "standalone", "two"],
)
def test_a_setting_that_no_server_knows_is_an_error_on_the_command_line(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(arguments) == 2
    assert told in capsys.readouterr().err


@pytest.mark.usefixtures("log")
def test_settings_of_apaches_servers_are_taken_on_the_command_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.run(["broker", "-p", "useEpollNativeSelector=true", "brokerId=0", "aclEnable=false"]) == 0
    assert cli.run(["namesrv", "-p", "serverWorkerThreads=8"]) == 0
    assert "listenPort=" in capsys.readouterr().out


def test_a_reader_that_has_seen_enough_ends_consume_in_silence(server: Standalone) -> None:
    with rmqpy.Producer(server.namesrv) as producer:
        for future in [producer.submit("many-lines", "x" * 1_000) for _ in range(500)]:
            future.result()
    command = [sys.executable, "-m", "rmqpy", "consume", "many-lines"]
    environment = os.environ | {"NAMESRV_ADDR": server.namesrv}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        assert child.stdout.readline()
        child.stdout.close()
        assert child.wait(60) == cli.READER_GONE
        assert child.stderr.read() == b""


@pytest.mark.parametrize("age", ["9999999999d", "9" * 30 + "s", "999999999d", "9" * 400 + "ms"])
@pytest.mark.parametrize(
    "arguments",
    [
        ("consume", "orders", "--from"),
        ("group", "reset", "billing", "orders", "--dry-run", "--to"),
        ("produce", "orders", "x", "--deliver-after"),
        ("message", "find", "orders", "--from"),
    ],
    ids=" ".join,
)
def test_an_age_that_no_calendar_has_is_a_usage_error(run: Run, arguments: tuple[str, ...], age: str) -> None:
    code, out, err = run(*arguments, age)
    assert (code, out) == (2, "")
    assert "Traceback" not in err
    assert len(err) < 1_000


@pytest.mark.parametrize(
    ("command", "redirection", "code", "told"),
    [
        ("topic list --system", ">&-", 2, "standard output is closed"),
        ("topic list --system -o csv", ">&-", 2, "standard output is closed"),
        ("topic list --system -o json", ">&-", 2, "standard output is closed"),
        ("topic list --system", ">/dev/full", 1, "No space left"),
        ("topic list --system -o csv", ">/dev/full", 1, "No space left"),
        ("topic list --system", "2>&-", 0, ""),
        ("topic delete orders", "<&-", 2, "give --yes"),
        ("produce orders -", "<&-", 0, ""),
    ],
)
def test_streams_that_are_closed_or_full_are_named(
    server: Standalone, command: str, redirection: str, code: int, told: str
) -> None:
    done = subprocess.run(
        ["sh", "-c", f"exec {sys.executable} -m rmqpy {command} {redirection}"],
        env=os.environ | {"NAMESRV_ADDR": server.namesrv},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stderr
    assert told in done.stderr
