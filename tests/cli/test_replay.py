"""Replays of stored messages into another topic."""

import json
import time

import rmqpy
from commandline import Run
from rmqpy.server import Standalone
from waiting import until


def read(server: Standalone, topic: str) -> list[rmqpy.ReceivedMessage]:
    with rmqpy.Admin(server.namesrv) as admin:
        return list(admin.messages_between(topic))


def test_replay_keeps_fields_and_the_order_of_each_queue(run: Run, server: Standalone) -> None:
    with rmqpy.Admin(server.namesrv) as admin, rmqpy.Producer(server.namesrv) as producer:
        for topic in ("source", "copy"):
            admin.create_topic(topic, read_queues=4, write_queues=4)
        queues = producer.queues("source")
        for number in range(200):
            message = rmqpy.Message(
                "source",
                f"body {number}",
                tag="paid",
                keys=[f"key-{number}"],
                properties={"colour": "red", "name": "Ann"},
                sharding_key="customer",
            )
            producer.send(message, queue=queues[number % 3])
    code, out, err = run(
        *("replay", "source", "--from", "1h", "--into-topic", "copy", "--speed", "0"),
        *("--mask", "name", "-o", "json"),
    )
    assert code == 0, err
    assert json.loads(out)["sent"] == 200
    originals, copies = read(server, "source"), read(server, "copy")
    assert [(each.text(), each.queue.queue_id) for each in copies] == [
        (each.text(), each.queue.queue_id) for each in originals
    ]
    for original, copy in zip(originals, copies, strict=True):
        assert (copy.tag, copy.keys, copy.sharding_key) == ("paid", original.keys, "customer")
        assert copy.properties["colour"] == "red"
        assert copy.properties["name"] == "***"
        assert copy.message_id != original.message_id


def test_replay_limits_the_time_and_follows_the_original_pace(run: Run, server: Standalone) -> None:
    with rmqpy.Admin(server.namesrv) as admin, rmqpy.Producer(server.namesrv) as producer:
        for topic in ("paced", "faster", "masked"):
            admin.create_topic(topic, read_queues=1, write_queues=1)
        producer.send("paced", b"early")
        began = time.time()
        until(lambda: time.time() >= began + 1.2)
        middle = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime())
        until(lambda: time.time() >= began + 2.4)
        producer.send("paced", b"late")
    code, out, _ = run(
        "replay", "paced", "--from", "1h", "--into-topic", "faster", "--speed", "2", "-o", "json"
    )
    assert code == 0
    assert 1.1 <= json.loads(out)["seconds"] < 2.4
    words = ("--into-topic", "masked", "--speed", "0", "--mask", "body", "--mask", "keys")
    assert run("replay", "paced", "--from", middle, *words)[0] == 0
    assert run("replay", "paced", "--from", "1h", "--until", middle, *words)[0] == 0
    assert [each.text() for each in read(server, "masked")] == ["xxxx", "xxxxx"]


def test_replay_into_a_topic_with_fewer_queues_keeps_the_order(run: Run, server: Standalone) -> None:
    with rmqpy.Admin(server.namesrv) as admin, rmqpy.Producer(server.namesrv) as producer:
        admin.create_topic("wide", read_queues=4, write_queues=4)
        admin.create_topic("narrow", read_queues=2, write_queues=2)
        for number in range(40):
            producer.send(rmqpy.Message("wide", str(number)), queue=producer.queues("wide")[number % 4])
    assert run("replay", "wide", "--from", "1h", "--into-topic", "narrow", "--speed", "0")[0] == 0
    found = [int(each.text()) for each in read(server, "narrow")]
    assert sorted(found) == list(range(40))
    for source in range(4):
        numbers = [number for number in found if number % 4 == source]
        assert numbers == sorted(numbers)


def test_source_is_written_to_on_request_only(run: Run, server: Standalone) -> None:
    with rmqpy.Producer(server.namesrv) as producer:
        producer.send("twice", b"once")
    code, _, err = run("replay", "twice", "--from", "1h")
    assert (code, "--into-topic" in err) == (2, True)
    code, _, err = run("replay", "twice", "--from", "1h", "--into-topic", "twice")
    assert (code, "the topic that is read" in err) == (2, True)
    assert len(read(server, "twice")) == 1
    assert run("replay", "twice", "--from", "1h", "--into-source", "--speed", "0")[0] == 0
    assert len(read(server, "twice")) == 2
    assert run("replay", "twice", "--from", "1h", "--into-namespace", "test", "--speed", "0")[0] == 0
    assert len(read(server, "test%twice")) == 2
    assert run("replay", "twice", "--from", "1h", "--into-topic", "x", "--mask", "TAGS")[0] == 2
    assert run("replay", "missing", "--from", "1h", "--into-topic", "x")[0] == 4
