"""`rmqpy produce` and `rmqpy consume` against a real broker."""

import base64
import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
import zlib
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import rmqpy
from commandline import runner
from rmqpy.cli import consume
from rmqpy.cli.standalone import SMALL
from rmqpy.server import Standalone
from rmqpy.testing import broker
from tmpfs import tmpfs
from waiting import until


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


def test_exported_messages_are_sent_again_unchanged(run: Any, server: Standalone, tmp_path: Path) -> None:
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
        ("x", "not a JSON object"),
        ("[]", "not a JSON object"),
        ('{"tag": "x"}', "it needs body"),
        ('{"body": 1}', "it needs body"),
        ('{"body_base64": "?"}', "line 2"),
        ('{"body": "x", "tag": 1}', "tag must be a string"),
        ('{"body": "x", "keys": "A"}', "keys must be a list"),
        ('{"body": "x", "properties": {"a": 1}}', "properties must be an object"),
        ('{"body": ""}', "empty"),
        ('{"body": "x", "tags": "paid"}', "unknown key 'tags'; did you mean 'tag'?"),
        ('{"body": "x", "delay": 3}', "unknown key 'delay'"),
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


def test_delay_level_is_printed_as_a_time(run: Any) -> None:
    code, out, _ = run("produce", "delayed", "later", "--delay", "1s", "-o", "json")
    sent = json.loads(out)
    assert (code, sent["topic"], sent["offset"], sent["delayed"]) == (0, "delayed", None, True)
    code, out, _ = run("consume", "delayed", "--follow", "--count", "1", "-o", "jsonl")
    got = json.loads(out)
    assert (code, got["body"]) == (0, "later")
    assert datetime.fromisoformat(got["stored_at"]) - datetime.fromisoformat(got["born_at"]) >= timedelta(
        seconds=1
    )
    code, out, err = run("produce", "delayed", "never", "--delay", "7s")
    assert (code, out) == (2, "")
    assert "no delay level is 7 s; known delays: 1s 5s 10s" in err


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


def test_messages_are_popped_and_acknowledged(run: Any, server: Standalone) -> None:
    with rmqpy.Producer(server.namesrv) as producer:
        for number in range(20):
            producer.send("popped", b"%d" % number)
    pop = ("consume", "popped", "--group", "poppers", "--pop")
    code, out, _ = run(*pop, "--count", "15")
    first = out.split()
    assert (code, len(first)) == (0, 15)
    # Those that were received ahead are given back, and come again.
    code, out, _ = run(*pop, "--follow", "--count", "5")
    assert code == 0
    assert sorted(map(int, first + out.split())) == list(range(20))
    assert run(*pop)[:2] == (0, "")
    for wrong in (("consume", "popped", "--pop"), (*pop, "--queue", "0"), (*pop, "--from", "5")):
        assert run(*wrong)[0] == 2
    load = ("bench", "pop", "popped", "-g", "load", "-m", "4", "-d", "5", "--warm-up", "0", "--count", "20")
    measured = json.loads(run(*load, "-o", "json")[1])
    assert (measured["messages_total"], measured["refused"]) == (20, [])
    single = ("bench", "pop", "popped", "-g", "single", "-d", "5", "--warm-up", "0", "--count", "20")
    assert json.loads(run(*single, "--header", "binary", "-o", "json")[1])["messages_total"] == 20


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
        found = re.search(r"name server (\S+), .* data in (\S+), deleted when it stops", ready)
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


def test_sql_lets_only_what_matches_through(run: Any, server: Standalone) -> None:
    for price in (5, 11, 12):
        run("produce", "by-price", str(price), "--prop", f"price={price}", "--prop", "region=EU")
    run("produce", "by-price", "no price")
    assert sorted(run("consume", "by-price", "--sql", "price > 10 AND region = 'EU'")[1].split()) == [
        "11",
        "12",
    ]
    assert run("consume", "by-price", "--sql", "price IS NULL")[1] == "no price\n"
    # As a member of a group, which commits what it has seen: what does not match is passed by.
    grouped = ("consume", "by-price", "--group", "dear", "--from", "begin", "--sql", "price > 11")
    assert run(*grouped)[1].split() == ["12"]
    code, out, err = run("consume", "by-price", "--sql", "price >")
    assert (code, out) == (2, "")
    assert "'price >' is not a valid filter" in err
    code, _, err = run("consume", "by-price", "--sql", "price > 1", "--filter", "paid")
    assert code == 2
    assert "give --filter or --sql" in err


def test_sql_that_is_switched_off_says_what_to_set(run: Any) -> None:
    with broker(enablePropertyFilter="false") as server:
        with rmqpy.Producer(server.namesrv) as producer:
            producer.send("by-price", "x", properties={"price": "11"})
        code, out, err = run("consume", "by-price", "--sql", "price > 10", "-n", server.namesrv)
    assert (code, out) == (1, "")
    assert "set enablePropertyFilter=true in the broker's configuration" in err


def test_a_whole_file_is_one_message(run: Any, tmp_path: Path) -> None:
    body = b"first line\n\n\xff second line"
    (tmp_path / "file").write_bytes(body)
    code, out, _ = run("produce", "whole-file", "--file", str(tmp_path / "file"), "--whole", "-o", "json")
    assert (code, json.loads(out)["status"]) == (0, "SEND_OK")
    got = json.loads(run("consume", "whole-file", "-o", "jsonl")[1])
    assert base64.b64decode(got["body_base64"]) == body
    (tmp_path / "file").write_bytes(b"")
    code, _, err = run("produce", "whole-file", "--file", str(tmp_path / "file"), "--whole")
    assert code == 2
    assert "empty" in err


def test_a_line_that_no_message_holds_is_not_read_to_its_end(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmqpy.cli.produce.LINE_BYTES_MAX", 1 << 20)
    (tmp_path / "file").write_bytes(b"first\n" + b"x" * (2 << 20))
    code, _, err = run("produce", "long-line", "--file", str(tmp_path / "file"))
    assert code == 2
    assert "line 2 has more than 1 MiB; earlier lines were sent" in err
    code, _, err = run("produce", "long-line", "--file", str(tmp_path / "file"), "--whole")
    assert code == 2
    assert "the file has more than 1 MiB" in err
    assert run("consume", "long-line")[1] == "first\n"


def test_one_queue_is_written_and_read_alone(run: Any) -> None:
    for number in (0, 1):
        body = f"in {number}"
        code, out, _ = run("produce", "queued", body, "--queue", f"broker-a:{number}", "-o", "json")
        assert (code, json.loads(out)["queue"]) == (0, number)
    assert (
        json.loads(run("produce", "queued", "x", "--count", "5", "--queue", "2", "-o", "json")[1])["sent"]
        == 5
    )
    assert run("consume", "queued", "--queue", "1")[:2] == (0, "in 1\n")
    assert run("consume", "queued", "--queue", "broker-a:2", "--from", "3")[1] == "x\nx\n"
    for command in (("produce", "queued", "x"), ("consume", "queued")):
        code, out, err = run(*command, "--queue", "99")
        assert (code, out) == (2, "")
        assert "no such queue; known queues: broker-a:0, broker-a:1" in err


def test_messages_are_one_array_of_json(run: Any) -> None:
    run("produce", "array", "x", "--count", "3")
    code, out, _ = run("consume", "array", "-o", "json")
    assert (code, [each["body"] for each in json.loads(out)]) == (0, ["x"] * 3)
    assert run("consume", "array", "--from", "end", "-o", "json")[:2] == (0, "[]\n")
    assert len(json.loads(run("topic", "tail", "array", "-o", "json")[1])) == 3
    assert run("consume", "nowhere", "-o", "json")[:2] == (4, "")


def test_an_array_is_complete_when_it_is_interrupted_and_ends_quietly_without_a_reader(
    run: Any, server: Standalone
) -> None:
    run("produce", "open-array", "x", "--count", "3")
    command = [
        sys.executable,
        "-m",
        "rmqpy",
        "consume",
        "open-array",
        "-o",
        "json",
        "--follow",
        "-n",
        server.namesrv,
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        begun = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        out = process.stdout.read()
    assert process.returncode == 130
    assert json.loads(begun + out)[0]["topic"] == "open-array"
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "[\n"
        process.stdout.close()
        run("produce", "open-array", "x")
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_produce_prints_count_and_rate(run: Any) -> None:
    sent = json.loads(run("produce", "rated", "12345678", "--count", "500", "-o", "json")[1])
    assert (sent["sent"], sent["bytes"]) == (500, 4_000)
    assert sent["per_second"] == pytest.approx(sent["sent"] / sent["seconds"], rel=0.2)
    assert sent["mb_per_second"] == pytest.approx(sent["bytes"] / 1e6 / sent["seconds"], rel=0.2, abs=0.01)
    few = json.loads(run("produce", "rated", "x", "--count", "3", "--rate", "20", "-o", "json")[1])
    assert few["per_second"] <= 20


def test_interrupted_produce_reports_its_count(run: Any, server: Standalone) -> None:
    command = [sys.executable, "-m", "rmqpy", "produce", "broken-off", "x", "--count", "1000000"]
    command += ["--rate", "200", "-n", server.namesrv]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process,
        rmqpy.Admin(server.namesrv) as admin,
    ):
        until(lambda: "broken-off" in admin.topics() and sum(each.end for each in admin.topic("broken-off")))
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (130, "")
    told = re.search(r"sent before the end: ([\d,]+) messages, [\d.]+ MB, [\d.]+ MB/s\n", err)
    assert told, err
    assert int(told[1]) == len(run("consume", "broken-off")[1].split())


def test_produce_reports_its_count_after_a_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The file system of a store in memory is as large as a few of its files: it fills up while the messages come."""
    (tmp_path / "file").write_bytes(b"\n".join([os.urandom(512 << 10).hex().encode()] * 160))
    with (
        tmpfs(tmp_path / "disk", 128 << 20) as disk,
        Standalone(disk, namesrv_port=0, broker_port=0, **SMALL) as server,
    ):
        run = runner(server.namesrv, monkeypatch, capfd)
        code, out, err = run("produce", "full", "--file", str(tmp_path / "file"))
        stored = run("topic", "describe", "full", "-o", "json")[1]
    assert (code, out) == (1, "")
    told = re.search(r"sent before the end: ([\d,]+) messages, [\d.]+ MB, [\d.]+ MB/s, [\d,]+ failed\n", err)
    assert told, err
    assert 0 < int(told[1]) == sum(row["messages"] for row in json.loads(stored)) < 160


def test_a_begin_beyond_every_queue_is_refused(run: Any) -> None:
    run("produce", "short", "x", "--count", "3")
    code, out, err = run("consume", "short", "--from", "99")
    assert (code, out) == (2, "")
    assert "offset 99 is beyond every queue" in err


def test_sql_is_no_filter_by_tag(run: Any) -> None:
    run("produce", "priced", "x")
    for expression in ("price > 5", "price>5", "colour = 'red'", "a is not null", "paid and new"):
        code, out, err = run("consume", "priced", "--filter", expression)
        assert (code, out) == (2, "")
        assert "is SQL, not tags" in err
    for tags in ("a-b || c.d", "size=5", "Orange", "not", "in stock"):
        assert run("consume", "priced", "--filter", tags)[0] == 0


def test_an_empty_body_is_refused(run: Any) -> None:
    code, out, err = run("produce", "empty", "")
    assert (code, out) == (2, "")
    assert "empty" in err


def test_a_topic_that_does_not_exist_cannot_be_consumed(run: Any) -> None:
    code, out, err = run("consume", "nowhere")
    assert (code, out) == (4, "")
    assert "nowhere" in err


def test_a_topic_that_may_not_be_read_says_so(run: Any) -> None:
    assert run("topic", "create", "closed", "--perm", "W")[0] == 0
    for arguments in ([], ["--group", "readers", "--follow"]):
        code, out, err = run("consume", "closed", *arguments)
        assert (code, out) == (5, "")
        assert "topic 'closed' has no readable queue; rmqpy topic alter closed --perm RW" in err


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


def test_following_reads_queues_that_the_topic_grows_by(
    run: Any, server: Standalone, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = rmqpy.ClientConfig(namesrv=server.namesrv, route_refresh=0.1)
    monkeypatch.setattr(consume, "client_config", lambda namesrv, timeout: config)
    run("topic", "create", "grown", "--queues", "1")
    run("produce", "grown", "first")
    queue = rmqpy.MessageQueue("grown", "broker-a", 1)

    def grow() -> None:
        with (
            rmqpy.Admin(server.namesrv) as admin,
            rmqpy.PullConsumer("probe", config) as probe,
            rmqpy.Producer(config) as producer,
        ):
            admin.update_topic("grown", read_queues=2, write_queues=2)
            while queue not in probe.queues("grown"):
                pass
            producer.send("grown", "second", queue=queue)

    thread = threading.Thread(target=grow)
    thread.start()
    code, out, _ = run("consume", "grown", "--follow", "--count", "2")
    thread.join()
    assert (code, out) == (0, "first\nsecond\n")


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

        def has_its_share() -> bool:
            assert other.poll(0.1) == []
            return len(other.assignment()) == 2

        until(has_its_share)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
