"""The same attacks on servers with access control, unauthenticated and by a user without permissions: no effect.

Method: the servers' state is compared before and after; requests answered with 0 must be open to all authenticated
users, and at the name server to everyone.
"""

import json
import logging
import re
import socket
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

import rmqpy
from apiclient import CHANGE, Answer, Ask, api_of
from broker.signing import signature
from hostile.cases import BYTES, REQUESTS
from hostile.cases.case import GROUP, HONEST_TOPIC, QUIET_TOPIC, RESET_GROUP, TOPIC, Case
from rmqpy import cli
from rmqpy.config.namesrv import ROUTE_CODES
from rmqpy.errors import AuthError
from rmqpy.protocol.codes import RequestCode
from rmqpy.protocol.declare import Request
from rmqpy.server import Standalone
from rmqpy.testing import SMALL
from wire import Frame

ON = {
    "authenticationEnabled": True,
    "authorizationEnabled": True,
    "initAuthenticationUser": json.dumps({"username": "root", "password": "root-secret"}),
    "innerClientAuthenticationCredentials": json.dumps({"accessKey": "inner", "secretKey": "inner-secret"}),
    "httpToken": "http-secret",
    "tls.server.keyPassword": "key-secret",
    "tls.client.keyPassword": "key-secret",
}
#: Configured secrets, secrets sent by clients, and guessed ones.
SECRET = re.compile(r"(root|inner|alice|http|key|next|guessed)-secret")
TIMEOUT_S = 20.0
NO_PERMISSION = 16
#: Requests open to every authenticated user: they change nothing unless the request names more.
FREE = {
    kind.code
    for kind in Request.__subclasses__()
    if "code" in vars(kind)
    and kind.__module__.startswith("rmqpy.")
    and all(need.is_optional for need in kind.needs)
}

#: Batches of acknowledgements in which no entry names a message: they are answered as empty ones.
EMPTY = {"batch ack: of numbers", "batch ack: of a strange mark"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    folder = tmp_path_factory.mktemp("guarded")
    with Standalone(folder, namesrv_port=0, broker_port=0, http_port=0, **SMALL, **ON) as server:
        with rmqpy.Admin(root(server)) as admin:
            for topic in (TOPIC, QUIET_TOPIC, HONEST_TOPIC):
                admin.create_topic(topic)
            for group in (GROUP, RESET_GROUP):
                admin.create_group(group)
            admin.create_user("alice", "alice-secret")
        with rmqpy.Producer(root(server)) as producer:
            sent = producer.send(TOPIC, b"first")
        with rmqpy.PullConsumer(GROUP, root(server), auto_commit=False) as consumer:
            consumer.assign([sent.queue])
            consumer.seek(sent.queue, "begin")
            assert consumer.poll(timeout=10)
            consumer.commit()
        yield server


def root(server: Standalone) -> rmqpy.ClientConfig:
    return rmqpy.ClientConfig(namesrv=server.namesrv, credentials=rmqpy.Credentials("root", "root-secret"))


def kept(server: Standalone) -> dict[str, object]:
    """Return the servers' state that an effective attack would change."""
    with rmqpy.Admin(root(server)) as admin:
        found: dict[str, object] = {
            "topics": sorted(admin.topics()),
            "groups": sorted(admin.groups()),
            "users": admin.users(),
            "rules": admin.rules(),
            "broker": admin.broker_config("broker-a"),
            "name server": admin.namesrv_config(),
            "queues": [(queue.begin, queue.end) for queue in admin.topic(TOPIC)],
            "quiet queues": [(queue.begin, queue.end) for queue in admin.topic(QUIET_TOPIC)],
        }
    for group in (GROUP, RESET_GROUP):
        with rmqpy.PullConsumer(group, root(server), auto_commit=False) as consumer:
            found[f"offsets of {group}"] = [consumer.committed(queue) for queue in consumer.queues(TOPIC)]
    assert any(found[f"offsets of {GROUP}"]), "there is something to lose"
    for name in ("topics.json", "subscriptionGroup.json", "users.json"):
        found[name] = (server.data_dir / "store" / "config" / name).read_bytes()
    kv = server.data_dir / "namesrv" / "kvConfig.json"
    found["kv"] = kv.read_bytes() if kv.exists() else b""
    return found


def answers(address: str, content: bytes) -> list[Frame]:
    """Send everything, and return the replies."""
    host, _, port = address.rpartition(":")
    received = b""
    with socket.create_connection((host, int(port)), TIMEOUT_S) as peer, suppress(OSError):
        # A server hangs up in the middle of an invalid input.
        with suppress(OSError):
            peer.sendall(content)
            peer.shutdown(socket.SHUT_WR)
        while part := peer.recv(1 << 16):
            received += part
    found = []
    while len(received) >= 4 and len(received) >= (size := 4 + int.from_bytes(received[:4], "big")):
        found.append(Frame.unpack(received[4:size]))
        received = received[size:]
    return found


def code_of(case: Case) -> int | None:
    """The code of a request that can be read."""
    with suppress(Exception):
        return Frame.unpack(case.content[4:]).code
    return None


def by_alice(case: Case) -> bytes | None:
    """The same, signed; None where that cannot be done."""
    with suppress(Exception):
        frame = Frame.unpack(case.content[4:])
        ext = {**(frame.ext or {}), "AccessKey": "alice"}
        ext["Signature"] = signature("alice-secret", ext, frame.body)
        return replace(frame, ext=ext).pack()
    return None


@pytest.mark.timeout(300)
@pytest.mark.parametrize("user", ["nobody", "alice"])
def test_no_attack_has_an_effect(server: Standalone, user: str) -> None:
    before, counts, served = kept(server), Counter[str](), []
    for case in (*BYTES, *REQUESTS):
        content = case.content if user == "nobody" else by_alice(case)
        if content is None:
            continue
        code = code_of(case)
        at_name_server = case.target == "namesrv"
        for answer in answers(server.namesrv if at_name_server else server.broker, content):
            counts[f"answered {answer.code}"] += 1
            is_open = at_name_server and code in ROUTE_CODES
            is_free = user == "alice" and (code in FREE or case.name in EMPTY)
            if answer.code == 0 and not is_open and not is_free:
                served.append((case.name, code and RequestCode(code).name))
    print(f"\n{user}: {dict(sorted(counts.items()))}")
    assert not served
    assert counts[f"answered {NO_PERMISSION}"] > 500
    after = kept(server)
    assert {name: after[name] for name in before if after[name] != before[name]} == {}


def guesses(server: Standalone) -> Iterator[str]:
    """Return the replies to a client that does not know a user's secret, or tries to change it."""
    guessing = rmqpy.ClientConfig(
        namesrv=server.namesrv, credentials=rmqpy.Credentials("root", "guessed-secret")
    )
    for work in (rmqpy.Admin.users, rmqpy.Admin.namesrv_config, lambda admin: admin.create_topic("x")):
        with rmqpy.Admin(guessing) as admin, pytest.raises(AuthError) as refused:
            work(admin)
        yield repr(refused.value) + str(refused.value)
    with rmqpy.Admin(root(server)) as admin:
        admin.update_user("alice", secret="next-secret")
        yield repr(admin.users()) + repr(admin.rules())
        admin.update_user("alice", secret="alice-secret")


def pages(server: Standalone) -> Iterator[tuple[str, str]]:
    """Return HTTP's responses to a super user: the pages, and each reading path of the console's API."""
    assert server.http is not None
    for path in ("/metrics", "/healthz", "/readyz"):
        asked = urllib.request.Request(
            f"http://{server.http}{path}", headers={"Authorization": "Bearer http-secret"}
        )
        with urllib.request.urlopen(asked, timeout=TIMEOUT_S) as page:
            yield path, page.read().decode()
    ask = api_of(server.http)
    yield "a wrong login", log_in(ask, "guessed-secret").text
    entered = log_in(ask, "root-secret")
    cookie = {"Cookie": entered.headers["set-cookie"].partition(";")[0]}
    yield "the login", entered.text
    named = {"topic": TOPIC, "group": GROUP, "broker": "broker-a", "name": "alice", "user": "alice"}
    paths = ask("/openapi.json", headers=cookie).json["paths"]
    for path, operations in sorted(paths.items()):
        if "get" not in operations:
            continue
        if "text/event-stream" not in operations["get"]["responses"]["200"]["content"]:
            filled = re.sub(r"\{(\w+)\}", lambda found: named.get(found[1], "1"), path)
            needed = [each["name"] for each in operations["get"]["parameters"] if each["in"] == "query"]
            query = "&".join(f"{name}={named[name]}" for name in needed if name in named)
            answer = ask(f"{filled}?{query}", headers=cookie)
            yield f"{answer.status} {path}", answer.text


def log_in(ask: Ask, secret: str) -> Answer:
    return ask("/session", method="POST", body={"user": "root", "secret": secret}, headers=CHANGE)


def printed(server: Standalone, capsys: pytest.CaptureFixture[str]) -> Iterator[tuple[str, str]]:
    """Return the output of commands about settings and users."""
    own = ("-n", server.namesrv, "--access-key", "root", "--secret-key", "root-secret")
    for command in (
        ("config", "get", "broker-a"),
        ("config", "get", "namesrv"),
        ("acl", "user", "list"),
        ("acl", "rule", "list"),
        ("broker", "list"),
        ("doctor",),
        ("config", "get", "broker-a", "httpToken", "initAuthenticationUser"),
    ):
        for form in ("table", "json"):
            cli.run([*command, *own, "-o", form])
            written = capsys.readouterr()
            yield " ".join(command), written.out + written.err


def test_no_secret_is_in_logs_answers_settings_pages_or_files(
    server: Standalone, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    seen = [("a refusal", text) for text in guesses(server)]
    for case in REQUESTS[:50]:
        told = answers(server.broker, by_alice(case) or b"")
        seen.append((case.name, repr(told)))
    seen += pages(server)
    seen += printed(server, capsys)
    seen.append(("the log", caplog.text))
    assert len([what for what, _ in seen if what.startswith("200 ")]) > 10, "most of the API was read"
    assert {what for what, text in seen if SECRET.search(text)} == set()
    for path in server.data_dir.rglob("*"):
        if path.is_file() and path.stat().st_size < 1 << 20 and not path.name.startswith("users.json"):
            assert not SECRET.search(path.read_bytes().decode("latin-1")), path


def test_no_secret_is_in_the_log_of_a_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with Standalone(tmp_path, namesrv_port=0, broker_port=0, **SMALL, **ON):
        pass
    assert "authenticationEnabled" in caplog.text, "settings are logged"
    assert not SECRET.search(caplog.text)
