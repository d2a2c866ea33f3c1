"""`rmqpy produce` and `rmqpy consume` against a real broker."""

import io
import json
import re
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import rmqpy
from commandline import Run, runner
from rmqpy.server import Standalone
from rmqpy.testing import broker


@pytest.fixture(scope="module")
def server() -> Iterator[Standalone]:
    with broker() as server:
        yield server


@pytest.fixture
def run(server: Standalone, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """`run("produce", ...)`: exit code, stdout, stderr."""
    return runner(server.namesrv, monkeypatch, capfd)


def test_a_message_goes_in_with_all_its_parts_and_comes_out(run: Any) -> None:
    code, out, _ = run(
        "produce",
        "whole",
        "grüße",
        "--tag",
        "paid",
        "--key",
        "A-1",
        "--key",
        "B-2",
        "--prop",
        "colour=red",
        "-o",
        "json",
    )
    sent = json.loads(out)
    assert (code, sent["status"], sent["topic"]) == (0, "SEND_OK", "whole")
    code, out, _ = run("consume", "whole", "-o", "jsonl")
    got = json.loads(out)
    assert code == 0
    assert (got["body"], got["tag"], got["keys"]) == ("grüße", "paid", ["A-1", "B-2"])
    assert got["properties"]["colour"] == "red"
    assert (got["message_id"], got["broker"], got["queue"], got["offset"]) == (
        sent["message_id"],
        sent["broker"],
        sent["queue"],
        sent["offset"],
    )
    code, out, _ = run("consume", "whole", "-o", "template={tag}: {body} ({properties[colour]}{body_base64})")
    assert (code, out) == (0, "paid: grüße (red)\n")


def test_every_line_of_a_file_becomes_a_message(run: Any, tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_bytes("".join(f"line {index}\r\n\n" for index in range(3_000)).encode())
    code, out, _ = run("produce", "lines", "--file", str(file), "-o", "json")
    assert (code, json.loads(out)["sent"]) == (0, 3_000)
    code, out, _ = run("consume", "lines")
    assert code == 0
    assert sorted(out.splitlines()) == sorted(f"line {index}" for index in range(3_000))


def test_standard_input_is_read_line_by_line(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"one\ntwo")))
    assert run("produce", "stdin", "-")[0] == 0
    assert sorted(run("consume", "stdin")[1].split()) == ["one", "two"]


def test_what_was_exported_is_sent_again_whole(run: Any, server: Standalone, tmp_path: Path) -> None:
    with rmqpy.Producer(server.namesrv) as producer:
        producer.send("origin", b"\xff\x00", tag="paid", keys=["A-1", "B-2"], properties={"colour": "red"})
        producer.send("origin", "grüße", sharding_key="7")
    file = tmp_path / "lines"
    assert run("message", "export", "origin", "--file", str(file))[0] == 0
    code, out, _ = run(
        "produce", "copy", "--file", str(file), "--from-jsonl", "--tag", "copied", "-o", "json"
    )
    assert (code, json.loads(out)["sent"]) == (0, 2)
    got = {
        line.get("body"): line
        for line in map(json.loads, run("consume", "copy", "-o", "jsonl")[1].splitlines())
    }
    assert (got[None]["body_base64"], got[None]["tag"], got[None]["keys"]) == ("/wA=", "paid", ["A-1", "B-2"])
    assert got[None]["properties"]["colour"] == "red"
    assert (got["grüße"]["tag"], got["grüße"]["properties"]["__SHARDINGKEY"]) == ("copied", "7")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("x", "no JSON object"),
        ("[]", "no JSON object"),
        ('{"tag": "x"}', "it needs a body"),
        ('{"body": 1}', "it needs a body"),
        ('{"body_base64": "?"}', "line 2"),
        ('{"body": "x", "tag": 1}', "tag must be text"),
        ('{"body": "x", "keys": "A"}', "keys must be a list"),
        ('{"body": "x", "properties": {"a": 1}}', "properties must be an object"),
        ('{"body": ""}', "empty"),
    ],
)
def test_a_line_that_is_no_message_is_named_and_those_before_it_are_sent(
    run: Any, tmp_path: Path, line: str, told: str
) -> None:
    topic = f"named-{zlib.crc32(line.encode())}"
    (tmp_path / "lines").write_text('{"body": "first"}\n' + line + "\n")
    code, out, err = run("produce", topic, "--file", str(tmp_path / "lines"), "--from-jsonl")
    assert (code, out) == (2, "")
    assert "line 2: " in err
    assert told in err
    assert run("consume", topic)[1] == "first\n"


def test_a_delay_is_told_in_time_where_a_level_stands_for_it(run: Any) -> None:
    assert run("produce", "delayed", "later", "--delay", "1s")[0] == 0
    code, out, _ = run("consume", "delayed", "--follow", "--count", "1", "-o", "jsonl")
    got = json.loads(out)
    assert (code, got["body"]) == (0, "later")
    assert datetime.fromisoformat(got["stored_at"]) - datetime.fromisoformat(got["born_at"]) >= timedelta(
        seconds=1
    )
    code, out, err = run("produce", "delayed", "never", "--delay", "7s")
    assert (code, out) == (2, "")
    assert "no delay level is 7 s; there are 1s 5s 10s" in err


def test_reading_without_a_group_needs_none_at_the_broker(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with broker(autoCreateSubscriptionGroup=False) as closed:
        run = runner(closed.namesrv, monkeypatch, capfd)
        run("produce", "orders", "first")
        assert run("consume", "orders")[:2] == (0, "first\n")
        code, out, err = run("consume", "orders", "--group", "billing")
        assert (code, out) == (4, "")
        assert "rmqpy group create" in err
        bench = ("bench", "consume", "orders", "--duration", "0.1", "--warm-up", "0", "-o", "json")
        assert json.loads(run(*bench)[1])["messages"] > 0


def test_a_server_in_memory_leaves_nothing_behind() -> None:
    command = [
        sys.executable,
        "-m",
        "rmqpy",
        "standalone",
        "--memory",
        "--namesrv-port",
        "0",
        "--broker-port",
        "0",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        ready = process.stdout.readline()
        found = re.search(r"name server (\S+), .* data in (\S+), gone when it stops", ready)
        assert found, ready
        folder = Path(found[2])
        assert (folder / "store" / "commitlog").is_dir()
        with rmqpy.Producer(found[1]) as producer:
            assert producer.send("orders", b"x").ok
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    assert not folder.exists()


def test_bytes_that_are_no_text_survive(run: Any, server: Standalone) -> None:
    with rmqpy.Producer(server.namesrv) as producer:
        producer.send("binary", b"\xff\x00")
    code, out, _ = run("consume", "binary", "-o", "jsonl")
    got = json.loads(out)
    assert (code, got["body_base64"]) == (0, "/wA=")
    assert "body" not in got


def test_a_group_goes_on_where_it_stopped(run: Any) -> None:
    run("produce", "progress", "x", "--count", "10")
    assert len(run("consume", "progress", "--group", "g", "--count", "4")[1].split()) == 4
    assert len(run("consume", "progress", "--group", "g")[1].split()) == 6
    assert run("consume", "progress", "--group", "g")[:2] == (0, "")
    assert len(run("consume", "progress")[1].split()) == 10


def test_reading_can_begin_elsewhere(run: Any) -> None:
    run("produce", "places", "x", "--count", "8")
    assert run("consume", "places", "--from", "end")[:2] == (0, "")
    assert len(run("consume", "places", "--from", "1h")[1].split()) == 8
    assert run("consume", "places", "--from", "2100-01-01")[:2] == (0, "")


def test_a_filter_lets_only_its_tags_through(run: Any) -> None:
    for tag in ("paid", "refunded", "new"):
        run("produce", "tagged", tag, "--tag", tag)
    assert sorted(run("consume", "tagged", "--filter", "paid || refunded")[1].split()) == ["paid", "refunded"]


def test_an_empty_body_is_refused(run: Any) -> None:
    code, out, err = run("produce", "empty", "")
    assert (code, out) == (2, "")
    assert "empty" in err


def test_a_topic_that_does_not_exist_cannot_be_consumed(run: Any) -> None:
    code, out, err = run("consume", "nowhere")
    assert (code, out) == (4, "")
    assert "nowhere" in err


def test_following_prints_what_arrives_until_it_is_interrupted(run: Any, server: Standalone) -> None:
    run("produce", "followed", "first")
    command = [sys.executable, "-m", "rmqpy", "consume", "followed", "--follow", "-n", server.namesrv]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "first\n"
        run("produce", "followed", "second")
        assert process.stdout.readline() == "second\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err.strip()) == (130, "", "interrupted")


def test_following_as_a_group_shares_the_topic_and_commits_what_was_printed(
    run: Any, server: Standalone
) -> None:
    run("produce", "shared", "first")
    command = [
        sys.executable,
        "-m",
        "rmqpy",
        "consume",
        "shared",
        "-g",
        "sharers",
        "--follow",
        "-n",
        server.namesrv,
    ]
    with (
        rmqpy.PullConsumer("sharers", server.namesrv, start_from="earliest") as other,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process,
    ):
        assert process.stdout is not None
        assert process.stdout.readline() == "first\n"
        other.subscribe("shared")
        deadline = time.monotonic() + 30
        while len(other.assignment()) != 2:
            assert time.monotonic() < deadline
            assert other.poll(0.1) == []
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
