"""Mistakes on the command line, and what they end with: the same exit code for the same mistake, and a way on."""

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
