"""`rmqpy produce` and `rmqpy consume` against a real broker."""

import io
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
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


def test_following_as_a_group_shares_the_topic_and_commits_what_was_printed(run: Any, server: Standalone) -> None:
    run("produce", "shared", "first")
    command = [sys.executable, "-m", "rmqpy", "consume", "shared", "-g", "sharers", "--follow", "-n", server.namesrv]
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
