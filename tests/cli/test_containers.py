"""Commands as the first process of a container, under a user id without a home, and at a terminal without UTF-8."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import rmqpy
from rmqpy.config import home
from rmqpy.errors import ConfigError
from rmqpy.server import Standalone

_RMQPY = [sys.executable, "-m", "rmqpy"]


def _works(*command: str) -> bool:
    try:
        return subprocess.run([*command, "true"], capture_output=True).returncode == 0
    except OSError:
        return False


#: As the first process of a container: signals without a handler are ignored.
_FIRST = ["unshare", "--pid", "--fork", "--kill-child"]
#: As a user id that the passwd file does not have.
_STRANGER = ["unshare", "--user", "--map-user=54321"]
can_be_first = pytest.mark.skipif(not _works(*_FIRST), reason="no process namespaces here")
can_be_stranger = pytest.mark.skipif(not _works(*_STRANGER), reason="no user namespaces here")


def _terminated(process: "subprocess.Popen[str]") -> tuple[int, str]:
    """Terminate a command, or the one process below `unshare`; its exit code and its standard error."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(children[0]) if children else process.pid, signal.SIGTERM)
    _, err = process.communicate(timeout=20)
    return process.returncode, err


@pytest.mark.parametrize("around", [[], pytest.param(_FIRST, marks=can_be_first)])
def test_terminated_produce_reports_its_count(server: Standalone, around: Sequence[str]) -> None:
    process = subprocess.Popen(
        [*around, *_RMQPY, "produce", "-n", server.namesrv, "lines", "-"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    with rmqpy.PullConsumer("audit", server.namesrv, start_from="earliest") as consumer:
        for line in ("one", "two", "three"):
            process.stdin.write(f"{line}\n")
        process.stdin.flush()
        consumer.subscribe("lines")
        got = 0
        while got < 3:
            got += len(consumer.poll(timeout=5))
    code, err = _terminated(process)
    assert code == 143, err
    assert "sent before the end: 3 messages" in err
    assert err.endswith("terminated\n")


@pytest.mark.parametrize("around", [[], pytest.param(_FIRST, marks=can_be_first)])
def test_terminated_consume_has_committed_the_printed_messages(
    server: Standalone, around: Sequence[str]
) -> None:
    topic, group = f"followed-{len(around)}", f"followers-{len(around)}"
    with rmqpy.Producer(server.namesrv) as producer:
        for body in (b"one", b"two"):
            producer.send(topic, body)
    command = ["consume", "-n", server.namesrv, topic, "--group", group, "--follow"]
    process = subprocess.Popen(
        [*around, *_RMQPY, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    first, last = process.stdout.readline(), process.stdout.readline()
    assert {first, last} == {"one\n", "two\n"}
    code, err = _terminated(process)
    assert (code, err.strip()) == (143, "terminated")
    again = subprocess.run(
        [*_RMQPY, "consume", "-n", server.namesrv, topic, "--group", group],
        capture_output=True,
        text=True,
        timeout=30,
    )
    # The signal may have arrived before the last message was recorded as printed: it is printed again, not lost.
    assert again.returncode == 0
    assert again.stdout in ("", last)


def test_consume_that_is_terminated_before_its_commit_commits(
    server: Standalone, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from rmqpy import cli
    from rmqpy.cli import consume
    from rmqpy.cli.process import Terminated

    with rmqpy.Producer(server.namesrv) as producer:
        producer.send("ended", b"one")
    commit, calls = consume._commit, 0

    def interrupted(*arguments: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise Terminated
        commit(*arguments)

    monkeypatch.setattr(consume, "_commit", interrupted)
    command = ["consume", "-n", server.namesrv, "ended", "--group", "enders"]
    assert cli.run(command) == 143
    monkeypatch.undo()
    assert capsys.readouterr().out == "one\n"
    assert cli.run(command) == 0
    assert capsys.readouterr().out == ""


def test_a_command_in_another_thread_handles_no_signals(server: Standalone) -> None:
    from rmqpy import cli

    before = signal.getsignal(signal.SIGTERM)
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(cli.run(["version"])))
    thread.start()
    thread.join(10)
    assert cli.run(["version"]) == 0
    assert codes == [0]
    assert signal.getsignal(signal.SIGTERM) is before


@can_be_stranger
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["standalone"], "the data folder defaults to the home folder, and user 54321 has none"),
        (["broker"], "~/store: user 54321 has no home folder"),
        (["broker", "storePathRootDir=~/elsewhere"], "~/elsewhere: user 54321 has no home folder"),
        (["broker", "storePathRootDir=~nobody-here/store"], "unknown user 'nobody-here'"),
        (["topic", "list", "-p", "staging"], "profiles.toml defaults to the home folder"),
        (["profile"], "profiles.toml defaults to the home folder"),
    ],
)
def test_missing_home_names_the_option_to_set(arguments: list[str], expected: str, tmp_path: Path) -> None:
    ran = _as_stranger(arguments, tmp_path)
    assert ran.returncode == 2, ran.stderr
    assert expected in ran.stderr
    assert "Traceback" not in ran.stderr
    assert list(tmp_path.iterdir()) == []


@can_be_stranger
def test_server_runs_without_a_home_in_a_given_folder(tmp_path: Path) -> None:
    environment = {name: text for name, text in os.environ.items() if name not in ("HOME", "XDG_DATA_HOME")}
    command = ["standalone", "--namesrv-port=0", "--broker-port=0", "--no-http"]
    process = subprocess.Popen(
        [
            *_STRANGER,
            *_RMQPY,
            *command,
            "--data-dir",
            str(tmp_path / "data"),
            "mappedFileSizeCommitLog=16777216",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=tmp_path,
    )
    assert process.stdout is not None
    assert "name server" in process.stdout.readline()
    code, err = _terminated(process)
    assert (code, "Traceback" in err) == (0, False)
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_a_path_of_an_unknown_user_is_an_error() -> None:
    with pytest.raises(ConfigError, match="unknown user 'nobody-here'"):
        home.expand("~nobody-here/store")
    assert home.expand("plain~path") == "plain~path"


@pytest.mark.parametrize("encoding", ["latin-1", "gbk", "iso2022_jp"])
def test_a_terminal_without_utf_8_gets_escapes(server: Standalone, encoding: str) -> None:
    body, tag = "größe 消息 \U0001f600", "消息"
    topic = f"escapes-{encoding}"
    with rmqpy.Producer(server.namesrv) as producer:
        producer.send(topic, body.encode(), tag=tag)
    environment = {**os.environ, "PYTHONIOENCODING": encoding}

    def printed(*arguments: str) -> str:
        ran = subprocess.run(
            [*_RMQPY, *arguments, "-n", server.namesrv], capture_output=True, timeout=30, env=environment
        )
        assert (ran.returncode, ran.stderr) == (0, b"")
        return ran.stdout.decode(encoding)

    record = json.loads(printed("consume", topic, "-o", "jsonl"))
    assert (record["body"], record["tag"]) == (body, tag)
    assert "\\ud83d\\ude00" in printed("consume", topic, "-o", "template={body}")


def _as_stranger(arguments: Sequence[str], folder: Path) -> "subprocess.CompletedProcess[str]":
    unset = ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "RMQPY_DATA_DIR", "RMQPY_PROFILES")
    environment = {name: text for name, text in os.environ.items() if name not in unset}
    return subprocess.run(
        [*_STRANGER, *_RMQPY, *arguments],
        capture_output=True,
        text=True,
        timeout=30,
        env=environment,
        cwd=folder,
    )


def test_one_module_asks_for_the_home_folder() -> None:
    package = Path(rmqpy.__file__).parent
    asking = re.compile(r"expanduser|Path\.home\(")
    found = [path for path in package.rglob("*.py") if asking.search(path.read_text(encoding="utf-8"))]
    assert [path.relative_to(package).as_posix() for path in found] == ["config/home.py"]
