"""The JSON API of the console: its data, and filters, sorting and pages of lists."""

import asyncio
import base64
import json
import logging
import socket
import threading
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import rmqpy
from apiclient import CHANGE, Ask, api_of
from rmqpy.backup.run import back_up
from rmqpy.config.client import ClientConfig
from rmqpy.console.answers import STREAMS_PER_USER
from rmqpy.console.api import ENDPOINTS
from rmqpy.errors import RocketMQError
from rmqpy.server import Standalone
from rmqpy.testing import broker
from waiting import until


def changed(server: Standalone, path: str, body: Any, method: str = "POST") -> Any:
    answer = api_of(server.http)(path, method=method, body=body, headers=CHANGE)
    assert answer.status == 200, answer.text
    return answer.json


def test_overview_counts_brokers_topics_and_groups(reading: Standalone) -> None:
    ask = api_of(reading.http)
    with rmqpy.Admin(reading.namesrv) as admin, rmqpy.Producer(reading.namesrv) as producer:
        admin.create_topic("seen", read_queues=1, write_queues=1)
        admin.create_group("watchers")
        for _ in range(5):
            producer.send("seen", b"x")
    with rmqpy.PullConsumer("watchers", reading.namesrv, start_from="earliest") as consumer:
        [queue] = consumer.queues("seen")
        consumer.commit({queue: 2})
    found = ask("/overview").json
    assert found["lag"] >= 3
    assert {"group": "watchers", "lag": 3}.items() <= found["worst_groups"][0].items()
    [broker] = found["brokers"]
    assert (broker["broker"], broker["is_master"], broker["fault"]) == ("broker-a", True, None)
    group = ask("/groups/watchers").json
    [row] = [each for each in group["progress"] if each["topic"] == "seen"]
    assert (row["offset"], row["end"], row["lag"]) == (2, 5, 3)
    assert row["behind_ms"] >= 0
    [listed] = ask("/groups?filter=watchers").json["rows"]
    assert (listed["lag"], listed["behind_ms"] is not None) == (3, True)
    assert {each["check"] for each in ask("/health").json}


def test_a_list_is_filtered_sorted_and_paged_by_the_server(reading: Standalone) -> None:
    ask = api_of(reading.http)
    with rmqpy.Admin(reading.namesrv) as admin:
        for number in range(7):
            admin.create_topic(f"paged-{number}", read_queues=number + 1, write_queues=1)
    page = ask("/topics?filter=PAGED&sort=-read_queues&size=3&page=2").json
    assert [row["name"] for row in page["rows"]] == ["paged-3", "paged-2", "paged-1"]
    assert (page["total"], page["page"], page["size"]) == (7, 2, 3)
    assert "TBW102" not in [row["name"] for row in ask("/topics?size=500").json["rows"]]
    assert "TBW102" in [row["name"] for row in ask("/topics?size=500&system=true").json["rows"]]
    wrong = ask("/topics?sort=colour")
    assert wrong.status == 400
    assert "read_queues" in wrong.json["error"]


def test_search_reports_its_range_and_its_limits(reading: Standalone) -> None:
    ask = api_of(reading.http)
    with rmqpy.Admin(reading.namesrv) as admin, rmqpy.Producer(reading.namesrv) as producer:
        admin.create_topic("searched", read_queues=1, write_queues=1)
        for number in range(600):
            producer.send(
                "searched",
                f"order {number}".encode(),
                keys=f"K-{number}",
                tag="even" if number % 2 == 0 else "odd",
            )
    whole = ask("/messages?topic=searched&text=ORDER+7&found_max=500").json
    assert whole["scanned"] == 600
    assert whole["unscanned"] == []
    assert [row["preview"] for row in whole["messages"]] == [
        *(f"order {number}" for number in range(79, 69, -1)),
        "order 7",
    ] or len(whole["messages"]) == 11
    part = ask("/messages?topic=searched&text=order+5&scan_max=10").json
    assert (part["scanned"], len(part["messages"])) == (10, 10)
    assert [(each["begin"], each["end"]) for each in part["unscanned"]] == [(0, 590)]
    few = ask("/messages?topic=searched&found_max=3").json
    assert [row["preview"] for row in few["messages"]] == ["order 599", "order 598", "order 597"]
    assert [(each["begin"], each["end"]) for each in few["unscanned"]] == [(0, 597)]
    assert few["scanned"] == 3
    odd = ask("/messages?topic=searched&tag=odd&found_max=2").json
    assert [row["tag"] for row in odd["messages"]] == ["odd", "odd"]
    future = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert ask(f"/messages?topic=searched&begin={future}").json["scanned"] == 0
    assert ask("/messages?topic=searched&scan_max=0").status == 400


def test_a_message_is_found_by_key_and_by_either_id_and_shown_whole(reading: Standalone) -> None:
    ask = api_of(reading.http)
    with rmqpy.Producer(reading.namesrv) as producer:
        sent = producer.send("kept", b"\xff\x00binary", keys="A-1", properties={"colour": "grün"})
    [row] = ask("/messages/by-key?topic=kept&key=A-1").json
    assert row["message_id"] == sent.message_id
    assert row["preview"].startswith("ff 00")
    for path in (f"/messages/{sent.message_id}?topic=kept", f"/messages/{sent.offset_message_id}"):
        found = ask(path).json
        assert base64.b64decode(found["base64"]) == b"\xff\x00binary"
        assert (found["text"], found["is_cut"]) == (None, False)
        assert found["properties"]["colour"] == "grün"
    missing = ask("/messages/nonsense")
    assert missing.status == 400
    assert "--topic" in missing.json["hint"]


def test_missing_topic_is_answered_with_a_hint(reading: Standalone) -> None:
    answer = api_of(reading.http)("/topics/nowhere")
    assert answer.status == 404
    assert answer.json["kind"] == "TopicNotFound"
    assert "rmqpy topic create nowhere" in answer.json["hint"]
    for path in ("/nowhere", "/"):
        unknown = api_of(reading.http)(path)
        assert (unknown.status, unknown.headers["content-type"]) == (404, "application/json")


def test_clients_and_brokers_are_listed(reading: Standalone) -> None:
    ask = api_of(reading.http)
    with (
        rmqpy.Producer(reading.namesrv) as producer,
        rmqpy.PullConsumer("listed", reading.namesrv) as consumer,
    ):
        producer.send("listed", b"x")
        consumer.subscribe("listed")
        consumer.poll(0)
        [row] = ask("/clients?filter=listed&group=listed").json["rows"]
        assert (row["role"], row["group"], row["brokers"]) == ("consumer", "listed", ["broker-a"])
        [member] = ask("/groups/listed").json["members"]
        assert "rmqpy" in ask(f"/groups/listed/stack?client_id={quote(member['client_id'])}").json["text"]
    [broker] = ask("/brokers").json["rows"]
    detail = ask(f"/brokers/{broker['broker']}").json
    assert detail["settings"]["brokerName"] == "broker-a"
    assert "putTps" in detail["runtime"]


def test_settings_that_need_a_restart_are_those_that_a_running_broker_refuses(reading: Standalone) -> None:
    detail = api_of(reading.http)("/brokers/broker-a").json
    refused = set()
    with rmqpy.Admin(reading.namesrv) as admin:
        for name, value in detail["settings"].items():
            try:
                admin.update_broker_config("broker-a", {name: value})
            except RocketMQError:
                refused.add(name)
    assert {"listenPort", "brokerRole"} <= refused
    assert "fileReservedTime" not in refused
    assert set(detail["fixed"]) == refused


def test_backups_and_positions_of_groups_without_members_are_listed(
    reading: Standalone, tmp_path: Path
) -> None:
    ask = api_of(reading.http)
    with rmqpy.Admin(reading.namesrv) as admin, rmqpy.Producer(reading.namesrv) as producer:
        admin.create_topic("lake", read_queues=1, write_queues=1)
        admin.create_group("lake-archive")
        producer.send("lake", b"x")
        [queue] = [rmqpy.MessageQueue("lake", "broker-a", 0)]
        with rmqpy.Catalog(reading.namesrv) as catalog:
            catalog.commit("lake-archive", {queue: 0})
        [row] = until(lambda: ask("/positions?filter=lake-archive").json["rows"])
        assert (row["group"], row["lag"], row["topics"], row["brokers"]) == (
            "lake-archive",
            1,
            1,
            ["broker-a"],
        )
        with rmqpy.PullConsumer("lake-archive", reading.namesrv) as consumer:
            consumer.subscribe("lake")
            consumer.poll(0)
            until(lambda: ask("/positions?filter=lake-archive").json["rows"], wanted=lambda rows: rows == [])
    assert ask("/backups").json["rows"] == []
    asyncio.run(back_up(ClientConfig(namesrv=reading.namesrv), None, tmp_path / "backup"))
    [row] = until(lambda: ask("/backups").json["rows"])
    assert row["folder"].endswith(f":{tmp_path}/backup")
    assert (row["broker"], row["is_complete"], row["behind_bytes"]) == ("broker-a", True, 0)


def test_timed_messages_are_counted_by_when_they_are_due(reading: Standalone) -> None:
    with rmqpy.Producer(reading.namesrv) as producer:
        for seconds in (3_600, 3_600, 36_000):
            producer.send("reminders", b"later", deliver_after=seconds)
    # The broker takes them up a moment after they were stored.
    until(lambda: any(row["waiting"] == 3 for row in timed(reading)))
    [row] = timed(reading)
    assert row["topic"] == "reminders"
    assert sum(row["due_within"].values()) == 3
    assert len([count for count in row["due_within"].values() if count]) == 2


def timed(server: Standalone) -> list[Any]:
    found: list[Any] = api_of(server.http)("/timers?filter=reminders").json["rows"]
    return found


def test_offsets_are_previewed_and_then_reset(changing: Standalone) -> None:
    ask = api_of(changing.http)
    with rmqpy.Admin(changing.namesrv) as admin, rmqpy.Producer(changing.namesrv) as producer:
        admin.create_topic("orders", read_queues=1, write_queues=1)
        admin.create_group("billing")
        for _ in range(4):
            producer.send("orders", b"x")
        with rmqpy.PullConsumer("billing", changing.namesrv, start_from="earliest") as consumer:
            [queue] = consumer.queues("orders")
            consumer.commit({queue: 4})
        preview = ask("/groups/billing/offsets/preview?topic=orders&to=begin").json
        assert [(each["offset"], each["target"]) for each in preview] == [(4, 0)]
        assert [row.offset for row in admin.progress("billing", "orders")] == [4]
        moved = changed(changing, "/groups/billing/offsets", {"topic": "orders", "offset": 1, "queue_id": 0})
        assert [(each["offset"], each["target"]) for each in moved] == [(4, 1)]
        assert [row.offset for row in admin.progress("billing", "orders")] == [1]
    two = api_of(changing.http)(
        "/groups/billing/offsets",
        method="POST",
        body={"topic": "orders", "to": "end", "offset": 1},
        headers=CHANGE,
    )
    assert (two.status, two.json["error"]) == (400, "give one position")


def test_topic_is_created_sent_to_and_deleted(changing: Standalone, caplog: pytest.LogCaptureFixture) -> None:
    ask = api_of(changing.http)
    with caplog.at_level(logging.INFO, "rmqpy.console.audit"):
        assert changed(changing, "/topics", {"topic": "fresh", "queues": 2, "type": "FIFO"}) == ["broker-a"]
        sent = changed(
            changing,
            "/topics/fresh/messages",
            {"body": "grüße", "tag": "t", "keys": ["k"], "properties": {"a": "b"}},
        )
        [row] = ask("/topics/fresh/newest").json
        assert (row["message_id"], row["preview"], row["tag"]) == (sent["message_id"], "grüße", "t")
        again = ask("/topics", method="POST", body={"topic": "fresh"}, headers=CHANGE)
        assert (again.status, again.json["kind"]) == (409, "TopicExists")
        assert changed(changing, "/topics/fresh", {}, "DELETE") == ["broker-a"]
        gone = ask("/topics/fresh/messages", method="POST", body={"body": "x"}, headers=CHANGE)
        assert gone.status == 404
    lines = [record.getMessage() for record in caplog.records]
    assert [line.split(" ")[1] for line in lines] == [
        *("create_topic", "send_message", "create_topic", "delete_topic", "send_message")
    ]
    assert all('"topic":"fresh"' in line and " by 127.0.0.1:" in line for line in lines)
    assert lines[0].endswith(": done")
    assert "refused: topic 'fresh' already exists" in lines[2]
    assert "grüße" not in "".join(lines)


def give_up(message: rmqpy.ReceivedMessage) -> None:
    raise ValueError(f"customer {int(message.text()[-1]) % 2}")


def test_dead_letters_are_listed_by_cause_and_sent_again_edited(changing: Standalone) -> None:
    ask = api_of(changing.http)
    with rmqpy.Admin(changing.namesrv) as admin, rmqpy.Producer(changing.namesrv) as producer:
        admin.create_topic("boxes", read_queues=1, write_queues=1)
        assert ask("/dead-letters/nobody").status == 404
        consumer = rmqpy.PushConsumer("shipping", changing.namesrv, start_from="earliest", max_attempts=1)
        consumer.on("boxes", handler=give_up)
        with consumer:
            for number in range(3):
                producer.send("boxes", f"letter {number}".encode())
                # One after the other: letters of one moment are stored in any order.
                until(
                    lambda count=number + 1: (
                        count in [each["messages"] for each in ask("/dead-letters").json["rows"]]
                    )
                )
        counts = ask("/dead-letters").json["rows"]
        assert [(each["group"], each["messages"]) for each in counts] == [("shipping", 3)]
        found = ask("/dead-letters/shipping?filter=customer+0&sort=offset").json["rows"]
        assert [(each["preview"], each["topic"], each["resent_at"]) for each in found] == [
            ("letter 0", "boxes", None),
            ("letter 2", "boxes", None),
        ]
        chosen = [{name: each[name] for name in ("broker", "queue_id", "offset")} for each in found]
        chosen[0]["body"] = "mended"
        chosen.append({"broker": "broker-a", "queue_id": 0, "offset": 99})
        results = changed(changing, "/dead-letters/shipping/resend", {"letters": chosen, "rate": 1_000})
        assert [each["sent_as"] is not None for each in results] == [True, True, False]
        assert "no dead letter at offset 99" in results[2]["fault"]
        bodies = [each.body for each in admin.messages_between("%RETRY%shipping")]
        assert sorted(bodies) == [b"letter 2", b"mended"]
        # The index has the new ones a moment after they were stored.
        until(lambda: [each["preview"] for each in resent(ask)] == ["letter 0", "letter 2"])


def test_a_text_is_replaced_in_all_bodies_and_one_without_it_is_not_sent(changing: Standalone) -> None:
    with rmqpy.Admin(changing.namesrv) as admin, rmqpy.Producer(changing.namesrv) as producer:
        admin.create_group("packing")
        admin.create_topic("%DLQ%packing", read_queues=1, write_queues=1)
        for number in range(3):
            producer.send("%DLQ%packing", f'{{"box": {number}}}'.encode())
        letters = [{"broker": "broker-a", "queue_id": 0, "offset": each} for each in range(3)]
        edit = {"letters": letters, "find": '"box": 1', "replace": '"box": 10', "rate": 1_000}
        results = changed(changing, "/dead-letters/packing/resend", edit)
        assert [each["sent_as"] is not None for each in results] == [False, True, False]
        assert "the body does not contain" in results[0]["fault"]
        assert [each.body for each in admin.messages_between("%RETRY%packing")] == [b'{"box": 10}']


def test_popped_messages_are_listed_and_made_visible(changing: Standalone) -> None:
    ask = api_of(changing.http)
    with (
        rmqpy.Admin(changing.namesrv) as admin,
        rmqpy.Producer(changing.namesrv) as producer,
        rmqpy.SimpleConsumer("packers", changing.namesrv, start_from="earliest") as consumer,
    ):
        admin.create_topic("crates")
        sent = [producer.send("crates", b"%d" % number).message_id for number in range(3)]
        consumer.subscribe("crates")
        held: list[rmqpy.ReceivedMessage] = []
        while len(held) < 3:
            held += consumer.receive(invisible=600, wait=5)
        consumer.ack(held[0])
        consumer.extend(held[1], 900)
        path = "/groups/packers/in-flight"
        expected = [(held[2].message_id, "crates", 1), (held[1].message_id, "crates", 1)]
        # The records of a change are readable a moment after its reply.
        until(
            lambda: [
                (row["message_id"], row["topic"], row["delivery_attempt"])
                for row in ask(path).json["messages"]
            ],
            wanted=expected.__eq__,
        )
        rows = ask(path).json["messages"]
        assert {each.message_id for each in held} == set(sent)
        assert len({row["client"] for row in rows}) == 1
        assert rows[0]["client"].startswith("127.0.0.1:")
        seen = datetime.fromisoformat(rows[0]["visible_at"]) - datetime.fromisoformat(rows[0]["popped_at"])
        assert seen == timedelta(seconds=600)
        changed(changing, f"{path}/visible", {name: rows[0][name] for name in ("topic", "handle")})
        [again] = consumer.receive(invisible=600, wait=5)
        assert (again.message_id, again.delivery_attempt) == (held[2].message_id, 2)
        until(lambda: [row["delivery_attempt"] for row in ask(path).json["messages"]] == [2, 1])
        wrong = ask(f"{path}/visible", method="POST", body={"topic": "crates", "handle": "x"}, headers=CHANGE)
        assert wrong.status == 400
        assert ask("/groups/packers-of-old/in-flight").json["messages"] == []


def test_half_messages_are_listed_until_they_are_decided_and_asked_about_again(changing: Standalone) -> None:
    ask = api_of(changing.http)
    with (
        rmqpy.Admin(changing.namesrv) as admin,
        rmqpy.Producer(changing.namesrv, group="shop") as producer,
    ):
        admin.create_topic("payments", read_queues=1, write_queues=1)
        with producer.transaction("payments", b"decided"):
            pass
        with producer.transaction("payments", b"who knows") as transaction:
            transaction.leave_unknown()
        [half] = until(lambda: ask("/half-messages").json["halves"], wanted=lambda found: len(found) == 1)
        assert (half["preview"], half["topic"], half["producer_group"]) == ("who knows", "payments", "shop")
        changed(changing, f"/half-messages/{half['offset_message_id']}/check", {})
        gone = ask("/half-messages/0102/check", method="POST", body={}, headers=CHANGE)
        assert gone.status in (400, 404)


def test_users_and_rules_are_created_changed_and_removed(
    changing: Standalone, caplog: pytest.LogCaptureFixture
) -> None:
    ask = api_of(changing.http)
    with caplog.at_level(logging.INFO, "rmqpy.console.audit"):
        changed(changing, "/users", {"user": "ann", "secret": "ann-secret"})
        changed(
            changing,
            "/rules",
            {"user": "ann", "resource": "Topic:ord*", "actions": ["Pub"], "sources": ["10.0.0.0/8"]},
        )
    assert "ann-secret" not in caplog.text
    assert [(row["name"], row["is_super"]) for row in ask("/users").json["rows"]] == [("ann", False)]
    [rule] = ask("/rules").json["rows"]
    assert (rule["user"], rule["resource"], rule["actions"], rule["decision"]) == (
        "ann",
        "Topic:ord*",
        ["Pub"],
        "Allow",
    )
    may = "/access/check?user=ann&action=Pub&resource=Topic:orders"
    assert [each["is_allowed"] for each in ask(may + "&source=10.1.2.3").json] == [True]
    assert [each["is_allowed"] for each in ask(may).json] == [False]
    changed(changing, "/users/ann", {"is_enabled": False})
    assert ask(may + "&source=10.1.2.3").json[0]["rule"] == "disabled"
    changed(changing, "/rules", {"user": "ann", "resource": "Topic:ord*"}, "DELETE")
    assert ask("/rules").json["rows"] == []
    changed(changing, "/users/ann", {}, "DELETE")
    assert ask("/users").json["rows"] == []


def test_settings_of_a_running_broker_are_changed_and_unknown_ones_refused(changing: Standalone) -> None:
    ask = api_of(changing.http)
    changed(changing, "/brokers/broker-a/settings", {"settings": {"fileReservedTime": "48"}})
    try:
        assert ask("/brokers/broker-a").json["settings"]["fileReservedTime"] == "48"
        wrong = {"settings": {"fileReservedTimes": "12"}}
        refused = ask("/brokers/broker-a/settings", method="POST", body=wrong, headers=CHANGE)
        assert (refused.status, refused.json["hint"]) == (400, "did you mean fileReservedTime?")
    finally:
        changed(changing, "/brokers/broker-a/settings", {"settings": {"fileReservedTime": "72"}})


def test_a_master_without_slaves_is_listed_among_the_replicas(reading: Standalone) -> None:
    [row] = api_of(reading.http)("/replicas").json["rows"]
    assert (row["broker"], row["is_master"], row["slaves"], row["fault"]) == ("broker-a", True, 0, None)


def resent(ask: Ask) -> list[Any]:
    rows = ask("/dead-letters/shipping?sort=preview").json["rows"]
    return [each for each in rows if each["resent_at"] is not None]


def test_new_messages_are_streamed(reading: Standalone) -> None:
    assert reading.http is not None
    host, port = reading.http.split(":")
    with rmqpy.Admin(reading.namesrv) as admin, rmqpy.Producer(reading.namesrv) as producer:
        admin.create_topic("live", read_queues=1, write_queues=1)
        with socket.create_connection((host, int(port)), timeout=30) as peer:
            peer.sendall(f"GET /api/v1/topics/live/tail HTTP/1.1\r\nHost: {reading.http}\r\n\r\n".encode())
            lines = peer.makefile("rb")
            assert lines.readline().startswith(b"HTTP/1.1 200 ")
            while b": open" not in lines.readline():
                pass
            # The stream has begun then, and follows the topic a moment later.
            is_told = threading.Event()
            sent: set[str] = set()

            def send() -> None:
                while not is_told.wait(0.05):
                    sent.add(producer.send("live", f"news {len(sent)}".encode()).message_id)

            sender = threading.Thread(target=send)
            sender.start()
            try:
                line = b""
                while not line.startswith(b"data: "):
                    line = lines.readline()
                    assert line, "the stream has ended"
            finally:
                is_told.set()
                sender.join()
    assert json.loads(line[6:])["message_id"] in sent


def test_event_streams_are_bounded_and_do_not_delay_a_stop(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with ExitStack() as peers, broker(httpPort=0) as server:
        assert server.http is not None
        host, port = server.http.split(":")
        heads = []
        for _ in range(STREAMS_PER_USER + 1):
            peer = peers.enter_context(socket.create_connection((host, int(port)), timeout=30))
            peer.sendall(f"GET /api/v1/overview/events HTTP/1.1\r\nHost: {server.http}\r\n\r\n".encode())
            heads.append(peer.makefile("rb").readline().split()[1])
        assert heads == [b"200"] * STREAMS_PER_USER + [b"503"]
    told = [each for each in caplog.records if each.levelno >= logging.WARNING]
    # Another test's broker may wait for producers meanwhile.
    assert not [each for each in told if not each.name.startswith("rmqpy.control")]


def test_openapi_document_has_every_path_and_valid_references(reading: Standalone) -> None:
    found = api_of(reading.http)("/openapi.json").json
    assert found["openapi"] == "3.1.0"
    operations = {(path, method.upper()) for path, each in found["paths"].items() for method in each}
    assert operations == {(each.path, each.method) for each in ENDPOINTS}
    schemas = found["components"]["schemas"]

    def references(value: Any) -> set[str]:
        if isinstance(value, dict):
            own = {value["$ref"]} if "$ref" in value else set()
            return own.union(*(references(each) for each in value.values()))
        return set().union(*(references(each) for each in value)) if isinstance(value, list) else set()

    assert {each.rpartition("/")[2] for each in references(found)} <= schemas.keys()
    # What is described is what is answered.
    page = api_of(reading.http)("/groups").json
    for row in page["rows"]:
        assert row.keys() == schemas["GroupRow"]["properties"].keys()


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda each: each.work.__name__)
def test_every_endpoint_has_a_summary(endpoint: Any) -> None:
    assert endpoint.summary.endswith((".", "?"))
