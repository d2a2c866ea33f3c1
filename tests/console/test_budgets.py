"""Budgets of the console: limits of one visitor, which spare the others' shares, and small ones before a login."""

import logging
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from http.client import HTTPConnection, HTTPResponse

import pytest

import rmqpy
from apiclient import CHANGE, Answer, api_of
from console.test_login import config_of, cookie_of, log_in
from rmqpy.config.client import ClientConfig
from rmqpy.console import request_body, sessions
from rmqpy.console.dashboard import Dashboard
from rmqpy.console.sessions import RIGHTS_S, SESSIONS_MAX, SESSIONS_PER_USER, Sessions
from rmqpy.server import Standalone, Thread
from rmqpy.testing import broker

MIB = 1 << 20


@pytest.fixture(scope="module")
def guarded() -> Iterator[Standalone]:
    first = '{"username": "root", "password": "root-secret"}'
    with broker(
        httpPort=0,
        httpAllowChanges=True,
        authenticationEnabled=True,
        authorizationEnabled=True,
        initAuthenticationUser=first,
    ) as server:
        with rmqpy.Admin(config_of(server)) as admin:
            admin.create_topic("orders", read_queues=1, write_queues=1)
            for user in ("ann", "bob"):
                admin.create_user(user, f"{user}-secret")
                admin.set_rule(user, "Cluster:*", ["Get", "List"])
                admin.set_rule(user, "Topic:orders", ["Sub", "Get", "List"])
                admin.set_rule(user, "Group:TOOLS_CONSUMER", ["Sub"])
        yield server


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"user": "' + b"u" * (7 * MIB) + b'", "secret": "s"}', 400),
        (b'{"user": ' + b"[" * (7 * MIB), 400),
        (b'{"' + b"n" * 8_000 + b'": 1}', 400),
        (b'{"user": ["' + b"u" * 8_000 + b'"], "secret": "s"}', 400),
        (b'{"user": "a\\u001b' + b"u" * 230 + b'", "secret": "s"}', 403),
    ],
    ids=["user", "nested", "name", "type", "control"],
)
def test_login_reply_and_audit_line_are_short(
    guarded: Standalone, caplog: pytest.LogCaptureFixture, body: bytes, status: int
) -> None:
    with caplog.at_level(logging.INFO, "rmqpy.console.audit"):
        answer = api_of(guarded.http)("/session", method="POST", body=body, headers=CHANGE)
    assert answer.status == status
    assert len(answer.text) < 2_000
    [line] = [each.getMessage() for each in caplog.records if each.name == "rmqpy.console.audit"]
    assert len(line) < 2_000


@pytest.mark.parametrize(
    "body",
    [
        {"topic": "x" * 60_000},
        {"topic": ["x" * 60_000]},
        {"y" * 60_000: 1},
        {"topic": "a", "queues": "q" * 60_000},
        {"topic": "a", "type": "T" * 60_000},
    ],
    ids=range(5),
)
def test_change_reply_and_audit_line_are_short(
    changing: Standalone, caplog: pytest.LogCaptureFixture, body: object
) -> None:
    with caplog.at_level(logging.INFO, "rmqpy.console.audit"):
        answer = api_of(changing.http)("/topics", method="POST", body=body, headers=CHANGE)
    assert answer.status == 400
    assert len(answer.text) < 2_000
    assert all(len(each.getMessage()) < 3_000 for each in caplog.records)


def test_a_body_is_mostly_text(changing: Standalone) -> None:
    """Each byte takes one or two bytes of memory; lists of lists would take a hundred times the input."""
    ask = api_of(changing.http)
    path = "/topics/orders/messages"
    assert ask("/topics", method="POST", body={"topic": "orders"}, headers=CHANGE).status in (200, 409)
    large = ask(path, method="POST", body={"body": 'a "quoted", text ' * 200_000}, headers=CHANGE)
    assert large.status == 200, large.text
    for hostile in (b"[]", b'"",', b"{},"):
        answer = ask(path, method="POST", body=b'{"body": [' + hostile * (2 * MIB), headers=CHANGE)
        assert (answer.status, "outside strings" in answer.json["error"]) == (400, True)


def test_large_bodies_are_read_one_at_a_time_with_a_deadline(
    changing: Standalone, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_body, "LONG_S", 0.5)
    assert changing.http is not None
    ask = api_of(changing.http)
    with ExitStack() as stack:
        for _ in range(2):
            slow = HTTPConnection(changing.http, timeout=30)
            stack.callback(slow.close)
            slow.putrequest("POST", "/api/v1/topics/orders/messages")
            for name, each in (CHANGE | {"Content-Length": str(4 * MIB)}).items():
                slow.putheader(name, each)
            slow.endheaders()
            slow.send(b'{"body": "' + b"x" * (512 << 10))
        answer = ask("/topics/orders/messages", method="POST", body={"body": "x" * MIB}, headers=CHANGE)
        assert answer.status in (200, 404), answer.text


def test_failed_logins_do_not_block_a_valid_one(guarded: Standalone) -> None:
    ask = api_of(guarded.http)
    began = threading.Barrier(41)

    def wrong(number: int) -> Answer:
        began.wait(timeout=30)
        return log_in(ask, "root" if number % 2 else f"nobody-{number}", "guessed")

    with ThreadPoolExecutor(40) as pool:
        tried = [pool.submit(wrong, number) for number in range(40)]
        began.wait(timeout=30)
        start = time.monotonic()
        while (answer := log_in(ask, "root", "root-secret")).status == 429:
            # Failed logins that lock others out would do so for 28 s.
            assert time.monotonic() - start < 25
        assert answer.status == 200, answer.text
        assert {each.result().status for each in tried} <= {403, 429}


async def test_logins_end_only_sessions_of_the_same_user(guarded: Standalone) -> None:
    now = 0.0
    kept = Sessions(ClientConfig(namesrv=guarded.namesrv), now=lambda: now)
    try:
        root, _ = await kept.log_in("root", "root-secret")
        mine = []
        for _ in range(SESSIONS_PER_USER + 3):
            now += 1
            mine.append((await kept.log_in("ann", "ann-secret"))[0])
        assert await kept.find(root) is not None
        found = [await kept.find(each) is not None for each in mine]
        assert found == [False] * 3 + [True] * SESSIONS_PER_USER
        assert SESSIONS_PER_USER < SESSIONS_MAX // 2
    finally:
        await kept.close()


async def test_user_with_most_sessions_loses_one_at_the_limit(
    guarded: Standalone, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "SESSIONS_MAX", 4)
    now = 0.0
    kept = Sessions(ClientConfig(namesrv=guarded.namesrv), now=lambda: now)
    try:
        root, _ = await kept.log_in("root", "root-secret")
        anns = []
        for _ in range(3):
            now += 1
            anns.append((await kept.log_in("ann", "ann-secret"))[0])
        bob, _ = await kept.log_in("bob", "bob-secret")
        assert [await kept.find(each) is not None for each in (root, bob, *anns)] == [
            True,
            True,
            False,
            True,
            True,
        ]
    finally:
        await kept.close()


async def test_session_rights_are_refreshed(guarded: Standalone) -> None:
    now = 0.0
    kept = Sessions(ClientConfig(namesrv=guarded.namesrv), now=lambda: now)
    try:
        with rmqpy.Admin(config_of(guarded)) as admin:
            admin.create_user("eve", "eve-secret", is_super=True)
            token, visitor = await kept.log_in("eve", "eve-secret")
            assert visitor.is_super
            admin.update_user("eve", is_super=False)
            now += RIGHTS_S + 1
            found = await kept.find(token)
            assert found is not None
            assert not found.is_super
            admin.delete_user("eve")
            now += RIGHTS_S + 1
            assert await kept.find(token) is None
    finally:
        await kept.close()


def stream(address: str | None, headers: dict[str, str]) -> HTTPResponse:
    """The answer to a request for events, which stays open as long as it is held."""
    assert address is not None
    connection = HTTPConnection(address, timeout=30)
    connection.request("GET", "/api/v1/overview/events", headers=headers)
    return connection.getresponse()


def test_event_streams_of_one_user_spare_others_shares(guarded: Standalone) -> None:
    ask = api_of(guarded.http)
    ann, root = cookie_of(log_in(ask, "ann", "ann-secret")), cookie_of(log_in(ask, "root", "root-secret"))
    with ExitStack() as stack:
        mine = [stack.enter_context(stream(guarded.http, ann)) for _ in range(17)]
        assert [each.status for each in mine] == [200] * 16 + [503]
        assert "16 of your streams are open" in mine[-1].read().decode()
        assert stack.enter_context(stream(guarded.http, root)).status == 200


def test_consoles_on_one_host_have_separate_sessions(guarded: Standalone) -> None:
    thread = Thread(other := Dashboard(config_of(guarded), port=0, login=True))
    thread.start()
    try:
        here, there = api_of(guarded.http), api_of(other.address)
        mine = cookie_of(log_in(here, "root", "root-secret"))
        # Browsers keep one cookie of a name for a host, whatever the port.
        jar = dict([each.split("=", 1) for each in mine.values()])
        theirs = cookie_of(log_in(there, "ann", "ann-secret", Cookie=mine["Cookie"]))
        jar.update([each.split("=", 1) for each in theirs.values()])
        both = {"Cookie": "; ".join(f"{name}={value}" for name, value in jar.items())}
        assert here("/console/about.json", api=False, headers=both).json["user"] == "root"
        assert there("/console/about.json", api=False, headers=both).json["user"] == "ann"
    finally:
        thread.stop()


def test_stream_ends_when_its_users_rights_change(
    guarded: Standalone, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "RIGHTS_S", 0.0)
    ask = api_of(guarded.http)
    with rmqpy.Admin(config_of(guarded)) as admin:
        admin.create_user("tim", "tim-secret", is_super=True)
        admin.set_rule("tim", "Cluster:*", ["Get", "List"])
        tim = cookie_of(log_in(ask, "tim", "tim-secret"))
        with stream(guarded.http, tim) as answer:
            assert answer.readline() == b": open\n"
            admin.update_user("tim", is_super=False)
            text = answer.read().decode()
    assert "event: failed" in text
    assert "rights" in text
