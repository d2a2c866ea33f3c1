"""The command line by itself: output streams, exit codes, and imports it avoids."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest

from rmqpy import __version__, cli, errors
from rmqpy.cli.exits import error_line, exit_code
from rmqpy.cli.output import show


def test_broker_logs_its_start_a_missing_name_server_and_its_stop_once_each(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-m", "rmqpy", "broker", "listenPort=0", "bindAddress=127.0.0.1"]
    command += [f"storePathRootDir={tmp_path}"]
    environment = {name: value for name, value in os.environ.items() if name != "NAMESRV_ADDR"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as broker:
        assert broker.stdout is not None
        assert "is ready" in broker.stdout.readline()
        broker.send_signal(signal.SIGTERM)
        _, told = broker.communicate(timeout=30)
    lines = [json.loads(line)["message"] for line in told.splitlines() if line.startswith("{")]
    assert "no name server is set (namesrvAddr, -n)" in told
    [begin] = [line for line in lines if line.startswith(f"rmqpy {__version__}: broker ")]
    assert f"data in {tmp_path};" in begin
    assert "bindAddress=127.0.0.1, listenPort=0" in begin
    assert lines.count("stopping: received SIGTERM") == 1
    [end] = [line for line in lines if line.endswith("stopped, store closed")]
    assert lines[-2:] == [end, "stopped"]


def test_the_version_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["--version"]) == 0
    assert capsys.readouterr().out == f"rmqpy, version {__version__}\n"


def test_help_has_one_line_per_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(f"  {name}" in out for name in cli.COMMANDS)


def test_help_lists_the_options_before_the_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.run(["--help"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    told = told.partition("All options except ")[2].partition(" may also follow")[0]
    for option in ("-q", "-v", "--no-color"):
        assert option in told
        assert cli.run(["version", option]) == 2
        assert "No such option" in capsys.readouterr().err


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([name, "--help"]) == 0
    assert f"Usage: rmqpy {name}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["prduce"], "did you mean 'produce'?"),
        (["produce"], "Missing argument 'TOPIC'"),
        (["produce", "orders"], "give BODY, or - to read lines, or --file"),
        (["produce", "orders", "x", "--prop", "a"], "'a' is not name=value"),
        (["produce", "orders", "x", "--prop", "KEYS=1"], "KEYS is RocketMQ's own: give --key"),
        (["produce", "orders", "x", "--prop", "UNIQ_KEY=1"], "UNIQ_KEY is RocketMQ's own"),
        (["produce", "orders", "--file", "no-such-file"], "no-such-file"),
        (["consume", "orders", "--from", "soon"], "'soon' is neither begin, end"),
        (["consume", "orders", "--count", "0"], "0 is not in the range"),
        (["version", "-o", "xml"], "'xml' is not one of"),
        (["-o", "xml", "version"], "'xml' is not one of"),
        (["-o", "csv", "consume", "orders"], "'csv' is not one of 'text', 'json', 'jsonl'"),
        (["version", "-o", "template={python"], "expected '}'"),
        (["version", "-o", "template={pyton}"], "unknown name 'pyton'; known names: rmqpy, native, python"),
        (["version", "-o", "template={}"], "unknown name '0'"),
        (["version", "-o", "template={rmqpy:d}"], "cannot be filled in"),
        (["--timeout", "0", "topic", "list"], "0.0 is not in the range x>0"),
        (["produce", "orders", "x", "--from-jsonl"], "--from-jsonl reads lines"),
        (["produce", "orders", "x", "--whole"], "--whole needs - or --file"),
        (["produce", "orders", "x", "--queue", "a:b"], "'a:b' is not a queue like broker-a:3 or 3"),
        (
            ["consume", "orders", "-g", "g", "--follow", "--queue", "1"],
            "leave --queue, --group or --follow out",
        ),
        (["produce", "orders", "x", "--delay", "soon"], "'soon' is not a time span"),
        (["produce", "orders", "x", "--delay", "1s", "--delay-level", "1"], "one of --delay, --delay-level"),
        (["produce", "orders", "x", "--deliver-after", "1s", "--delay-level", "1"], "and --deliver-after"),
        (["standalone", "--memory", "--data-dir", "x"], "--data-dir or --memory"),
        (["standalone", "--http", "0", "--no-http"], "--http or --no-http"),
    ],
)
@pytest.mark.usefixtures("log")
def test_wrong_usage_exits_with_2_and_names_the_mistake(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(arguments) == 2
    captured = capsys.readouterr()
    assert told in captured.err
    assert captured.out == ""


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.ConfigError("x"), 2),
        (errors.NameServerUnreachable("x"), 3),
        (errors.ConnectError("x"), 3),
        (errors.RequestTimeout("x"), 3),
        (errors.TopicNotFound("x"), 4),
        (errors.GroupNotFound("x"), 4),
        (errors.MessageNotFound("x"), 4),
        (errors.AuthError("x"), 5),
        (errors.SendError("x"), 1),
        (errors.BrokerError("x"), 1),
        (OSError("x"), 1),
        (KeyError("x"), None),
    ],
)
def test_every_kind_of_error_has_its_exit_code(error: Exception, code: int | None) -> None:
    assert exit_code(error) == code


def test_a_send_that_reached_no_broker_has_the_code_of_unreachable() -> None:
    error = errors.SendError("not sent")
    error.__cause__ = errors.ConnectError("refused")
    assert exit_code(error) == 3


def test_error_is_one_line_with_its_hint() -> None:
    assert (
        error_line(errors.TopicNotFound("no topic\n named x"))
        == "no topic named x; create it: rmqpy topic create NAME"
    )


def test_an_unexpected_error_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise KeyError("ours")

    monkeypatch.setattr(cli.root, "main", fail)
    with pytest.raises(KeyError):
        cli.run([])


@pytest.mark.parametrize("interruption", [KeyboardInterrupt(), click.Abort()])
def test_an_interrupted_command_is_130(interruption: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise interruption

    monkeypatch.setattr(cli.root, "main", interrupt)
    assert cli.run([]) == 130


ROWS = [
    {"name": "orders", "queues": 8, "brokers": ["a", "b"]},
    {"name": "bills", "queues": None, "brokers": []},
]


def test_rows_become_an_aligned_table(capsys: pytest.CaptureFixture[str]) -> None:
    show(ROWS, "table")
    assert capsys.readouterr().out == "NAME    QUEUES  BROKERS\norders  8       a,b\nbills   -       -\n"


def test_a_record_becomes_two_columns(capsys: pytest.CaptureFixture[str]) -> None:
    show({"name": "orders", "queues": 8}, "table")
    assert capsys.readouterr().out == "name    orders\nqueues  8\n"


def test_empty_result_prints_a_note_or_an_empty_list(capsys: pytest.CaptureFixture[str]) -> None:
    show([], "table")
    assert capsys.readouterr() == ("", "nothing found\n")
    show([], "json")
    assert capsys.readouterr() == ("[]\n", "")


def test_json_is_the_same_whole_or_in_lines(capsys: pytest.CaptureFixture[str]) -> None:
    show(ROWS, "json")
    whole = json.loads(capsys.readouterr().out)
    show(ROWS, "jsonl")
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == whole == ROWS


def test_rows_that_differ_have_all_columns(capsys: pytest.CaptureFixture[str]) -> None:
    show([{"id": 1, "body": "x"}, {"id": 2, "body_base64": "/wA="}], "wide")
    show([{"id": 1, "body": "x"}, {"id": 2, "body_base64": "/wA="}], "csv")
    assert capsys.readouterr().out == (
        "ID  BODY  BODY_BASE64\n1   x     -\n2   -     /wA=\nid,body,body_base64\n1,x,\n2,,/wA=\n"
    )


def test_a_table_passes_no_control_characters_on_to_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    show([{"body": "grüße\n\x1b[2J", "properties": {"colour": "red", "size": "1"}}], "table")
    assert capsys.readouterr().out == "BODY            PROPERTIES\ngrüße\\n\\x1b[2J  colour=red,size=1\n"


def test_csv_has_a_line_of_headings_and_quotes_what_needs_it(capsys: pytest.CaptureFixture[str]) -> None:
    show(ROWS, "csv")
    assert capsys.readouterr().out == 'name,queues,brokers\norders,8,"a,b"\nbills,,\n'
    show({"name": "orders", "queues": 8}, "csv")
    assert capsys.readouterr().out == "name,queues\norders,8\n"
    show([], "csv", columns=("name", "queues"))
    assert capsys.readouterr().out == "name,queues\n"


def test_a_template_is_filled_in_for_each_record(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {"name": "orders", "queues": 8, "brokers": ["a", "b"], "properties": {"colour": "red"}},
        {"name": "bills", "queues": None, "note": "empty"},
    ]
    show(rows, r"template={name:>7}\t{queues:04}|{brokers}|{properties[colour]}|{note}")
    assert capsys.readouterr().out == " orders\t0008|a,b|red|\n  bills\t|||empty\n"
    show([{"id": 1, "body_base64": "/wA="}], "template={id}{body}{body_base64}")
    assert capsys.readouterr().out == "1/wA=\n"
    show({"name": "orders"}, "template={{{name}}}")
    assert capsys.readouterr().out == "{orders}\n"


def test_a_reader_that_leaves_ends_the_command_quietly() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "rmqpy", "--help"],
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
    )
    os.close(writer)
    assert done.stderr == ""


def test_importing_the_package_starts_nothing_and_stays_light() -> None:
    code = (
        "import sys, threading, rmqpy; "
        "print(threading.active_count(), sorted({'asyncio', 'click', 'json', 'pyarrow'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "1 []\n"


def test_a_command_imports_the_part_of_the_administration_it_needs_and_no_other() -> None:
    code = (
        "import sys; from rmqpy import cli; cli.run(['topic', 'list', '-n', '127.0.0.1:1']); "
        "rooms = ('rmqpy.admin.', 'rmqpy.client', 'rmqpy.broker'); "
        "print(sorted(name for name in sys.modules if name.startswith(rooms)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert (
        done.stdout.splitlines()[-1]
        == "['rmqpy.admin.client', 'rmqpy.admin.connection', 'rmqpy.admin.topics']"
    )


def test_asking_for_the_version_imports_no_client_and_no_server() -> None:
    code = (
        "import sys; from rmqpy import cli; cli.run(['--version']); "
        "print([name for name in sys.modules if name.startswith('rmqpy.') and not name.startswith('rmqpy.cli')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_json_has_escapes_for_what_a_terminal_takes_for_commands(capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "a\x9b2J\x7f\u202egnp.exe\u2066\u200f\u2028\ufeff\ud800\x1b[2J grüße 日本"
    for output in ("json", "jsonl"):
        show([{"name": hostile, hostile: 1}], output)
        out = capsys.readouterr().out
        assert out.replace("\n", "").isprintable()
        assert "grüße 日本" in out
        found = json.loads(out)
        [row] = found if isinstance(found, list) else [found]
        assert row == {"name": hostile, hostile: 1}


def test_an_error_that_a_server_worded_steers_no_terminal() -> None:
    assert error_line(errors.RocketMQError("gone\x1b[2J\x9b\u202e")) == "gone\\x1b[2J\\x9b\\u202e"
