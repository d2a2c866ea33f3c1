"""Logins: visitors that need one, the users' permissions, and visible bodies."""

import asyncio
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

import rmqpy
from apiclient import CHANGE, Answer, Ask, api_of
from rmqpy.config.client import ClientConfig
from rmqpy.console import sessions
from rmqpy.console.bodies import masked
from rmqpy.console.dashboard import Dashboard
from rmqpy.console.sessions import IDLE_S, LIFE_S, SESSIONS_MAX, Sessions
from rmqpy.errors import ClosedError
from rmqpy.server import Standalone
from rmqpy.testing import broker

ROOT = rmqpy.Credentials("root", "root-secret")
CARD = b'{"card": "4711-x", "name": "Ada"}'


@pytest.fixture(scope="module")
def guarded() -> Iterator[Standalone]:
    """A broker with access control; its console allows changes and shows the form of bodies to normal users."""
    first = json.dumps({"username": "root", "password": "root-secret"})
    with broker(
        httpPort=0,
        httpAllowChanges=True,
        httpBodies="masked",
        authenticationEnabled=True,
        authorizationEnabled=True,
        initAuthenticationUser=first,
    ) as server:
        with rmqpy.Admin(config_of(server)) as admin:
            admin.create_topic("orders", read_queues=1, write_queues=1)
            admin.create_topic("salaries", read_queues=1, write_queues=1)
            admin.create_user("ann", "ann-secret")
            admin.set_rule("ann", "Topic:orders", ["Sub", "Get", "List"])
            # Under which tools read.
            admin.set_rule("ann", "Group:TOOLS_CONSUMER", ["Sub"])
            admin.set_rule("ann", "Cluster:*", ["Get", "List"])
        with rmqpy.Producer(config_of(server)) as producer:
            producer.send("orders", CARD, keys="A-1")
        yield server


def config_of(server: Standalone, credentials: rmqpy.Credentials = ROOT) -> ClientConfig:
    return ClientConfig(namesrv=server.namesrv, credentials=credentials)


def log_in(ask: Ask, user: str, secret: str, **headers: str) -> Answer:
    return ask("/session", method="POST", body={"user": user, "secret": secret}, headers=CHANGE | headers)


def cookie_of(answer: Answer) -> dict[str, str]:
    assert answer.status == 200, answer.text
    return {"Cookie": answer.headers["set-cookie"].partition(";")[0]}


def test_visitor_without_a_login_sees_nothing(guarded: Standalone) -> None:
    ask = api_of(guarded.http)
    for path in ("/overview", "/topics", "/messages?topic=orders", "/overview/events"):
        assert ask(path).status == 401
        assert ask(path, headers={"Cookie": "rmqpy_session=guessed"}).status == 401
    about = ask("/console/about.json", api=False).json
    assert (about["needs_login"], about["user"], about["namesrv"]) == (True, None, [])
    refused = ask("/topics", method="POST", body={"topic": "x"}, headers=CHANGE)
    assert (refused.status, refused.json["error"]) == (401, "log in first")


def test_session_is_bound_to_its_browser_and_ends_with_the_logout(guarded: Standalone) -> None:
    ask = api_of(guarded.http)
    entered = log_in(ask, "root", "root-secret")
    assert entered.json == {"user": "root", "is_super": True}
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(entered.headers["set-cookie"].split("; "))
    secure = log_in(ask, "root", "root-secret", Origin=f"http://{guarded.http}")
    assert "Secure" not in secure.headers["set-cookie"]
    mine = cookie_of(entered)
    assert ask("/topics", headers=mine).status == 200
    assert ask("/console/about.json", api=False, headers=mine).json["user"] == "root"
    # Requests that another site may send.
    assert ask("/session", method="POST", body={"user": "root", "secret": "root-secret"}).status == 403
    assert log_in(ask, "root", "root-secret", Origin="http://evil.example").status == 403
    assert ask("/session", method="DELETE", body={}, headers=mine | CHANGE).status == 200
    assert ask("/topics", headers=mine).status == 401


def test_wrong_secrets_and_unknown_users_are_refused_alike_and_audited(
    guarded: Standalone, caplog: pytest.LogCaptureFixture
) -> None:
    ask = api_of(guarded.http)
    with caplog.at_level(logging.INFO, "rmqpy.console.audit"):
        for user, secret in (("root", "guessed"), ("nobody", "guessed")):
            answer = log_in(ask, user, secret)
            assert answer.status == 403
            assert "is unknown, or the signature was not made with its secret key" in answer.json["error"]
            assert "set-cookie" not in answer.headers
    lines = [each.getMessage() for each in caplog.records if each.name == "rmqpy.console.audit"]
    assert [line.partition(" at ")[0] for line in lines] == ['log in by "root"', 'log in by "nobody"']
    assert all("refused" in line for line in lines)
    assert "guessed" not in caplog.text


@pytest.mark.parametrize(
    "body", [[], {}, {"user": "a"}, {"user": 1, "secret": "b"}, {"user": "", "secret": ""}]
)
def test_login_without_a_user_is_refused_with_the_reason(guarded: Standalone, body: Any) -> None:
    answer = api_of(guarded.http)("/session", method="POST", body=body, headers=CHANGE)
    assert answer.status == 400
    assert answer.json["error"]


def test_brokers_decide_what_each_user_sees_and_changes(
    guarded: Standalone, caplog: pytest.LogCaptureFixture
) -> None:
    ask = api_of(guarded.http)
    ann = cookie_of(log_in(ask, "ann", "ann-secret"))
    root = cookie_of(log_in(ask, "root", "root-secret"))
    assert ask("/messages?topic=orders", headers=ann).status == 200
    for path in ("/messages?topic=salaries", "/topics/salaries/newest"):
        refused = ask(path, headers=ann)
        assert refused.status == 403
        assert "User:ann has no permission" in refused.json["error"]
        # Asked by another at the same time, and not remembered for both.
        assert ask(path, headers=root).status == 200
    with caplog.at_level(logging.INFO, "rmqpy.console.audit"):
        for who, status in ((ann, 403), (root, 200)):
            made = ask("/topics", method="POST", body={"topic": "made"}, headers=who | CHANGE)
            assert made.status == status
    lines = [each.getMessage() for each in caplog.records if each.name == "rmqpy.console.audit"]
    assert ' by "ann" at 127.0.0.1:' in lines[0]
    assert ' by "root" at 127.0.0.1:' in lines[1]


def test_body_visibility_is_configured_for_normal_users_only(guarded: Standalone) -> None:
    ask = api_of(guarded.http)
    ann = cookie_of(log_in(ask, "ann", "ann-secret"))
    root = cookie_of(log_in(ask, "root", "root-secret"))
    for who, seen in ((root, CARD.decode()), (ann, '{"card": "0000-x", "name": "xxx"}')):
        [row] = ask("/messages?topic=orders", headers=who).json["messages"]
        assert row["preview"] == seen
        one = ask(f"/messages/{row['offset_message_id']}?topic=orders", headers=who).json
        assert one["text"] == seen
        assert [each["preview"] for each in ask("/topics/orders/newest", headers=who).json] == [seen]
    # The results of a search would reveal the contents of bodies.
    asked = ask("/messages?topic=orders&text=Ada", headers=ann)
    assert asked.status == 403
    assert "bodies" in asked.json["error"]


def test_hidden_bodies_are_in_no_response() -> None:
    with broker(httpPort=0, httpBodies="hidden") as server:
        with rmqpy.Producer(server.namesrv) as producer:
            sent = producer.send("orders", CARD)
        ask = api_of(server.http)
        for path in (
            "/messages?topic=orders",
            "/topics/orders/newest",
            f"/messages/{sent.offset_message_id}",
        ):
            answer = ask(path)
            assert answer.status == 200
            assert "Ada" not in answer.text
            assert "card" not in answer.text


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("Grüße 42!", "xxxxx 00!"),
        ('[1, {"a b": ["x1", null]}]', '[0, {"a b": ["x0", null]}]'),
        ("{broken", "{xxxxxx"),
        ("[" * 100_000, "[" * 100_000),
    ],
    ids=range(4),
)
def test_a_masked_text_keeps_its_form(text: str, form: str) -> None:
    assert masked(text) == form


def test_remote_console_requires_a_login(guarded: Standalone) -> None:
    async def visit() -> None:
        config = ClientConfig(namesrv=guarded.namesrv, credentials=ROOT)
        async with Dashboard(config, host="0.0.0.0", port=0) as dashboard:
            ask = api_of(dashboard.address.replace("0.0.0.0", "127.0.0.1"))
            # It never signs a visitor's requests with its own credentials.
            assert (await asyncio.to_thread(ask, "/topics")).status == 401
            entered = await asyncio.to_thread(log_in, ask, "ann", "ann-secret")
            assert (await asyncio.to_thread(ask, "/topics", headers=cookie_of(entered))).status == 200

    asyncio.run(visit())


def test_login_is_refused_without_access_control_at_brokers() -> None:
    with broker(httpPort=0, bindAddress="0.0.0.0", brokerIP1="127.0.0.1", httpAllowChanges=True) as server:
        assert server.http is not None
        ask = api_of(f"127.0.0.1:{server.http.rpartition(':')[2]}")
        for path in ("/overview", "/topics"):
            assert ask(path).status == 401
        answer = log_in(ask, "root", "root-secret")
        assert answer.status == 403
        assert "has no authentication" in answer.json["error"]
        assert "authenticationEnabled" in answer.json["hint"]
        assert ask("/livez", api=False).status == 200


async def test_sessions_expire_and_are_bounded(guarded: Standalone, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(sessions, "SESSIONS_MAX", 2)
    assert SESSIONS_MAX == 64
    kept = Sessions(ClientConfig(namesrv=guarded.namesrv), now=lambda: now)
    first, _ = await kept.log_in("root", "root-secret")
    second, _ = await kept.log_in("ann", "ann-secret")
    now += 1
    assert await kept.find(first) is not None
    third, _ = await kept.log_in("ann", "ann-secret")
    # Of three, the least recently used one has ended.
    assert [await kept.find(each) is not None for each in (first, second, third)] == [True, False, True]
    now += IDLE_S + 1
    assert await kept.find(first) is None
    token, visitor = await kept.log_in("root", "root-secret")
    for _ in range(int(LIFE_S / IDLE_S) + 1):
        now += IDLE_S - 1
        found = await kept.find(token)
    assert found is None
    with pytest.raises(ClosedError):
        await visitor.admin.topics()
    await kept.close()


def test_disabled_user_loses_its_session(guarded: Standalone) -> None:
    ask = api_of(guarded.http)
    with rmqpy.Admin(config_of(guarded)) as admin:
        admin.create_user("bob", "bob-secret", is_super=True)
        bob = cookie_of(log_in(ask, "bob", "bob-secret"))
        assert ask("/groups/none", headers=bob).status == 404
        admin.update_user("bob", is_enabled=False)
        answer = ask("/groups/none", headers=bob)
        assert answer.status == 403
        assert "User:bob is disabled" in answer.json["error"]
